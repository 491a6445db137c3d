package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Fetch is consecutive records of one partition, ascending by offset.
type Fetch struct {
	Topic     string
	Partition int
	Records   []Record
}

// Reader reads one topic's partitions, each in order. It fetches ahead of Poll, in parallel and within a byte bound. Poll, and with it the
// records it returned if they are recycled, is for one goroutine; the other methods may be called concurrently.
type Reader struct {
	log    *Log
	topic  *metadata.Topic
	config readerConfig
	source source
	begin  func(func(context.Context)) // runs a step in a goroutine that Close waits for
	stop   context.CancelFunc
	steps  sync.WaitGroup
	news   chan struct{} // room for one: something changed that a waiting Poll should look at
	turns  sync.Mutex    // Poll's, which only ever tries it

	// Poll's, without mu
	decoder segment.Decoder
	spare   []segment.Record // an array that holds no records
	decoded int64            // memory of batches that are decoded and not wholly returned yet

	mu       sync.Mutex
	parts    []*part // by partition
	lanes    []*readLane
	turn     int     // index in parts of who requests first of those who have as little queued
	served   int     // index in parts of who is served first by the next Poll
	holding  bool    // a hold is running out
	passing  bool    // parts have passed offsets without a record; for a Consumer
	getting  int     // range requests under way
	buffered int64   // bytes of spans that are under way or not returned yet
	errs     []error // due, of no part
	final    error   // returned by every Poll from now on
	memory   recycler
}

// readLane is a lane with partitions of the reader. Fields are under Reader.mu.
type readLane struct {
	id       metadata.LaneID
	parts    []*part
	looking  bool          // a lookUp is under way
	since    time.Duration // when it began, by the monotonic clock
	watching bool          // a watch is under way
	failures int           // of the last watches, one after another
}

// NewReader makes a reader of the partitions that the topic has now. It reads where they begin and end, and so turns relative starts and stops into
// numbers. Settings that make no sense are a *FieldError, a topic that is not there ErrUnknownTopic, and with a stop a start offset past the end a
// *RangeError. Nothing is fetched before the first
// Poll. Close it.
func (l *Log) NewReader(ctx context.Context, topic string, opts ...ReaderOption) (*Reader, error) {
	c := defaultReaderConfig(l.near)
	for _, o := range opts {
		o(&c)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	t, err := l.topicToRead(ctx, topic)
	if err != nil {
		return nil, err
	}
	r := &Reader{log: l, topic: t, config: c, news: make(chan struct{}, 1), memory: recycler{on: c.recycle}}
	if err := r.takePartitions(); err != nil {
		return nil, err
	}
	r.source = r.newSource()
	for _, lane := range r.lanes {
		r.source.attachLane(lane.id)
	}
	background, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r.stop = func() { cancel(ErrClosed) }
	r.begin = func(step func(context.Context)) {
		r.steps.Go(func() { step(background) })
	}
	if err := r.source.resolve(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// topicToRead is the row of a topic that is to be read.
func (l *Log) topicToRead(ctx context.Context, topic string) (*metadata.Topic, error) {
	if err := metadata.ValidateName("topic", topic); err != nil {
		return nil, err
	}
	if err := l.live(); err != nil {
		return nil, err
	}
	t, err := l.topicRow(ctx, topic)
	switch {
	case errors.Is(err, metadata.ErrUnknownTopic):
		return nil, fmt.Errorf("topic %q: %w", topic, err)
	case err != nil:
		return nil, fmt.Errorf("topic %q: %w", topic, unread(err))
	}
	return t, nil
}

// Poll returns records, grouped by partition, as soon as there are any: from as many partitions as have some, in turn, within the bound of
// WithPollBytes. It returns none and no error after the time of WithWait, ctx's error when that is done first, and io.EOF when a bounded
// reader has returned everything. The bytes of keys, values and headers must not be changed: other readers of the log may share them.
//
// An error that concerns a partition is reported once, alone, and leaves the others as they are. *DataError and *RangeError halt the partition
// until a Seek; when no other is left, Poll returns ErrHalted. ErrUnreachable halts nothing: the partition is tried again after a pause.
// ErrTopicGone and ErrClosed are final. While another Poll is under way it is ErrInvalid, and does nothing.
func (r *Reader) Poll(ctx context.Context) ([]Fetch, error) {
	if !r.turns.TryLock() {
		return nil, fmt.Errorf("%w: topic %q: Poll is for one goroutine, and another Poll of this reader is under way", ErrInvalid, r.topic.Name)
	}
	defer r.turns.Unlock()
	if err := r.log.live(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.memory.turn()
	r.mu.Unlock()
	var timeout <-chan time.Time
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		fetches, err := r.deliver()
		if len(fetches) > 0 || err != nil || r.config.wait == 0 {
			return fetches, err
		}
		if timeout == nil && r.config.wait > 0 {
			c, stop := r.log.env.After(r.config.wait)
			defer stop()
			timeout = c
		}
		select {
		case <-r.news:
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
		}
	}
}

// Seek moves a partition to an offset; what was fetched ahead for it is dropped. An offset outside the log is reported by Poll. Seek lifts a
// halt, and in a bounded reader the stop stays where it is.
func (r *Reader) Seek(partition int, offset int64) error {
	if offset < 0 {
		return &FieldError{Topic: r.topic.Name, Partition: partition, Field: "offset", Value: strconv.FormatInt(offset, 10), Valid: "0 or more"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := r.part(partition)
	switch {
	case err != nil:
		return err
	case r.final != nil:
		return r.final
	}
	r.restart(p, offset)
	r.wake()
	return nil
}

// Pause keeps partitions from being fetched and returned until Resume. What was fetched ahead for them is dropped, so that it holds no memory.
func (r *Reader) Pause(partitions ...int) error { return r.setPaused(true, partitions) }

// Resume lets paused partitions go on where they were.
func (r *Reader) Resume(partitions ...int) error { return r.setPaused(false, partitions) }

func (r *Reader) setPaused(paused bool, partitions []int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range partitions {
		p, err := r.part(id)
		if err != nil {
			return err
		}
		if paused && !p.paused && !p.halted {
			r.restart(p, p.position)
		}
		p.paused = paused
	}
	r.advance()
	r.wake()
	return nil
}

// Position is the offset of the next record that Poll returns for the partition. ErrNoPartition if the reader does not read it.
func (r *Reader) Position(partition int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := r.part(partition)
	if err != nil {
		return -1, err
	}
	return p.position, nil
}

func (r *Reader) part(partition int) (*part, error) {
	for _, p := range r.parts {
		if p.id == partition {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: topic %q partition %d is not among the reader's", ErrNoPartition, r.topic.Name, partition)
}

// Close ends the reader and waits for its requests. A Poll under way returns ErrClosed. A second Close does nothing.
func (r *Reader) Close() error {
	r.mu.Lock()
	closed := r.final == ErrClosed
	r.final = ErrClosed
	r.wake()
	r.mu.Unlock()
	r.stop()
	r.steps.Wait()
	if closed {
		return nil
	}
	r.source.detach()
	return nil
}

// wake lets a waiting Poll look again.
func (r *Reader) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// over is what Poll returns when there is nothing to return any more, nil while there may be. mu is held.
func (r *Reader) over() error {
	if r.final != nil {
		return r.final
	}
	halted := false
	for _, p := range r.parts {
		switch {
		case p.paused:
			return nil // it may be resumed
		case p.halted:
			halted = true
		case p.position < p.stop:
			return nil
		}
	}
	if halted {
		return ErrHalted
	}
	return io.EOF
}
