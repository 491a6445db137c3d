package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	protocol "github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// addition is an intake segment that is appended again, and to which lanes.
type addition struct {
	source
	lanes map[metadata.LaneID][]metadata.SlotEntry // in the order of their bytes; MaxTime is that of the records
	start map[metadata.LaneID]int64                // in the segment as it is
}

// source is a segment, or what it has of a lane that is none any more: another one has its partitions, to which that is moved.
type source struct {
	id   segment.ID
	from metadata.LaneID // empty: as a whole
}

// additions are the segments that lanes are to have again, by the order of ids.
func (r *run) additions() (all []*addition) {
	by := map[source]*addition{}
	of := func(s source) *addition {
		if by[s] == nil {
			by[s] = &addition{s, map[metadata.LaneID][]metadata.SlotEntry{}, map[metadata.LaneID]int64{}}
		}
		return by[s]
	}
	copies := map[segment.ID]bool{}
	for _, p := range r.found.intake {
		for _, e := range append(slices.Clone(r.eras), r.era) {
			copies[copyOf(e, source{id: p.id})] = true // appended again by an earlier repair, whose table was put back since, or put by this one
			for from := range p.lanes {
				copies[copyOf(e, source{p.id, from})] = true
			}
		}
	}
	for _, p := range r.found.intake {
		if copies[p.id] {
			continue
		}
		for id, extents := range p.lanes {
			s := source{id: p.id}
			l := r.home(&extents[0])
			if l.id != id {
				s.from = id
			}
			if s.from == "" && l.knows(p.id) || r.appendedBefore(l, s) {
				continue
			}
			a := of(s)
			a.lanes[l.id], a.start[l.id] = slotsOf(extents), extents[0].Offset
		}
	}
	for id, l := range r.lanes {
		for _, e := range l.again {
			if r.appendedBefore(l, source{id: e.ID}) {
				continue
			}
			a := of(source{id: e.ID})
			a.lanes[id], a.start[id] = e.Slots, e.Start
		}
	}
	for _, a := range by {
		if len(a.lanes) > 0 {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *addition) int { return cmp.Or(a.id.Compare(b.id), cmp.Compare(a.from, b.from)) })
	return all
}

// appendedBefore tells whether an earlier repair has appended the source to the lane.
func (r *run) appendedBefore(l *lane, s source) bool {
	return slices.ContainsFunc(r.eras, func(e metadata.Era) bool { return l.knows(copyOf(e, s)) })
}

// home is the lane that holds an extent's partition. amendTopics has seen to it that there is one.
func (r *run) home(e *segment.Extent) *lane {
	return r.lanes[r.byID[e.Topic].Place(int(e.Partition)).Lane]
}

// knows tells whether the lane has committed a segment, be it in the cut.
func (l *lane) knows(id segment.ID) bool { return l.has[id] || l.again[id].ID == id }

// slotsOf sums the extents of a lane up by slot.
func slotsOf(extents []segment.Extent) (slots []metadata.SlotEntry) {
	for i := range extents {
		e := &extents[i]
		if n := len(slots); n == 0 || slots[n-1].Slot != metadata.Slot(e.Slot) {
			slots = append(slots, metadata.SlotEntry{Slot: metadata.Slot(e.Slot), MaxTime: e.MaxTime})
		}
		s := &slots[len(slots)-1]
		s.Count, s.Bytes, s.MaxTime = s.Count+int32(e.Count), s.Bytes+int32(e.Length), max(s.MaxTime, e.MaxTime)
	}
	return slots
}

// copyOf is the id under which a segment is put and appended again: the same each time, in another millisecond and with other chance for each. It is above floorOf, which the
// heads may have by then.
func copyOf(era metadata.Era, s source) segment.ID {
	h := fnv.New64a()
	h.Write([]byte(s.id.String()))
	h.Write([]byte(s.from))
	sum := h.Sum64()
	return segment.NewID(era.Begun.Add(time.Duration(sum>>48)*time.Millisecond), s.id.Class(), segment.InBucket, sum, floorOf(era))
}

func (r *run) appendAll(ctx context.Context) error {
	all := r.additions()
	archived, err := r.fingerprints(ctx, all)
	if err != nil {
		return err
	}
	for i, a := range all {
		r.tell("segment %d of %d", i+1, len(all))
		if err := r.appendOne(ctx, a, archived); err != nil {
			return fmt.Errorf("append segment %s again: %w", a.id, err)
		}
	}
	return nil
}

