package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Conditions. Except for ErrUnknown each means that the segment, or the slot's part of it, is not in the log
// and never will be. The conditions of package metadata occur too: ErrNoLane, ErrThrottled, ErrContended,
// ErrVersion, ErrDenied, …
var (
	ErrUnknown      = errors.New("outcome unknown: may or may not be in the log") // usually an *UnknownError
	ErrDeadline     = errors.New("delivery deadline passed, not appended")        // the last attempt's error is wrapped too
	ErrPriorFailed  = errors.New("an earlier batch of the partition was not appended")
	ErrBackpressure = errors.New("head is full and could not be spilled")
	ErrClosed       = errors.New("writer is closed")
	ErrFenced       = errors.New("fencing token is another")           // a *ConditionError
	ErrOffset       = errors.New("end offset is not expected")         // a *ConditionError
	ErrNotAdmitted  = errors.New("requests of producers were refused") // a *ProducersError
	ErrStaleID      = errors.New("segment id is too old")              // of CommitAll only: a Writer has it minted anew
)

// errForgotten is why a search for an attempt decides nothing.
var errForgotten = errors.New("the table was put back to an earlier moment meanwhile")

// UnknownError is a commit whose outcome could not be settled. It is ErrUnknown and Cause.
type UnknownError struct {
	Lane  metadata.LaneID
	ID    segment.ID // the first of the update
	Since int64      // order from which on the entry would have to be
	Cause error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("lane %s: segment %s, from order %d on: %v: %v", e.Lane, e.ID, e.Since, ErrUnknown, e.Cause)
}

// Unwrap makes the error ErrUnknown and its cause.
func (e *UnknownError) Unwrap() []error { return []error{ErrUnknown, e.Cause} }

// ConditionError is a conditional append that was refused: ErrFenced or ErrOffset. Nothing was appended.
type ConditionError struct {
	Lane  metadata.LaneID
	Slot  metadata.Slot
	Asked int64 // token or offset
	End   int64 // the slot's end offset and fencing token (0: none was set) when it was refused
	Token int64
	Err   error
}

func (e *ConditionError) Error() string {
	return fmt.Sprintf("lane %s slot %d: asked for %d: %v; end offset %d, token %d", e.Lane, e.Slot, e.Asked, e.Err, e.End, e.Token)
}

func (e *ConditionError) Unwrap() error { return e.Err }

func conditionError(c metadata.Commit, h *metadata.Head, r metadata.Reason) error {
	e := &ConditionError{Lane: c.Lane, Err: ErrFenced}
	if r == metadata.ReasonToken {
		t := c.FailedToken(h)
		e.Slot, e.Asked = t.Slot, t.Token
	} else {
		x := c.FailedExpect(h)
		e.Slot, e.Asked, e.Err = x.Slot, x.Offset, ErrOffset
	}
	e.End, e.Token = h.Ends[e.Slot], h.Tokens[e.Slot]
	return e
}

// ProducersError is a segment that was refused because of requests of producers in it. It is ErrNotAdmitted: nothing was appended.
type ProducersError struct {
	Lane       metadata.LaneID
	Head       *metadata.Head // the image that refused it
	Failed     []metadata.FailedProducer
	RetryAfter time.Duration // where one is Crowded: when there may be room
}

func (e *ProducersError) Error() string {
	f := e.Failed[0]
	return fmt.Sprintf("lane %s: %v: %d of them, first producer %d with sequence %d, expected is %d: %v", e.Lane, ErrNotAdmitted, len(e.Failed), f.ID, f.Sequence, e.Head.Expected(f.ID), f.Why)
}

func (e *ProducersError) Unwrap() error { return ErrNotAdmitted }

func backpressure(err error) error { return fmt.Errorf("%w: %w", ErrBackpressure, err) }

func errFormat(lane metadata.LaneID, min int) error {
	return fmt.Errorf("%w: lane %s wants writers of format %d or later, this build writes %d",
		metadata.ErrVersion, lane, min, metadata.FormatVersion)
}

// transient tells whether the same call may succeed later. Not for commits that may have been applied.
func transient(err error) bool {
	for _, t := range []error{metadata.ErrThrottled, metadata.ErrContended, metadata.ErrUnavailable, metadata.ErrNoCredentials,
		metadata.ErrOutcomeUnknown, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// persist repeats f, which may be repeated whatever became of it, with growing waits, until it succeeds, fails
// for good, or ctx is done.
func persist(ctx context.Context, e env.Env, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err == nil || !transient(err) {
			return err
		}
		if e.Sleep(ctx, backoff(e, n)) != nil {
			return err
		}
	}
}
