package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
)

// RemoteError is an answer of a function, or of what stands before it, that is not what was asked for. It wraps the condition that it amounts to
// (ErrUnknownTopic, ErrInvalid, ErrTooLarge, ErrThrottled, ErrDenied, ErrUnreachable, …).
type RemoteError struct {
	Status  int    // of HTTP
	Code    string // snake_case; empty if the answer was not varve's
	Message string
	Err     error

	said wire.Error
}

func (e *RemoteError) Error() string {
	s := fmt.Sprintf("HTTP %d", e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	switch {
	case e.Code == wire.Unauthorized:
		return s + ": " + e.Message + "; the token is taken from the environment variable " + tokenVariable
	case e.Message != "":
		return s + ": " + e.Message
	}
	return s + ": " + http.StatusText(e.Status)
}

func (e *RemoteError) Unwrap() error { return e.Err }

var (
	errNotFound = errors.New("not found")
	errRedirect = errors.New("redirects are not followed; give the URL that they lead to")
	errGarbage  = errors.New("the answer makes no sense")
	errGigantic = errors.New("the answer is too long")
)

// codes are the conditions that codes amount to. Other codes go by their status.
var codes = map[string]error{
	wire.UnknownTopic:     ErrUnknownTopic,
	wire.UnknownPartition: ErrNoPartition,
	wire.UnknownGroup:     ErrUnknownGroup,
	wire.UnknownMember:    metadata.ErrUnknownMember,
	wire.Changed:          ErrChanged,
	wire.Fenced:           ErrFenced,
	wire.TopicGone:        ErrTopicGone,
	wire.ConditionFailed:  ErrRefused,
	wire.OffsetLower:      ErrBehind,
	wire.OffsetChanged:    ErrChanged,
	wire.OffsetExpired:    ErrExpired,
	wire.OffsetOutOfRange: ErrOutOfRange,
	wire.HistoryRewritten: ErrRewritten,
	wire.SequenceGap:      ErrSequenceGap,
	wire.ProducerEvicted:  ErrProducerEvicted,
	wire.TooManyProducers: errTooMany,
	wire.Corrupt:          ErrCorrupt,
	wire.NotSupported:     ErrNotSupported,
	wire.UnknownOutcome:   ErrUnknown,
	wire.Unauthorized:     ErrDenied,
}

// errMute is a condition that failed, without the body that says where the partition is: it is asked again.
var errMute = fmt.Errorf("%w: %w", ErrUnreachable, errGarbage)

// errTooMany: the lane has room for another producer when one of those it knows has been idle for long.
var errTooMany = fmt.Errorf("%w: %w", ErrTooManyProducers, ErrThrottled)

// statuses are the conditions that statuses amount to.
var statuses = map[int]error{
	http.StatusUnauthorized:          ErrDenied,
	http.StatusForbidden:             ErrDenied,
	http.StatusNotFound:              errNotFound,
	http.StatusRequestTimeout:        ErrUnreachable,
	http.StatusConflict:              ErrChanged,
	http.StatusGone:                  ErrTopicGone,
	http.StatusRequestEntityTooLarge: ErrTooLarge,
	http.StatusPreconditionFailed:    errMute,
	http.StatusTooManyRequests:       ErrThrottled,
}

// maxMessage bounds what of an answer is repeated in an error.
const maxMessage = 500

// remoteError reads the body of an answer that is not 2xx.
func remoteError(status int, body []byte) *RemoteError {
	e := &RemoteError{Status: status}
	var said struct {
		wire.Failure
		Message string `json:"Message"` // of what stands before the function
	}
	if json.Unmarshal(body, &said) == nil {
		e.Message = said.Message
		if said.Error != nil {
			e.Code, e.Message, e.said = said.Error.Code, said.Error.Message, *said.Error
		}
	}
	e.Message = strings.ToValidUTF8(e.Message[:min(len(e.Message), maxMessage)], "")
	if e.Err = condition(status, e.Code); e.Err == errRedirect && e.Code == "" {
		e.Message = errRedirect.Error()
	}
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

// conditionError is the refusal of a conditional append, if err is one; nil otherwise.
func conditionError(topic string, partition int, err error) *ConditionError {
	var e *RemoteError
	if !errors.As(err, &e) || e.Err != ErrRefused {
		return nil
	}
	return &ConditionError{Topic: topic, Partition: partition, End: number(e.said.End), Token: number(e.said.Token)}
}

// outside turns a refusal of an offset into the *RangeError that users see; nil if err is none.
func outside(topic string, partition int, offset int64, err error) *RangeError {
	var e *RemoteError
	if !errors.As(err, &e) {
		return nil
	}
	r := &RangeError{Topic: topic, Partition: partition, Offset: offset, Err: e.Err}
	switch e.Err {
	case ErrRewritten:
		r.CutFrom, r.CutTo = number(e.said.CutFrom), number(e.said.CutTo)
	case ErrExpired, ErrOutOfRange:
	default:
		return nil
	}
	r.Start, r.End = number(e.said.Start), number(e.said.End)
	return r
}

func number(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// remoteDataError is damage that was met at an offset. Where the function does not say how far it reaches, it is that offset.
func remoteDataError(topic string, partition int, offset int64, err error) error {
	d := &DataError{Topic: topic, Partition: partition, From: offset, To: offset + 1, Object: "over HTTP", Err: err}
	var e *RemoteError
	if errors.As(err, &e) && number(e.said.End) > offset {
		d.From, d.To = number(e.said.Offset), number(e.said.End)
	}
	return d
}

// remoteReadError is what a reader's user sees of what went wrong for a partition. What may pass is ErrUnreachable.
func remoteReadError(topic string, partition int, offset int64, err error) error {
	if r := outside(topic, partition, offset, err); r != nil {
		return r
	}
	switch {
	case errors.Is(err, ErrCorrupt):
		return remoteDataError(topic, partition, offset, err)
	case errors.Is(err, ErrTopicGone), errors.Is(err, metadata.ErrUnknownTopic): // it was there when the reader began
		err = ErrTopicGone
	default:
		err = unread(err)
	}
	return fmt.Errorf("topic %q partition %d: %w", topic, partition, err)
}
