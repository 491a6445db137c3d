package verify_test

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// smallLog is a log of which every second chunk of commits has its segments in the table.
func smallLog(t *testing.T) (w *world, lane metadata.LaneID) {
	w = newWorld(t)
	lane = w.topic("t", 4, 1).Lanes[0]
	w.produce(metadata.ChunkOrders, at("t", 0, 1, 3)...)
	w.small, w.table.small = 4000, true
	w.produce(metadata.ChunkOrders+3, at("t", 0, 1, 3)...)
	return w, lane
}

// inTable is the segment of an order, which is in the table.
func (w *world) inTable(lane metadata.LaneID, order int64) segment.ID {
	w.t.Helper()
	id := w.entry(lane, order).ID
	if id.Place() != segment.InTable {
		w.t.Fatalf("segment of order %d is in place %d", order, id.Place())
	}
	return id
}

func TestSmallSegmentsAreSound(t *testing.T) {
	w, lane := smallLog(t)
	w.inTable(lane, metadata.ChunkOrders)
	r := w.verify(w.options())
	const commits = 2*metadata.ChunkOrders + 3
	if !r.OK() || r.Suspicious != 0 || r.Totals.Objects != commits || r.Totals.Records != 3*commits || r.Totals.Orphans != (verify.Heap{}) {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
	o := w.options()
	o.IndexOnly = true
	if r := w.verify(o); !r.OK() || r.Totals.Objects != commits {
		t.Errorf("index only: %s\n%+v", describe(r), r.Totals)
	}
}

// Damage of a segment in the table is found as that of an object is, with the item's key as its name.
func TestSmallSegmentsDamaged(t *testing.T) {
	w, lane := smallLog(t)
	for name, c := range map[string]struct {
		spoil func(body []byte) []byte // nil: the item is removed
		want  verify.Kind
	}{
		"gone":           {nil, verify.ObjectMissing},
		"a bit flipped":  {func(b []byte) []byte { b[len(b)/3]++; return b }, verify.BatchCorrupt},
		"cut off":        {func(b []byte) []byte { return b[:40] }, verify.ExtentOutside},
		"another's body": {func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }, verify.ObjectUnreadable},
	} {
		for _, order := range []int64{metadata.ChunkOrders + 1, 2*metadata.ChunkOrders + 1} { // in a chunk, in the head
			id := w.inTable(lane, order)
			body, err := w.table.Small(t.Context(), id)
			check(t, err)
			check(t, w.table.DeleteSmall(t.Context(), []segment.ID{id}))
			if c.spoil != nil {
				check(t, w.table.PutSmall(t.Context(), id, c.spoil(bytes.Clone(body))))
			}
			r := w.verify(w.options())
			if kinds(r)[c.want] == 0 {
				t.Errorf("%s, order %d: %s", name, order, describe(r))
			}
			for _, f := range r.Findings {
				if f.Object != "" && f.Object != metadata.SmallKey(id).String() {
					t.Errorf("%s, order %d: found in %q", name, order, f.Object)
				}
			}
			check(t, w.table.DeleteSmall(t.Context(), []segment.ID{id}))
			check(t, w.table.PutSmall(t.Context(), id, body))
		}
	}
}

func TestSmallOrphans(t *testing.T) {
	w, _ := smallLog(t)
	for age, n := range map[time.Duration]int{time.Hour: 3, time.Minute: 2} {
		for i := range n {
			id := segment.NewID(w.env.Now().Add(-age), 7, segment.InTable, uint64(i), segment.ID{})
			check(t, w.table.PutSmall(t.Context(), id, []byte("nobody's")))
		}
	}
	r := w.verify(w.options())
	if !r.OK() || r.Totals.Orphans != (verify.Heap{Objects: 3}) || r.Totals.Recent != (verify.Heap{Objects: 2}) || !maps.Equal(kinds(r), map[verify.Kind]int{verify.Orphans: 1}) {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
}
