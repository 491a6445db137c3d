package sweep

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// batchSuspects is how many segments are judged together, at least. A lane that shares segments with others is read once for all of them.
const batchSuspects = 10_000

// batch is chunks that are let go of, and the segments that they name.
type batch struct {
	*run
	suspects map[segment.ID]*suspect
	chunks   []laneChunks
}

// laneChunks are chunks of a lane to be deleted when their segments are seen to.
type laneChunks struct {
	id    metadata.LaneID
	live  *lane // nil if the topic is deleted
	why   string
	first []int64
	to    int64 // orders below it are let go of
}

func (r *run) newBatch() *batch { return &batch{run: r, suspects: map[segment.ID]*suspect{}} }

// add adds a segment that a lane needs no longer. One that is too young to be deleted waits among the orphans.
func (b *batch) add(id segment.ID, lane metadata.LaneID, why string) {
	if !b.old(id) {
		return
	}
	s := b.suspects[id]
	if s == nil {
		s = &suspect{id: id, why: why}
		b.suspects[id] = s
	}
	s.from = append(s.from, lane)
}

// chunk adds the chunk's segments.
func (b *batch) chunk(c *metadata.Chunk, why string) {
	for i := range c.Entries {
		if e := &c.Entries[i]; !e.Empty {
			b.add(e.ID, c.Lane, why)
		}
	}
}

// flush judges the segments, then deletes the chunks. A crash in between repeats the former.
func (b *batch) flush(ctx context.Context) error {
	suspects := slices.SortedFunc(maps.Values(b.suspects), func(a, b *suspect) int { return a.id.Compare(b.id) })
	if err := b.judge(ctx, suspects); err != nil {
		return err
	}
	if err := each(ctx, b.run, b.chunks, b.deleteChunks); err != nil {
		return err
	}
	b.suspects, b.chunks = map[segment.ID]*suspect{}, nil
	return nil
}

// deleteChunks raises the lane's first order before its chunks go, so that whoever misses them learns why.
func (r *run) deleteChunks(ctx context.Context, c laneChunks) error {
	for _, first := range c.first {
		r.tell(Deletion{Kind: Chunk, Name: metadata.ChunkKey(c.id, first).String(), Why: c.why})
	}
	if r.o.DryRun || len(c.first) == 0 {
		return nil
	}
	r.o.Env.At(env.BeforeDelete)
	state, err := r.table.SetFirst(ctx, c.id, c.to)
	switch {
	case errors.Is(err, metadata.ErrNoState): // the topic is deleted, and what is left of the lane goes with it
		return nil
	case err != nil:
		return err
	case c.live != nil:
		r.mu.Lock()
		c.live.state = state
		r.mu.Unlock()
	}
	r.o.Env.At(env.BeforeDelete)
	return r.table.DeleteChunks(ctx, c.id, 0, c.to)
}

// superseded lets go of what lanes need no longer.
func (r *run) superseded(ctx context.Context) error {
	b := r.newBatch()
	for _, l := range r.list {
		if err := b.lane(ctx, l); err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// lane goes through the chunks below the lane's first needed order. The newest chunk below the head stays, and with it, where it is all there is, nothing is done
// unless the work list says that it is due: else its segments would be asked for each time.
func (b *batch) lane(ctx context.Context, l *lane) error {
	l.let = l.state.First
	if err := b.leftovers(ctx, l); err != nil || b.isGone(l.id) {
		return err
	}
	if l.let >= l.needed || l.let >= l.kept() && !l.due {
		return nil
	}
	for from := l.state.First; from < l.needed; {
		mine := laneChunks{id: l.id, live: l, why: whySuperseded}
		next := from
		err := b.run.chunks(ctx, l, from, min(l.needed, l.head.First), func(c *metadata.Chunk) bool {
			b.chunk(c, whySuperseded)
			if next = c.First + l.head.K; next <= l.kept() {
				mine.first, mine.to = append(mine.first, c.First), next
			}
			return len(b.suspects) < batchSuspects
		})
		if err != nil || b.isGone(l.id) {
			return err
		}
		l.let = next
		b.chunks = append(b.chunks, mine)
		if next == from {
			return nil
		}
		from = next
		if len(b.suspects) >= batchSuspects {
			if err := b.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftovers are chunks below the first order: a sweep ended before it had deleted them. Their segments have been seen to.
func (b *batch) leftovers(ctx context.Context, l *lane) error {
	if l.state.First == 0 {
		return nil
	}
	mine := laneChunks{id: l.id, live: l, why: whySuperseded, to: l.state.First}
	for from, more := int64(0), true; more; {
		var page []*metadata.Chunk
		var err error
		if page, more, err = b.table.Chunks(ctx, l.id, from, l.state.First, chunksPage, metadata.Strong); err != nil {
			return unreadable(err)
		}
		for _, c := range page {
			from, mine.first = c.First+1, append(mine.first, c.First)
		}
		more = more && len(page) > 0
	}
	return b.deleteChunks(ctx, mine)
}
