package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// task is one entry, whose object is to be checked.
type task struct {
	lane  *lane
	k     int64
	entry metadata.Entry
	bases metadata.Offsets // before the entry, as counted
	item  metadata.Key     // where the entry is

	pieces []*piece // by the entry's slots; nil where no sums are taken
}

// segment is what the entry names.
func (t *task) segment() objects.Segment { return objects.Of("", t.entry.ID) }

// ranges are the task's offsets, of the given slots.
func (t *task) ranges(slots uint64) (ranges []Range) {
	for _, s := range t.entry.Slots {
		if slots>>s.Slot&1 == 1 && s.Count > 0 {
			base := t.bases[s.Slot]
			ranges = append(ranges, t.lane.span(s.Slot, base, base+int64(s.Count))...)
		}
	}
	return ranges
}

const everySlot = ^uint64(0)

// readable are the slots of which records of the entry can be read: those not below their log start.
func (t *task) readable() (slots uint64) {
	state := t.lane.state.Load()
	for _, s := range t.entry.Slots {
		if end := t.bases[s.Slot] + int64(s.Count); s.Count > 0 && end > state.Starts[s.Slot] {
			slots |= 1 << s.Slot
		}
	}
	return slots
}

// take checks entries by themselves and has their objects checked.
func (w *walk) take(ctx context.Context, item metadata.Key, entries []metadata.Entry, bases []metadata.Offsets) error {
	var sum Totals
	for i := range entries {
		e := &entries[i]
		sum.Commits++
		if e.Empty {
			continue
		}
		superseded := w.archived != nil && e.Order < w.archived.Archived
		w.name(e.ID, superseded)
		t := task{lane: w.lane, k: w.k, entry: *e, bases: bases[i], item: item}
		w.once(&t)
		if err := w.placed(ctx, &t); err != nil {
			return err
		}
		if superseded || !holds(e) {
			continue
		}
		sum.count(e)
		if err := w.charge(&t); err != nil {
			return err
		}
		if e.ID.Place() == segment.Archived {
			w.tell(EntryElsewhere, item, t.ranges(everySlot), "segment %s of order %d is an archive segment by its id, which no commit names", e.ID, e.Order)
			continue
		}
		if err := w.hand(ctx, func(ctx context.Context, c *checker) error { return c.check(ctx, t) }); err != nil {
			return err
		}
	}
	w.progress(func(p *Progress) {
		p.Commits += sum.Commits
		p.Records += sum.Records
		p.Bytes += sum.Bytes
	})
	return nil
}

// hand hands work to the checkers.
func (w *walk) hand(ctx context.Context, do work) error {
	w.given.Add(1)
	select {
	case w.tasks <- func(ctx context.Context, c *checker) error {
		defer w.given.Done()
		if ctx.Err() != nil {
			return nil
		}
		return do(ctx, c)
	}:
		return nil
	case <-ctx.Done():
		w.given.Done()
		return context.Cause(ctx)
	}
}

// charge puts the entry's records that can be read into the accounts of their partitions.
func (w *walk) charge(t *task) error {
	slots := t.readable()
	for i, s := range t.entry.Slots {
		if slots>>s.Slot&1 == 0 {
			continue
		}
		a, err := w.account(s.Slot)
		if err != nil {
			return err
		}
		if a != nil {
			if t.pieces == nil {
				t.pieces = make([]*piece, len(t.entry.Slots))
			}
			t.pieces[i] = a.addCommit(t.bases[s.Slot], t.bases[s.Slot]+int64(s.Count))
		}
	}
	return nil
}

// piece is what a slot's records are part of, or nil.
func (t *task) piece(slot metadata.Slot) *piece {
	for i, p := range t.pieces {
		if t.entry.Slots[i].Slot == slot {
			return p
		}
	}
	return nil
}

// holds tells whether an entry has records: all that it names may have been withdrawn.
func holds(e *metadata.Entry) bool {
	return slices.ContainsFunc(e.Slots, func(s metadata.SlotEntry) bool { return s.Count > 0 })
}

// once finds a segment that the lane has committed before.
func (w *walk) once(t *task) {
	if earlier, twice := w.seen.add(t.entry.ID, t.entry.Order); twice {
		w.find(Finding{Kind: ExtentDoubled, Lane: string(w.id), Item: t.item.String(), Object: t.segment().Name(), Ranges: t.ranges(everySlot),
			What: fmt.Sprintf("segment %s is committed twice to lane %s, as orders %d and %d", t.entry.ID, w.id, earlier, t.entry.Order)})
	}
}

// count adds an entry's records.
func (t *Totals) count(e *metadata.Entry) {
	for _, s := range e.Slots {
		if s.Count > 0 {
			t.Records += int64(s.Count)
			t.Bytes += int64(s.Bytes)
		}
	}
}

// placed finds slots of the entry that are no partition's. A topic may have grown since its row was read. What was withdrawn has no records: there may have been a partition until the
// table was put back.
func (w *walk) placed(ctx context.Context, t *task) error {
	for _, s := range t.entry.Slots {
		if _, _, ok := w.place(s.Slot); ok || s.Count == 0 || w.alien>>s.Slot&1 == 1 {
			continue
		}
		if err := w.alive(ctx); err != nil {
			return err
		}
		if _, _, ok := w.place(s.Slot); !ok {
			w.alien |= 1 << s.Slot
			w.tell(SlotUnknown, t.item, nil, "order %d of lane %s has %d records in slot %d, but no topic has a partition there", t.entry.Order, w.id, s.Count, s.Slot)
		}
	}
	return nil
}
