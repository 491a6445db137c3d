package lane_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// Whatever happens to a spill, commits go on, nothing is lost, and a later spill moves what this one did not.
func TestSpillFaults(t *testing.T) {
	for name, p := range map[string]plan{
		"the chunk is lost":          {"PutChunk": {lost}},
		"the chunk's answer is lost": {"PutChunk": {applied}},
		"the second chunk is lost":   {"PutChunk": {nil, lost}, "Trim": {lost}},
		"the trim is lost":           {"Trim": {lost}},
		"the trim's answer is lost":  {"Trim": {applied}},
		"the chunk is late":          {"PutChunk": {late}},
		"the trim is late":           {"Trim": {late, late}},
		"throttled":                  {"PutChunk": {throttled}, "Trim": {throttled}, "Chunk": {throttled}},
		"the maxima do not come":     {"Chunk": {lost, lost}},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				b.others(8) // so that the maxima have to be read
				b.table.fault = p.decide
				for range 40 {
					r := b.commit(1)
					synctest.Wait()
					b.check(r, nil)
				}
				time.Sleep(time.Minute)
				if entries, _ := b.log(); len(entries) != 48 {
					t.Errorf("%d entries are left of 48", len(entries))
				}
				if h := b.strong(); h.Next != 48 || h.Next-h.First >= 2*h.K {
					t.Errorf("the head has [%d, %d)", h.First, h.Next)
				}
			})
		})
	}
}

// A trim that arrives late, when another has spilled these orders and more, removes nothing.
func TestLateTrim(t *testing.T) {
	on(t, func(b *bench) {
		late := make(chan struct{})
		b.table.fault = plan{"Trim": {{late: late}}}.decide
		for range 8 {
			b.commit(1)
		}
		synctest.Wait()
		b.others(12)
		close(late)
		synctest.Wait()
		if entries, _ := b.log(); len(entries) != 20 {
			t.Errorf("%d entries are left of 20", len(entries))
		}
	})
}

func TestSpillByAnother(t *testing.T) {
	on(t, func(b *bench) {
		b.others(4)
		b.table.fault = plan{"PutChunk": {{delay: time.Minute}}}.decide
		for range 4 {
			b.commit(1)
		}
		b.others(24)
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(b.spills) != 1 || !b.spills[0].ByAnother || b.spills[0].Err != nil {
			t.Errorf("spills %+v", b.spills)
		}
	})
}

// A Writer spills once at a time, however long that takes.
func TestOneSpillAtATime(t *testing.T) {
	on(t, func(b *bench) {
		b.table.fault = plan{"PutChunk": {{delay: time.Minute}}}.decide
		for range 20 {
			b.check(b.commit(1), nil)
		}
		synctest.Wait()
		if n := b.table.counts()["PutChunk"]; n != 1 {
			t.Errorf("%d chunks are being put", n)
		}
	})
}

// The chunk before the head is missing because the head has moved and history was cut meanwhile: another has spilled.
func TestChunkBeforeTheHeadIsGone(t *testing.T) {
	on(t, func(b *bench) {
		b.others(8)
		b.table.fault = plan{"Chunk": {{err: metadata.ErrNoChunk, then: func(context.Context) { b.others(16) }}}}.decide
		for range 8 {
			b.check(b.commit(1), nil)
		}
		synctest.Wait()
		if len(b.spills) != 1 || b.spills[0].Err != nil || !b.spills[0].ByAnother {
			t.Errorf("spills %+v", b.spills)
		}
	})
}

// The chunk before the head is missing although the head has not moved: the maxima cannot be continued, so
// nothing is spilled, and it is said.
func TestChunkBeforeTheHeadIsMissing(t *testing.T) {
	on(t, func(b *bench) {
		b.others(8)
		b.table.fault = func(op string, n int) *fault {
			if op == "Chunk" {
				return &fault{err: metadata.ErrNoChunk}
			}
			return nil
		}
		for range 8 {
			b.check(b.commit(1), nil)
		}
		synctest.Wait()
		if len(b.spills) != 1 || !errors.Is(b.spills[0].Err, metadata.ErrCorrupt) || b.strong().First != 8 {
			t.Errorf("spills %+v, first %d", b.spills, b.strong().First)
		}
	})
}

// The head never has more than MaxHeadEntries, with 16 writers and chunk writes that fail for a minute: who is
// refused by the cap spills, and as that fails too gets a typed error at the deadline. When chunks can be
// written again, everything goes on.
func TestHeadStaysSmall(t *testing.T) {
	t.Parallel()
	on(t, func(b *bench) {
		const writers, segments = 16, 11 + 9/raceShare
		largest := int64(0)
		b.config.OnImage = func(h *metadata.Head) { b.note(func() { largest = max(largest, h.Next-h.First) }) }
		healthy := time.Now().Add((2 + 1/raceShare) * 5 * time.Second) // as many deadlines
		b.table.fault = func(op string, n int) *fault {
			if op == "PutChunk" && time.Now().Before(healthy) {
				return &fault{wait: 100 * time.Millisecond}
			}
			return &fault{delay: 5 * time.Millisecond}
		}
		impatient := func(w int) *lane.Segment {
			s := b.segment(metadata.Slot(w))
			s.Deadline = b.env.Mono() + 5*time.Second
			return s
		}
		failed, late := 0, 0
		b.many(writers, segments, impatient, func(r lane.Result) {
			full := errors.Is(r.Err, lane.ErrDeadline) && errors.Is(r.Err, lane.ErrBackpressure)
			told := errors.Is(r.Err, lane.ErrPriorFailed) // enqueued before done had returned
			switch {
			case r.Err == nil && time.Now().After(healthy):
				late++
			case r.Err != nil:
				failed++
				if !full && !told && time.Now().Before(healthy) || time.Now().After(healthy.Add(time.Second)) {
					t.Errorf("at %v: %v", time.Until(healthy), r.Err)
				}
			}
		})
		t.Logf("at most %d entries, %d failed, %d after the trouble", largest, failed, late)
		if largest != metadata.MaxHeadEntries || failed == 0 || late < 200/raceShare {
			t.Errorf("at most %d entries, %d failed, %d after the trouble", largest, failed, late)
		}
		if entries, _ := b.log(); len(entries) != writers*segments-failed {
			t.Errorf("%d entries, %d failed of %d", len(entries), failed, writers*segments)
		}
	})
}

