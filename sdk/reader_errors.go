package sdk

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// ErrHalted: errors that were reported before have stopped every partition that was not finished. Seek past them, or close the reader.
var ErrHalted = errors.New("every unfinished partition is halted by an error that was reported")

// readError turns what went wrong in reading a partition, at extent e if one was reached, into the error that users see.
func (l *Log) readError(ctx context.Context, t *metadata.Topic, partition int, e walk.Extent, err error) error {
	var outside *walk.RangeError
	switch {
	case errors.As(err, &outside):
		e := &RangeError{Topic: t.Name, Partition: partition, Offset: outside.Offset, Start: outside.Start, End: outside.End, Err: ErrExpired}
		switch outside.Err {
		case walk.ErrPastEnd:
			e.Err = ErrOutOfRange
		case walk.ErrRewritten:
			e.Err, e.CutFrom, e.CutTo = ErrRewritten, outside.Cut.From, outside.Cut.To
		}
		return e
	case errors.Is(err, errHole):
		return &DataError{Topic: t.Name, Partition: partition, From: e.Base, To: e.End, Object: objectOf(e).Name(), Err: err}
	case errors.Is(err, metadata.ErrNoLane), errors.Is(err, metadata.ErrNoState):
		err = l.gone(ctx, t, err)
	default:
		err = unread(err)
	}
	return fmt.Errorf("topic %q partition %d: %w", t.Name, partition, err)
}

// unread says why something could not be read: it is damaged, the caller gave up, or nobody answered.
func unread(err error) error {
	switch {
	case errors.Is(err, metadata.ErrCorrupt), errors.Is(err, metadata.ErrVersion):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, ErrCorrupt), errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// gone says what it means that a lane is not there: a deletion removes the name row before it, so the row, read strongly after that, is gone or is
// another topic's.
func (l *Log) gone(ctx context.Context, t *metadata.Topic, missing error) error {
	row, err := l.table.Topic(ctx, t.Name)
	switch {
	case errors.Is(err, metadata.ErrUnknownTopic), err == nil && row.ID != t.ID:
		return ErrTopicGone
	case err != nil:
		return unread(err)
	}
	return fmt.Errorf("%w: %w, though topic %q is there", ErrCorrupt, missing, t.Name)
}

// passes tells whether an error may be over at the next attempt.
func passes(err error) bool { return errors.Is(err, ErrUnreachable) }
