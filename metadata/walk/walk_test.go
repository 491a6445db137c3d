package walk_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// random is a lane of random commits over a few slots, with withdrawn batches and empty entries among them, and times that jump about.
func random(t *rapid.T, commits int) *history {
	entries := make([]metadata.Entry, commits)
	bases, maxima := make([]metadata.Offsets, commits+1), make([]metadata.Offsets, commits+1)
	for i := range entries {
		e := metadata.Entry{ID: idOf(int64(i)), Order: int64(i), Start: 16, Empty: rapid.IntRange(0, 9).Draw(t, "empty") == 0}
		for s := range metadata.Slot(4) {
			if !e.Empty && rapid.IntRange(0, 2).Draw(t, "touched") > 0 {
				e.Slots = append(e.Slots, metadata.SlotEntry{Slot: s, Count: int32(rapid.IntRange(0, 3).Draw(t, "count")), Bytes: int32(70 + s), MaxTime: rapid.Int64Range(1, 40).Draw(t, "time")})
			}
		}
		entries[i], bases[i+1] = e, bases[i]
		for _, s := range e.Slots {
			bases[i+1][s.Slot] += int64(s.Count)
		}
		maxima[i+1] = metadata.MaxTimes(maxima[i], entries[i:i+1])
	}
	return newHistory(func(o int64) metadata.Entry { return entries[o] }, func(o int64) (metadata.Offsets, metadata.Offsets) { return bases[o], maxima[o] })
}

// step lets the lane go on at random, as writers, spills, retention, compaction and the sweep would.
func (h *history) step(t *rapid.T, commits int64) {
	g, s := h.last()
	state, rs := h.states[len(h.states)-1], h.rows[len(h.rows)-1]
	slot := metadata.Slot(rapid.IntRange(0, 3).Draw(t, "slot of the step"))
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0, 1, 2:
		if n := min(rapid.Int64Range(1, 16).Draw(t, "commits"), commits-g, s+metadata.MaxHeadEntries-g); n > 0 {
			h.appendTo(g+n, s)
		}
	case 3:
		if to := (g - rapid.Int64Range(0, 7).Draw(t, "left")) / k * k; to > s {
			h.appendTo(g, to)
		}
	case 4: // records are deleted
		ends, _ := h.before(g)
		if to := rapid.Int64Range(0, ends[slot]).Draw(t, "start"); to > state.Starts[slot] && rapid.IntRange(0, 3).Draw(t, "really") == 0 {
			state.Starts[slot] = to
			h.states = append(h.states, state)
		}
	case 5: // chunks are archived, all but the newest at most
		if rapid.IntRange(0, 2).Draw(t, "really") == 0 {
			h.publish(t, state.Archived+rapid.Int64Range(0, max(s-k-state.Archived, 0)/k).Draw(t, "chunks")*k)
		}
	case 6: // and those that are archived, or below every log start, are deleted
		if first := state.First + rapid.Int64Range(0, (state.Archived-state.First)/k).Draw(t, "deleted")*k; first > state.First {
			state.First = first
			h.states = append(h.states, state)
			for f := range h.chunks {
				if f < first {
					h.gone[f] = true
				}
			}
		}
	case 7, 8:
		h.rewrite(t, slot)
	case 9: // rows below the log start are deleted
		h.change(state, slices.DeleteFunc(slices.Clone(rs), func(r *metadata.Row) bool {
			return r.End <= state.Starts[r.Partition] && rapid.Bool().Draw(t, "row goes")
		}))
	}
}

// begin brings the lane to any order, much of it in the archive.
func (h *history) begin(t *rapid.T, commits int64) {
	g := rapid.Int64Range(0, commits).Draw(t, "first commits")
	h.appendTo(g, max(g-rapid.Int64Range(0, metadata.MaxHeadEntries-k).Draw(t, "in the head"), 0)/k*k)
	_, s := h.last()
	h.publish(t, s-min(rapid.Int64Range(1, 6).Draw(t, "in chunks")*k, s))
	for range rapid.IntRange(0, 20).Draw(t, "steps") {
		h.step(t, commits)
	}
}

