package sdk

import (
	"errors"
	"slices"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// done takes in what became of a part. It is called by the lane's writer, in the order of the lane, which holds back
// what was reserved for a failed slot until it is told: so what the producer lets go of here is all that could still
// follow the failure.
func (p *Producer) done(f *flush, part *lanePart, r lane.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range part.batches {
		b.base = r.Slots[i].Base
		p.resolve(b, p.deliveryError(b, r.Slots[i].Err))
	}
	part.ticket.Told()
	f.committed = f.committed || r.Err == nil
	if f.unsettled--; f.unsettled == 0 {
		p.sending--
		p.settleFlush(f)
	}
}

func (p *Producer) resolveAll(batches []*batch, err error) {
	for _, b := range batches {
		p.resolve(b, p.deliveryError(b, err))
	}
}

// enqueue takes the batch's place in the order of its partition. mu is held.
func (p *Producer) enqueue(b *batch) {
	b.at.queue = append(b.at.queue, b)
	if b.at.failures > 0 {
		p.drop(b)
	}
}

// drop fails a batch that was never cut, because of an earlier failure. mu is held.
func (p *Producer) drop(b *batch) {
	for _, encoded := range b.encoded { // large for what may be one record, and its promise may be a long time coming
		encoded.Reset()
		builders.Put(encoded)
	}
	b.encoded = nil
	p.resolve(b, p.deliveryError(b, ErrPriorFailed))
}

// resolve ends a batch. When it failed, the records that were gathered behind it fail with it; not when it only follows an earlier failure, with
// which everything behind that went: what has been gathered since starts afresh. mu is held.
func (p *Producer) resolve(b *batch, err error) {
	b.resolved, b.err = true, err
	if err != nil {
		p.countUnsent(b)
		if errors.Is(err, ErrTopicGone) {
			p.forget(b.at.topic)
		}
		if !errors.Is(err, ErrPriorFailed) {
			p.failBehind(b)
		}
	}
	for at := b.at; len(at.queue) > 0 && at.queue[0].resolved; {
		p.hand(at.queue[0])
		at.queue = slices.Delete(at.queue, 0, 1)
	}
}

// failBehind notes that b failed by itself: what is gathered behind it fails too, and so does all that comes before its owner is told. mu is held.
func (p *Producer) failBehind(b *batch) {
	b.untold = true
	b.at.failures++
	if behind := b.at.open; behind != nil && behind != b {
		b.at.open = nil
		p.drop(behind)
	}
}

// countUnsent counts what fails while Close waits. mu is held.
func (p *Producer) countUnsent(b *batch) {
	if !p.closed {
		return
	}
	p.unsent += len(b.records)
	if p.unsentErr == nil {
		p.unsentErr = b.err
	}
}

// hand gives a resolved batch to delivery. mu is held.
func (p *Producer) hand(b *batch) {
	p.ready = append(p.ready, b)
	if !p.delivering {
		p.delivering = true
		p.begin(p.deliver)
	}
}

// deliver calls promises, one batch after another, until there is nothing left to tell. A batch gives its room back
// before its promises are called: what is told is the caller's again.
func (p *Producer) deliver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ready) > 0 {
		b := p.ready[0]
		p.ready[0], p.ready = nil, p.ready[1:]
		p.room.give(b.room)
		if b.untold {
			b.at.failures--
		}
		p.mu.Unlock()
		b.tell()
		p.mu.Lock()
		b.flush.undelivered--
		p.deliverable(b.flush)
	}
	p.delivering = false
}

// deliverable notes the end of a flush, if it is the end. mu is held.
func (p *Producer) deliverable(f *flush) {
	if _, live := p.flushes[f]; live && f.isCut && f.undelivered == 0 {
		delete(p.flushes, f)
		close(f.delivered)
	}
}

// tell completes the records and calls their promises.
func (b *batch) tell() {
	for i, r := range b.records {
		if b.err == nil {
			r.record.Offset = b.offset(i)
			if !b.stamp.IsZero() {
				r.record.Timestamp = b.stamp
			}
		}
		if r.promise != nil {
			r.promise(r.record, b.err)
		}
	}
	clear(b.records)
	*b.list, b.records = b.records[:0], nil
	recordLists.Put(b.list)
}

// offset is that of the batch's i-th record: -1, for all of them, where it could not be read back.
func (b *batch) offset(i int) int64 {
	if b.base < 0 {
		return -1
	}
	return b.base + int64(i)
}

// deliveryError is err as the batch's records get it. nil stays nil.
func (p *Producer) deliveryError(b *batch, err error) error {
	if err == nil {
		return nil
	}
	topic := b.at.topic.row.Name
	var refused *lane.ConditionError
	if errors.As(err, &refused) {
		return &ConditionError{Topic: topic, Partition: b.at.index, End: refused.End, Token: refused.Token}
	}
	if c := conditionError(topic, b.at.index, err); c != nil && !errors.Is(err, lane.ErrUnknown) {
		return c
	}
	if condition := conditionOf(err); condition != err {
		return &DeliveryError{Topic: topic, Partition: b.at.index, Err: condition, Cause: reachable(err)}
	}
	return &DeliveryError{Topic: topic, Partition: b.at.index, Err: reachable(err)}
}

// conditionOf is the condition of this package that an error of the layers below amounts to.
func conditionOf(err error) error {
	for _, c := range []struct{ below, ours error }{
		{lane.ErrUnknown, ErrUnknown},
		{lane.ErrPriorFailed, ErrPriorFailed},
		{metadata.ErrNoLane, ErrTopicGone},
		{metadata.ErrUnknownTopic, ErrTopicGone}, // it was there when the record was accepted
		{metadata.ErrTopicGone, ErrTopicGone},
		{ErrClosed, ErrClosed},
		{lane.ErrClosed, ErrClosed},
		{lane.ErrDeadline, ErrTimedOut},
		{ErrTimedOut, ErrTimedOut},
	} {
		if errors.Is(err, c.below) {
			return c.ours
		}
	}
	return err
}
