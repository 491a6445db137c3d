package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
)

// rowsPage is how many rows of a partition are asked for at once: some 5 KB. Of each partition of a lane one page is held, so that of rows that name the
// same segment most are checked together.
const rowsPage = 32

// slotRow is a row and the slot of its partition.
type slotRow struct {
	*metadata.Row
	slot  metadata.Slot
	piece *piece // nil: no sum is taken
}

// known tells whether the row was proven before, and need not be read.
func (r slotRow) known() bool { return r.piece != nil && r.piece.known }

// rows goes through the archive rows of the lane's partitions, up to the archived offsets as they were first read.
func (w *walk) rows(ctx context.Context) error {
	if w.archived == nil {
		w.unclear()
		return nil
	}
	var open []*series
	for s := range metadata.Slot(metadata.SlotsPerLane) {
		if t, p, ok := w.place(s); ok {
			sums, err := w.account(s)
			if err != nil {
				return err
			}
			one := newSeries(w, s, t, p)
			one.account = sums
			open = append(open, one)
			continue
		}
		if err := w.nobodys(ctx, s); err != nil {
			return err
		}
	}
	for len(open) > 0 {
		var rows []slotRow
		for _, s := range open {
			if err := s.page(ctx); err != nil {
				return err
			}
			rows, s.taken = append(rows, s.taken...), nil
		}
		if err := w.segments(ctx, rows); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(s *series) bool { return s.done })
	}
	return nil
}