// publish archives the orders below to.
func (h *history) publish(t *rapid.T, to int64) {
	state := h.states[len(h.states)-1]
	if to <= state.Archived {
		return
	}
	ends, _ := h.before(to)
	rs := slices.Clone(h.rows[len(h.rows)-1])
	for slot := range metadata.Slot(4) {
		for base := state.Ends[slot]; base < ends[slot]; {
			end := rapid.Int64Range(base+1, ends[slot]).Draw(t, "end of a row")
			rs = append(rs, h.anyRow(t, slot, base, end))
			base = end
		}
	}
	state.Archived, state.Ends = to, ends
	h.change(state, rs)
}

// anyRow is a row of these offsets as the last of many compactions might write it: some records may be gone, or all.
func (h *history) anyRow(t *rapid.T, slot metadata.Slot, base, end int64) *metadata.Row {
	h.ids++
	r := &metadata.Row{Topic: topic.ID, Partition: int(slot), Base: base, End: end, First: timeAt(base), Last: timeAt(end)}
	for range rapid.SampledFrom([]int{0, 0, 1, 3, 20}).Draw(t, "removed") {
		h.removed[record{slot, rapid.Int64Range(base, end-1).Draw(t, "removed record")}] = true
	}
	g, _ := h.last()
	for o := range g {
		bases, _ := h.before(o)
		for _, s := range h.entry(o).Slots {
			if s.Slot != slot || bases[slot] >= end {
				continue
			}
			for offset := bases[slot]; offset < bases[slot]+int64(s.Count); offset++ {
				if offset < end {
					r.RunMax = max(r.RunMax, s.MaxTime)
				}
				if offset >= base && offset < end && !h.removed[record{slot, offset}] {
					r.Count, r.MaxTime = r.Count+1, max(r.MaxTime, s.MaxTime)
				}
			}
		}
	}
	if r.Count > 0 {
		r.Segment, r.Start, r.Bytes = archiveID(int64(h.ids)), 16+base, 100
	}
	h.ever[walk.Extent{Topic: topic.ID, ID: r.Segment, Base: r.Base, End: r.End, Count: r.Count, MaxTime: r.MaxTime,
		Start: r.Start, Bytes: r.Bytes, LaneStart: r.Start, LaneLength: r.Bytes, First: r.First, Last: r.Last}] = true
	return r
}

// rewrite merges rows of a slot that are neighbours, or splits one, or takes records out of it.
func (h *history) rewrite(t *rapid.T, slot metadata.Slot) {
	rs := slices.Clone(h.rows[len(h.rows)-1])
	own := func(r *metadata.Row) bool { return r.Partition == int(slot) }
	first := slices.IndexFunc(rs, own)
	if first < 0 {
		return
	}
	last := first
	for last+1 < len(rs) && own(rs[last+1]) {
		last++
	}
	from := rapid.IntRange(first, last).Draw(t, "first row rewritten")
	to := rapid.IntRange(from, min(from+3, last)).Draw(t, "last row rewritten")
	base, end := rs[from].Base, rs[to].End
	rs = slices.Delete(rs, from, to+1)
	if middle := rapid.Int64Range(base, end-1).Draw(t, "middle"); middle > base && rapid.Bool().Draw(t, "split") {
		rs = append(rs, h.anyRow(t, slot, base, middle))
		base = middle
	}
	h.change(h.states[len(h.states)-1], append(rs, h.anyRow(t, slot, base, end)))
}

