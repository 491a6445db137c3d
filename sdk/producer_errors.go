package sdk

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment/store"
)

// DeliveryError is a record that was accepted and then not acknowledged. Err is the condition (ErrTimedOut, ErrUnknown,
// ErrPriorFailed, ErrTopicGone, ErrUnreachable, …); Cause is what led to it, nil if there is nothing to add. errors.Is
// finds both.
type DeliveryError struct {
	Topic     string
	Partition int
	Err       error
	Cause     error
}

func (e *DeliveryError) Error() string {
	s := fmt.Sprintf("topic %q partition %d: %v", e.Topic, e.Partition, e.Err)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

func (e *DeliveryError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// ConditionError is a conditional append that was refused: nothing was appended. It is ErrRefused. End is the
// partition's end offset and Token its fencing token (0: none was ever set) when it was refused.
type ConditionError struct {
	Topic     string
	Partition int
	End       int64
	Token     int64
}

func (e *ConditionError) Error() string {
	return fmt.Sprintf("topic %q partition %d: %v; its end offset is %d, its fencing token %d",
		e.Topic, e.Partition, ErrRefused, e.End, e.Token)
}

func (e *ConditionError) Unwrap() error { return ErrRefused }

// UnsentError is how Close or Flush reports that records were still not settled when its context was done. It wraps the
// context's error.
type UnsentError struct {
	Records int
	Err     error
}

func (e *UnsentError) Error() string {
	if e.Records == 1 {
		return fmt.Sprintf("1 record not sent: %v", e.Err)
	}
	return fmt.Sprintf("%d records not sent: %v", e.Records, e.Err)
}

func (e *UnsentError) Unwrap() error { return e.Err }

// gaveUp is err as the error of what was given up before it was sent to a lane, ctx being the flush's: at the delivery
// deadline, by Close, or because err cannot be mended. What was going on at that moment is kept as the cause.
func gaveUp(ctx context.Context, err error) error {
	why := context.Cause(ctx)
	condition := ErrTimedOut
	switch {
	case why == nil:
		return err
	case errors.Is(why, ErrClosed):
		condition = ErrClosed
	}
	if err == why {
		return condition
	}
	return fmt.Errorf("%w: %w", condition, err)
}

// reachable adds ErrUnreachable to an error that means it.
func reachable(err error) error {
	if errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, store.ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}
