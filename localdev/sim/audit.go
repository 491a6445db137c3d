package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Kept is a record that the log still has.
type Kept struct {
	Offset int64
	Value  string
}

// Audit is what the log still has at a moment: below the archived offsets as its rows say, above as chunks and heads do.
type Audit struct {
	At     time.Time
	Values map[Partition]map[int64]string
	Starts map[Partition]int64            // of the log
	Lie    map[Partition]map[int64]string // in archive segments, also where no row says so; nil: nobody has looked

	places map[metadata.Place]Partition
	named  map[string]bool // segments that hold it
}

// Audit reads what the log still has, and as its users do from the beginning, and compares.
func (w *World) Audit() *Audit {
	a := &Audit{At: w.clock(), Values: map[Partition]map[int64]string{}, Starts: map[Partition]int64{}, places: map[metadata.Place]Partition{}, named: map[string]bool{}}
	topics, _, err := w.table().Topics(context.Background(), "", 1000)
	w.must(err)
	w.record()
	p := w.Start(fmt.Sprintf("judge.%d", len(w.audits)), Life{Safe: true})
	opened := p.Open()
	for _, t := range topics {
		for _, l := range t.Lanes {
			w.auditLane(a, t, l)
		}
		if opened == nil {
			continue
		}
		for at, fresh := range w.readAll(p, opened, t.Name) {
			w.compareKept(a, at, fresh)
		}
	}
	w.audits = append(w.audits, a)
	return a
}

func (w *World) auditLane(a *Audit, t *metadata.Topic, l metadata.LaneID) {
	table, ctx := w.table(), context.Background()
	state, err := table.State(ctx, l, metadata.Strong)
	w.must(err)
	head, err := table.Head(ctx, l, metadata.Strong)
	w.must(err)
	for slot := range t.LaneWidth {
		place := metadata.Place{Lane: l, Slot: metadata.Slot(slot)}
		p, ok := t.Partition(place)
		if !ok || p >= t.Partitions {
			continue
		}
		at := Partition{t.Name, p}
		a.places[place] = at
		a.Starts[at], a.Values[at] = state.Starts[slot], map[int64]string{}
		w.auditRows(a, t, at, state.Starts[slot], state.Ends[slot])
	}
	chunks := []*metadata.Chunk{}
	for from := metadata.ChunkOf(state.Archived, head.K); from < head.First; from += head.K {
		c, err := table.Chunk(ctx, l, from, metadata.Strong)
		if err != nil {
			w.Bad(About{}, "chunk at %d of lane %s, archived up to %d, head from %d: %v", from, l, state.Archived, head.First, err)
			return
		}
		chunks = append(chunks, c)
	}
	ends := state.Ends
	take := func(entries []metadata.Entry) {
		for _, e := range entries {
			if e.Order >= state.Archived {
				w.auditEntry(a, l, &e, &ends)
			}
		}
	}
	for _, c := range chunks {
		take(c.Entries)
	}
	take(head.Entries)
	if ends != head.Ends {
		w.Bad(About{}, "lane %s: archived offsets and what was committed since come to %v, the head ends at %v", l, ends, head.Ends)
	}
}

// auditRows reads a partition's rows, which must lie one after another.
func (w *World) auditRows(a *Audit, t *metadata.Topic, at Partition, start, end int64) {
	rows, _, err := w.table().Rows(context.Background(), t.ID, at.Number, 0, math.MaxInt64, 1000, metadata.Strong)
	w.must(err)
	next, began := start, false
	for _, r := range rows {
		switch {
		case r.End <= start: // where it has expired before it was archived there is none
			continue
		case r.Base > next || began && r.Base != next:
			w.Bad(About{At: at}, "a row of %v begins at %d, where %d comes next", at, r.Base, next)
		}
		next, began = r.End, true
		if r.Count == 0 {
			continue
		}
		a.named[objects.Of(t.ID, r.Segment).Name()] = true
		records := w.segment(t.ID, r.Segment, at, r.Start, r.Bytes)
		if int64(len(records)) != r.Count {
			w.Bad(About{At: at}, "segment %s has %d records of %v, the row at %d says %d", r.Segment, len(records), at, r.Base, r.Count)
		}
		for _, record := range records {
			a.keep(w, at, record.Offset, valueOf(record.Value, record.Headers))
		}
	}
	if next < end {
		w.Bad(About{At: at}, "the rows of %v end at %d, archived up to %d", at, next, end)
	}
}

// auditEntry reads what was committed and is not archived.
func (w *World) auditEntry(a *Audit, l metadata.LaneID, e *metadata.Entry, ends *metadata.Offsets) {
	from := e.Start
	for _, s := range e.Slots {
		at, known := a.places[metadata.Place{Lane: l, Slot: s.Slot}]
		base := ends[s.Slot]
		ends[s.Slot] += int64(s.Count)
		if known && s.Count > 0 && ends[s.Slot] > a.Starts[at] {
			a.named[objects.Of("", e.ID).Name()] = true
			for i, r := range w.extent(e.ID, at, from, s) {
				a.keep(w, at, base+int64(i), r.Value)
			}
		}
		from += int64(s.Bytes)
	}
}

