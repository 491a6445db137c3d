package sdk

import (
	"context"
	"fmt"
	"strconv"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// maxTogether bounds what one conditional or atomic append may bring, in bytes of records: it is one segment, held in memory.
const maxTogether = 128 << 20

// Condition must hold for a conditional append.
type Condition func(*conditions)

type conditions struct {
	end, token *int64
}

func (c conditions) given() bool { return c.end != nil || c.token != nil }

// when puts the batch under the conditions.
func (b *batch) when(c conditions) {
	if c.end != nil {
		b.expect = []metadata.Expect{{Slot: b.at.place.Slot, Offset: *c.end}}
	}
	if c.token != nil {
		b.tokens = []metadata.Token{{Slot: b.at.place.Slot, Token: *c.token}}
	}
}

// conditional tells whether the batch is under conditions.
func (b *batch) conditional() bool { return len(b.expect)+len(b.tokens) > 0 }

// EndIs requires the partition's end offset to be this: nobody has appended since it was read.
func EndIs(offset int64) Condition { return func(c *conditions) { c.end = &offset } }

// TokenIs requires the partition's fencing token to be this: nobody has taken over.
func TokenIs(token int64) Condition { return func(c *conditions) { c.token = &token } }

// AppendIf appends the records to one partition, all or none, if the conditions hold at that moment, behind what this
// producer accepted for the partition before. It goes out at once, as a segment and a commit of its own. The records'
// Topic and Partition are set from the arguments. A *ConditionError (ErrRefused) says where the partition's end really
// is. Like any failure it takes with it what was accepted for the partition meanwhile (ErrPriorFailed). A ctx that is
// done before the outcome is known detaches, as in ProduceSync.
func (p *Producer) AppendIf(ctx context.Context, topic string, partition int, records []*Record, when ...Condition) error {
	if err := p.log.live(); err != nil {
		return err
	}
	c, err := toAppendIf(topic, partition, records, when)
	if err != nil {
		return err
	}
	w := newWaiter(records)
	if err := p.acceptAlone(ctx, records, c, w); err != nil {
		return err
	}
	return w.wait(ctx).Err()
}

// toAppendIf are the conditions, and the records made those of the partition.
func toAppendIf(topic string, partition int, records []*Record, when []Condition) (c conditions, err error) {
	for _, set := range when {
		set(&c)
	}
	if !c.given() {
		return c, &FieldError{Topic: topic, Partition: partition, Field: "conditions", Value: "none", Valid: "EndIs, TokenIs or both"}
	}
	for _, r := range records {
		if r != nil {
			r.Topic, r.Partition = topic, partition
		}
	}
	return c, nil
}

// acceptAlone takes the records in as a flush of their own.
func (p *Producer) acceptAlone(ctx context.Context, records []*Record, c conditions, w *waiter) error {
	explicit := func(r *Record, _ *topicHandle) int { return r.Partition }
	places, room, err := p.placeAll(ctx, records, explicit)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.roomForAll(ctx, room); err != nil {
		return err
	}
	f := p.newFlush(p.log.env.Mono())
	if err := f.gather(records, places, w, p.log.env); err != nil {
		p.room.give(room)
		return err
	}
	b := f.batches[0]
	b.room = room
	b.when(c)
	if p.open != nil {
		p.open.forced = true
		p.cut(p.open)
	}
	p.enqueue(b)
	f.forced = true
	p.launch(f, p.run)
	p.cut(f)
	return nil
}

// chooser chooses a record's partition. Producer.mu is held.
type chooser func(*Record, *topicHandle) int

// placeAll validates records that are appended together, and returns their partitions and the room that they take.
func (p *Producer) placeAll(ctx context.Context, records []*Record, choose chooser) (places []*partitionHandle, room int, err error) {
	if len(records) == 0 {
		return nil, 0, &FieldError{Field: "records", Value: "none", Valid: "at least one"}
	}
	bytes := 0
	for _, r := range records {
		if err := validRecord(r); err != nil {
			return nil, 0, err
		}
		t, err := p.topic(ctx, r.Topic)
		if err != nil {
			return nil, 0, err
		}
		at, size, err := t.check(r, choose(r, t))
		p.mu.Unlock()
		if err != nil {
			return nil, 0, err
		}
		places = append(places, at)
		bytes += size
		room += roomFor(size)
	}
	if bytes > maxTogether {
		return nil, 0, &FieldError{Topic: records[0].Topic, Field: "bytes appended together", Value: strconv.Itoa(bytes),
			Valid: fmt.Sprintf("at most %d", maxTogether)}
	}
	return places, room, nil
}

// roomForAll takes the room. mu is held when it is called and when it returns.
func (p *Producer) roomForAll(ctx context.Context, room int) error {
	if !p.room.take(room) {
		if err := p.waitForRoom(ctx, room); err != nil {
			return err
		}
	}
	if p.closed {
		p.room.give(room)
		return ErrClosed
	}
	return nil
}

// gather encodes records into batches of the flush, which nobody else knows yet.
func (f *flush) gather(records []*Record, places []*partitionHandle, w *waiter, e env.Env) error {
	batches := map[*partitionHandle]*batch{}
	for i, r := range records {
		b := batches[places[i]]
		if b == nil {
			b = newBatch(f, places[i])
			batches[places[i]] = b
			f.join(b)
		}
		n, err := b.add(r, w.promise(i), e)
		if err != nil {
			return err
		}
		f.bytes, f.records = f.bytes+n, f.records+1
	}
	return nil
}
