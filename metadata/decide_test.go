package metadata

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
	"pgregory.net/rapid"
)

// laneModel is a dumb lane: everything ever committed, from which offsets are counted up from zero.
type laneModel struct {
	all    []Entry
	first  int64
	chunks map[int64]*Chunk
}

func (m *laneModel) image() *Head {
	h := &Head{Lane: "l", Next: int64(len(m.all)), First: m.first, K: ChunkOrders, Entries: slices.Clone(m.all[m.first:])}
	for _, e := range m.all {
		for _, s := range e.Slots {
			h.Ends[s.Slot] += int64(s.Count)
		}
	}
	return h
}

func (m *laneModel) base(order int64) (base Offsets) {
	for _, e := range m.all[:order] {
		for _, s := range e.Slots {
			base[s.Slot] += int64(s.Count)
		}
	}
	return base
}

func (m *laneModel) maxTimes(order int64) (times Offsets) {
	for _, e := range m.all[:order] {
		for _, s := range e.Slots {
			if s.Count > 0 && s.MaxTime > times[s.Slot] {
				times[s.Slot] = s.MaxTime
			}
		}
	}
	return times
}

func testID(n int) segment.ID {
	return segment.NewID(time.UnixMilli(int64(1000+n)), 7, segment.InBucket, uint64(n), segment.ID{})
}

func drawEntry(t *rapid.T, n int) Entry {
	e := Entry{ID: testID(n), Order: int64(n)}
	if e.Empty = rapid.IntRange(0, 9).Draw(t, "empty") == 0; e.Empty {
		return e
	}
	for _, slot := range slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 1, 4, rapid.ID[int]).Draw(t, "slots"))) {
		e.Slots = append(e.Slots, SlotEntry{Slot: Slot(slot), Count: int32(rapid.IntRange(0, 3).Draw(t, "count")), Bytes: 1,
			MaxTime: int64(rapid.IntRange(1, 50).Draw(t, "time"))})
	}
	return e
}

// Whatever is committed, spilled by several from images of different age, and trimmed late: bases are the
// counted ones, the chunks of one order are the same whoever plans them, the head always has what no chunk has,
// and Locate finds an update from any one of its entries.
func TestBasesAndSpillsAgreeWithCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &laneModel{chunks: map[int64]*Chunk{}}
		var late []Spill
		for step := rapid.IntRange(20, 80).Draw(t, "steps"); step > 0; step-- {
			switch h := m.image(); rapid.IntRange(0, 4).Draw(t, "step") {
			default:
				if h.Next < CapFor(h.First, 1) {
					m.all = append(m.all, drawEntry(t, len(m.all)))
				}
			case 3:
				before := Offsets{}
				if h.First > 0 {
					before = m.chunks[h.First-h.K].MaxTimes
				}
				plan := PlanSpill(h, before)
				for _, c := range plan.Chunks {
					if old := m.chunks[c.First]; old != nil && !reflect.DeepEqual(old, c) {
						t.Fatalf("chunk %d was planned as %+v, now as %+v", c.First, old, c)
					}
					if c.Bases != m.base(c.First) || c.MaxTimes != m.maxTimes(c.First+h.K) || c.Ends() != m.base(c.First+h.K) {
						t.Fatalf("chunk %d: %+v", c.First, c)
					}
					m.chunks[c.First] = c
				}
				late = append(late, plan)
			case 4:
				if len(late) > 0 {
					i := rapid.IntRange(0, len(late)-1).Draw(t, "trim")
					if late[i].From == m.first {
						m.first = late[i].To
					}
				}
			}
			m.check(t)
		}
	})
}

func (m *laneModel) check(t *rapid.T) {
	h := m.image()
	for i, base := range Bases(h.Entries, h.Ends) {
		if base != m.base(h.First+int64(i)) {
			t.Fatalf("base of order %d: %v", h.First+int64(i), base)
		}
	}
	for order := int64(0); order+2 <= h.Next; order++ {
		update := m.all[order : order+2] // as if the two had been one update
		at, ok := h.Locate(update)
		for first, c := range m.chunks {
			if !ok && first < h.First {
				at, ok = c.Locate(update)
			}
		}
		if !ok || at.Order != order || at.Bases != m.base(order) {
			t.Fatalf("update at order %d: %v, found %v", order, at, ok)
		}
	}
	if _, ok := h.Locate([]Entry{{ID: testID(1 << 20)}}); ok {
		t.Fatal("found what was never committed")
	}
}

