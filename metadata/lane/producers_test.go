package lane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// id is the n-th producer of a bench, by age.
func id(n int) metadata.ProducerID { return metadata.ProducerID(1<<50 + n) }

// once makes a segment of requests, two records of slot 1.
func (b *bench) once(steps ...metadata.ProducerStep) *lane.Segment {
	s := b.segment(1)
	s.Producers = steps
	return s
}

func step(n int, sequence int64) metadata.ProducerStep {
	return metadata.ProducerStep{ID: id(n), Sequence: sequence}
}

func (b *bench) free(s *lane.Segment) <-chan lane.Result {
	c := make(chan lane.Result, 1)
	if err := b.writer.EnqueueFree(s, func(r lane.Result) { c <- r }); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) append(steps ...metadata.ProducerStep) lane.Result { return <-b.free(b.once(steps...)) }

// why is what the refused producers of a result were told.
func why(t *testing.T, r lane.Result) map[metadata.ProducerID]metadata.Admission {
	t.Helper()
	var refused *lane.ProducersError
	if !errors.As(r.Err, &refused) || !errors.Is(r.Err, lane.ErrNotAdmitted) || refused.Head == nil {
		t.Fatalf("%+v", r)
	}
	all := map[metadata.ProducerID]metadata.Admission{}
	for _, f := range refused.Failed {
		all[f.ID] = f.Why
	}
	return all
}

// A request is sent again, after whatever became of its attempts, until there is an answer: it is in the log once.
func TestProducers_FaultsAtEachRequest(t *testing.T) {
	for name, p := range map[string]plan{
		"commit lost":                 {"Commit": {{}}},
		"commit applied":              {"Commit": {{applied: true}}},
		"commit late":                 {"Commit": {{lateBy: 10 * time.Second}}},
		"commit sent twice":           {"Commit": {{twice: true}}},
		"throttled":                   {"Commit": {throttled}},
		"commit applied, head lost":   {"Commit": {{applied: true}}, "Head": {{}, {}}},
		"commit late, fence lost":     {"Commit": {{lateBy: 2 * time.Second}}, "RaiseEpoch": {{}}},
		"commit late, fence applied":  {"Commit": {{lateBy: 2 * time.Second}}, "RaiseEpoch": {{applied: true}}},
		"commit applied, then a late": {"Commit": {{applied: true}, {lateBy: 5 * time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				for n := int64(1); n <= 10; n++ {
					b.table.counts()
					b.table.orders(p.decide)
					first := b.append(step(1, n))
					b.check(first, nil)
					again := b.append(step(1, n))
					if got := why(t, again)[id(1)]; got != metadata.Repeated {
						t.Fatalf("sent again: %v", got)
					}
					b.check(again, lane.ErrNotAdmitted)
					b.table.orders(nil)
					time.Sleep(time.Minute)
					if at, ok := b.strong().Producers[id(1)].Order(n); !ok || at != first.Order {
						t.Fatalf("sequence %d is known at %d, %v; it is at %d", n, at, ok, first.Order)
					}
				}
				entries, _ := b.log()
				if len(entries) != 10 {
					t.Errorf("%d commits", len(entries))
				}
			})
		})
	}
}

// Of an update that several segments share, those with a refused request fail, and the others go on; each producer is in an update once.
func TestProducers_SharedUpdateWithOneRefused(t *testing.T) {
	on(t, func(b *bench) {
		b.check(b.append(step(1, 1)), nil)
		b.table.orders(plan{"Commit": {nil, {delay: time.Second}}}.decide)
		b.commits = nil
		blocking := b.free(b.once(step(2, 1)))
		synctest.Wait()
		good, again, gap, plain := b.free(b.once(step(3, 1))), b.free(b.once(step(1, 1))), b.free(b.once(step(4, 2))), b.send(b.segment(1))
		next := b.free(b.once(step(3, 2))) // not in one update with the one before
		b.check(<-blocking, nil)
		b.check(<-good, nil)
		if got := why(t, <-again); got[id(1)] != metadata.Repeated {
			t.Error(got)
		}
		if got := why(t, <-gap); got[id(4)] != metadata.Gapped {
			t.Error(got)
		}
		b.check(<-plain, nil) // the failures before it are no failures of its slot
		b.check(<-next, nil)
		var sizes []string
		for _, c := range b.commits {
			sizes = append(sizes, fmt.Sprint(c.Segments, c.Err == nil))
		}
		if !slices.Equal(sizes, []string{"1 true", "4 false", "2 true", "1 true"}) {
			t.Errorf("updates of %v segments", sizes)
		}
	})
}

