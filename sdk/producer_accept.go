package sdk

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment"
)

// recordOverhead is what a waiting record takes in memory besides its bytes.
const recordOverhead = int(unsafe.Sizeof(Record{}) + unsafe.Sizeof(pending{}) + 16)

// roomFor is how much of the buffer a record of that size takes: its bytes exist twice, as the caller's until the
// promise, and encoded.
func roomFor(size int) int { return 2*size + recordOverhead }

// accept takes the record in, or returns why not; then the caller calls the promise.
func (p *Producer) accept(ctx context.Context, r *Record, promise func(*Record, error), wait bool) error {
	if err := validRecord(r); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t, err := p.topic(ctx, r.Topic) // on success mu is held
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	at, size, err := t.check(r, t.choose(r, len(t.partitions)))
	if err != nil {
		return err
	}
	if n := roomFor(size); !p.room.take(n) {
		if !wait {
			return ErrBufferFull
		}
		if err := p.waitForRoom(ctx, n); err != nil {
			return err
		}
	}
	err = p.add(at, r, promise, roomFor(size))
	if err != nil {
		p.room.give(roomFor(size))
	}
	return err
}

// waitForRoom takes n bytes when it is this call's turn. mu is held when it is called and when it returns, not in between.
func (p *Producer) waitForRoom(ctx context.Context, n int) (err error) {
	q := p.room.ask(n)
	if p.open != nil {
		p.open.filled = true
		p.open.goNow() // what fills the room must leave, whatever the linger
	}
	if p.openOnce != nil {
		p.openOnce.goNow()
	}
	p.mu.Unlock()
	select {
	case <-q.granted:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.closing:
		err = ErrClosed
	}
	p.mu.Lock()
	if err != nil {
		p.room.cancel(q)
	}
	return err
}

// add encodes the record into its partition's batch. mu is held, and room taken.
func (p *Producer) add(at *partitionHandle, r *Record, promise func(*Record, error), room int) error {
	if p.closed {
		return ErrClosed
	}
	if p.open != nil && p.open.bytes > p.config.flushBytes-room {
		p.open.filled = true
		p.cut(p.open)
	}
	f, opened := p.open, p.open == nil
	if opened {
		f = p.newFlush(p.log.env.Mono())
	}
	b := at.open
	if b == nil {
		b = newBatch(f, at)
	}
	n, err := b.add(r, promise, p.log.env)
	if err != nil {
		return err
	}
	b.room += room
	f.bytes, f.records = f.bytes+n, f.records+1
	if at.open == nil {
		f.join(b)
		if p.enqueue(b); !b.resolved {
			at.open = b
		}
	}
	if opened {
		p.open = f
		p.launch(f, p.run)
	}
	switch {
	case f.bytes >= p.config.segmentBytes, f.records >= p.config.flushRecords:
		f.filled = true
		p.cut(f)
	case len(p.room.queue) > 0:
		f.filled = true
		f.goNow()
	}
	return nil
}

const lastSecond = 253_402_300_799 // of the year 9999

// validRecord checks what needs no topic.
func validRecord(r *Record) error {
	if r == nil {
		return &FieldError{Field: "record", Value: "nil", Valid: "a record"}
	}
	bad := func(field, value, valid string) error {
		return &FieldError{Topic: r.Topic, Partition: r.Partition, Field: field, Value: value, Valid: valid}
	}
	if second := r.Timestamp.Unix(); !r.Timestamp.IsZero() && (second < 0 || second > lastSecond) {
		return bad("timestamp", r.Timestamp.String(), "a time in the years 1970 to 9999, or zero for now")
	}
	if limit := segment.DefaultLimits().Headers; len(r.Headers) > limit {
		return bad("headers", strconv.Itoa(len(r.Headers)), fmt.Sprintf("at most %d", limit))
	}
	return nil
}

// check returns the partition of that number, and the record's size, if both are valid. mu is held.
func (t *topicHandle) check(r *Record, i int) (at *partitionHandle, size int, err error) {
	if i < 0 || i >= len(t.partitions) {
		return nil, 0, noPartition(r.Topic, i, len(t.partitions))
	}
	size = recordSize(r)
	if limit := t.row.Config.MaxMessageBytes; size > limit {
		return nil, 0, &TooLargeError{Topic: r.Topic, Partition: i, Size: size, Limit: limit}
	}
	return t.partitions[i], size, nil
}

func noPartition(topic string, partition, partitions int) error {
	return fmt.Errorf("%w: %w", ErrNoPartition, &FieldError{Topic: topic, Partition: partition, Field: "partition",
		Value: strconv.Itoa(partition), Valid: fmt.Sprintf("0 to %d", partitions-1)})
}

func recordSize(r *Record) int {
	return segment.RecordSize(&segment.Record{Key: r.Key, Value: r.Value, Headers: r.Headers})
}

// batchBytes is the size at which a record batch is full and another follows it in the same extent: large enough to
// compress well, small enough that a reader in search of one record does not decompress a whole flush.
const batchBytes = 1 << 20

// add takes the record in and returns by how many bytes the batch has grown.
func (b *batch) add(r *Record, promise func(*Record, error), e env.Env) (int, error) {
	if r.Timestamp.IsZero() {
		r.Timestamp = time.UnixMilli(e.Now().UnixMilli())
	}
	n, err := b.encode(r)
	if err != nil {
		return 0, err
	}
	r.Partition = b.at.index
	b.records = append(b.records, pending{r, promise})
	b.keyed = b.keyed || r.Key != nil
	return n, nil
}

// encode appends the record to the last of the encoded batches, or starts another.
func (b *batch) encode(r *Record) (int, error) {
	record := segment.Record{Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value, Headers: r.Headers}
	if n := len(b.encoded); n > 0 {
		last := b.encoded[n-1]
		if before := last.Size(); before < batchBytes {
			if err := last.Append(&record); !errors.Is(err, segment.ErrFull) {
				return last.Size() - before, b.tooLarge(r, err)
			}
		}
	}
	next := builders.Get().(*segment.BatchBuilder)
	if err := next.Append(&record); err != nil {
		builders.Put(next)
		return 0, b.tooLarge(r, err)
	}
	b.encoded = append(b.encoded, next)
	return next.Size(), nil
}

// tooLarge is the error for a record within its topic's limit that does not fit a batch, because of what its encoding adds.
func (b *batch) tooLarge(r *Record, err error) error {
	if err == nil {
		return nil
	}
	limit := b.at.topic.row.Config.MaxMessageBytes
	return fmt.Errorf("%w: %w", &TooLargeError{Topic: r.Topic, Partition: b.at.index, Size: recordSize(r), Limit: limit}, err)
}
