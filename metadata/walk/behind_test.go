package walk_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// bytesBehind is what Behind is to say, from a look at every row and entry.
func (h *history) bytesBehind(slot metadata.Slot, offset int64) (sum int64) {
	state := h.states[len(h.states)-1]
	for _, r := range h.rows[len(h.rows)-1] {
		if r.Partition == int(slot) && r.Base > offset {
			sum += r.Bytes
		}
	}
	g, _ := h.last()
	for o := state.Archived; o < g; o++ {
		bases, _ := h.before(o)
		for _, s := range h.entry(o).Slots {
			if s.Slot == slot && s.Count > 0 && bases[slot] > offset {
				sum += int64(s.Bytes)
			}
		}
	}
	return sum
}

// Bytes behind offsets against a look at everything, in a lane that stands still, whatever eventual reads show; and no alarm while it goes on.
func TestBehindAgainstAScan(t *testing.T) {
	const commits = 200
	some := 0
	rapid.Check(t, func(t *rapid.T) {
		h := random(t, commits)
		h.begin(t, commits)
		h.stale = func(n int) int { return rapid.IntRange(0, min(n, 6)).Draw(t, "stale") }
		state := h.states[len(h.states)-1]
		offsets := map[metadata.Slot]int64{}
		for slot := range metadata.Slot(4) {
			if start, end := state.Starts[slot], h.end(slot); start < end {
				offsets[slot] = rapid.Int64Range(start, end-1).Draw(t, "offset")
			}
		}
		enough := rapid.Int64Range(1, 20_000).Draw(t, "enough")
		w := walk.New(h)
		got, err := w.Behind(t.Context(), topic, laneID, offsets, enough)
		if err != nil || len(got) != len(offsets) {
			t.Fatalf("%v, %v of %v", err, got, offsets)
		}
		for slot, offset := range offsets {
			want := h.bytesBehind(slot, offset)
			if want < enough && got[slot] != want || want >= enough && (got[slot] < enough || got[slot] > want) {
				t.Fatalf("slot %d behind %d: %d bytes, want %d, enough are %d", slot, offset, got[slot], want, enough)
			}
			if want > 0 && want < enough {
				some++
			}
		}
		h.moving = func(string) {
			if rapid.IntRange(0, 2).Draw(t, "moves") == 0 {
				h.step(t, commits)
			}
		}
		for range 5 {
			if _, err := w.Behind(t.Context(), topic, laneID, offsets, enough); err != nil {
				t.Fatal(err)
			}
		}
	})
	if some == 0 {
		t.Error("too little was tried")
	}
}

// What it costs: nothing beyond the offsets, nothing beyond enough.
func TestBehindRequests(t *testing.T) {
	const orders = 8192 // of which half are in the archive, in 64 rows
	for name, x := range map[string]struct {
		offset, enough int64
		want           map[string]int
	}{
		"in the head":              {10 * (orders - 3), 1 << 40, map[string]int{"State": 1, "Head": 1}},
		"30 chunks back":           {10 * (orders - 241), 1 << 40, map[string]int{"State": 1, "Head": 1, "Chunks": 1}},
		"at the archive's end":     {10 * orders / 2, 1 << 40, map[string]int{"State": 1, "Head": 1, "Chunks": 16}},
		"at the beginning":         {0, 1 << 40, map[string]int{"State": 1, "Head": 1, "Chunks": 16, "Row": 1, "Rows": 1}},
		"at the beginning, enough": {0, 1000 * 200, map[string]int{"State": 1, "Head": 1, "Chunks": 1}},
		"no bytes are kept":        {0, 0, map[string]int{"State": 1, "Head": 1}},
	} {
		h := even(1).all(t, orders).archive(0, orders/2, 64)
		if _, err := walk.New(h).Behind(t.Context(), topic, laneID, map[metadata.Slot]int64{0: x.offset}, x.enough); err != nil {
			t.Fatal(err)
		}
		if _, calls := h.requests(); !maps.Equal(calls, x.want) {
			t.Errorf("%s: %v, want %v", name, calls, x.want)
		}
	}
}
