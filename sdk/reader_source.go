package sdk

import (
	"context"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// source is where a reader's extents come from: the index and the objects, or a function over HTTP. What queues them, decodes them and hands them out is
// the reader's.
type source interface {
	// attachLane is called for each lane that the reader has come to read, detach once, when it is closed.
	attachLane(metadata.LaneID)
	detach()
	// resolve turns starts and stops into numbers, by resolvePart for each part.
	resolve(ctx context.Context) error
	// bounds adds those of the part to known, and those of others that come with them.
	bounds(ctx context.Context, p *part, known map[*part]bounds) error
	// offsetForTime is the first offset at or after the time, or ErrNoOffset.
	offsetForTime(ctx context.Context, partition int, at time.Time) (int64, error)
	// advance begins whatever can be begun to fill the queues of the parts. Reader.mu is held.
	advance()
	// object names where an extent's bytes are, for people.
	object(p *part, e walk.Extent) string
}

// directSource is the log's own table and store.
type directSource struct{ *Reader }

func (r *Reader) newSource() source {
	if r.log.remote != nil {
		return newRemoteSource(r, r.log.remote)
	}
	return directSource{r}
}

func (s directSource) attachLane(lane metadata.LaneID) { s.log.lanes.attach(lane) }

func (s directSource) detach() {
	for _, lane := range s.lanes {
		s.log.lanes.detach(lane.id)
	}
}

func (s directSource) advance() {
	for _, lane := range s.lanes {
		s.lookUp(lane)
		s.watch(lane)
	}
	for s.getting < s.config.prefetch && s.request() {
	}
}

func (s directSource) bounds(ctx context.Context, p *part, known map[*part]bounds) error {
	state, head, err := s.log.walker.Bounds(ctx, p.place.Lane)
	if err != nil {
		return s.log.readError(ctx, s.topic, p.id, walk.Extent{}, err)
	}
	laneBounds(s.topic, state, head, func(b bounds) { s.learn(b, known) })
	return nil
}

func (s directSource) offsetForTime(ctx context.Context, partition int, at time.Time) (int64, error) {
	return s.log.offsetForTime(ctx, s.topic, partition, at)
}

func (s directSource) object(_ *part, e walk.Extent) string { return objectOf(e).Name() }
