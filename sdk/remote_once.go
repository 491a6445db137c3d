package sdk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/varvelog/varve/internal/wire"
)

// appendOnce sends a request under its own producer and sequence, until it is answered, a few times at most: sent again it is applied once.
func (s *remoteSink) appendOnce(ctx context.Context, r *onceRequest) error {
	ctx, cancel := s.p.log.env.WithTimeout(ctx, s.p.config.deliveryDeadline)
	defer cancel()
	topic := r.batches[0].at.topic
	sealed, err := s.seal(&flush{}, &lanePart{batches: r.batches})
	if err != nil {
		return err
	}
	o := newPost(topic.row, r.lane, sealed, sealed.Owner.([]frames))
	o.producer, o.sequence = r.step.ID.String(), r.step.Sequence
	to, err := s.r.producer(ctx)
	if err != nil {
		return err
	}
	var said wire.Produced
	var bases []int64
	q := o.request(to)
	q.once = r.batches[0].conditional() // a refusal would leave it open what became of an attempt before it
	err = s.r.client.call(ctx, q, func(reply *reply) (err error) {
		said = wire.Produced{}
		if err = decodeJSON(reply.body, &said); err == nil {
			bases, err = basesOf(o.parts, &said)
		}
		return err
	})
	if err != nil {
		if errors.Is(err, ErrTopicGone) || errors.Is(err, ErrUnknownTopic) {
			s.p.mu.Lock()
			s.p.forget(topic)
			s.p.mu.Unlock()
		}
		return onceError(r, err)
	}
	r.repeated, r.known = said.Repeated, said.OffsetsKnown == nil || *said.OffsetsKnown
	for i, b := range r.batches {
		b.base = bases[i]
		b.tell()
	}
	return nil
}

// onceError is the error as AppendOnce has it. What may have been applied is ErrUnknown.
func onceError(r *onceRequest, err error) error {
	var e *RemoteError
	if !errors.As(err, &e) {
		return fmt.Errorf("topic %q: %w: %w", r.topic, ErrUnknown, err)
	}
	if c := conditionError(r.topic, r.batches[0].at.index, err); c != nil {
		return c
	}
	switch {
	case errors.Is(err, ErrSequenceGap):
		return &SequenceGapError{Topic: r.topic, Producer: r.step.ID, Sequence: r.step.Sequence, Expected: number(e.said.Expected)}
	case errors.Is(err, ErrProducerEvicted):
		return &ProducerEvictedError{Topic: r.topic, Producer: r.step.ID, Sequence: r.step.Sequence}
	case errors.Is(err, ErrTooManyProducers):
		after := time.Minute
		if n := e.said.RetryAfter; n != nil {
			after = time.Duration(min(max(*n, 0), math.MaxInt32)) * time.Second
		}
		return &TooManyProducersError{Topic: r.topic, Producer: r.step.ID, RetryAfter: after}
	case errors.Is(err, ErrInvalid) && e.said.Field != "":
		return &FieldError{Topic: r.topic, Field: e.said.Field, Value: e.said.Value, Valid: e.said.Valid}
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrUnreachable), errors.Is(err, ErrThrottled): // the answer to an earlier attempt may have been lost
		return fmt.Errorf("topic %q: %w: %w", r.topic, ErrUnknown, err)
	}
	return fmt.Errorf("topic %q: %w", r.topic, err)
}
