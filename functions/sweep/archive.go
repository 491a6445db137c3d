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

// rowsPage is how many archive rows are asked for at once, batchRows how many are seen to together, at least.
const (
	rowsPage  = 100
	batchRows = 1000
)

// readRows finds out whether an archive row names the segment: the rows that lie where its footer says its runs do. A row wholly below the log start does not
// count. Segments that were replaced within the restore window are kept for it.
func (r *run) readRows(ctx context.Context, s *suspect) error {
	if r.replaced[s.id] {
		s.needed = true
		return nil
	}
	for i := range s.footer.Extents {
		e := &s.footer.Extents[i]
		row, err := r.table.Row(ctx, e.Topic, int(e.Partition), e.BaseOffset, metadata.Strong)
		if err != nil && !errors.Is(err, metadata.ErrNoRow) {
			return unreadable(err)
		}
		rows := []*metadata.Row{row}
		if err != nil || row.End < e.EndOffset {
			if rows, err = r.rows(ctx, e.Topic, int(e.Partition), e.BaseOffset, e.EndOffset, rows); err != nil {
				return err
			}
		}
		for _, row := range rows {
			if row != nil && row.Segment == s.id && !r.rowExpired(row) {
				s.needed = true
				return nil
			}
		}
	}
	return nil
}

// rows appends the rows with bases in [from, to).
func (r *run) rows(ctx context.Context, topic segment.TopicID, partition int, from, to int64, rows []*metadata.Row) ([]*metadata.Row, error) {
	for more := true; more; {
		var page []*metadata.Row
		var err error
		if page, more, err = r.table.Rows(ctx, topic, partition, from, to, rowsPage, metadata.Strong); err != nil {
			return nil, unreadable(err)
		}
		if rows, more = append(rows, page...), more && len(page) > 0; more {
			from = page[len(page)-1].Base + 1
		}
	}
	return rows, nil
}

// rowExpired tells whether a row lies wholly below its partition's log start, or its topic is deleted.
func (r *run) rowExpired(row *metadata.Row) bool {
	t := r.byID[row.Topic]
	if t == nil {
		return r.deletedTopic(row.Topic)
	}
	if row.Partition >= t.Partitions { // it has grown meanwhile
		return false
	}
	at := t.Place(row.Partition)
	l := r.lanes[at.Lane]
	return l != nil && row.End <= l.state.Starts[at.Slot]
}

func (r *run) deletedTopic(id segment.TopicID) bool {
	for _, g := range r.deletions {
		if g.ID == id {
			return true
		}
	}
	return false
}

// expiredRows deletes the rows that lie wholly below log starts, after the segments that no other row names.
func (r *run) expiredRows(ctx context.Context) error {
	var rows []*metadata.Row
	for _, l := range r.list {
		for _, t := range l.topics {
			for slot, start := range l.state.Starts {
				p, ok := t.Partition(metadata.Place{Lane: l.id, Slot: metadata.Slot(slot)})
				if !ok || min(start, l.state.Ends[slot]) == 0 || r.isGone(l.id) {
					continue
				}
				if err := r.expiredOf(ctx, t.ID, p, start, &rows); err != nil {
					return err
				}
			}
		}
	}
	return r.dropRows(ctx, rows, whyExpired)
}

// expiredOf gathers a partition's rows below the log start, and drops them when there are many.
func (r *run) expiredOf(ctx context.Context, topic segment.TopicID, partition int, start int64, rows *[]*metadata.Row) error {
	for from, more := int64(0), true; more; {
		var page []*metadata.Row
		var err error
		if page, more, err = r.table.Rows(ctx, topic, partition, from, start, rowsPage, metadata.Strong); err != nil {
			return unreadable(err)
		}
		for _, row := range page {
			if from = row.Base + 1; row.End <= start && r.old(row.Segment) {
				*rows = append(*rows, row)
			}
		}
		more = more && len(page) > 0
		if len(*rows) >= batchRows {
			if err := r.dropRows(ctx, *rows, whyExpired); err != nil {
				return err
			}
			*rows = (*rows)[:0]
		}
	}
	return nil
}

// dropRows judges the segments of rows that are no longer needed, then deletes the rows, as far as they are still as they were read.
func (r *run) dropRows(ctx context.Context, rows []*metadata.Row, why string) error {
	known := map[segment.ID]bool{{}: true} // rows without records have no segment
	var suspects []*suspect
	for _, row := range rows {
		if !known[row.Segment] {
			known[row.Segment] = true
			suspects = append(suspects, &suspect{id: row.Segment, topic: row.Topic, why: why})
		}
	}
	if err := r.judge(ctx, suspects); err != nil {
		return err
	}
	for _, row := range rows {
		r.tell(Deletion{Kind: Row, Name: row.Key().String(), Why: why})
	}
	if r.o.DryRun {
		return nil
	}
	return each(ctx, r, rows, func(ctx context.Context, row *metadata.Row) error {
		r.o.Env.At(env.BeforeDelete)
		return r.table.DeleteRows(ctx, []*metadata.Row{row})
	})
}

// workList sees to the entries that are older than the restore window: the archive segments that the publication replaced, and then, when the chunks of its orders
// have been let go of, the entry itself. A segment that a row still names is left to the publication that replaces that, or to its expiry; one that was replaced
// again within the restore window, to that publication's entry.
func (r *run) workList(ctx context.Context) error {
	return each(ctx, r, slices.Sorted(maps.Keys(r.due)), func(ctx context.Context, hash string) error {
		return r.entries(ctx, hash, segment.ID{}, at(r.now.Add(-RestoreWindow)), func(page []*metadata.Replaced) error { return r.finish(ctx, page) })
	})
}

// finish sees to some entries.
func (r *run) finish(ctx context.Context, page []*metadata.Replaced) error {
	var done []*metadata.Replaced
	known := map[segment.ID]bool{}
	var suspects []*suspect
	for _, e := range page {
		l := r.lanes[e.Lane]
		if l != nil && e.To > l.let || !r.old(e.ID) {
			continue
		}
		left := false
		for _, id := range e.Left {
			left = left || !r.old(id)
			if l != nil && r.old(id) && !known[id] {
				known[id] = true
				for _, t := range l.topics {
					suspects = append(suspects, &suspect{id: id, topic: t.ID, why: whyReplaced})
				}
			}
		}
		if !left {
			done = append(done, e)
		}
	}
	if err := r.judge(ctx, suspects); err != nil {
		return err
	}
	for _, e := range done {
		r.tell(Deletion{Kind: Replaced, Name: metadata.ReplacedKey(e.ID).String(), Why: whyDone})
		if r.o.DryRun {
			continue
		}
		r.o.Env.At(env.BeforeDelete)
		if err := r.table.DeleteReplaced(ctx, e.ID); err != nil {
			return err
		}
	}
	return nil
}