// A reader that goes through a partition while the lane goes on under it, and its eventual reads lag, passes every offset once and in order, and is told of
// an end, a log start or a damage only where there is one.
func TestReaderOfAMovingLane(t *testing.T) {
	archived, rowPages := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const commits = 200
		h := random(t, commits)
		h.stale = func(n int) int { return rapid.IntRange(0, min(n, 6)).Draw(t, "stale") }
		h.moving = func(string) {
			if rapid.IntRange(0, 2).Draw(t, "moves") == 0 {
				h.step(t, commits)
			}
		}
		h.begin(t, commits)
		w := walk.New(h)
		slot := metadata.Slot(rapid.IntRange(0, 3).Draw(t, "slot"))
		c := atOffset(slot, 0)
		for range 60 {
			strong := rapid.IntRange(0, 3).Draw(t, "strong") == 0
			g0, _ := h.last()
			var extents []walk.Extent
			var next walk.Cursor
			var err error
			if strong {
				extents, next, err = w.Again(t.Context(), c)
			} else {
				extents, next, err = w.Next(t.Context(), c)
			}
			state, end := h.states[len(h.states)-1], h.end(slot)
			var outside *walk.RangeError
			switch {
			case errors.As(err, &outside):
				if outside.Err != walk.ErrExpired || c.Offset >= state.Starts[slot] || outside.Start > state.Starts[slot] || outside.End > end {
					t.Fatalf("offset %d: %v, but the log is [%d, %d)", c.Offset, err, state.Starts[slot], end)
				}
				next = atOffset(slot, outside.Start)
			case err != nil:
				t.Fatalf("offset %d: %v", c.Offset, err)
			case len(extents) == 0:
				if before, _ := h.before(g0); strong && c.Offset < before[slot] {
					t.Fatalf("offset %d is said to be the end, which was %d at least", c.Offset, before[slot])
				}
			default:
				h.match(t, slot, c.Offset, extents)
				for _, e := range extents {
					if e.Archived() {
						archived++
					}
				}
			}
			c = next
		}
		rowPages += h.calls["Rows"]
	})
	t.Logf("%d extents of the archive, %d pages of rows", archived, rowPages)
	if archived == 0 || rowPages == 0 {
		t.Error("the archive was not read")
	}
}

func (h *history) end(slot metadata.Slot) int64 {
	g, _ := h.last()
	ends, _ := h.before(g)
	return ends[slot]
}

// match compares extents with the entries and the rows themselves, and tells whether they are without gaps from the offset on.
func (h *history) match(t *rapid.T, slot metadata.Slot, offset int64, extents []walk.Extent) {
	for i, e := range extents {
		if i == 0 && (offset < e.Base || offset >= e.End) || i > 0 && e.Base != extents[i-1].End {
			t.Fatalf("offset %d: extent %d of %+v", offset, i, extents)
		}
		if e.Archived() {
			if !h.ever[e] {
				t.Fatalf("no row ever was as %+v", e)
			}
			continue
		}
		bases, _ := h.before(e.Order)
		entry, at := h.entry(e.Order), int64(16)
		for _, s := range entry.Slots {
			if s.Slot == slot {
				want := walk.Extent{Topic: topic.ID, ID: entry.ID, Order: e.Order, Base: bases[slot], End: bases[slot] + int64(s.Count), Count: int64(s.Count), MaxTime: s.MaxTime,
					Start: at, Bytes: int64(s.Bytes), LaneStart: 16, LaneLength: e.LaneLength, First: entry.ID.Time(), Last: entry.ID.Time()}
				if e != want {
					t.Fatalf("got %+v, want %+v", e, want)
				}
			}
			at += int64(s.Bytes)
		}
		if at != 16+e.LaneLength {
			t.Fatalf("lane's bytes end at %d, not %d", 16+e.LaneLength, at)
		}
	}
}