// A segment that fails takes no requests with it: their sequences keep their order.
func TestProducers_AreFreeOfTheirSlots(t *testing.T) {
	on(t, func(b *bench) {
		front, err := b.writer.Reserve([]metadata.Slot{1}, func(lane.Result) {})
		if err != nil {
			t.Fatal(err)
		}
		free := b.free(b.once(step(1, 1)))
		front.Fail(errors.New("upload failed"))
		b.check(<-free, nil)
	})
}

// Sixteen producers, and a seventeenth: it gets room from the one that has been idle longest, when that was idle for a quarter of an hour, and no sooner.
func TestProducers_SeventeenthAndEviction(t *testing.T) {
	for name, others := range map[string]int{"the last commits in the head": 0, "in chunks": 3 * metadata.ChunkOrders} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				for n := range metadata.MaxProducers {
					b.check(b.append(step(n, 1)), nil)
					time.Sleep(time.Second)
				}
				b.others(others)
				r := b.append(step(100, 1))
				var refused *lane.ProducersError
				if got := why(t, r); got[id(100)] != metadata.Crowded || !errors.As(r.Err, &refused) || refused.RetryAfter <= metadata.ProducerIdle/2 {
					t.Fatalf("%v, %+v", got, r)
				}
				time.Sleep(refused.RetryAfter - time.Second)
				b.check(b.append(step(0, 2)), nil) // it has gone on, and the next one is idle for a second less
				if got := why(t, b.append(step(100, 1))); got[id(100)] != metadata.Crowded {
					t.Fatal(got)
				}
				time.Sleep(2 * time.Second)
				b.check(b.append(step(100, 1)), nil)
				h := b.strong()
				if _, there := h.Producers[id(1)]; there || len(h.Producers) != metadata.MaxProducers || h.ProducerFloor != id(1) {
					t.Fatalf("%+v", h.Producers)
				}
				for _, s := range []metadata.ProducerStep{step(1, 1), step(1, 2)} { // nobody can say whether these are new
					if got := why(t, b.append(s)); got[id(1)] != metadata.Evicted {
						t.Fatal(got)
					}
				}
				b.check(b.append(step(0, 3)), nil) // below the floor, and known
			})
		})
	}
}

// Room is made whatever befalls the requests that make it.
func TestProducers_FaultsWhileRoomIsMade(t *testing.T) {
	for name, p := range map[string]plan{
		"chunk lost":       {"Chunk": {{}, {}}},
		"eviction lost":    {"EvictProducers": {{}}},
		"eviction applied": {"EvictProducers": {{applied: true}}},
		"eviction late":    {"EvictProducers": {{lateBy: 3 * time.Second}}},
		"commit applied":   {"Commit": {nil, {applied: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				for n := range metadata.MaxProducers {
					b.check(b.append(step(n, 1)), nil)
				}
				b.others(2 * metadata.ChunkOrders)
				time.Sleep(time.Hour)
				b.table.counts()
				b.table.orders(p.decide)
				b.check(b.append(step(100, 1), step(101, 1)), nil)
				b.table.orders(nil)
				time.Sleep(time.Minute)
				h := b.strong()
				if len(h.Producers) > metadata.MaxProducers || len(h.Producers) < metadata.MaxProducers-1 || h.Producers[id(100)].Sequence != 1 || h.Producers[id(101)].Sequence != 1 {
					t.Fatalf("%+v", h.Producers)
				}
			})
		})
	}
}

// A producer of which the chunk is gone was idle for longer than the sweep takes; one of which a chunk is missing that is kept is not evicted.
func TestProducers_IdleByAChunkThatIsGone(t *testing.T) {
	on(t, func(b *bench) {
		for n := range metadata.MaxProducers {
			b.check(b.append(step(n, 1)), nil)
		}
		b.others(3 * metadata.ChunkOrders)
		gone := &metadata.Error{Op: "Chunk", Err: metadata.ErrNoChunk}
		b.table.orders(func(op string, n int) *fault {
			if op == "Chunk" {
				return &fault{err: gone}
			}
			return nil
		})
		if r := b.append(step(100, 1)); !errors.Is(r.Err, metadata.ErrCorrupt) {
			t.Fatalf("%+v", r)
		}
		if _, err := b.table.Table.SetFirst(context.Background(), b.lane, 2*metadata.ChunkOrders); err != nil {
			t.Fatal(err)
		}
		b.check(b.append(step(100, 1)), nil)
	})
}
