package repair

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// A partition's rows are made anew from the footers of archive segments. Their extents overlap: what was merged, cleaned or erased is there twice, for as long as what it
// replaced is kept. Of those that begin at the same offset the one that leads furthest is taken, and of equal ones the newest: it is what replaced the others.

// link is an extent that becomes a row. Between hole and its base nothing was found.
type link struct {
	run1
	hole int64
}

// chain links runs from an offset on.
func chain(runs []run1, from int64) (links []link) {
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b run1) int { return cmp.Or(cmp.Compare(b.BaseOffset, a.BaseOffset), b.id.Compare(a.id)) })
	type best struct {
		run   run1
		reach int64
	}
	at := map[int64]best{}
	for _, c := range runs {
		reach := max(c.EndOffset, at[c.EndOffset].reach)
		if b, ok := at[c.BaseOffset]; !ok || reach > b.reach {
			at[c.BaseOffset] = best{c, reach}
		}
	}
	bases := make([]int64, 0, len(at))
	for base := range at {
		bases = append(bases, base)
	}
	slices.Sort(bases)
	for next := from; ; {
		i, _ := slices.BinarySearch(bases, next)
		if i == len(bases) {
			return links
		}
		run := at[bases[i]].run
		links = append(links, link{run, next})
		next = run.EndOffset
	}
}

// runsOf are the runs of a slot, whatever lane it was in when they were archived.
func (r *run) runsOf(l *lane, slot metadata.Slot) (runs []run1) {
	partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: slot})
	for _, c := range r.found.runs[l.topic.ID] {
		if int(c.Partition) == partition {
			runs = append(runs, c)
		}
	}
	return runs
}

// links are the slot's rows to be. Where the table has none at all they begin where the oldest begins that is left: what was before it had expired.
func (r *run) links(l *lane, slot metadata.Slot) []link {
	links := chain(r.runsOf(l, slot), l.state.Ends[slot])
	if r.era.Lost() && l.state.Ends[slot] == 0 && len(links) > 0 {
		links[0].hole = links[0].BaseOffset
	}
	return links
}

// measure finds out how far the archive segments that were found lead, from what the table knows to be archived, without a hole.
func (r *run) measure(l *lane) {
	l.reach = l.state.Ends
	for _, slot := range l.slots {
		for _, k := range r.links(l, slot) {
			if k.hole < k.BaseOffset && !r.era.Lost() {
				break
			}
			l.reach[slot] = k.EndOffset
		}
	}
}

// covers tells whether the archive segments that were found hold all that the lane had committed at the moment that the table was put back to.
func (l *lane) covers() bool {
	for _, slot := range l.slots {
		if l.reach[slot] < l.ends[slot] {
			return false
		}
	}
	return true
}

// publishRuns makes rows of the runs. They come slot by slot in order of offsets; what one segment has next for several slots is published together.
func (r *run) publishRuns(ctx context.Context, l *lane) error {
	left := map[metadata.Slot][]link{}
	for _, slot := range l.slots {
		links := r.links(l, slot)
		if len(links) == 0 {
			continue
		}
		if base := links[0].BaseOffset; links[0].hole == base && l.state.Ends[slot] < base { // the log begins there
			if _, err := r.table.SetStart(ctx, l.id, slot, base); err != nil {
				return err
			}
		}
		left[slot] = links
	}
	for len(left) > 0 {
		var id segment.ID
		for _, links := range left {
			if id.IsZero() || links[0].id.Less(id) {
				id = links[0].id
			}
		}
		var group []link
		for _, slot := range l.slots {
			if links := left[slot]; len(links) > 0 && links[0].id == id {
				group = append(group, links[0])
				if left[slot] = links[1:]; len(left[slot]) == 0 {
					delete(left, slot)
				}
			}
		}
		for part := range slices.Chunk(group, metadata.MaxPublishRows/2) { // each may come with a row over the hole before it
			if err := r.inTime(ctx, l, func() error { return r.publishGroup(ctx, l, id, part) }); err != nil {
				return err
			}
		}
	}
	return r.read(ctx, l)
}

