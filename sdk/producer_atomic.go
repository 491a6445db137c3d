package sdk

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// AppendAtomic appends the records, to any partitions of any topics of one retention class, or of one isolated topic, all or none: one
// transaction of the table, which costs twice the write units of plain commits and is fit for lanes under about 20
// commits per second; conflicts up to the delivery deadline end in ErrContended. Partitions are chosen as for Produce.
// It goes out at once and keeps no order with records that were produced before and are not settled: Flush first where
// that matters. When it succeeded and the offsets could not be read back, they are -1. A ctx that is done before the
// outcome is known detaches, as in ProduceSync. Over HTTP it is one request, of 4 MiB as JSON at most, which is not sent
// again where it may have been carried out: then the outcome is ErrUnknown.
func (p *Producer) AppendAtomic(ctx context.Context, records ...*Record) error {
	w := newWaiter(records)
	if err := p.acceptAtomic(ctx, records, nil, w); err != nil {
		return err
	}
	return w.wait(ctx).Err()
}

// acceptAtomic takes the records in as a flush that goes by itself, past the writers of its lanes, and together with moves of offsets.
func (p *Producer) acceptAtomic(ctx context.Context, records []*Record, offsets []metadata.StepOffsets, w *waiter) error {
	f, err := p.gatherTogether(ctx, records, w) // on success mu is held
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	f.offsets = offsets
	close(f.started)
	p.launch(f, p.runAtomic)
	return nil
}

// gatherTogether takes the records in as a flush of one class that is cut, and that nobody else knows yet. On success mu is held.
func (p *Producer) gatherTogether(ctx context.Context, records []*Record, w *waiter) (*flush, error) {
	places, room, err := p.placeFresh(ctx, records, func(r *Record, t *topicHandle) int { return t.choose(r, len(t.partitions)) })
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	if err = p.roomForAll(ctx, room); err == nil {
		f := p.newFlush(p.log.env.Mono())
		if err = f.gather(records, places, w, p.log.env); err == nil {
			err = f.oneSegment()
		}
		if err == nil {
			f.batches[0].room, f.isCut = room, true
			return f, nil
		}
		p.room.give(room)
	}
	p.mu.Unlock()
	return nil, err
}

// oneSegment refuses topics that share no segment: of several retention classes, as the segment can be in only one of them, and would be deleted
// too early or too late for the others; and an isolated one with others.
func (f *flush) oneSegment() error {
	first := f.batches[0].at.topic.row
	for _, b := range f.batches {
		switch row := b.at.topic.row; {
		case row.Class() != first.Class():
			return &FieldError{Topic: row.Name, Field: "retention class", Value: row.Class().String(),
				Valid: fmt.Sprintf("that of topic %q, %s", first.Name, first.Class())}
		case row.Sharing() != first.Sharing():
			return &FieldError{Topic: row.Name, Field: metadata.Isolate, Value: strconv.FormatBool(row.Config.Isolate),
				Valid: fmt.Sprintf("records of one topic together, since %q or %q shares segments with none", row.Name, first.Name)}
		}
	}
	return nil
}

