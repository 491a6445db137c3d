package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/varvelog/varve/metadata"
)

// RemoteError is an answer of a function, or of what stands before it, that is not what was asked for. It wraps the condition that it amounts to
// (ErrUnknownTopic, ErrInvalid, ErrTooLarge, ErrThrottled, ErrDenied, ErrUnreachable, …).
type RemoteError struct {
	Status  int    // of HTTP
	Code    string // snake_case; empty if the answer was not varve's
	Message string
	Err     error

	fields errorFields
}

func (e *RemoteError) Error() string {
	s := fmt.Sprintf("HTTP %d", e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Message != "" {
		return s + ": " + e.Message
	}
	return s + ": " + http.StatusText(e.Status)
}

func (e *RemoteError) Unwrap() error { return e.Err }

// errorFields are what an error's object says besides.
type errorFields struct {
	Partition *int     `json:"partition"`
	Offset    *int64   `json:"offset"`
	Start     int64    `json:"start"`
	End       int64    `json:"end"`
	CutFrom   int64    `json:"cut_from"`
	CutTo     int64    `json:"cut_to"`
	Members   []string `json:"members"`
}

var (
	errNotFound = errors.New("not found")
	errRedirect = errors.New("redirects are not followed; give the URL that they lead to")
	errGarbage  = errors.New("the answer makes no sense")
	errGigantic = errors.New("the answer is too long")
	errEvicted  = errors.New("the producer's sequence cannot be verified")
	errRewrite  = errors.New("history was rewritten")
)

// codes are the conditions that codes amount to. Other codes go by their status.
var codes = map[string]error{
	"unknown_topic":     ErrUnknownTopic,
	"unknown_group":     ErrUnknownGroup,
	"topic_gone":        ErrTopicGone,
	"no_partition":      ErrNoPartition,
	"unknown_partition": ErrNoPartition,
	"record_too_large":  ErrTooLarge,
	"too_large":         ErrTooLarge,
	"unauthorized":      ErrDenied,
	"throttled":         ErrThrottled,
	"unknown_outcome":   ErrUnknown,
	"sequence_gap":      errEvicted,
	"producer_evicted":  errEvicted,
	"offset_lower":      ErrBehind,
	"offset_changed":    ErrChanged,
	"history_rewritten": errRewrite,
	"corrupt":           ErrCorrupt,
	"not_supported":     ErrNotSupported,
}

// statuses are the conditions that statuses amount to.
var statuses = map[int]error{
	http.StatusUnauthorized:          ErrDenied,
	http.StatusForbidden:             ErrDenied,
	http.StatusNotFound:              errNotFound,
	http.StatusRequestTimeout:        ErrUnreachable,
	http.StatusConflict:              ErrChanged,
	http.StatusGone:                  ErrTopicGone,
	http.StatusRequestEntityTooLarge: ErrTooLarge,
	http.StatusTooManyRequests:       ErrThrottled,
}

// maxMessage bounds what of an answer is repeated in an error.
const maxMessage = 500

// remoteError reads the body of an answer that is not 2xx.
func remoteError(status int, body []byte) *RemoteError {
	e := &RemoteError{Status: status}
	var said struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			errorFields
		} `json:"error"`
		Message string `json:"Message"` // of what stands before the function
	}
	if json.Unmarshal(body, &said) == nil {
		e.Code, e.Message, e.fields = said.Error.Code, said.Error.Message, said.Error.errorFields
		if e.Message == "" {
			e.Message = said.Message
		}
	}
	e.Message = strings.ToValidUTF8(e.Message[:min(len(e.Message), maxMessage)], "")
	e.Err = condition(status, e.Code)
	return e
}

func condition(status int, code string) error {
	if c := codes[code]; c != nil {
		return c
	}
	if c := statuses[status]; c != nil {
		return c
	}
	switch {
	case status >= 500:
		return ErrUnreachable
	case status >= 400:
		return ErrInvalid
	case status >= 300:
		return errRedirect
	}
	return errGarbage
}

// outside turns a refusal of an offset into the *RangeError that users see; nil if err is none.
func outside(topic string, partition int, offset int64, err error) *RangeError {
	var e *RemoteError
	if !errors.As(err, &e) {
		return nil
	}
	r := &RangeError{Topic: topic, Partition: partition, Offset: offset, Start: e.fields.Start, End: e.fields.End}
	switch {
	case e.Err == errRewrite || e.Status == http.StatusRequestedRangeNotSatisfiable && e.fields.CutTo > 0:
		r.Err, r.CutFrom, r.CutTo = ErrRewritten, e.fields.CutFrom, e.fields.CutTo
	case e.Status != http.StatusRequestedRangeNotSatisfiable:
		return nil
	case offset < r.Start:
		r.Err = ErrExpired
	default:
		r.Err = ErrOutOfRange
	}
	return r
}

// remoteReadError is what a reader's user sees of what went wrong for a partition. What may pass is ErrUnreachable.
func remoteReadError(topic string, partition int, offset int64, err error) error {
	if r := outside(topic, partition, offset, err); r != nil {
		return r
	}
	switch {
	case errors.Is(err, ErrTopicGone), errors.Is(err, metadata.ErrUnknownTopic): // it was there when the reader began
		err = ErrTopicGone
	default:
		err = unread(err)
	}
	return fmt.Errorf("topic %q partition %d: %w", topic, partition, err)
}
