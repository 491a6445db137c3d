package walk

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
)

// maxRun is how many chunks a reader that goes from one to the next asks for in one query.
const maxRun = 32

// inChunks finds the extents among the chunks, whose first orders are multiples of K, from unarchived to h.first. A chunk that is not there sends the
// caller round again, to a state that says why.
func (w *Walker) inChunks(ctx context.Context, c Cursor, h *view, state *metadata.State, consistency metadata.Consistency) ([]Extent, Cursor, error) {
	low := max(c.order, unarchived(state, h.k))
	low -= low % h.k
	var v *view
	var err error
	if c.order > 0 {
		v, err = w.gallop(ctx, &c, low, h, consistency)
	} else {
		c.run = 0
		v, err = w.search(ctx, h.k, c.Lane, low, h.first, func(v *view) bool { return v.start(c.Slot) > c.Offset })
	}
	switch {
	case err != nil:
		return nil, c, err
	case v == nil || v.start(c.Slot) > c.Offset || v.Ends[c.Slot] <= c.Offset:
		return nil, c, fmt.Errorf("%w: not in the chunks of orders [%d, %d)", errMoved, low, h.first)
	}
	return v.from(c)
}

// unarchived is the first order of the first chunk that is kept and of which not all is in the archive.
func unarchived(state *metadata.State, k int64) int64 {
	low := max(state.First, state.Archived)
	return low - low%k
}

// gallop searches upwards from the chunk where the cursor stands: at once for a slot that has records in every chunk, and in O(log d) for one that
// has none in the next d.
func (w *Walker) gallop(ctx context.Context, c *Cursor, low int64, h *view, consistency metadata.Consistency) (*view, error) {
	v, err := w.ahead(ctx, c, low, h, consistency)
	if err != nil || v == nil || v.Ends[c.Slot] > c.Offset {
		return v, err
	}
	beyond := func(v *view) bool { return v.start(c.Slot) > c.Offset }
	for step := h.k; ; step *= 2 {
		high := low + step
		if high >= h.first {
			return w.search(ctx, h.k, c.Lane, low, h.first, beyond)
		}
		v, err := w.chunk(ctx, c.Lane, h.k, high)
		switch {
		case err != nil:
			return nil, err
		case beyond(v):
			return w.search(ctx, h.k, c.Lane, low, high, beyond)
		}
		low = high
	}
}

// ahead is the chunk at first, below h's. Unless it is known it is asked for together with those after it, twice as many as the last time,
// and after a look at the state.
func (w *Walker) ahead(ctx context.Context, c *Cursor, first int64, h *view, consistency metadata.Consistency) (*view, error) {
	if first >= h.first {
		return nil, nil
	}
	if v := w.chunks.get(c.Lane, first); v != nil {
		return v, nil
	}
	state, err := w.look(ctx, *c, consistency)
	switch {
	case err != nil:
		return nil, err
	case c.Offset < state.Ends[c.Slot]:
		return nil, errMoved
	}
	if c.run = min(max(2*c.run, 1), maxRun); c.run > 1 {
		to := min(first+c.run*h.k, h.first)
		if _, err := w.page(ctx, c.Lane, h.k, first, to, metadata.Eventual); err != nil {
			return nil, err
		}
	}
	return w.chunk(ctx, c.Lane, h.k, first)
}

// search returns the last chunk in [low, high) for which beyond is false, or the one at low; nil if the range is empty. beyond must be false up to some chunk
// and true from there on. It takes one request for each halving, less what is remembered.
func (w *Walker) search(ctx context.Context, k int64, lane metadata.LaneID, low, high int64, beyond func(*view) bool) (*view, error) {
	if low >= high {
		return nil, nil
	}
	for high-low > k {
		middle := low + (high-low)/(2*k)*k
		v, err := w.chunk(ctx, lane, k, middle)
		if err != nil {
			return nil, err
		}
		if beyond(v) {
			high = middle
		} else {
			low = middle
		}
	}
	return w.chunk(ctx, lane, k, low)
}

// chunk is the chunk at first. An eventual read that misses it is followed by a strong one; a strong miss is errMoved.
func (w *Walker) chunk(ctx context.Context, lane metadata.LaneID, k, first int64) (*view, error) {
	if v := w.chunks.get(lane, first); v != nil {
		return v, nil
	}
	c, err := w.table.Chunk(ctx, lane, first, metadata.Eventual)
	if errors.Is(err, metadata.ErrNoChunk) {
		c, err = w.table.Chunk(ctx, lane, first, metadata.Strong)
	}
	switch {
	case errors.Is(err, metadata.ErrNoChunk):
		return nil, fmt.Errorf("%w: %w", errMoved, err)
	case err != nil:
		return nil, err
	}
	return w.keep(c, k)
}

// page asks for the chunks of orders [from, to) in one query and returns them up to the first that is missing from the answer.
func (w *Walker) page(ctx context.Context, lane metadata.LaneID, k, from, to int64, consistency metadata.Consistency) ([]*view, error) {
	chunks, _, err := w.table.Chunks(ctx, lane, from, to, int((to-from+k-1)/k), consistency)
	if err != nil {
		return nil, err
	}
	var views []*view
	for i, c := range chunks {
		if c.First != from+int64(i)*k {
			break
		}
		v, err := w.keep(c, k)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

func (w *Walker) keep(c *metadata.Chunk, k int64) (*view, error) {
	v, err := newChunkView(c)
	switch {
	case err != nil:
		return nil, err
	case v.k != k:
		return nil, fmt.Errorf("%w: chunk %d of lane %s has %d entries, its lane's have %d", metadata.ErrCorrupt, c.First, c.Lane, v.k, k)
	}
	w.chunks.put(v)
	return v, nil
}
