package sdk

import (
	"context"
	"math"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// idleReader is a reader for a Consumer: it has all the partitions of the topic, paused, and starts none of them before begins. It wakes who waits
// on news.
func (l *Log) idleReader(t *metadata.Topic, c readerConfig, news chan struct{}) *Reader {
	r := &Reader{log: l, topic: t, config: c, news: news, memory: recycler{on: c.recycle}}
	r.source = r.newSource()
	background, cancel := context.WithCancelCause(context.Background())
	r.stop = func() { cancel(ErrClosed) }
	r.begin = func(step func(context.Context)) { r.steps.Go(func() { step(background) }) }
	return r
}

// grow adds the partitions that the topic has by now. Only who polls the reader may call it.
func (r *Reader) grow(t *metadata.Topic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lanes := map[metadata.LaneID]*readLane{}
	for _, lane := range r.lanes {
		lanes[lane.id] = lane
	}
	for p := len(r.parts); p < t.Partitions; p++ {
		at := t.Place(p)
		lane := lanes[at.Lane]
		if lane == nil {
			lane = &readLane{id: at.Lane}
			lanes[at.Lane] = lane
			r.lanes = append(r.lanes, lane)
			r.source.attachLane(at.Lane)
		}
		part := &part{id: p, place: at, cursor: walk.At(t, p, 0), stop: math.MaxInt64, paused: true}
		lane.parts = append(lane.parts, part)
		r.parts = append(r.parts, part)
	}
}

// resize changes how many bytes may be fetched ahead. Only who polls the reader may call it.
func (r *Reader) resize(bufferBytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config.bufferBytes = bufferBytes
}

// begins starts a partition at an offset; goesOn says that all before it has been read, or is not wanted.
func (r *Reader) begins(partition int, offset int64, goesOn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, err := r.part(partition); err == nil {
		if r.restart(p, offset); goesOn {
			p.cursor = p.cursor.Arrived()
		}
		p.paused = false
		r.wake()
	}
}

// startOf is the number that a relative start comes to. known remembers bounds between calls.
func (r *Reader) startOf(ctx context.Context, partition int, at Position, known map[*part]bounds) (int64, error) {
	p, b, err := r.boundsOf(ctx, partition, known)
	if err != nil {
		return 0, err
	}
	return r.number(ctx, p, at, b.Start, b.End)
}

func (r *Reader) boundsOf(ctx context.Context, partition int, known map[*part]bounds) (*part, bounds, error) {
	p, err := r.part(partition)
	if err != nil {
		return nil, bounds{}, err
	}
	if _, ok := known[p]; !ok {
		if err := r.source.bounds(ctx, p, known); err != nil {
			return nil, bounds{}, err
		}
	}
	return p, known[p], nil
}

// learn notes the bounds of a part.
func (r *Reader) learn(b bounds, known map[*part]bounds) {
	if p, err := r.part(b.Partition); err == nil {
		known[p] = b
	}
}

// missed is bounds.missed for an offset that was committed at some time.
func (r *Reader) missed(ctx context.Context, partition int, offset int64, at time.Time, known map[*part]bounds) (to int64, err error) {
	if !r.topic.Config.Compacts() {
		return 0, nil
	}
	_, b, err := r.boundsOf(ctx, partition, known)
	return b.missed(offset, at), err
}