// publishGroup publishes runs of one segment. Where the lane takes no segment of that id, as it is of another class by now or below the floor, or of another lane, they are copied.
func (r *run) publishGroup(ctx context.Context, l *lane, id segment.ID, group []link) error {
	asked := r.table.Moment()
	state, err := r.table.State(ctx, l.id, metadata.Strong)
	if err != nil {
		return err
	}
	p := &metadata.Publication{Lane: l.id, ID: id, From: state.Archived, To: state.Archived, Ends: map[metadata.Slot]int64{}}
	var cuts []metadata.Cut
	for _, k := range group {
		slot := metadata.Slot(k.Slot)
		before, err := r.latest(ctx, l, int(k.Partition), k.hole)
		if err != nil {
			return err
		}
		if k.hole < k.BaseOffset {
			p.Put = append(p.Put, r.empty(l, int(k.Partition), k.hole, k.BaseOffset, before))
			cuts = append(cuts, metadata.Cut{Slot: slot, From: k.hole, To: k.BaseOffset, Order: l.order})
			r.report.hole(l.topic.Name, int(k.Partition), k.hole, k.BaseOffset)
		}
		latest := metadata.IndexTime(max(k.MaxTime, 0), id)
		p.Put = append(p.Put, metadata.Row{Topic: l.topic.ID, Partition: int(k.Partition), Base: k.BaseOffset, End: k.EndOffset, Count: k.Count, Segment: id,
			Start: k.Offset, Bytes: k.Length, MaxTime: latest, RunMax: max(before, latest), First: id.Time(), Last: id.Time()})
		p.Ends[slot] = k.EndOffset
		r.report.archived(l.topic, int(k.Partition), k)
	}
	if len(cuts) > 0 {
		known := func(c metadata.Cut) bool {
			return slices.ContainsFunc(cuts, func(d metadata.Cut) bool { return c.Slot == d.Slot && c.To == d.To })
		}
		if _, err := r.table.SetCuts(ctx, state, state.WithCuts(known, cuts...)); err != nil {
			return err
		}
	}
	foreign := slices.ContainsFunc(group, func(k link) bool { return k.Lane != string(l.id) })
	if foreign || !state.Floor.Less(id) || state.Version > 0 && state.Class != id.Class() {
		if p, err = r.copied(ctx, l, state, p); err != nil {
			return err
		}
		p.Minted = asked
	}
	return archive.Publish(ctx, r.o.Env, r.table, l.topic, p)
}

// copied is the publication with its runs in a new segment.
func (r *run) copied(ctx context.Context, l *lane, state *metadata.State, p *metadata.Publication) (*metadata.Publication, error) {
	q := *p
	q.ID = archive.Mint(r.o.Env, r.table, l.topic.Class(), state.Floor)
	var err error
	q.Put, _, err = archive.Write(ctx, r.o.Env, r.bucket, archive.Segment{ID: q.ID, Log: r.log, Topic: l.topic.ID, Lane: l.id}, func(w *archive.Writer) error {
		for i := range p.Put {
			row := &p.Put[i]
			if err := w.Begin(archive.Run{Slot: l.topic.Place(row.Partition).Slot, Partition: row.Partition, Base: row.Base, End: row.End, RunMax: row.RunMax, First: row.First, Last: row.Last}); err != nil {
				return err
			}
			if row.Count == 0 {
				continue
			}
			if err := archive.Batches(ctx, r.bucket, row, func(b []byte) error { return w.Add(b, archive.UnknownTime, row.MaxTime) }); err != nil {
				return err
			}
		}
		return nil
	})
	return &q, err
}

// empty is a row without records.
func (r *run) empty(l *lane, partition int, from, to, runMax int64) metadata.Row {
	born := r.era.Begun.Truncate(time.Millisecond)
	return metadata.Row{Topic: l.topic.ID, Partition: partition, Base: from, End: to, RunMax: runMax, First: born, Last: born}
}

// latest is the running maximum timestamp of the rows below an offset.
func (r *run) latest(ctx context.Context, l *lane, partition int, offset int64) (int64, error) {
	row, err := r.table.Row(ctx, l.topic.ID, partition, offset-1, metadata.Strong)
	if errors.Is(err, metadata.ErrNoRow) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return row.RunMax, nil
}