// runAtomic takes the flush to its end.
func (p *Producer) runAtomic(ctx context.Context, f *flush) {
	results, err := p.commitAtomic(ctx, f)
	if err != nil {
		err = gaveUp(ctx, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := p.forgetGone(f, err)
	for i, part := range f.parts {
		for j, b := range part.batches {
			about := b
			if gone != nil {
				about = gone
			}
			if b.err = p.deliveryError(about, err); b.err != nil {
				p.countUnsent(b)
			} else {
				b.base = results[i].Slots[j].Base
			}
			p.hand(b)
		}
	}
	p.room.give(flushRoom)
}

// forgetGone forgets the topics of a flush that err says is in part for a topic that is gone, and returns a batch of that one; nil if err says no such thing, or not of which. mu is held.
func (p *Producer) forgetGone(f *flush, err error) (gone *batch) {
	if err == nil || !errors.Is(p.deliveryError(f.batches[0], err), ErrTopicGone) {
		return nil
	}
	var refused *metadata.RefusedError
	var item *metadata.Error
	var remote *RemoteError
	errors.As(err, &refused)
	errors.As(err, &item)
	errors.As(err, &remote)
	for _, b := range f.batches {
		p.forget(b.at.topic)
		id := b.at.place.Lane
		if refused != nil && refused.Lane == id || item != nil && item.Key == metadata.HeadKey(id).String() || remote != nil && remote.said.Topic == b.at.topic.row.Name {
			gone = b
		}
	}
	return gone
}

// commitAtomic puts the segment, and commits it to all its lanes at once.
func (p *Producer) commitAtomic(ctx context.Context, f *flush) (results []lane.Result, err error) {
	if remote, ok := p.sink.(*remoteSink); ok {
		return remote.appendAtomic(ctx, f)
	}
	err = p.whenDurable(ctx, f, func(c lane.AllConfig, s lane.Whole) (err error) {
		results, err = lane.CommitAll(ctx, c, s)
		return err
	})
	return results, err
}

// divide gives each lane its part.
func (p *Producer) divide(f *flush) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.parts = split(f.batches)
}

// whenDurable seals and puts the segment and calls commit with it, and again under another id each time that this is ErrStaleID.
func (p *Producer) whenDurable(ctx context.Context, f *flush, commit func(lane.AllConfig, lane.Whole) error) error {
	p.divide(f)
	for _, b := range f.batches {
		if b.keyed {
			if err := p.markKeyed(ctx, b.at.topic); err != nil {
				return err
			}
		}
	}
	u := &upload{parts: f.parts}
	segments, err := p.seal(ctx, f, u)
	defer u.recycle()
	if err == nil {
		err = p.put(ctx, u.id, u.body, u.records)
	}
	for err == nil {
		err = commit(lane.AllConfig{
			Table: p.log.table, Env: p.log.env, Writer: p.epoch, SettleBudget: p.config.settleBudget(), OnImage: p.observe, Hooks: p.laneHooks(),
			Refresh: func(ctx context.Context, part int) (int64, error) { return p.refreshPart(ctx, f.parts[part]) },
		}, whole(segments, f))
		if err == nil {
			return nil
		}
		if errors.Is(err, lane.ErrStaleID) {
			err = p.remintAtomic(ctx, f, segments)
		}
	}
	return err
}

// refreshPart reads the topic's row again, and returns its version, or ErrNoPartition if the part is of a partition that is none any more: a table that was
// put back may have forgotten that the topic had grown.
func (p *Producer) refreshPart(ctx context.Context, part *lanePart) (int64, error) {
	t := part.batches[0].at.topic
	version, err := p.refresh(ctx, t)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range part.batches {
		if b.at.index >= t.row.Partitions {
			return 0, noPartition(t.row.Name, b.at.index, t.row.Partitions)
		}
	}
	return version, nil
}

// whole is the segment as CommitAll takes it.
func whole(segments []*lane.Segment, f *flush) lane.Whole {
	s := lane.Whole{ID: segments[0].ID, Minted: segments[0].Minted, Deadline: segments[0].Deadline, Offsets: f.offsets}
	for i, part := range f.parts {
		s.Parts = append(s.Parts, lane.Part{
			Lane: part.batches[0].at.place.Lane, Version: segments[i].Version, Start: segments[i].Start, Slots: segments[i].Slots,
		})
	}
	return s
}

// remintAtomic gives the segment a new id, of the class that its topics have now.
func (p *Producer) remintAtomic(ctx context.Context, f *flush, segments []*lane.Segment) error {
	for i, part := range f.parts {
		version, err := p.refreshPart(ctx, part)
		if err != nil {
			return err
		}
		segments[i].Version = version
	}
	p.mu.Lock()
	err, class := f.oneSegment(), f.batches[0].at.topic.row.Class()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	first := segments[0]
	if err := p.remint(ctx, first, first.ID, class); err != nil {
		return err
	}
	for _, s := range segments[1:] {
		rename(s, first.ID, first.Minted)
	}
	return nil
}