func TestWhyRefused(t *testing.T) {
	id, floor := testID(5), testID(3)
	good := Head{Next: 10, First: 8, MinVersion: 1, Floor: floor, K: ChunkOrders, Tokens: map[Slot]int64{2: 7}}
	good.Epochs[4], good.Ends[1] = 6, 100
	ask := Commit{Entries: []Entry{{ID: testID(6)}, {ID: id}}, Writer: 4, Epoch: 6, Cap: CapFor(8, 2), Expect: []Expect{{1, 100}}, Tokens: []Token{{2, 7}},
		Producers: []ProducerStep{{ID: 9, Sequence: 1}}}
	steps := []struct { // each breaks one more condition, which must win over those broken before it
		want Reason
		do   func(*Commit, *Head)
	}{
		{ReasonUnexplained, func(*Commit, *Head) {}},
		{ReasonSpilled, func(c *Commit, h *Head) { c.Once, c.Since = true, h.First-1 }},
		{ReasonFull, func(c *Commit, h *Head) { h.Next = c.Cap; c.PadAt = h.Next }},
		{ReasonFloor, func(c *Commit, h *Head) { h.Floor = id }},
		{ReasonEpoch, func(c *Commit, h *Head) { h.Epochs[4]++ }},
		{ReasonPadding, func(c *Commit, h *Head) { c.PadIf = true; c.PadAt-- }},
		{ReasonOffset, func(c *Commit, h *Head) { h.Ends[1]++ }},
		{ReasonToken, func(c *Commit, h *Head) { h.Tokens = nil }},
		{ReasonProducer, func(_ *Commit, h *Head) { h.ProducerFloor = 9 }},
		{ReasonVersion, func(c *Commit, h *Head) { h.MinVersion = FormatVersion + 1 }},
		{ReasonAlreadyThere, func(c *Commit, h *Head) { h.Entries = []Entry{{ID: id}} }},
	}
	c, h := ask, good
	for _, s := range steps {
		s.do(&c, &h)
		if got := WhyRefused(c, &h); got != s.want {
			t.Errorf("got %v, want %v", got, s.want)
		}
		alone, single := ask, good
		if s.do(&alone, &single); WhyRefused(alone, &single) != s.want {
			t.Errorf("alone: got %v, want %v", WhyRefused(alone, &single), s.want)
		}
	}
	if got := WhyRefused(ask, nil); got != ReasonNoLane {
		t.Errorf("no head: %v", got)
	}
	if got := ReasonFull.String(); got != "full" {
		t.Errorf("ReasonFull prints as %q", got)
	}
}

func TestSettle(t *testing.T) {
	m := &laneModel{}
	for i := range 24 {
		m.all = append(m.all, Entry{ID: testID(i), Order: int64(i), Slots: []SlotEntry{{Slot: 1, Count: 2}}})
	}
	chunks := PlanSpill(m.image(), Offsets{}).Chunks
	ours := []Entry{{ID: testID(13), Slots: []SlotEntry{{Slot: 1, Count: 2}}}}
	absent := []Entry{{ID: testID(99)}}
	for name, c := range map[string]struct {
		entries []Entry
		chunks  []*Chunk
		want    Verdict
	}{
		"found":                        {ours, chunks, Applied},
		"found beside a missing chunk": {ours, chunks[1:], Applied},
		"its chunk missing":            {ours, []*Chunk{chunks[0], chunks[2]}, Undecided},
		"absent":                       {absent, chunks, NotApplied},
		"last chunk missing":           {absent, chunks[:2], Undecided},
		"first chunk missing":          {absent, chunks[1:], Undecided},
	} {
		at, v := Settle(c.entries, 0, 24, ChunkOrders, c.chunks)
		if v != c.want || v == Applied && (at.Order != 13 || at.Bases[1] != 26) {
			t.Errorf("%s: %v at %+v", name, v, at)
		}
	}
	if _, v := Settle(absent, 24, 24, ChunkOrders, nil); v != NotApplied {
		t.Errorf("nothing spilled since: %v", v)
	}
}

func TestAgeIsTheLargerOfBothClocks(t *testing.T) {
	minted := Stamp{Wall: time.Unix(1000, 0), Mono: time.Minute}
	for _, c := range []struct {
		wall int64
		mono time.Duration
		want time.Duration
	}{
		{1010, 70 * time.Second, 10 * time.Second},
		{1700, 61 * time.Second, 700 * time.Second}, // frozen: the monotonic clock stood still
		{400, 11 * time.Minute, 10 * time.Minute},   // the wall clock was set back
	} {
		if got := minted.Age(Stamp{Wall: time.Unix(c.wall, 0), Mono: c.mono}); got != c.want {
			t.Errorf("age %v, want %v", got, c.want)
		}
	}
}

func TestSpillDueAndPadding(t *testing.T) {
	for _, c := range []struct {
		first, next int64
		m           int
		due         bool
		pad         int
	}{
		{0, 7, 1, false, 1},
		{0, 8, 1, true, 0},
		{0, 9, 1, false, 7},
		{0, 9, 2, true, 7}, // one update took it over the multiple
		{8, 15, 1, false, 1},
		{8, 24, 1, true, 0}, // the first spiller died
		{0, 0, 0, false, 0},
	} {
		h := &Head{First: c.first, Next: c.next, K: ChunkOrders}
		if h.SpillDue(c.m) != c.due || h.PadNeeded() != c.pad {
			t.Errorf("[%d, %d) after %d: due %v, pad %d", c.first, c.next, c.m, h.SpillDue(c.m), h.PadNeeded())
		}
	}
	h := &Head{Lane: "l", First: 8, Next: 13, K: ChunkOrders}
	h.Epochs[2] = 5
	p := PlanPadding(h, 2, []segment.ID{testID(1), testID(2), testID(3)})
	if err := p.Validate(); err != nil || p.PadAt != 13 || p.Epoch != 5 || p.Cap != CapFor(8, 3) || len(p.Entries) != h.PadNeeded() {
		t.Errorf("%+v: %v", p, err)
	}
}

// The cap keeps a head at MaxHeadEntries: an update that just passes fills it, and one more entry does not pass.
func TestCapKeepsTheHeadSmall(t *testing.T) {
	for m := 1; m <= MaxCommitEntries; m++ {
		first := int64(40)
		if next := CapFor(first, m) - 1; next+int64(m)-first != MaxHeadEntries {
			t.Errorf("%d entries: the last update to pass leaves %d", m, next+int64(m)-first)
		}
	}
}

func TestEpochOf(t *testing.T) {
	used := map[int]bool{}
	for i := range 1000 {
		used[EpochOf(testID(i).String())] = true
	}
	if len(used) != Epochs {
		t.Errorf("1000 writers use %d of %d epochs", len(used), Epochs)
	}
}