// A Writer that sees few images is refused once by the cap it knows; images that its process reads anyway spare
// it that.
func TestObserve(t *testing.T) {
	for _, observe := range []bool{false, true} {
		on(t, func(b *bench) {
			b.commit(1)
			b.others(100)
			want := 2
			if observe {
				b.writer.Observe(b.strong())
				want = 1
			}
			r := b.commit(1)
			b.check(r, nil)
			if r.Attempts != want {
				t.Errorf("observed %v: %d attempts", observe, r.Attempts)
			}
			if len(b.spills) > 0 {
				t.Errorf("spilled a head that was not full: %+v", b.spills)
			}
		})
	}
}

// BR-08: a new Writer, which knows nothing, goes on where the lane is.
func TestBR08_RestartGoesOnAtTheEnd(t *testing.T) {
	on(t, func(b *bench) {
		for range 10 {
			b.commit(1)
		}
		b.close()
		b.writer = lane.New(b.config)
		if r := b.commit(1); r.Slots[0].Base != 20 || r.Order != 10 {
			t.Errorf("%+v", r)
		}
	})
}

func TestPausePoints(t *testing.T) {
	on(t, func(b *bench) {
		var seen []env.Point
		b.config.Env.Pause = func(p env.Point) { b.note(func() { seen = append(seen, p) }) }
		b.writer = lane.New(b.config)
		for range 7 {
			b.commit(1)
		}
		seen = nil
		b.table.fault = plan{"Commit": {7: lost}}.decide
		b.commit(1)
		synctest.Wait()
		want := []env.Point{env.BeforeCommit, env.AfterCommit, env.BeforeFence, env.AfterFence, env.BeforeCommit, env.AfterCommit, env.BeforeChunk, env.AfterChunk, env.AfterTrim}
		if !reflect.DeepEqual(seen, want) {
			t.Errorf("passed %v\nwant   %v", seen, want)
		}
	})
}

// BR-12: conflicts and throttles on a hot lane are definite, and only cost time. At 100 ms an attempt the lane
// is at its most, some 300 commits/s.
func TestBR12_ConflictsAndThrottles(t *testing.T) {
	t.Parallel()
	on(t, func(b *bench) {
		const writers, segments = 32, 50 / raceShare
		b.env.Rand = env.NewRand(7)
		b.table.fault = func(op string, n int) *fault {
			switch p := b.env.Float64(); {
			case op != "Commit":
				return nil
			case p < 0.3:
				return &fault{err: metadata.ErrContended, wait: 100 * time.Millisecond}
			case p < 0.4:
				return &fault{err: metadata.ErrThrottled, wait: 100 * time.Millisecond}
			}
			return &fault{delay: 100 * time.Millisecond}
		}
		taken := map[int64]segment.ID{}
		b.many(writers, segments, func(int) *lane.Segment { return b.segment(1) }, func(r lane.Result) {
			if r.Err != nil || r.Attempts > 40 {
				t.Errorf("%+v", r)
				return
			}
			for o := r.Slots[0].Base; o < r.Slots[0].Base+2; o++ {
				if other, ok := taken[o]; ok {
					t.Errorf("offset %d was given to %s and to %s", o, other, r.ID)
				}
				taken[o] = r.ID
			}
		})
		if n := 2 * writers * segments; len(taken) != n || b.strong().Ends[1] != int64(n) {
			t.Errorf("%d offsets, end %d", len(taken), b.strong().Ends[1])
		}
		if len(b.branches) > 0 {
			t.Errorf("a definite refusal was settled: %v", b.branches)
		}
	})
}

// A writer that remembers a head of which the table knows nothing any more, since that was put back, puts a chunk of it at orders that the lane has yet to reach. Who spills there replaces it: by the
// head, not by who was first; and the one that remembers wrong replaces nothing.
func TestAChunkOfAForgottenTime(t *testing.T) {
	on(t, func(b *bench) {
		for range 3 {
			b.commit(1)
		}
		forgotten := b.strong() // of a time when eight had been committed
		for i := range int64(5) {
			e := forgotten.Entries[2]
			e.ID, e.Order = b.mint(segment.ID{}, e.ID.Class()), 3+i
			forgotten.Entries = append(forgotten.Entries, e)
			forgotten.Ends[1] += 100
		}
		forgotten.Next = 8
		spill := func() {
			if err := lane.Spill(context.Background(), b.table, b.env, forgotten); err != nil {
				t.Error(err)
			}
		}
		spill() // its trim is refused
		for range 20 {
			b.commit(1)
			synctest.Wait()
		}
		if h := b.strong(); h.Next != 23 || h.Next-h.First >= 2*h.K {
			t.Errorf("the head has [%d, %d)", h.First, h.Next)
		}
		entries, _ := b.log()
		if len(entries) != 23 {
			t.Fatalf("%d entries are left of 23", len(entries))
		}
		spill()
		if again, _ := b.log(); !reflect.DeepEqual(again, entries) {
			t.Error("it was replaced by what was forgotten")
		}
	})
}
