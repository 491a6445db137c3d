package walk_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

func timeAt(order int64) time.Time { return time.UnixMilli(1_700_000_000_000 + order*1000) }

// The bounds that the package states, in requests to the table with nothing remembered: a head, a state, one chunk for each halving of n/K chunks, and one
// or two where the search ends.
var bounds = []struct {
	commits      int64
	offset, time int
}{
	{1_000, 2 + 7 + 1, 2 + 7 + 2},
	{1_000_000, 2 + 17 + 1, 2 + 17 + 2},
}

func TestSeekToAnyOffsetIsLogarithmic(t *testing.T) {
	for _, c := range bounds {
		h := even(8).all(t, c.commits)
		r := rand.New(rand.NewPCG(1, uint64(c.commits)))
		most, sum, n := 0, 0, 300
		for i := range n {
			offset := r.Int64N(c.commits * 10)
			if i < 2 {
				offset = int64(i) * (c.commits*10 - 1)
			}
			extents, _, err := walk.New(h).Next(t.Context(), atOffset(5, offset))
			if err != nil || len(extents) == 0 || offset < extents[0].Base || offset >= extents[0].End || extents[0].Order != offset/10 {
				t.Fatalf("offset %d of %d commits: %+v, %v", offset, c.commits, extents, err)
			}
			requests, _ := h.requests()
			most, sum = max(most, requests), sum+requests
		}
		t.Logf("seek to an offset, %d commits: at most %d requests of %d allowed, %.1f on average", c.commits, most, c.offset, float64(sum)/float64(n))
		if most > c.offset {
			t.Errorf("%d commits: %d requests, at most %d are stated", c.commits, most, c.offset)
		}
	}
}

func TestSeekToAnyTimeIsLogarithmicWhenTimesAscend(t *testing.T) {
	for _, c := range bounds {
		h := even(8).all(t, c.commits)
		r := rand.New(rand.NewPCG(2, uint64(c.commits)))
		most, sum, n := 0, 0, 300
		for i := range n {
			at := r.Int64N(c.commits*1000 - 1000)
			if i < 2 {
				at = int64(i) * (c.commits - 1) * 1000
			}
			e, _, err := walk.New(h).FindTime(t.Context(), atOffset(5, 0), at)
			if err != nil || e.Order != (at+999)/1000 {
				t.Fatalf("time %d of %d commits: %+v, %v", at, c.commits, e, err)
			}
			requests, _ := h.requests()
			most, sum = max(most, requests), sum+requests
		}
		t.Logf("seek to a time, %d commits: at most %d requests of %d allowed, %.1f on average", c.commits, most, c.time, float64(sum)/float64(n))
		if most > c.time {
			t.Errorf("%d commits: %d requests, at most %d are stated", c.commits, most, c.time)
		}
		if _, _, err := walk.New(h).FindTime(t.Context(), atOffset(5, 0), c.commits*1000); !errors.Is(err, walk.ErrNone) {
			t.Errorf("a time after the last record: %v", err)
		}
		if requests, _ := h.requests(); requests > c.time {
			t.Errorf("%d requests to find that there is none", requests)
		}
	}
}