// auditObjects reads all archive segments, also the runs that no row names.
func (w *World) auditObjects(a *Audit) {
	a.Lie = map[Partition]map[int64]string{}
	page, err := w.objects.List(context.Background(), "", "", 0)
	w.must(err)
	for _, o := range page.Objects {
		n, err := segment.ParseName(o.Name)
		if err != nil || n.Topic == "" {
			continue // of intake, or no segment
		}
		body, err := w.objects.Get(context.Background(), o.Name, 0, -1, nil)
		w.must(err)
		f, err := segment.ParseFooter(body, int64(len(body)))
		w.must(err)
		for _, e := range f.Extents {
			at, known := a.places[metadata.Place{Lane: metadata.LaneID(e.Lane), Slot: metadata.Slot(e.Slot)}]
			if !known {
				continue // of a topic that was deleted
			}
			if a.Lie[at] == nil {
				a.Lie[at] = map[int64]string{}
			}
			for _, record := range w.segment(n.Topic, n.ID, at, e.Offset, e.Length) {
				a.Lie[at][record.Offset] = valueOf(record.Value, record.Headers)
			}
		}
	}
}

// keep takes in a record. Below the log start there is none.
func (a *Audit) keep(w *World, at Partition, offset int64, value string) {
	if offset < a.Starts[at] {
		return
	}
	if before, there := a.Values[at][offset]; there {
		w.Bad(About{At: at}, "offset %d of %v is in the log twice, as %q and %q", offset, at, before, value)
	}
	a.Values[at][offset] = value
}

// compareKept holds what a reader of everything was given against what there is. What has expired it need not be given.
func (w *World) compareKept(a *Audit, at Partition, fresh []Kept) {
	given := map[int64]bool{}
	for _, k := range fresh {
		given[k.Offset] = true
		if a.Values[at][k.Offset] != k.Value {
			w.Bad(About{At: at}, "judge was given %q at %d of %v, where the log has %q", k.Value, k.Offset, at, a.Values[at][k.Offset])
		}
	}
	records := w.committedTo(a, at)
	for offset, v := range a.Values[at] {
		if !given[offset] && (offset >= int64(len(records)) || !w.expired(at.Topic, records[offset], w.clock())) {
			w.Bad(About{At: at}, "judge was not given %q at %d of %v", v, offset, at)
		}
	}
}

func (w *World) committedTo(a *Audit, at Partition) []Record {
	for place, partition := range a.places {
		if partition == at {
			w.ledger.mu.Lock()
			defer w.ledger.mu.Unlock()
			return w.ledger.lanes[place.Lane].records[place.Slot]
		}
	}
	return nil
}

// Leftovers reports what is in table and store and of no use any more. head and rows are as the audit has found them.
func (w *World) Leftovers(a *Audit) {
	table, ctx := w.table(), context.Background()
	bad := func(format string, args ...any) { w.Bad(About{}, "kept for ever: "+format, args...) }
	page, err := w.objects.List(ctx, "", "", 0)
	w.must(err)
	for _, o := range page.Objects {
		if o.Name != segment.IdentityName && !a.named[o.Name] {
			bad("object %s, of %v", o.Name, w.Now())
		}
	}
	future := segment.NewID(w.clock().Add(24*time.Hour), 0, segment.InBucket, 0, segment.ID{})
	for hash := range 256 {
		small, _, err := table.SmallIDs(ctx, fmt.Sprintf("%02x", hash), segment.ID{}, future, 1000)
		w.must(err)
		for _, id := range small {
			if name := objects.Of("", id).Name(); !a.named[name] {
				bad("item %s", name)
			}
		}
		replaced, _, err := table.Replaced(ctx, fmt.Sprintf("%02x", hash), segment.ID{}, future, 1000)
		w.must(err)
		for _, x := range replaced {
			bad("entry %s of the work list, of lane %s", x.ID, x.Lane)
		}
	}
	gone, err := table.Gone(ctx)
	w.must(err)
	for _, g := range gone {
		bad("the row of the deleted topic %s", g.ID)
	}
	topics, _, err := table.Topics(ctx, "", 1000)
	w.must(err)
	for _, t := range topics {
		for _, l := range t.Lanes {
			w.leftoversOf(t, l, bad)
		}
	}
}

func (w *World) leftoversOf(t *metadata.Topic, l metadata.LaneID, bad func(string, ...any)) {
	table, ctx := w.table(), context.Background()
	state, err := table.State(ctx, l, metadata.Strong)
	w.must(err)
	head, err := table.Head(ctx, l, metadata.Strong)
	w.must(err)
	chunks, _, err := table.Chunks(ctx, l, 0, math.MaxInt64, 1000, metadata.Strong)
	w.must(err)
	for _, c := range chunks {
		if c.First+head.K <= state.Archived && c.First+head.K < head.First {
			bad("chunk at %d of lane %s of %s, archived up to %d, head from %d", c.First, l, t.Name, state.Archived, head.First)
		}
	}
	for slot := range t.LaneWidth {
		p, ok := t.Partition(metadata.Place{Lane: l, Slot: metadata.Slot(slot)})
		if !ok {
			continue
		}
		rows, _, err := table.Rows(ctx, t.ID, p, 0, state.Starts[slot], 1000, metadata.Strong)
		w.must(err)
		for _, r := range rows {
			if r.End <= state.Starts[slot] {
				bad("row at %d of %s-%d, whose log start is %d", r.Base, t.Name, p, state.Starts[slot])
			}
		}
	}
}