// FindTime against a look at every record, in a lane that stands still or goes on under it. What an eventual read shows of the archive may have been
// replaced: an extent may then hold records that are removed by now, but none that reaches the time lies before it.
func TestFindTimeAgainstAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const commits = 100
		h := random(t, commits)
		h.begin(t, commits)
		g, _ := h.last()
		slot := metadata.Slot(rapid.IntRange(0, 3).Draw(t, "slot"))
		from, at := rapid.Int64Range(0, h.end(slot)).Draw(t, "from"), rapid.Int64Range(0, 45).Draw(t, "t")
		h.stale = func(n int) int { return rapid.IntRange(0, n).Draw(t, "stale") }
		if rapid.Bool().Draw(t, "goes on") {
			h.moving = func(string) {
				if rapid.IntRange(0, 2).Draw(t, "moves") == 0 {
					h.step(t, commits)
				}
			}
		}
		e, first, err := walk.New(h).FindTime(t.Context(), atOffset(slot, from), at)
		lowest := max(from, h.states[len(h.states)-1].Starts[slot])
		want := h.firstAt(g, slot, lowest, at)
		switch {
		case errors.Is(err, walk.ErrNone):
			if want >= 0 {
				t.Fatalf("none, but offset %d", want)
			}
		case err != nil || e.MaxTime < at || e.End <= from || first < max(from, e.Base) || first > max(lowest, e.Base):
			t.Fatalf("got %+v from %d, %v", e, first, err)
		case want >= 0 && e.Base > want:
			t.Fatalf("got %+v, but offset %d", e, want)
		default:
			h.match(t, slot, max(first, e.Base), []walk.Extent{e})
		}
	})
}

// firstAt is the first offset of the slot, from lowest on and of the orders below g, whose record is there and reaches the time, or -1.
func (h *history) firstAt(g int64, slot metadata.Slot, lowest, at int64) int64 {
	for o := range g {
		bases, _ := h.before(o)
		for _, s := range h.entry(o).Slots {
			for offset := max(bases[slot], lowest); s.Slot == slot && s.MaxTime >= at && offset < bases[slot]+int64(s.Count); offset++ {
				if !h.removed[record{slot, offset}] {
					return offset
				}
			}
		}
	}
	return -1
}

func TestConclusions(t *testing.T) {
	h := even(4).all(t, 200)
	next := func(offset int64) error {
		_, _, err := walk.New(h).Next(t.Context(), atOffset(2, offset))
		return err
	}
	var outside *walk.RangeError
	if err := next(2001); !errors.As(err, &outside) || *outside != (walk.RangeError{Offset: 2001, Start: 0, End: 2000, Err: walk.ErrPastEnd}) {
		t.Errorf("past the end: %v", err)
	}
	if err := next(2000); err != nil {
		t.Errorf("at the end: %v", err)
	}
	state := h.states[0]
	state.Starts[2] = 500
	h.states = append(h.states, state)
	if err := next(499); !errors.As(err, &outside) || *outside != (walk.RangeError{Offset: 499, Start: 500, End: 2000, Err: walk.ErrExpired}) {
		t.Errorf("below the log start: %v", err)
	}
	if err := next(500); err != nil {
		t.Errorf("at the log start: %v", err)
	}
	// The chunk of orders 96 to 103 ends before the next one begins: that is no end of the log.
	entry := h.entry
	h.entry = func(o int64) metadata.Entry {
		e := entry(o)
		if o == 103 {
			e.Slots = e.Slots[:2]
		}
		return e
	}
	if err := next(1035); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("a gap between chunks: %v", err)
	}
	// A chunk that is missing, and no state says why.
	h.gone[80] = true
	h.requests()
	if err := next(805); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("missing chunk: %v", err)
	}
	if n, calls := h.requests(); calls["State"] < 2 || n > 100 {
		t.Errorf("concluded after %v", calls)
	}
	if err := next(100 + 500); err != nil {
		t.Errorf("another chunk: %v", err)
	}
}