// The worst case: the first commit is dated ahead of all others and was removed, so that every running maximum says "maybe".
func TestSeekToATimeIsBoundedWhenARemovedRecordWasAhead(t *testing.T) {
	for _, c := range bounds {
		commits := min(c.commits, 1_000_000/raceShare)
		h := even(8).all(t, commits)
		entry, before := h.entry, h.before
		const ahead = int64(1) << 50
		h.entry = func(order int64) (e metadata.Entry) {
			if e = entry(order); order == 0 {
				e.Slots[5].MaxTime = ahead
			}
			return e
		}
		h.before = func(order int64) (bases, maxima metadata.Offsets) {
			if bases, maxima = before(order); order > 0 {
				maxima[5] = ahead
			}
			return bases, maxima
		}
		start := h.states[0]
		start.Starts[5] = 10
		h.states = append(h.states, start)
		near := start // the same, but the log start is near the answer
		near.Starts[5] = (commits - 500) * 10
		e, _, err := walk.New(h).FindTime(t.Context(), atOffset(5, 0), (commits-20)*1000)
		if err != nil || e.Order != commits-20 {
			t.Fatalf("%+v, %v", e, err)
		}
		requests, calls := h.requests()
		bound := c.time + 1 + int(commits/8+127)/128 + 1
		t.Logf("seek to a time, %d commits, a removed record ahead of it: %d requests %v of %d allowed (one for each 128 chunks between the log start and the answer)", commits, requests, calls, bound)
		if requests > bound {
			t.Errorf("%d requests, at most %d are stated", requests, bound)
		}
		h.states = append(h.states, near)
		if e, _, err := walk.New(h).FindTime(t.Context(), atOffset(5, 0), (commits-20)*1000); err != nil || e.Order != commits-20 {
			t.Fatalf("%+v, %v", e, err)
		}
		if requests, calls := h.requests(); requests > 2*c.time+1 {
			t.Errorf("%d requests %v with the log start 500 commits before the answer", requests, calls)
		}
	}
}