// segments has rows checked against the segments that they name, those of one segment together.
func (w *walk) segments(ctx context.Context, rows []slotRow) error {
	slices.SortFunc(rows, func(a, b slotRow) int {
		return cmp.Or(a.Segment.Compare(b.Segment), strings.Compare(string(a.Topic), string(b.Topic)), cmp.Compare(a.Start, b.Start))
	})
	of := func(r slotRow) objects.Segment { return objects.Of(r.Topic, r.Segment) }
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && of(rows[n]) == of(rows[0]) {
			n++
		}
		x := &runs{lane: w.lane, segment: of(rows[0]), rows: slices.Clone(rows[:n])}
		if err := w.hand(ctx, func(ctx context.Context, c *checker) error { return c.runs(ctx, x) }); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// nobodys finds rows of a slot that is no partition's. A topic may have grown since its row was read.
func (w *walk) nobodys(ctx context.Context, slot metadata.Slot) error {
	for _, t := range w.who.Load().topics {
		if int(slot) >= t.LaneWidth || w.alien>>slot&1 == 1 {
			continue
		}
		partition := slices.Index(t.Lanes, w.id)*t.LaneWidth + int(slot)
		rows, _, err := w.table.Rows(ctx, t.ID, partition, 0, math.MaxInt64, 1, metadata.Strong)
		if err != nil && !unreadable(err) {
			return err
		}
		if err == nil && len(rows) == 0 {
			continue
		}
		if err := w.alive(ctx); err != nil {
			return err
		}
		if _, _, ok := w.place(slot); !ok {
			w.tell(SlotUnknown, metadata.RowKey(t.ID, partition, 0), nil, "the archive has rows of partition %d of topic %s, which has %d partitions", partition, t.Name, t.Partitions)
		}
	}
	return nil
}

// series is the archive rows of one partition, gone through by offset.
//
// What it relies on: at every moment each offset from the log start to the archived one is in exactly one row; a publication that puts others in the place of
// rows does so at once, and no row comes back that was replaced. A query may see some of a publication's changes and others not. So a row that does not follow
// the one before it says nothing by itself: settle asks again.
type series struct {
	*walk
	slot      metadata.Slot
	topic     *metadata.Topic
	partition int
	to        int64 // archived offset, as first read

	from    int64 // rows with lower bases have been seen
	next    int64 // offset that the next row is to hold
	also    int64 // or this: behind two rows that overlap
	last    slotRow
	maximum int64     // the last row's RunMax
	newest  time.Time // append time of the newest record so far
	lost    *Finding  // a row that cannot be read, to be told when it is known what follows it
	taken   []slotRow // of the last page
	done    bool

	account *account // nil: no sums are taken
}

func newSeries(w *walk, slot metadata.Slot, t *metadata.Topic, partition int) *series {
	start := w.archived.Starts[slot]
	return &series{walk: w, slot: slot, topic: t, partition: partition, to: w.archived.Ends[slot], next: start, also: start, maximum: math.MinInt64}
}

// page takes the next page of rows, up to the first that does not follow.
func (s *series) page(ctx context.Context) error {
	page, more, err := s.ask(ctx, rowsPage)
	if unreadable(err) {
		if page, more, err = s.ask(ctx, 1); unreadable(err) {
			s.unreadable(err)
			return nil
		}
	}
	if err != nil {
		return err
	}
	for _, r := range page {
		if r.Base >= s.to {
			return s.end(ctx, r)
		}
		if follows, err := s.take(ctx, slotRow{Row: r, slot: s.slot}); err != nil || !follows {
			return err
		}
	}
	if !more {
		return s.end(ctx, nil)
	}
	return nil
}

func (s *series) ask(ctx context.Context, limit int) ([]*metadata.Row, bool, error) {
	return s.table.Rows(ctx, s.topic.ID, s.partition, s.from, math.MaxInt64, limit, metadata.Strong)
}

func (s *series) spanOf(from, to int64) []Range {
	return []Range{{Topic: s.topic.Name, Partition: s.partition, From: from, To: to}}
}

// take takes a row. One that does not follow is settled; then the next page begins where that says.
func (s *series) take(ctx context.Context, r slotRow) (follows bool, err error) {
	first := s.last.Row == nil
	switch {
	case s.lost != nil:
		s.mend(r.Base)
	case first && r.End <= s.next: // below the log start: it may be removed at any moment, and all before it
		s.name(r.Segment, false)
		s.from = r.Base + 1
		s.taken = append(s.taken, r)
		return true, nil
	case r.Base == s.next || r.Base == s.also || first && r.Base < s.next:
	default:
		return false, s.settle(ctx, r)
	}
	s.accept(r)
	return true, nil
}

// accept goes on behind a row.
func (s *series) accept(r slotRow) {
	s.next, s.also = r.End, r.End
	s.add(r)
}

// add checks a row by itself, and has its segment checked.
func (s *series) add(r slotRow) {
	if s.account != nil {
		r.piece = s.account.addRow(r.Row, s.o.All)
	}
	s.from, s.last = r.Base+1, r
	if r.RunMax < s.maximum || r.Count > 0 && r.RunMax < r.MaxTime {
		s.tell(MaximaBroken, r.Key(), s.spanOf(r.Base, r.End), "the row of offsets [%d, %d) says that the latest time up to it is %s; that of its records is %s, the row before it says %s",
			r.Base, r.End, stamp(r.RunMax), stamp(r.MaxTime), stamp(s.maximum))
	}
	early := r.First.Before(s.newest.Add(-maxLate))
	if late := r.Count > 0 && r.Last.After(r.Segment.Time().Add(maxLate)); early || late {
		s.tell(RowTimes, r.Key(), s.spanOf(r.Base, r.End), "the records of offsets [%d, %d) are said to be appended from %s to %s; those before them up to %s, and their segment was made at %s",
			r.Base, r.End, stamp(r.First.UnixMilli()), stamp(r.Last.UnixMilli()), stamp(s.newest.UnixMilli()), stamp(r.Segment.Time().UnixMilli()))
	}
	s.maximum, s.newest = r.RunMax, later(s.newest, r.Last)
	s.progress(func(p *Progress) {
		p.Rows++
		p.Records += r.Count
		p.Bytes += r.Bytes
	})
	if r.Count > 0 {
		s.name(r.Segment, false)
		s.taken = append(s.taken, r)
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// settle finds out, by strong reads, why a row does not follow the last, or why none does.
func (s *series) settle(ctx context.Context, r slotRow) error {
	if r.Row != nil && r.Base < s.next {
		return s.both(ctx, s.last, r)
	}
	const looks = 2
	for range looks {
		holder, err := s.table.Row(ctx, s.topic.ID, s.partition, s.next, metadata.Strong)
		switch {
		case unreadable(err):
			s.unreadable(err)
			return nil
		case err != nil && !errors.Is(err, metadata.ErrNoRow):
			return err
		case err == nil && holder.End > s.next:
			s.accept(slotRow{Row: holder, slot: s.slot})
			return nil
		}
		if moved, err := s.moved(ctx); err != nil || moved {
			return err
		}
	}
	to := s.to
	if r.Row != nil {
		to = min(to, r.Base)
	}
	s.tell(RowMissing, metadata.RowKey(s.topic.ID, s.partition, s.next), s.spanOf(s.next, to), "no archive row holds the offsets [%d, %d), and the partition is archived up to %d", s.next, to, s.to)
	s.unclear()
	s.skip(to)
	return nil
}

// both finds out whether two rows that overlap are there at one moment, and goes on behind the base of the second.
func (s *series) both(ctx context.Context, a, b slotRow) error {
	s.from = b.Base + 1
	for _, r := range []slotRow{a, b, a} { // as none comes back, a is there while b is
		now, err := s.table.Row(ctx, r.Topic, r.Partition, r.Base, metadata.Strong)
		if err != nil && !errors.Is(err, metadata.ErrNoRow) && !unreadable(err) {
			return err
		}
		if err != nil || !now.Same(r.Row) {
			return nil
		}
	}
	s.tell(RowOverlaps, b.Key(), s.spanOf(b.Base, min(a.End, b.End)), "the rows of offsets [%d, %d) and [%d, %d) overlap", a.Base, a.End, b.Base, b.End)
	s.add(b)
	s.also = b.End
	return nil
}

// moved tells whether the log start has been raised above what is looked for. A topic that was deleted is errGone.
func (s *series) moved(ctx context.Context) (bool, error) {
	state, err := s.fresh(ctx, s.lane)
	if err != nil {
		return false, err
	}
	if start := state.Starts[s.slot]; start > s.next {
		s.skip(min(start, s.to))
		return true, nil
	}
	return false, s.alive(ctx)
}

// skip goes on at an offset, from which on rows are as at the log start.
func (s *series) skip(to int64) {
	s.next, s.also, s.last = to, to, slotRow{}
}

// unreadable passes over the row that an error is about.
func (s *series) unreadable(err error) {
	base, known := s.baseOf(err)
	f := Finding{Kind: RowUnreadable, Lane: string(s.id), Item: metadata.RowKey(s.topic.ID, s.partition, base).String(),
		What: fmt.Sprintf("the archive row of partition %d at offset %d cannot be read: %v", s.partition, base, err)}
	s.unclear()
	s.mend(base)
	s.lost, s.from = &f, base+1
	if s.next, s.also, s.last = base, base, (slotRow{}); !known || base >= s.to {
		s.mend(s.to)
		s.done = true
	}
}

// baseOf is the base of the row that an error is about; of one whose key cannot be read, where it was looked for.
func (s *series) baseOf(err error) (base int64, known bool) {
	var e *metadata.Error
	if errors.As(err, &e) {
		pk, sk, _ := strings.Cut(e.Key, "|")
		if _, _, base, err := metadata.ParseRowKey(metadata.Key{PK: pk, SK: sk}); err == nil && base >= s.from {
			return base, true
		}
	}
	return s.from, false
}

// mend tells of a row that could not be read, behind which the next begins at this offset.
func (s *series) mend(to int64) {
	if s.lost == nil {
		return
	}
	s.lost.Ranges = s.spanOf(s.next, max(to, s.next))
	s.find(*s.lost)
	s.lost = nil
}

// end is where the rows end, or where the first begins above the archived offset. That has been raised since, or it is wrong.
func (s *series) end(ctx context.Context, above *metadata.Row) error {
	if s.lost != nil {
		s.mend(s.to)
		s.skip(s.to)
	}
	if max(s.next, s.also) < s.to {
		return s.settle(ctx, slotRow{})
	}
	s.done = true
	r := above
	if r == nil && s.last.Row != nil && s.last.End > s.to {
		r = s.last.Row
	}
	if r == nil {
		return nil
	}
	state, err := s.fresh(ctx, s.lane)
	if err != nil {
		return err
	}
	if ends := state.Ends[s.slot]; r.End > ends {
		if err := s.alive(ctx); err != nil {
			return err
		}
		s.tell(RowAhead, r.Key(), s.spanOf(max(r.Base, ends), r.End), "the partition is archived up to offset %d, but there is a row of offsets [%d, %d)", ends, r.Base, r.End)
	}
	return nil
}

// join compares the archived offsets with those that the index gives at the archived order, once that is among the entries from the order first on, before each
// of which the slots had these offsets.
func (w *walk) join(first int64, bases []metadata.Offsets) {
	state := w.meets
	if state == nil || state.Archived < first || state.Archived >= first+int64(len(bases)) {
		return
	}
	w.meets = nil
	counted := bases[state.Archived-first]
	for s, archived := range state.Ends {
		said := counted[s] + w.said.ends[s] - w.ends[s]
		if archived != counted[s] && archived != said {
			w.tell(ArchiveShifted, metadata.StateKey(w.id), w.span(metadata.Slot(s), min(archived, counted[s]), max(archived, counted[s])),
				"slot %d is archived up to offset %d, and order %d, up to which the lane is, begins at offset %d", s, archived, state.Archived, counted[s])
		}
	}
}
