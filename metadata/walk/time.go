package walk

import (
	"context"
	"errors"

	"github.com/varvelog/varve/metadata"
)

// maxPage is how many chunks or rows one request of a scan by time asks for.
const maxPage = 128

// FindTime returns the first extent of the cursor's partition that ends after its offset and whose largest index timestamp is at or after t ms, and the
// offset from which on its records count: the largest of the cursor's, the log start and its base. ErrNone, from strong reads, if there is none. If not all
// of its records count, those that do may all be earlier than t: then ask again from its end.
//
// Rows and chunks carry running maxima. The first of them that reaches t holds the first record that does, so one search in the archive, by halving the
// offsets, and one in the chunks, by halving the orders, find it: O(log n) requests, also where times do not ascend, unless that record was removed.
// Removed records stay in the running maxima. Then what follows is gone through, 128 rows or chunks a request, up to the answer. Index timestamps are at
// most an hour ahead: so where appends follow the clock, what is gone through was appended within an hour after the record that was removed.
func (w *Walker) FindTime(ctx context.Context, c Cursor, t int64) (e Extent, first int64, err error) {
	c = c.To(c.Offset)
	var last error
	for range maxRounds {
		at, e, err := w.timeRound(ctx, c, t)
		if !errors.Is(err, errMoved) {
			return e, max(at.Offset, e.Base), err
		}
		last = err
	}
	return Extent{}, 0, corrupt(c, "no entry holds the time: %v", last)
}

func (w *Walker) timeRound(ctx context.Context, c Cursor, t int64) (Cursor, Extent, error) {
	h, err := w.head(ctx, c.Lane, metadata.Strong)
	if err != nil {
		return c, Extent{}, err
	}
	state, err := w.state(ctx, c.Lane, metadata.Strong, false)
	if err != nil {
		return c, Extent{}, err
	}
	c.Offset = max(c.Offset, state.Starts[c.Slot])
	if c.Offset >= h.Ends[c.Slot] {
		return c, Extent{}, ErrNone
	}
	if end := state.Ends[c.Slot]; c.Offset < end {
		e, err := w.timeInArchive(ctx, c, t, end)
		if !errors.Is(err, ErrNone) {
			return c, e, err
		}
		c.Offset = end
	}
	if c.Offset < h.start(c.Slot) {
		e, err := w.timeInChunks(ctx, c, t, h, state)
		if !errors.Is(err, ErrNone) {
			return c, e, err
		}
	}
	e, err := h.reaching(c, t)
	return c, e, err
}

// timeInArchive looks at the rows from the one that holds the cursor's offset to the archived offset, end.
func (w *Walker) timeInArchive(ctx context.Context, c Cursor, t, end int64) (Extent, error) {
	low, high := c.Offset, end // rows that end at or below low do not reach t; those from high on do
	var first *metadata.Row    // the one at high
	for low < high {
		at := c
		at.Offset = low + (high-low)/2
		r, err := w.row(ctx, at, metadata.Eventual)
		switch {
		case err != nil:
			return Extent{}, err
		case r.RunMax >= t:
			first, high = r, r.Base
		default:
			low = r.End
		}
	}
	switch {
	case first == nil:
		return Extent{}, ErrNone
	case rowReaches(first, c, t):
		return rowExtent(first), nil
	}
	// What reached t was removed or lies below the offset. From there on the maxima say nothing: look at every row.
	c.Offset = max(c.Offset, first.End)
	return w.scanRows(ctx, c, t, end)
}

// rowReaches tells whether the row ends after the cursor's offset and has a record that reaches t.
func rowReaches(r *metadata.Row, c Cursor, t int64) bool {
	return r.Count > 0 && r.MaxTime >= t && r.End > c.Offset
}

// scanRows looks at the rows from the cursor's offset on.
func (w *Walker) scanRows(ctx context.Context, c Cursor, t, end int64) (Extent, error) {
	for c.Offset < end {
		rows, err := w.rows(ctx, c, end, maxPage, metadata.Eventual)
		if err != nil {
			return Extent{}, err
		}
		for _, r := range rows {
			if rowReaches(r, c, t) {
				return rowExtent(r), nil
			}
		}
		c.Offset = rows[len(rows)-1].End
	}
	return Extent{}, ErrNone
}

// reaching is the first of the entries' extents that ends after the cursor's offset and reaches t.
func (v *view) reaching(c Cursor, t int64) (Extent, error) {
	extents, _, err := v.from(c)
	if err != nil {
		return Extent{}, err
	}
	for _, e := range extents {
		if e.MaxTime >= t {
			return e, nil
		}
	}
	return Extent{}, ErrNone
}

func (w *Walker) timeInChunks(ctx context.Context, c Cursor, t int64, h *view, state *metadata.State) (Extent, error) {
	low := unarchived(state, h.k)
	// The last chunk before which nothing reaches t is where to begin: it, or nothing among the chunks, has the answer.
	v, err := w.firstReaching(ctx, c, t, low, h)
	if err != nil || v == nil {
		return Extent{}, orNone(err)
	}
	if v.Ends[c.Slot] > c.Offset {
		if e, err := v.reaching(c, t); !errors.Is(err, ErrNone) {
			return e, err
		}
	} else {
		// What reached t lies below the offset. From the offset on the maxima say nothing: look at every entry.
		v, err = w.search(ctx, h.k, c.Lane, v.first, h.first, func(v *view) bool { return v.start(c.Slot) > c.Offset })
		if err != nil {
			return Extent{}, err
		}
	}
	return w.scan(ctx, c, t, v.first, h)
}

// firstReaching is the first chunk whose running maximum is at or above t, or nil.
func (w *Walker) firstReaching(ctx context.Context, c Cursor, t, low int64, h *view) (*view, error) {
	if low >= h.first {
		return nil, nil
	}
	reaches := func(v *view) bool { return v.maxTimes[c.Slot] >= t }
	v, err := w.search(ctx, h.k, c.Lane, low, h.first, reaches)
	if err != nil || reaches(v) {
		return v, err
	}
	if v.next >= h.first {
		return nil, nil
	}
	return w.chunk(ctx, c.Lane, h.k, v.next)
}

// scan looks at the entries of the chunks from first on.
func (w *Walker) scan(ctx context.Context, c Cursor, t, first int64, h *view) (Extent, error) {
	for first < h.first {
		views, err := w.page(ctx, c.Lane, h.k, first, min(first+maxPage*h.k, h.first), metadata.Eventual)
		if err == nil && len(views) == 0 {
			var v *view
			v, err = w.chunk(ctx, c.Lane, h.k, first)
			views = []*view{v}
		}
		if err != nil {
			return Extent{}, err
		}
		for _, v := range views {
			if e, err := v.reaching(c, t); !errors.Is(err, ErrNone) {
				return e, err
			}
			first = v.next
		}
	}
	return Extent{}, ErrNone
}

func orNone(err error) error {
	if err == nil {
		return ErrNone
	}
	return err
}
