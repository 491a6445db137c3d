package metadata

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
	"pgregory.net/rapid"
)

// lane is a dumb model of one: every commit it ever had with the offsets it was given one by one, a head that obeys the rules for
// heads, and the chunks that were put. Its spillers act on images that may be old.
type lane struct {
	all    []Entry   // by order
	bases  []Offsets // before each entry, counted forwards
	ends   Offsets
	first  int64
	chunks map[int64]*Chunk
	held   []*Head // images that somebody took and has not acted on yet

	same, trimmed, late int // chunks put a second time, trims, trims refused since another came first
}

func (l *lane) image() *Head {
	return &Head{Lane: "lane-0", Next: int64(len(l.all)), First: l.first, Ends: l.ends, Entries: l.all[l.first:], K: ChunkOrders}
}

func (l *lane) commit(t *rapid.T) {
	m := rapid.IntRange(1, 3).Draw(t, "entries in one update")
	if len(l.all)-int(l.first) > MaxHeadEntries-m {
		return // the cap
	}
	for range m {
		e := Entry{ID: segment.NewID(time.UnixMilli(int64(1000+len(l.all))), 7, segment.InBucket, uint64(len(l.all)), segment.ID{}), Order: int64(len(l.all))}
		l.bases = append(l.bases, l.ends)
		for s := range eachSlot(rapid.Uint64Range(0, 1<<5-1).Draw(t, "slots")) {
			// 0 is a batch that was withdrawn
			n := rapid.Int32Range(0, 9).Draw(t, "records")
			e.Slots = append(e.Slots, SlotEntry{Slot: s, Count: n, Bytes: 100, MaxTime: int64(rapid.IntRange(1, 99).Draw(t, "time"))})
			for range n {
				l.ends[s]++
			}
		}
		e.Empty = len(e.Slots) == 0
		l.all = append(l.all, e)
	}
}

func (l *lane) hold(*rapid.T) { l.held = append(l.held, l.image()) }

func (l *lane) pick(t *rapid.T) *Head {
	if len(l.held) == 0 {
		return l.image()
	}
	return l.held[rapid.IntRange(0, len(l.held)-1).Draw(t, "image")]
}

func (l *lane) plan(t *rapid.T, h *Head) Spill {
	var before Offsets
	if h.First > 0 {
		before = l.chunks[h.First-h.K].MaxTimes
	}
	return PlanSpill(h, before)
}

// put writes some of the chunks that an image leads to. Whoever wrote them before wrote the same.
func (l *lane) put(t *rapid.T) {
	plan := l.plan(t, l.pick(t))
	for _, c := range plan.Chunks[:rapid.IntRange(0, len(plan.Chunks)).Draw(t, "chunks before the spiller dies")] {
		if there := l.chunks[c.First]; there == nil {
			l.chunks[c.First] = c
		} else if l.same++; !reflect.DeepEqual(there, c) {
			t.Fatalf("two chunks of the same orders:\n%+v\n%+v", there, c)
		}
	}
}

// trim acts late on an image: if the head's First is still the image's and all chunks are there.
func (l *lane) trim(t *rapid.T) {
	plan := l.plan(t, l.pick(t))
	for _, c := range plan.Chunks {
		if l.chunks[c.First] == nil {
			return
		}
	}
	switch {
	case plan.From != l.first:
		l.late++
	case plan.To > plan.From:
		l.trimmed++
		l.first = plan.To
	}
}

func (l *lane) check(t *rapid.T) {
	h := l.image()
	for i, bases := range Bases(h.Entries, h.Ends) {
		if want := l.bases[h.Entries[i].Order]; bases != want {
			t.Fatalf("order %d in the head starts at %v, want %v", h.Entries[i].Order, bases, want)
		}
	}
	for first, c := range l.chunks {
		for i, bases := range Bases(c.Entries, c.Ends()) {
			if order := first + int64(i); c.Entries[i].Order != order || bases != l.bases[order] {
				t.Fatalf("order %d in a chunk starts at %v, want %v", order, bases, l.bases[order])
			}
		}
	}
	for order := range l.first {
		if l.chunks[ChunkOf(order, ChunkOrders)] == nil {
			t.Fatalf("order %d is in neither head nor chunk", order)
		}
	}
}

// However spills and trims fall, each entry's base is what counting from the beginning gives, in heads of any age and in chunks.
func TestBasesAgainstModel(t *testing.T) {
	var same, trimmed, late int
	rapid.Check(t, func(t *rapid.T) {
		l := &lane{chunks: map[int64]*Chunk{}}
		defer func() { same, trimmed, late = same+l.same, trimmed+l.trimmed, late+l.late }()
		t.Repeat(map[string]func(*rapid.T){"commit": l.commit, "commit again": l.commit, "hold": l.hold, "put": l.put, "trim": l.trim, "": l.check})
	})
	t.Logf("%d chunks put twice, %d trims, %d trims too late", same, trimmed, late)
	if same == 0 || trimmed == 0 || late == 0 {
		t.Error("a case that the test is about never came up")
	}
}

func ExampleBases() {
	entries := []Entry{
		{Order: 7, Slots: []SlotEntry{{Slot: 0, Count: 2}, {Slot: 1, Count: 1}}},
		{Order: 8, Slots: []SlotEntry{{Slot: 1, Count: 4}}},
	}
	for i, b := range Bases(entries, Offsets{0: 12, 1: 105}) {
		fmt.Println("order", entries[i].Order, "starts at", b[0], b[1])
	}
	// Output:
	// order 7 starts at 10 100
	// order 8 starts at 12 101
}
