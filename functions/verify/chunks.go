package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// chunks goes through the chunks below the head.
func (w *walk) chunks(ctx context.Context) error {
	w.begin(w.state.Load(), math.MaxInt64)
	end := int64(math.MaxInt64)
	if w.head != nil {
		end = w.head.First
	}
	for w.next < end {
		// A stale answer shows too little, never anything wrong. gap asks again.
		page, _, err := w.table.Chunks(ctx, w.id, w.next, end, chunksPage, metadata.Eventual)
		switch {
		case unreadable(err):
			err = w.singly(ctx, end)
		case err == nil && len(page) > 0 && page[0].First == w.next:
			err = w.page(ctx, page)
		case err == nil:
			var done bool
			if done, err = w.gap(ctx, end); done {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin begins where the index does, but not above limit.
func (w *walk) begin(state *metadata.State, limit int64) {
	w.next, w.blind = min(state.First, limit), state.First > 0
	if w.meets != nil && w.meets.Archived < state.First {
		w.meets = state
	}
}

// page takes chunks up to the first that does not follow.
func (w *walk) page(ctx context.Context, page []*metadata.Chunk) error {
	for _, c := range page {
		switch {
		case c.First < w.next:
			w.stray(c)
		case c.First > w.next:
			return nil
		default:
			if err := w.chunk(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// stray tells of a chunk that begins within another, or where one was missing.
func (w *walk) stray(c *metadata.Chunk) {
	w.tell(ChunkOutOfPlace, metadata.ChunkKey(w.id, c.First), nil, "chunk of orders [%d, %d) of lane %s, whose chunks begin at multiples of %d", c.First, after(c), w.id, w.k)
}

// gap goes on where an answer did not show the next chunk. done: the lane's head cannot be read, and there are no more chunks.
func (w *walk) gap(ctx context.Context, end int64) (done bool, err error) {
	page, _, err := w.table.Chunks(ctx, w.id, w.next, end, chunksPage, metadata.Strong)
	switch {
	case unreadable(err):
		return false, w.singly(ctx, end)
	case err != nil:
		return false, err
	}
	to := end
	for _, c := range page {
		if c.First%w.k == 0 {
			to = c.First
			break
		}
	}
	if w.head == nil && to == end {
		for _, c := range page {
			w.stray(c)
		}
		return true, nil
	}
	if to > w.next {
		if err := w.missing(ctx, w.next, to); err != nil {
			return false, err
		}
	}
	return false, w.page(ctx, page)
}

// missing concludes from a chunk that a strong read did not show: the index may begin later by now, and the topic may be gone.
func (w *walk) missing(ctx context.Context, from, to int64) error {
	state, err := w.table.State(ctx, w.id, metadata.Strong)
	switch {
	case errors.Is(err, metadata.ErrNoState) || unreadable(err): // told of by readState, or the topic is gone
	case err != nil:
		return err
	default:
		w.state.Store(state)
		if state.First > from {
			w.begin(state, to)
			w.unclear()
			return nil
		}
	}
	if _, err := w.table.Head(ctx, w.id, metadata.Strong); errors.Is(err, metadata.ErrNoLane) {
		if err := w.alive(ctx); err != nil {
			return err
		}
	} else if err != nil && !unreadable(err) {
		return err
	}
	w.lose(ChunkMissing, from, to, "the chunks of orders [%d, %d) of lane %s are missing", from, to, w.id)
	return nil
}

// maxLost is how many findings wait for the offsets behind them.
const maxLost = 64

// lose passes over orders whose entries cannot be known.
func (w *walk) lose(kind Kind, from, to int64, format string, args ...any) {
	w.unclear()
	if len(w.lost) == maxLost {
		w.mend(w.ends)
	}
	w.lost = append(w.lost, Finding{Kind: kind, Lane: string(w.id), Item: metadata.ChunkKey(w.id, from).String(), What: fmt.Sprintf(format, args...)})
	w.next, w.blind = to, true
	if w.meets != nil && w.meets.Archived < to {
		w.meets = nil
	}
}

// mend tells of lost orders, behind which the slots' offsets are these.
func (w *walk) mend(ends metadata.Offsets) {
	var ranges []Range
	for s, to := range ends {
		if from := w.ends[s]; from < to && len(w.lost) > 0 {
			ranges = append(ranges, w.span(metadata.Slot(s), from, to)...)
		}
	}
	for _, f := range w.lost {
		f.Ranges = ranges
		w.find(f)
	}
	w.lost = nil
}

// singly takes the next chunks one by one, because one of them cannot be read.
func (w *walk) singly(ctx context.Context, end int64) error {
	for n := 0; n < chunksPage && w.next < end; n++ {
		first := w.next
		c, err := w.table.Chunk(ctx, w.id, first, metadata.Strong)
		switch {
		case errors.Is(err, metadata.ErrNoChunk) && n > 0:
			return nil // perhaps the end: a page tells
		case errors.Is(err, metadata.ErrNoChunk):
			err = w.missing(ctx, first, first+w.k)
		case unreadable(err):
			w.lose(ChunkUnreadable, first, first+w.k, "the chunk of orders [%d, %d) of lane %s cannot be read: %v", first, first+w.k, w.id, err)
			err = nil
		case err == nil:
			err = w.chunk(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chunk takes the chunk at ledger.next.
func (w *walk) chunk(ctx context.Context, c *metadata.Chunk) error {
	key := metadata.ChunkKey(w.id, c.First)
	if int64(len(c.Entries)) != w.k {
		w.lose(ChunkUnreadable, c.First, c.First+w.k, "the chunk of order %d of lane %s has %d entries, its lane's have %d", c.First, w.id, len(c.Entries), w.k)
		return nil
	}
	w.mend(c.Bases)
	if err := w.leap(ctx, c.Bases); err != nil {
		return err
	}
	for _, s := range w.enter(c.Bases) {
		w.tell(BaseShifted, key, w.span(s, c.Bases[s], c.Ends()[s]), "the chunk of orders [%d, %d) says that slot %d begins at offset %d; the commits before it hold %d records", c.First, after(c), s, c.Bases[s], w.ends[s])
	}
	for _, s := range disagree(c.Entries, c.Bases, c.Ends()) {
		w.tell(BasesDisagree, key, w.span(s, c.Bases[s], c.Ends()[s]), "slot %d: metadata.Bases does not count what the chunk's entries hold", s)
	}
	bases := w.count(c.Entries)
	w.join(c.First, bases)
	for _, s := range w.maxima(c.MaxTimes) {
		if w.inCut(c) { // spilled by one who remembered what a table that was put back had forgotten; nobody reads it any more
			continue
		}
		w.tell(MaximaBroken, key, w.span(s, w.said.ends[s], 0), "the chunk of orders [%d, %d) says that the latest time of slot %d is %d; it is %d", c.First, after(c), s, c.MaxTimes[s], w.times[s])
	}
	return w.take(ctx, key, c.Entries, bases)
}

// inCut tells whether the chunk's offsets are in the cut of a finished repair.
func (w *walk) inCut(c *metadata.Chunk) bool {
	state := w.state.Load()
	return after(c) <= state.Archived && slices.ContainsFunc(state.Cuts, func(cut metadata.Cut) bool { return cut.Order < after(c) })
}

func after(c *metadata.Chunk) int64 { return c.First + int64(len(c.Entries)) }