// Rows lie one after another without gaps: one that is missing is damage, in the middle, at the end and where a reader comes along.
func TestAMissingRowIsDamage(t *testing.T) {
	h := even(4).all(t, 200).archive(2, 160, 20)
	for _, missing := range []int{0, 3, 7} {
		whole := h.rows[0]
		h.rows[0] = slices.Delete(slices.Clone(whole), missing, missing+1)
		lost := whole[missing]
		for _, offset := range []int64{lost.Base, lost.End - 1} {
			h.requests()
			if _, _, err := walk.New(h).Next(t.Context(), atOffset(2, offset)); !errors.Is(err, metadata.ErrCorrupt) {
				t.Errorf("row %d is missing, offset %d: %v", missing, offset, err)
			}
			if n, calls := h.requests(); calls["State"] < 2 || calls["Row"] < 2 || n > 40 {
				t.Errorf("concluded after %v", calls)
			}
			if _, _, err := walk.New(h).FindTime(t.Context(), atOffset(2, offset), whole[missing].MaxTime); !errors.Is(err, metadata.ErrCorrupt) {
				t.Errorf("row %d is missing, a time in it: %v", missing, err)
			}
		}
		w, c := walk.New(h), atOffset(2, 0)
		for {
			_, next, err := w.Next(t.Context(), c)
			if errors.Is(err, metadata.ErrCorrupt) && c.Offset == lost.Base {
				break
			}
			if err != nil || next.Offset == c.Offset {
				t.Fatalf("row %d is missing, at offset %d: %v", missing, c.Offset, err)
			}
			c = next
		}
		h.rows[0] = whole
	}
}

// An end below one that is known, an unknown lane, a log start not yet shown: none of it is believed of an eventual read.
func TestStaleReadsConcludeNothing(t *testing.T) {
	h := even(4)
	h.appendTo(10, 0)
	h.appendTo(30, 16)
	h.stale = func(n int) int { return min(1, n-1) }
	for _, offset := range []int64{105, 150, 299} { // past the end of the stale head
		extents, _, err := walk.New(h).Next(t.Context(), atOffset(1, offset))
		if err != nil || len(extents) == 0 || extents[0].Base > offset {
			t.Errorf("offset %d: %+v, %v", offset, extents, err)
		}
	}
	extents, c, err := walk.New(h).Next(t.Context(), atOffset(1, 100)) // the very end of the stale head: nothing is known beyond
	if err != nil || len(extents) > 0 || c.Order() != 10 {
		t.Errorf("at a stale end: %+v, order %d, %v", extents, c.Order(), err)
	}
	// A log start that an eventual state shows, while the eventual head is stale: the range in the error is the present one.
	h.stale = func(n int) int { return min(1, n-1) }
	state := h.states[0]
	state.Starts[1] = 50
	h.states = append(h.states, state, state)
	var outside *walk.RangeError
	if _, _, err := walk.New(h).Next(t.Context(), atOffset(1, 40)); !errors.As(err, &outside) || *outside != (walk.RangeError{Offset: 40, Start: 50, End: 300, Err: walk.ErrExpired}) {
		t.Errorf("below the log start: %v", err)
	}
}

// Eventual reads that show nothing of the lane at all, as right after its creation.
func TestEventualReadsThatShowNothing(t *testing.T) {
	h := even(4).all(t, 200)
	h.stale = func(n int) int { return n }
	w, c := walk.New(h), atOffset(1, 0)
	for c.Offset < 2000 {
		extents, next, err := w.Next(t.Context(), c)
		if err != nil || len(extents) == 0 || extents[0].Base != c.Offset {
			t.Fatalf("offset %d: %+v, %v", c.Offset, extents, err)
		}
		c = next
	}
}

// A reader that goes on through rows or chunks, though they are all there, is told of a log start that has overtaken it.
func TestReadingOnMeetsALogStartThatRose(t *testing.T) {
	for name, archived := range map[string]int64{"rows": 800, "chunks": 0} {
		h := even(4).all(t, 1000).archive(2, archived, 10)
		w, c := walk.New(h), atOffset(2, 0)
		for c.Offset < 500 {
			_, next, err := w.Next(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			c = next
		}
		state := h.states[0]
		state.Starts[2] = 9000
		h.states = append(h.states, state)
		var outside *walk.RangeError
		var err error
		for c.Offset < 9000 && err == nil { // what was asked for before is still given
			_, c, err = w.Next(t.Context(), c)
		}
		if !errors.As(err, &outside) || outside.Start != 9000 {
			t.Errorf("%s: at offset %d, the log start is 9000: %v", name, c.Offset, err)
		}
	}
}
