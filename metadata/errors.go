package metadata

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/segment"
)

// Conditions.
var (
	ErrUnknownTopic = errors.New("unknown topic")
	ErrTopicExists  = errors.New("topic exists")
	ErrTopicGone    = errors.New("topic was deleted")
	ErrNoLane       = errors.New("no such lane") // by a strong read: its topic was deleted
	ErrNoChunk      = errors.New("no such chunk")
	ErrNoState      = errors.New("no such lane state")
	ErrNoRow        = errors.New("no such archive row")
	ErrNoSegment    = errors.New("no such segment in the table")
	ErrChanged      = errors.New("changed meanwhile") // a compare-and-set lost; read again and decide anew
	ErrCorrupt      = errors.New("corrupt item")
	ErrVersion      = errors.New("item of an unsupported version")
	ErrWrongLog     = errors.New("bucket and table belong to different logs")
	ErrInvalid      = errors.New("invalid")   // refused before or by the service, as asked it can never succeed
	ErrThrottled    = errors.New("throttled") // definitely not applied
	ErrContended    = errors.New("transaction conflict")
	ErrDenied       = errors.New("table refused the credentials or the right")
	ErrUnavailable  = errors.New("table did not answer") // a read, or a write that may be repeated
	ErrNoTable      = errors.New("no such table")

	// ErrNoCredentials is an ErrDenied of nobody's making: whoever gives out credentials gave none just now, and may later. Nothing was sent.
	ErrNoCredentials = fmt.Errorf("%w: no credentials to be had", ErrDenied)

	// ErrOutcomeUnknown: a write may have been applied, may still be applied later, or not at all. It must be
	// settled; it is never a failure and never repeated as it is.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// Error is what an adapter returns: which call on which item, the service's own code if it gave one, and one of the conditions above or
// the context's error.
type Error struct {
	Op   string // "Commit", "Head", …
	Key  string // "pk|sk"
	Code string
	Err  error
}

func (e *Error) Error() string {
	if e.Err == ErrUnknownTopic || e.Err == ErrUnknownGroup { // an answer, not a failure: where the table would keep it does not matter
		return e.Err.Error()
	}
	s := "table: " + e.Op
	if e.Key != "" {
		s += " " + e.Key
	}
	if e.Code != "" {
		s += " [" + e.Code + "]"
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// RefusedError is a commit whose condition failed: definitely not applied. Head is the image that refused it, nil when there is no head.
// WhyRefused tells the reason.
type RefusedError struct {
	Lane LaneID
	Head *Head
}

// Is makes a refusal without a head ErrNoLane.
func (e *RefusedError) Is(target error) bool { return target == ErrNoLane && e.Head == nil }

func (e *RefusedError) Error() string {
	if e.Head == nil {
		return fmt.Sprintf("commit refused: lane %s has no head", e.Lane)
	}
	return fmt.Sprintf("commit refused by lane %s at order %d", e.Lane, e.Head.Next)
}

// StaleError is a publication under an id that is not above the lane's floor, or, where Floor is zero, MaxArchiveAge old: a sweep may have taken its segment for an orphan.
type StaleError struct {
	ID, Floor segment.ID
}

func (e *StaleError) Error() string {
	if e.Floor.IsZero() {
		return fmt.Sprintf("publication %s not sent: it was begun over %v ago; its segment has to be written again under a new id", e.ID, MaxArchiveAge)
	}
	return fmt.Sprintf("publication %s refused: it is not above the floor, %s; its segment has to be written again under a new id", e.ID, e.Floor)
}

// Is makes it ErrChanged.
func (e *StaleError) Is(target error) bool { return target == ErrChanged }

// TooLate tells whether the error is a publication that was not sent because its process stood still since it had begun.
func TooLate(err error) bool {
	var stale *StaleError
	return errors.As(err, &stale) && stale.Floor.IsZero()
}

// FieldError is bad input: which field, what it was, what is valid. It is ErrInvalid.
type FieldError struct {
	Topic     string // where known
	Partition int    // where it matters, else 0
	Field     string
	Value     string
	Valid     string
}

func (e *FieldError) Error() string {
	s := ""
	if e.Topic != "" {
		s = fmt.Sprintf("topic %q: ", e.Topic)
	}
	return fmt.Sprintf("%s%s %q is not valid: want %s", s, e.Field, clip(e.Value), e.Valid)
}

// Is makes every FieldError an ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