// readThrough reads slot 5 from its beginning to an offset. Extents must follow one another.
func readThrough(t *testing.T, h *history, to int64) {
	t.Helper()
	w, c := walk.New(h), atOffset(5, 0)
	got := int64(0)
	for c.Offset < to {
		extents, next, err := w.Next(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range extents {
			if e.Base != got {
				t.Fatalf("extent at %d after %d", e.Base, got)
			}
			got = e.End
		}
		c = next
	}
}

// A reader that goes on asks for chunks ahead, and a slot that has nothing for long stretches is found again in O(log distance).
func TestReadingOnIsCheap(t *testing.T) {
	const commits = 10_000
	h := even(64).all(t, commits)
	readThrough(t, h, commits*10)
	n, calls := h.requests()
	delete(calls, "Head") // which the process answers from memory
	t.Logf("reading %d commits from the start: %v", commits, calls)
	if chunks := commits / k; calls["Chunks"] > chunks/32+8 || calls["State"] > chunks/32+8 || calls["Chunk"] > 16 {
		t.Errorf("%d requests for %d chunks: %v", n, chunks, calls)
	}
}

func TestSparseSlotIsFoundByGalloping(t *testing.T) {
	h := even(64).all(t, 100_000)
	entry, before := h.entry, h.before
	// slot 9 has records in every 10,000th commit only
	h.entry = func(order int64) metadata.Entry {
		e := entry(order)
		if order%10_000 != 0 {
			e.Slots = append(e.Slots[:9:9], e.Slots[10:]...)
		}
		return e
	}
	h.before = func(order int64) (bases, maxima metadata.Offsets) {
		bases, maxima = before(order)
		bases[9] = (order + 9_999) / 10_000 * 10
		maxima[9] = max(order-1, 0) / 10_000 * 10_000 * 1000
		return bases, maxima
	}
	w, c := walk.New(h), atOffset(9, 0)
	for i := range int64(10) {
		extents, next, err := w.Next(t.Context(), c)
		if err != nil || len(extents) != 1 || extents[0].Order != i*10_000 {
			t.Fatalf("%d: %+v, %v", i, extents, err)
		}
		c = next
		n, calls := h.requests()
		if n > 3+2*11+4 {
			t.Errorf("extent %d, 1,250 chunks on: %d requests %v", i, n, calls)
		}
	}
}

// Nine tenths in the archive, in rows of 100 chunks: the search for an offset does not grow with it, that for a time by one for each doubling of its offsets.
func TestSeekIntoTheArchive(t *testing.T) {
	for _, c := range []struct {
		commits      int64
		offset, time int
	}{
		{1_000, 2 + 4 + 1, 2 + 14 + 4 + 2},       // 10,000 offsets, up to 14 chunks besides
		{1_000_000, 2 + 14 + 1, 2 + 24 + 14 + 2}, // 10,000,000 offsets, 12,500 chunks
	} {
		h := even(8).all(t, c.commits).archive(5, c.commits/10*9/k*k, 100*k)
		r := rand.New(rand.NewPCG(3, uint64(c.commits)))
		var offset, archived, time int
		for i := range int64(300) {
			order := r.Int64N(c.commits)
			if i < 2 {
				order = i * (c.commits - 1)
			}
			extents, _, err := walk.New(h).Next(t.Context(), atOffset(5, order*10+3))
			if err != nil || order*10+3 < extents[0].Base || order*10+3 >= extents[0].End {
				t.Fatalf("order %d of %d: %+v, %v", order, c.commits, extents, err)
			}
			n, _ := h.requests()
			if offset = max(offset, n); extents[0].Archived() {
				archived = max(archived, n)
			}
			e, _, err := walk.New(h).FindTime(t.Context(), atOffset(5, 0), order*1000)
			if err != nil || order*10 < e.Base || order*10 >= e.End {
				t.Fatalf("time of order %d of %d: %+v, %v", order, c.commits, e, err)
			}
			n, _ = h.requests()
			time = max(time, n)
		}
		t.Logf("%d commits, nine tenths in the archive: seek to an offset at most %d requests of %d allowed, in the archive %d of 3; to a time %d of %d", c.commits, offset, c.offset, archived, time, c.time)
		if offset > c.offset || archived > 3 || time > c.time {
			t.Error("more requests than stated")
		}
		if _, _, err := walk.New(h).FindTime(t.Context(), atOffset(5, 0), c.commits*1000); !errors.Is(err, walk.ErrNone) {
			t.Errorf("a time after the last record: %v", err)
		}
		if n, calls := h.requests(); n > c.time {
			t.Errorf("%v to find that there is none", calls)
		}
	}
}

// From the first row to the head: rows are asked for ahead as chunks are, and the first chunk after them is found at once.
func TestReadingOnThroughTheArchiveIsCheap(t *testing.T) {
	const commits, archived, orders = 10_000, 8_000, 10
	h := even(8).all(t, commits).archive(5, archived, orders)
	readThrough(t, h, commits*10)
	_, calls := h.requests()
	delete(calls, "Head")
	t.Logf("reading %d commits, the first %d of them in %d rows: %v", commits, archived, archived/orders, calls)
	if rows, chunks := archived/orders, (commits-archived)/k; calls["Row"] > 1 || calls["Rows"] > rows/32+3 || calls["Chunks"] > chunks/32+2 || calls["Chunk"] > 0 ||
		calls["State"] > rows/32+chunks/32+10 {
		t.Errorf("%v", calls)
	}
}

// A removed record that was ahead of all others says "maybe" from its row on: what follows is gone through.
func TestSeekToATimeIsBoundedWhenTheArchiveHasLostARecordThatWasAhead(t *testing.T) {
	const commits, archived, orders = 100_000, 90_000, 10
	h := even(8).all(t, commits).archive(5, archived, orders)
	const ahead = int64(1) << 50
	for _, r := range h.rows[0] {
		r.RunMax = ahead
	}
	before := h.before
	h.before = func(order int64) (bases, maxima metadata.Offsets) {
		bases, maxima = before(order)
		maxima[5] = ahead
		return bases, maxima
	}
	for _, order := range []int64{50_000, 95_000} {
		e, _, err := walk.New(h).FindTime(t.Context(), atOffset(5, 0), order*1000)
		if err != nil || order*10 < e.Base || order*10 >= e.End {
			t.Fatalf("time of order %d: %+v, %v", order, e, err)
		}
		n, calls := h.requests()
		bound := 2 + 24 + 14 + 2 + archived/orders/128 + (commits-archived)/k/128 + 2
		t.Logf("seek to the time of commit %d of %d, a removed record ahead of it: %d requests %v of %d allowed", order, commits, n, calls, bound)
		if n > bound {
			t.Error("more requests than stated")
		}
	}
}
