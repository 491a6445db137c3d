package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// readStates reads all states before the work list: so that of every order that they call archived the publication is in the work list that is read, if it is
// within the restore window.
func (r *run) readStates(ctx context.Context) error {
	err := each(ctx, r, r.list, func(ctx context.Context, l *lane) (err error) {
		if l.state, err = r.table.State(ctx, l.id, metadata.Strong); err != nil {
			return r.unlessGone(ctx, l, err)
		}
		return r.raised("the archive of lane "+string(l.id), l.state.Floor, nil)
	})
	r.forget()
	return err
}

// hashes are all that segment.ID.Hash may be.
var hashes = func() (all []string) {
	for i := range 256 {
		all = append(all, fmt.Sprintf("%02x", i))
	}
	return all
}()

// entriesPage is how many entries of the work list are asked for at once.
const entriesPage = 100

// entries goes through the work list's entries of a hash with ids in (after, before).
func (r *run) entries(ctx context.Context, hash string, after, before segment.ID, do func([]*metadata.Replaced) error) error {
	for more := true; more; {
		var page []*metadata.Replaced
		var err error
		if page, more, err = r.table.Replaced(ctx, hash, after, before, entriesPage); err != nil {
			return unreadable(err)
		}
		if err := do(page); err != nil {
			return err
		}
		more = more && len(page) > 0
		if more {
			after = page[len(page)-1].ID
		}
	}
	return nil
}

// endOfTime is above every id.
var endOfTime = at(time.UnixMilli(1 << 50))

// restorable tells whether a publication of the id is within the restore window.
func (r *run) restorable(id segment.ID) bool { return id.Time().After(r.now.Add(-RestoreWindow)) }

// readWorkList reads what was published within the restore window, and which lanes have older entries.
func (r *run) readWorkList(ctx context.Context) error {
	err := each(ctx, r, hashes, func(ctx context.Context, hash string) error {
		return r.entries(ctx, hash, segment.ID{}, endOfTime, func(page []*metadata.Replaced) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, e := range page {
				r.noteEntry(e)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, l := range r.list {
		l.needed = min(l.state.Archived, l.young)
	}
	return nil
}

// noteEntry takes an entry into account. mu is held.
func (r *run) noteEntry(e *metadata.Replaced) {
	l := r.lanes[e.Lane]
	if !r.restorable(e.ID) {
		r.due[e.ID.Hash()] = true
		if l != nil {
			l.due = true
		}
		return
	}
	r.published[e.ID] = true
	for _, id := range e.Left {
		r.replaced[id] = true
	}
	if l != nil && e.From < e.To {
		l.young = min(l.young, e.From)
	}
}

func (r *run) readHeads(ctx context.Context) error {
	err := each(ctx, r, r.list, func(ctx context.Context, l *lane) (err error) {
		if l.head, err = r.table.Head(ctx, l.id, metadata.Strong); err != nil {
			return r.unlessGone(ctx, l, err)
		}
		l.needed = metadata.ChunkOf(l.needed, l.head.K)
		return r.raised("lane "+string(l.id), l.head.Floor, nil)
	})
	r.forget()
	return err
}

// kept is the order of the newest chunk below the head, which is never deleted, since the next one continues its running maxima; 0 where there is none.
func (l *lane) kept() int64 { return max(0, l.head.First-l.head.K) }

// chunksPage is how many chunks are asked for at once: some 10 to 100 KB.
const chunksPage = 32

// chunks goes upwards through a lane's chunks of orders [from, to), by strong reads, until do returns false. One that is missing is an
// ErrReferences, unless another sweep has removed it, or the topic is gone.
func (r *run) chunks(ctx context.Context, l *lane, from, to int64, do func(*metadata.Chunk) bool) error {
	for from = metadata.ChunkOf(max(from, l.state.First), l.head.K); from < to; {
		page, _, err := r.table.Chunks(ctx, l.id, from, to, chunksPage, metadata.Strong)
		if err != nil {
			return unreadable(err)
		}
		if len(page) == 0 || page[0].First != from {
			if from, err = r.missing(ctx, l, from); err != nil || r.isGone(l.id) {
				return err
			}
			continue
		}
		for _, c := range page {
			if c.First != from {
				break
			}
			if !do(c) {
				return nil
			}
			from += l.head.K
		}
	}
	return nil
}

// missing is the order from which on chunks are there, if that of from has been let go of meanwhile.
func (r *run) missing(ctx context.Context, l *lane, from int64) (int64, error) {
	state, err := r.table.State(ctx, l.id, metadata.Strong)
	if err == nil && state.First > from {
		return state.First, nil
	}
	if err == nil || errors.Is(err, metadata.ErrNoState) {
		err = fmt.Errorf("chunk %s: %w", metadata.ChunkKey(l.id, from), metadata.ErrNoChunk)
	}
	return from, r.unlessGone(ctx, l, err)
}

// names goes through the segments that the lane needs, in its chunks and its head as it was first read: what was committed since is above the floor, and what has
// been spilled since is in that image.
func (r *run) names(ctx context.Context, l *lane, do func(segment.ID)) error {
	if r.isGone(l.id) {
		return nil
	}
	tell := func(entries []metadata.Entry) {
		for i := range entries {
			if entries[i].Order >= l.needed && !entries[i].Empty {
				do(entries[i].ID)
			}
		}
	}
	tell(l.head.Entries)
	return r.chunks(ctx, l, l.needed, l.head.First, func(c *metadata.Chunk) bool {
		tell(c.Entries)
		return true
	})
}

// recent goes through the lane's needed segments from the newest down, until a page of chunks has none above the id after. l.seen is whether that were all.
func (r *run) recent(ctx context.Context, l *lane, after segment.ID, do func(segment.ID)) error {
	if after.IsZero() {
		l.seen = true
		return r.names(ctx, l, do)
	}
	for i := range l.head.Entries {
		do(l.head.Entries[i].ID)
	}
	for to, bottom := l.head.First, metadata.ChunkOf(max(l.needed, l.state.First), l.head.K); to > bottom; {
		from, young := max(bottom, to-chunksPage*l.head.K), false
		err := r.chunks(ctx, l, from, to, func(c *metadata.Chunk) bool {
			for i := range c.Entries {
				do(c.Entries[i].ID)
				young = young || after.Less(c.Entries[i].ID)
			}
			return true
		})
		if err != nil || !young {
			return err
		}
		to = from
	}
	l.seen = true
	return nil
}
