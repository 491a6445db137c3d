package walk

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
)

// Conditions.
var (
	ErrExpired = errors.New("offset is below the log start")
	ErrPastEnd = errors.New("offset is past the end")
	ErrNone    = errors.New("no record at or after that time")
	// ErrRewritten: the record that the offset was given to is no longer there under it, as the table was put back to an earlier moment and repaired.
	ErrRewritten = errors.New("history was rewritten at that offset")
)

// RangeError is an offset outside [Start, End), by strong reads, or in a cut, which is no part of that. It wraps ErrExpired, ErrPastEnd or ErrRewritten.
type RangeError struct {
	Offset     int64
	Start, End int64
	Err        error
	Cut        metadata.Cut // with ErrRewritten
}

func (e *RangeError) Error() string {
	if e.Err == ErrRewritten && e.Start < e.Cut.From {
		return fmt.Sprintf("offset %d: %v; valid are %d to %d and %d to %d", e.Offset, e.Err, e.Start, e.Cut.From, e.Cut.To, e.End)
	}
	return fmt.Sprintf("offset %d: %v; valid are %d to %d", e.Offset, e.Err, e.Start, e.End)
}

func (e *RangeError) Unwrap() error { return e.Err }

// corrupt says what contradicts what in the index.
func corrupt(c Cursor, format string, args ...any) error {
	return fmt.Errorf("%w: partition %d of topic %s, lane %s slot %d, offset %d: %s", metadata.ErrCorrupt, c.Partition, c.Topic, c.Lane, c.Slot, c.Offset, fmt.Sprintf(format, args...))
}
