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
	r.source = directSource{r}
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
			r.log.lanes.attach(at.Lane)
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

// laneBounds is where a lane's partitions begin and end.
type laneBounds struct {
	state *metadata.State
	ends  metadata.Offsets
}

// startOf is the number that a relative start comes to. bounds remembers lanes between calls.
func (r *Reader) startOf(ctx context.Context, partition int, at Position, bounds map[metadata.LaneID]laneBounds) (int64, error) {
	p, err := r.part(partition)
	if err != nil {
		return 0, err
	}
	b, err := r.bounds(ctx, p, bounds)
	if err != nil {
		return 0, err
	}
	return r.number(ctx, p, at, b.state.Starts[p.place.Slot], b.ends[p.place.Slot])
}

func (r *Reader) bounds(ctx context.Context, p *part, bounds map[metadata.LaneID]laneBounds) (laneBounds, error) {
	b, ok := bounds[p.place.Lane]
	if !ok {
		state, head, err := r.log.walker.Bounds(ctx, p.place.Lane)
		if err != nil {
			return b, r.log.readError(ctx, r.topic, p.id, walk.Extent{}, err)
		}
		b = laneBounds{state, head.Ends}
		bounds[p.place.Lane] = b
	}
	return b, nil
}

// missed is how far tombstones were removed since an offset was committed at some time, if who goes on there may have missed some; otherwise 0.
func (r *Reader) missed(ctx context.Context, partition int, offset int64, at time.Time, bounds map[metadata.LaneID]laneBounds) (to int64, err error) {
	p, err := r.part(partition)
	if err != nil || !r.topic.Config.Compacts() {
		return 0, err
	}
	b, err := r.bounds(ctx, p, bounds)
	if err != nil {
		return 0, err
	}
	if c := b.state.Cleaned[p.place.Slot]; offset > b.state.Starts[p.place.Slot] && c.Missed(offset, at) {
		return c.Purged, nil
	}
	return 0, nil
}
