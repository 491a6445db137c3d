package verify

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// missing concludes from an object that is not there. It may have expired, its topic may be gone, and the index may name another by now; it is damage
// only if after all that, by strong reads, the same segment is named again, and the object is not there again.
func (c *checker) missing(ctx context.Context, t *task) error {
	named, err := c.stillNamed(ctx, t)
	if err != nil || !named {
		return err
	}
	if t.entry.Order < t.lane.state.Load().Archived {
		return nil // archived since, and swept
	}
	slots := t.readable()
	if slots == 0 || c.outlived(t.entry.ID) {
		c.progress(func(p *Progress) { p.Expired++ })
		return nil
	}
	err = c.object(ctx, t, slots)
	if errors.Is(err, store.ErrNotExist) {
		c.tell(ObjectMissing, t, t.ranges(slots), "order %d of lane %s names segment %s, whose object is missing", t.entry.Order, t.lane.id, t.entry.ID)
		return nil
	}
	return err
}

// outlived tells whether the class's lifecycle rule may have removed the object.
func (c *checker) outlived(id segment.ID) bool {
	days := int(id.Class())
	return id.Class() != segment.Keep && c.now().Sub(id.Time()) > time.Duration(days)*24*time.Hour
}

// stillNamed reads, in the order in which an entry moves, head, state, chunk and state, and tells whether the entry is still where it was. It brings the
// lane's state up to date.
func (c *checker) stillNamed(ctx context.Context, t *task) (bool, error) {
	head, err := c.table.Head(ctx, t.lane.id, metadata.Strong)
	inHead := err == nil && t.entry.Order >= head.First
	switch {
	case errors.Is(err, metadata.ErrNoLane):
		gone, err := c.refresh(ctx, t.lane)
		if err != nil || gone {
			return false, err
		}
	case err != nil && !unreadable(err):
		return false, err
	case inHead && head.Find(t.entry.ID) < 0:
		return false, nil
	}
	if _, err := c.fresh(ctx, t.lane); err != nil || inHead {
		return err == nil, err
	}
	chunk, err := c.table.Chunk(ctx, t.lane.id, metadata.ChunkOf(t.entry.Order, t.k), metadata.Strong)
	switch {
	case errors.Is(err, metadata.ErrNoChunk):
		state, err := c.fresh(ctx, t.lane)
		return err == nil && state.First <= t.entry.Order, err
	case unreadable(err):
		return true, nil
	case err != nil:
		return false, err
	}
	_, named := chunk.Locate([]metadata.Entry{t.entry})
	return named, nil
}

// fresh reads the lane's state again. One that cannot be read, or is not there, was told of by the walk, or its topic is gone.
func (r *run) fresh(ctx context.Context, l *lane) (*metadata.State, error) {
	state, err := r.table.State(ctx, l.id, metadata.Strong)
	switch {
	case err == nil:
		l.state.Store(state)
	case !errors.Is(err, metadata.ErrNoState) && !unreadable(err):
		return nil, err
	}
	return l.state.Load(), nil
}
