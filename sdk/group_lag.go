package sdk

import (
	"context"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// groupPartitions is how far a group is with each partition of a topic.
func (a *Admin) groupPartitions(ctx context.Context, v *groupView, t *metadata.Topic, start Position) ([]GroupPartition, error) {
	ends, err := a.log.offsets(ctx, t) // after the commits were read: an end is never below what was committed before
	if err != nil {
		return nil, inTopic(t.Name, err)
	}
	all := make([]GroupPartition, t.Partitions)
	records := map[metadata.LaneID]map[metadata.Slot]int64{} // offsets of extents that hold the next record
	for p := range all {
		g := &all[p]
		var next int64
		*g, next = v.partition(t, ends[p], start)
		if g.Lag == 0 {
			continue
		}
		e, err := a.log.recordAt(ctx, t, p, next)
		if err != nil {
			return nil, err
		}
		if e == nil {
			continue
		}
		age := max(a.log.now().Sub(e.First), 0)
		g.Oldest, g.AgeMs = e.First, age.Milliseconds()
		if keep := t.EffectiveRetention().Time; keep >= 0 {
			g.Used = fraction(a.log.now().Sub(e.Last), keep)
		}
		place := t.Place(p)
		if records[place.Lane] == nil {
			records[place.Lane] = map[metadata.Slot]int64{}
		}
		records[place.Lane][place.Slot] = max(e.Base, next)
	}
	return all, a.usedBytes(ctx, t, all, records)
}

// usedBytes takes retention by bytes into account.
func (a *Admin) usedBytes(ctx context.Context, t *metadata.Topic, all []GroupPartition, records map[metadata.LaneID]map[metadata.Slot]int64) error {
	keep := t.EffectiveRetention().Bytes
	if keep < 0 {
		return nil
	}
	for lane, offsets := range records {
		behind, err := a.log.walker.Behind(ctx, t, lane, offsets, keep)
		if err != nil {
			return a.log.readError(ctx, t, 0, walk.Extent{}, err)
		}
		for slot, bytes := range behind {
			p, _ := t.Partition(metadata.Place{Lane: lane, Slot: slot})
			all[p].Used = max(all[p].Used, fraction(bytes, keep))
		}
	}
	return nil
}

// fraction is how much of what is kept is used: all of it where nothing is.
func fraction[N ~int64](used, kept N) float64 {
	if kept == 0 {
		return 1
	}
	return float64(max(used, 0)) / float64(kept)
}

// now is the time of the table's service, or where it has not told that the machine's.
func (l *Log) now() time.Time {
	now, ok := l.table.ServiceTime()
	if !ok {
		now = l.env.Now()
	}
	return now
}

// partition is what a group has committed for a partition, and the offset at which it would go on.
func (v *groupView) partition(t *metadata.Topic, ends bounds, start Position) (g GroupPartition, next int64) {
	c := v.at(t, ends.Partition)
	g = GroupPartition{TopicPartition: TopicPartition{t.Name, ends.Partition}, Committed: c.Offset, CommittedAt: c.At, Metadata: c.Metadata,
		Start: ends.Start, End: ends.End}
	for _, m := range v.plan().Members {
		if m.Session == c.Lease.Session {
			g.Owner = m.Name
		}
	}
	next = c.Offset
	switch {
	case next == metadata.NoOffset && start.kind == latest:
		next = g.End
	case next == metadata.NoOffset:
		next = g.Start
	case next < g.Start:
		g.Lost = ends.cuts.Count(next, g.Start)
		next = g.Start
	}
	next = min(ends.cuts.GoOn(next), g.End)
	g.Lag = ends.cuts.Count(next, g.End)
	return g, next
}
