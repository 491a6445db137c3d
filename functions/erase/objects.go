package erase

import (
	"context"
	"errors"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// An archive segment has runs of all partitions of a lane, and stays as long as a row names any of them. So a row that was written again leaves its old run in an object that the
// rows of other partitions keep; and so did merges and key compaction before, with runs that no row of that partition names any more. Those other rows are moved.

// inLane are a lane's rows.
type inLane struct {
	partitions []int
	rows       map[int][]*metadata.Row // of a partition
}

// inLane reads the rows of all partitions that the lane has by now: those that came since the run began may share objects, too.
func (r *run) inLane(ctx context.Context, lane metadata.LaneID) (l inLane, err error) {
	now, err := r.table.Topic(ctx, r.topic.Name)
	if err == nil && now.ID != r.topic.ID {
		err = metadata.ErrUnknownTopic
	}
	if err != nil {
		return l, err
	}
	r.topic, l.rows = now, map[int][]*metadata.Row{}
	for p := range r.topic.Partitions {
		if r.topic.Place(p).Lane != lane {
			continue
		}
		l.partitions = append(l.partitions, p)
		if l.rows[p], _, err = r.rows(ctx, p); err != nil {
			return l, err
		}
	}
	return l, nil
}

// beside moves all rows of a lane out of objects that hold something to be erased.
func (r *run) beside(ctx context.Context, lane metadata.LaneID) error {
	return r.retry(ctx, func() error {
		l, err := r.inLane(ctx, lane)
		if err != nil {
			return err
		}
		if _, err := r.look(ctx, l); err != nil {
			return err
		}
		for _, p := range l.partitions {
			move := batch{run: r, partition: p, count: &r.report.Moved}
			for _, row := range l.rows[p] {
				if !r.held[row.Segment] {
					continue
				}
				if err := move.add(ctx, row); err != nil {
					return r.missing(ctx, p, l, err)
				}
			}
			if err := move.flush(ctx); err != nil {
				return r.missing(ctx, p, l, err)
			}
		}
		return nil
	})
}

// verifyObjects looks again whether there is such an object.
func (r *run) verifyObjects(ctx context.Context, lane metadata.LaneID, v *Verification) error {
	return r.retry(ctx, func() error {
		l, err := r.inLane(ctx, lane)
		if err != nil {
			return err
		}
		objects, err := r.look(ctx, l)
		if err != nil {
			return err
		}
		v.Objects += int64(objects)
		v.Found += int64(len(r.held))
		clear(r.held)
		return nil
	})
}

// runKey is a run of a segment, as footers and rows name it.
type runKey struct {
	segment   segment.ID
	partition int
	base      int64
}

// look adds to r.held the segments of the lane's rows in which a run that no row names has something to be erased. Those that rows name have been looked at. It returns how
// many segments there are.
func (r *run) look(ctx context.Context, l inLane) (segments int, err error) {
	named := map[runKey]bool{}
	for _, rows := range l.rows {
		for _, row := range rows {
			named[runKey{row.Segment, row.Partition, row.Base}] = true
		}
	}
	seen := map[segment.ID]bool{{}: true} // rows without records have no segment
	for _, p := range l.partitions {
		for _, row := range l.rows[p] {
			if seen[row.Segment] || r.held[row.Segment] {
				continue
			}
			seen[row.Segment] = true
			hides, err := r.hides(ctx, row.Segment, named)
			if err != nil {
				return 0, r.missing(ctx, p, l, err)
			}
			if hides {
				r.held[row.Segment] = true
			}
		}
	}
	return len(seen) - 1, nil
}

// hides tells whether a run of the segment that no row names has something to be erased.
func (r *run) hides(ctx context.Context, id segment.ID, named map[runKey]bool) (bool, error) {
	f, err := archive.ReadFooter(ctx, r.Objects, segment.ArchiveName(r.topic.ID, id))
	if err != nil {
		return false, err
	}
	for i := range f.Extents {
		e := &f.Extents[i]
		row := &metadata.Row{Topic: e.Topic, Partition: int(e.Partition), Base: e.BaseOffset, End: e.EndOffset, Count: e.Count, Segment: id, Start: e.Offset, Bytes: e.Length}
		if named[runKey{id, row.Partition, row.Base}] {
			continue
		}
		found, err := r.scan(ctx, row)
		if errors.Is(err, metadata.ErrCorrupt) || errors.As(err, new(*segment.FormatError)) {
			return true, nil // nobody can tell what is in it, and nobody needs it
		}
		if err != nil || found > 0 {
			return found > 0, err
		}
	}
	return false, nil
}

// missing concludes from a segment of a lane's rows that is not there.
func (r *run) missing(ctx context.Context, partition int, l inLane, err error) error {
	if errors.Is(err, store.ErrNotExist) {
		return archive.Missing(ctx, r.Services, r.topic, partition, l.rows[partition], err)
	}
	return err
}
