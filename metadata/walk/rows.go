package walk

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
)

// inArchive finds the extents among the archive's rows. One that seeks asks for the row that holds its offset; one that goes on asks for the rows from
// its offset on, four times as many as the last time: they are small.
func (w *Walker) inArchive(ctx context.Context, c Cursor, state *metadata.State, consistency metadata.Consistency) ([]Extent, Cursor, error) {
	if c.run > 0 {
		var err error
		if state, err = w.look(ctx, c, consistency); err != nil {
			return nil, c, err
		}
	}
	c.run = min(max(4*c.run, 1), maxRun)
	end := state.Ends[c.Slot]
	rows, err := w.rows(ctx, c, end, int(c.run), consistency)
	if err != nil {
		return nil, c, err
	}
	extents := make([]Extent, len(rows))
	for i, r := range rows {
		extents[i] = rowExtent(r)
	}
	c.arrived = true
	if c.Offset = rows[len(rows)-1].End; c.Offset >= end {
		c.order = max(c.order, state.Archived)
	}
	return extents, c, nil
}

func rowExtent(r *metadata.Row) Extent {
	return Extent{Topic: r.Topic, ID: r.Segment, Base: r.Base, End: r.End, Count: r.Count, MaxTime: r.MaxTime,
		Start: r.Start, Bytes: r.Bytes, LaneStart: r.Start, LaneLength: r.Bytes, First: r.First, Last: r.Last}
}

// rows is the row that holds the cursor's offset, which is below end, the archived one, and those after it without gaps that come with it: at most limit. A
// row that begins before the offset, as after a merge, is looked for by itself.
func (w *Walker) rows(ctx context.Context, c Cursor, end int64, limit int, consistency metadata.Consistency) ([]*metadata.Row, error) {
	if limit > 1 {
		rows, _, err := w.table.Rows(ctx, c.Topic, c.Partition, c.Offset, end, limit, consistency)
		if err != nil {
			return nil, err
		}
		if rows = joined(rows, c.Offset); len(rows) > 0 {
			return rows, nil
		}
	}
	r, err := w.row(ctx, c, consistency)
	if err != nil {
		return nil, err
	}
	return []*metadata.Row{r}, nil
}

// joined is the rows from the offset on up to the first gap.
func joined(rows []*metadata.Row, offset int64) []*metadata.Row {
	for i, r := range rows {
		if r.Base != offset {
			return rows[:i]
		}
		offset = r.End
	}
	return rows
}

// row is the row that holds the cursor's offset. An eventual read that misses it is followed by a strong one; a strong miss is errMoved.
func (w *Walker) row(ctx context.Context, c Cursor, consistency metadata.Consistency) (*metadata.Row, error) {
	r, err := w.table.Row(ctx, c.Topic, c.Partition, c.Offset, consistency)
	missing := errors.Is(err, metadata.ErrNoRow) || err == nil && r.End <= c.Offset
	switch {
	case missing && consistency == metadata.Eventual:
		return w.row(ctx, c, metadata.Strong)
	case missing:
		return nil, fmt.Errorf("%w: no archive row of partition %d of topic %s holds offset %d", errMoved, c.Partition, c.Topic, c.Offset)
	}
	return r, err
}