func (r *run) appendOne(ctx context.Context, a *addition, archived prints) error {
	id := copyOf(r.era, a.source)
	var lanes []metadata.LaneID
	for l := range a.lanes {
		if !r.lanes[l].has[id] {
			lanes = append(lanes, l)
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	slices.Sort(lanes)
	old := objects.Of("", a.id)
	body, err := r.segments.Get(ctx, old, 0, -1, nil)
	if errors.Is(err, store.ErrNotExist) {
		r.report.unreadable(old.Name(), err)
		return nil
	}
	if err != nil {
		return err
	}
	put := false
	for _, l := range lanes {
		known, err := archived.have(l, a, body)
		if err != nil {
			r.report.unreadable(old.Name(), err)
			return nil
		}
		if known {
			r.report.Archived++
			continue
		}
		start := a.start[l]
		if a.from != "" {
			if body, start, err = r.moved(body, a.from, l); err != nil {
				return err
			}
		}
		if !put {
			if err := r.bucket.Put(ctx, segment.IntakeName(id), body); err != nil {
				return err
			}
			put = true
		}
		e := metadata.Entry{ID: id, Start: start, Slots: slices.Clone(a.lanes[l])}
		for i := range e.Slots {
			e.Slots[i].MaxTime = metadata.IndexTime(e.Slots[i].MaxTime, id)
		}
		if err := r.commit(ctx, r.lanes[l], e); err != nil {
			return err
		}
		r.report.appended(r.lanes[l].topic, r.lanes[l].id, e)
	}
	return nil
}

// commit appends an entry unless the lane has it. Each attempt holds only while nothing has left the head since the lane was last looked through (Commit.Once), so one that
// was applied, early or late, refuses all others: an unknown outcome needs no settling, but another look.
func (r *run) commit(ctx context.Context, l *lane, e metadata.Entry) error {
	for range jumpTries {
		if err := r.lookOn(ctx, l); err != nil {
			return err
		}
		if l.has[e.ID] {
			return nil
		}
		h := l.head
		if h.Next-h.First >= metadata.MaxHeadEntries/2 {
			if err := protocol.Spill(ctx, r.table, r.o.Env, h); err != nil {
				return err
			}
			continue
		}
		after, err := r.table.Commit(ctx, metadata.Commit{Lane: l.id, Entries: []metadata.Entry{e}, Writer: writer, Epoch: h.Epochs[writer], Cap: metadata.CapFor(h.First, 1), Once: true, Since: h.First})
		var refused *metadata.RefusedError
		switch {
		case err == nil:
			l.has[e.ID] = true
			if after.SpillDue(1) {
				return protocol.Spill(ctx, r.table, r.o.Env, after)
			}
			return nil
		case errors.As(err, &refused) && refused.Head != nil && !refused.Head.Floor.Less(e.ID):
			return fmt.Errorf("the floor, %s, has passed it: a sweep has run since the repair began", refused.Head.Floor)
		case errors.As(err, &refused) && refused.Head == nil:
			return err
		case refused == nil && !errors.Is(err, metadata.ErrOutcomeUnknown) && !errors.Is(err, metadata.ErrThrottled):
			return err
		}
	}
	return ErrBusy
}

// lookOn reads what the lane has committed since it was last looked through.
func (r *run) lookOn(ctx context.Context, l *lane) (err error) {
	if l.head, err = r.table.Head(ctx, l.id, metadata.Strong); err != nil {
		return err
	}
	err = r.entries(ctx, l, l.seen, func(e *metadata.Entry, _ *metadata.Offsets) { l.has[e.ID] = true })
	l.seen = l.head.First
	return err
}

// prints are the batches that the archive holds or held, by lane and slot, and how often. Compaction copies batches as they are but for their base offsets: by the rest they are
// known again. So a segment whose batches are there needs not be appended again. Those that erasure or key compaction has written again without some records, or left out, are not
// the same any more; but the segment that compaction had copied them to, which is kept for as long as theirs, has them.
type prints map[metadata.LaneID]map[metadata.Slot]map[uint64]int

// print is what a batch is known by: its header but for base offset and leader epoch, the checksum of its records included.
func print(batch []byte) uint64 {
	h := fnv.New64a()
	h.Write(batch[8:12])
	h.Write(batch[16:61])
	return h.Sum64()
}

// skew is more than the clocks of a producer and of a compactor are apart: an archive segment's id may be a little below that of what it was copied from.
const skew = time.Hour

// fingerprints reads the rows, and the archive segments that were found and were replaced, that may hold what is about to be appended: those that are not older.
func (r *run) fingerprints(ctx context.Context, all []*addition) (prints, error) {
	p := prints{}
	if len(all) == 0 {
		return p, nil
	}
	oldest := all[0].id.Time().Add(-skew)
	for _, l := range r.inOrder() {
		var twice []metadata.Cut
		for _, slot := range l.slots {
			cuts, err := r.fingerprint(ctx, p, l, slot, oldest)
			if err != nil {
				return nil, err
			}
			twice = append(twice, cuts...)
		}
		if len(twice) == 0 {
			continue
		}
		var err error
		if l.state, err = r.table.SetCuts(ctx, l.state, l.state.WithCuts(func(c metadata.Cut) bool { return slices.Contains(twice, c) }, twice...)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// fingerprint adds a slot's batches. Of extents of another history than its rows, whose records are appended again, it returns the offsets: these were given twice.
func (r *run) fingerprint(ctx context.Context, p prints, l *lane, slot metadata.Slot, oldest time.Time) (twice []metadata.Cut, err error) {
	partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: slot})
	rows, err := archive.Rows(ctx, r.table, l.topic, partition, l.state)
	if err != nil {
		return nil, err
	}
	seen := map[place]bool{} // a batch that was copied again is one
	recent := func(row *metadata.Row) bool {
		return row.Count > 0 && !row.Segment.Time().Before(oldest) && row.Base < r.era.Jump
	}
	for _, row := range rows {
		if recent(row) {
			places, err := r.places(ctx, row)
			if err != nil {
				return nil, err
			}
			p.add(l.id, slot, places, seen)
		}
	}
	for _, extent := range r.replaced(l, slot, rows) {
		if !recent(extent) {
			continue
		}
		places, err := r.places(ctx, extent)
		same := true
		if err == nil && slices.ContainsFunc(places, func(at place) bool { return !seen[at] }) {
			same, err = r.sameHistory(ctx, extent, rows)
		}
		switch {
		case errors.Is(err, store.ErrNotExist): // it was swept since it was listed
		case err != nil:
			return nil, err
		case same:
			p.add(l.id, slot, places, seen)
		default:
			twice = append(twice, metadata.Cut{Slot: slot, From: extent.Base, To: extent.End, Order: l.order})
		}
	}
	return joined(twice), nil
}

// joined makes one of cuts of a slot that touch.
func joined(cuts []metadata.Cut) (all []metadata.Cut) {
	slices.SortFunc(cuts, func(a, b metadata.Cut) int { return cmp.Compare(a.From, b.From) })
	for _, c := range cuts {
		if n := len(all); n > 0 && c.From <= all[n-1].To {
			all[n-1].To = max(all[n-1].To, c.To)
		} else {
			all = append(all, c)
		}
	}
	return all
}

// place is a batch and where it is.
type place struct {
	base  int64
	batch uint64
}

// places are the batches of a row.
func (r *run) places(ctx context.Context, row *metadata.Row) (all []place, err error) {
	err = archive.Batches(ctx, r.bucket, row, func(b []byte) error {
		h, err := segment.ParseBatchHeader(b)
		all = append(all, place{h.BaseOffset, print(b)})
		return err
	})
	return all, err
}

// replaced are the extents of archive segments that were found and that none of the rows is, in the form of rows.
func (r *run) replaced(l *lane, slot metadata.Slot, rows []*metadata.Row) (more []*metadata.Row) {
	type extent struct {
		id   segment.ID
		base int64
	}
	named := map[extent]bool{}
	for _, row := range rows {
		named[extent{row.Segment, row.Base}] = true
	}
	for _, c := range r.runsOf(l, slot) {
		if !named[extent{c.id, c.BaseOffset}] {
			more = append(more, &metadata.Row{Topic: c.Topic, Partition: int(c.Partition), Base: c.BaseOffset, End: c.EndOffset, Count: c.Count, Segment: c.id, Start: c.Offset, Bytes: c.Length})
		}
	}
	return more
}

// add adds batches but those that were seen already.
func (p prints) add(l metadata.LaneID, slot metadata.Slot, places []place, seen map[place]bool) {
	if p[l] == nil {
		p[l] = map[metadata.Slot]map[uint64]int{}
	}
	if p[l][slot] == nil {
		p[l][slot] = map[uint64]int{}
	}
	for _, at := range places {
		if !seen[at] {
			seen[at] = true
			p[l][slot][at.batch]++
		}
	}
}

// have tells whether the archive has the segment's batches of a lane, and takes them out if so. A segment whose bytes are not what its footer says is an error.
func (p prints) have(l metadata.LaneID, a *addition, body []byte) (bool, error) {
	at, known := a.start[l], true
	type found struct {
		slot  metadata.Slot
		batch uint64
	}
	var all []found
	for _, s := range a.lanes[l] {
		if at+int64(s.Bytes) > int64(len(body)) {
			return false, fmt.Errorf("%w: it ends within slot %d of lane %s", segment.ErrCorrupt, s.Slot, l)
		}
		rest := body[at : at+int64(s.Bytes)]
		at += int64(s.Bytes)
		for len(rest) > 0 {
			batch, after, err := segment.SplitBatch(rest)
			if err == nil {
				err = segment.CheckSum(batch)
			}
			if err != nil {
				return false, err
			}
			if s.Count > 0 {
				f := found{s.Slot, print(batch)}
				known = known && p[l][f.slot][f.batch] > 0
				all = append(all, f)
			}
			rest = after
		}
	}
	if !known || len(all) == 0 {
		return len(all) == 0, nil
	}
	for _, f := range all {
		p[l][f.slot][f.batch]--
	}
	return true, nil
}
