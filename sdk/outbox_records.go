package sdk

import (
	"context"
	"fmt"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// Prepare makes ready to append the records, as AppendAtomic would, in a transaction that the application sends (an outbox without a table of its own): their
// segment is durable when it returns. After Done has returned nil the records have their offsets; -1 if they could not be read back. A transaction that
// is not sent, or not applied, leaves an object that no reader sees and that the sweep removes. Records take room in the producer's buffer until Done or
// Abandon.
//
// It is fit for lanes under about 20 commits per second: it is refused if others have appended so much in between that entries were spilled which are later
// than what Prepare has seen, one to eight commits. Done does the rest also after the producer was closed. A log that is not on DynamoDB is ErrNotSupported.
func (p *Producer) Prepare(ctx context.Context, records ...*Record) (*Prepared, error) {
	if err := p.log.direct("append as a part of a transaction"); err != nil {
		return nil, err
	}
	table, err := p.log.transactable()
	if err != nil {
		return nil, err
	}
	f, err := p.gatherTogether(ctx, records, newWaiter(records)) // on success mu is held
	if err != nil {
		return nil, err
	}
	p.mu.Unlock()
	r := &preparedRecords{producer: p, flush: f, room: f.batches[0].room}
	within, cancel := p.log.env.WithTimeout(ctx, p.config.deliveryDeadline)
	defer cancel()
	err = p.whenDurable(within, f, func(c lane.AllConfig, s lane.Whole) (err error) {
		r.commit, err = lane.Prepare(within, c, s)
		return err
	})
	prepared := &Prepared{what: r}
	if err == nil {
		prepared.items, err = table.Items(r.commit.Commits(), nil)
	}
	if err != nil {
		r.release()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, p.deliveryError(f.batches[0], gaveUp(within, err))
	}
	return prepared, nil
}

// preparedRecords are records whose segment is durable, and whose commit another sends.
type preparedRecords struct {
	producer *Producer
	flush    *flush
	commit   *lane.Prepared
	room     int // that they still take
}

func (r *preparedRecords) expired() error {
	if !r.commit.Expired() {
		return nil
	}
	return fmt.Errorf("%w: prepared over %v ago: Abandon it, and Prepare anew", ErrTimedOut, metadata.MaxSegmentAge)
}

func (r *preparedRecords) release() {
	r.producer.mu.Lock()
	defer r.producer.mu.Unlock()
	r.producer.room.give(r.room)
	r.room = 0
}

func (r *preparedRecords) settle(ctx context.Context, sent error) error {
	results, reason, err := r.commit.Settle(ctx)
	switch {
	case err != nil && sent != nil:
		return unsettled(r.producer.deliveryError(r.flush.batches[0], err), sent)
	case err != nil: // applied, as the client says, and not to be read back
	case results == nil && reason == metadata.ReasonUnexplained:
		return &NotAppliedError{Err: sent}
	case results == nil:
		return &NotAppliedError{Reason: reason.String(), Err: sent}
	}
	r.tell(results)
	return nil
}

// tell completes the records. Without results they are in the log at offsets that nobody knows.
func (r *preparedRecords) tell(results []lane.Result) {
	for i, part := range r.flush.parts {
		for j, b := range part.batches {
			if b.base = -1; results != nil {
				b.base = results[i].Slots[j].Base
			}
			b.tell()
		}
	}
}
