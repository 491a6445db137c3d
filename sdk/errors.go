package sdk

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
	"github.com/varvelog/varve/metadata/topics"
)

// Conditions. Errors of this package wrap one of these, so errors.Is tells what happened; the structs below carry the detail.
var (
	ErrUnknownTopic = metadata.ErrUnknownTopic
	ErrTopicExists  = metadata.ErrTopicExists
	ErrTopicGone    = metadata.ErrTopicGone // the topic of this handle was deleted, and perhaps created anew
	ErrInvalid      = metadata.ErrInvalid   // bad input, refused before anything was written; usually a *FieldError
	ErrWrongLog     = metadata.ErrWrongLog
	ErrNoLog        = errors.New("no such log") // and it was not asked to create one: WithCreateTable
	ErrThrottled    = metadata.ErrThrottled
	ErrContended    = metadata.ErrContended
	ErrChanged      = metadata.ErrChanged // what was to be changed is not as the caller believed; read it and decide anew

	ErrClosed       = errors.New("closed")
	ErrTooLarge     = errors.New("record is over the topic's limit")
	ErrTimedOut     = errors.New("delivery deadline passed, not appended") // definitely not in the log
	ErrUnknown      = errors.New("outcome unknown: the records may or may not be in the log")
	ErrPriorFailed  = errors.New("an earlier batch of the partition failed, not appended")
	ErrBufferFull   = errors.New("producer's buffer is full") // only without waiting
	ErrRefused      = errors.New("condition of the append did not hold, not appended")
	ErrExpired      = errors.New("offset is below the log start")
	ErrOutOfRange   = errors.New("offset is past the end")
	ErrRewritten    = errors.New("history was rewritten at that offset")                  // the table was put back to an earlier moment, and repaired
	ErrTombstones   = errors.New("tombstones from that offset on were removed meanwhile") // who keeps what was read before has to begin anew
	ErrNoOffset     = errors.New("no record at or after that time")
	ErrCorrupt      = errors.New("corrupt data")
	ErrNoPartition  = errors.New("no such partition")
	ErrNoCommit     = errors.New("the group has committed nothing for the partition") // and its start policy is StartFail
	ErrUnknownGroup = metadata.ErrUnknownGroup
	ErrFenced       = metadata.ErrFenced // by another process with the same instance id
	ErrNotHeld      = group.ErrNotHeld   // and so nothing can be committed for it
	ErrBehind       = group.ErrBehind
	ErrUnreachable  = errors.New("store or table did not answer")
	ErrNotSupported = errors.New("not supported")
	ErrDenied       = errors.New("credentials or the right to it refused") // by a function, over HTTP
)

// FieldError is bad input: topic and partition where known, field, value, what is valid.
type FieldError = metadata.FieldError

// KeysMoveError refuses to grow a topic with keyed records without an explicit yes (Alteration.MoveKeys). It is ErrInvalid.
type KeysMoveError = topics.KeysMoveError

// TooLargeError is a record over its topic's limit, found before anything was written. It is ErrTooLarge.
type TooLargeError struct {
	Topic     string
	Partition int
	Size      int // of the record, by segment.RecordSize
	Limit     int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("topic %q partition %d: record of %d bytes, %s is %d", e.Topic, e.Partition, e.Size, metadata.MaxMessageBytes, e.Limit)
}

func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge || target == ErrInvalid }

// RangeError is an offset outside [Start, End), or in [CutFrom, CutTo), where no record has its offset any more. It wraps ErrExpired, ErrOutOfRange or
// ErrRewritten; or it is ErrTombstones, an offset inside, which tombstones in [CutFrom, CutTo) were removed after.
type RangeError struct {
	Topic          string
	Partition      int
	Offset         int64
	Start, End     int64
	CutFrom, CutTo int64 // with ErrRewritten and ErrTombstones
	Err            error
}

func (e *RangeError) Error() string {
	if e.Err == ErrRewritten && e.Start < e.CutFrom {
		return fmt.Sprintf("topic %q partition %d: offset %d: %v; valid are %d to %d and %d to %d", e.Topic, e.Partition, e.Offset, e.Err, e.Start, e.CutFrom, e.CutTo, e.End)
	}
	if e.Err == ErrTombstones {
		return fmt.Sprintf("topic %q partition %d: offset %d: %v, up to %d: what was made of the records before it has to be made anew", e.Topic, e.Partition, e.Offset, e.Err, e.CutTo)
	}
	start := e.Start
	if e.Err == ErrRewritten { // and the log start is in the cut
		start = e.CutTo
	}
	return fmt.Sprintf("topic %q partition %d: offset %d: %v; valid are %d to %d", e.Topic, e.Partition, e.Offset, e.Err, start, e.End)
}

func (e *RangeError) Unwrap() error { return e.Err }

// DataError is data of a partition that cannot be read: which offsets, which object. It wraps ErrCorrupt and the cause.
type DataError struct {
	Topic     string
	Partition int
	From, To  int64 // offsets [From, To) that the extent holds
	Object    string
	Err       error
}

func (e *DataError) Error() string {
	return fmt.Sprintf("topic %q partition %d: offsets [%d, %d) in object %q: %v", e.Topic, e.Partition, e.From, e.To, e.Object, e.Err)
}

func (e *DataError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// WrongLogError is a prefix and a table that do not belong to one log: which was opened, and which log, with the place that it says its objects
// are in, each of the two names ("none" where there is none). It is ErrWrongLog.
type WrongLogError struct{ Prefix, InBucket, InTable string }

func (e *WrongLogError) Error() string {
	return fmt.Sprintf("%v: opened %s; its varve.json says log %s, the table says log %s; "+
		"open a prefix and a table that belong together, or an empty prefix with an empty table", ErrWrongLog, e.Prefix, e.InBucket, e.InTable)
}

func (e *WrongLogError) Is(target error) bool { return target == ErrWrongLog }

// Outcome is what is known of a write after an error.
type Outcome int

const (
	NotApplied Outcome = iota
	Applied
	Unknown
)

// outcomeOfCommit classifies the error of one update of a head.
func outcomeOfCommit(err error) Outcome {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, metadata.ErrOutcomeUnknown):
		return Unknown
	}
	return NotApplied
}

// OutcomeOf classifies the error of an append: nil is Applied, ErrUnknown Unknown, everything else NotApplied.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, ErrUnknown):
		return Unknown
	}
	return NotApplied
}
