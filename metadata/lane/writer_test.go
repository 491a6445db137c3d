package lane_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// on runs f in virtual time with a fresh lane.
func on(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase(t, env.System(), engine.Options{}, 1)
		b := newBench(t, db)
		f(b)
		b.close()
		if err := db.engine.Close(); err != nil {
			t.Error(err)
		}
	})
}

// One segment costs one request, however many slots it touches; a Writer that is alone adds one chunk and one trim for
// every K commits, and one read at its start.
func TestOneRequestForAnyNumberOfSlots(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(0)
		var slots []metadata.Slot
		for p := range metadata.SlotsPerLane {
			slots = append(slots, metadata.Slot(p))
			b.table.counts()
			b.requests = 0
			r := b.commit(slots...)
			synctest.Wait()
			c, requests := b.table.counts(), b.requests
			want := map[string]int{"Commit": 1}
			if (r.Order+1)%metadata.ChunkOrders == 0 {
				want["PutChunk"], want["Trim"] = 1, 1
			}
			if !reflect.DeepEqual(c, want) || requests != len(want) || r.Attempts != 1 {
				t.Errorf("%d slots: %v in %d requests, want %v", len(slots), c, requests, want)
			}
			b.check(r, nil)
		}
	})
}

// What is ready while a commit is under way goes in one update behind it.
func TestReadySegmentsShareAnUpdate(t *testing.T) {
	on(t, func(b *bench) {
		b.table.fault = plan{"Commit": {{delay: time.Second}}}.decide
		first := b.send(b.segment(1))
		synctest.Wait()
		var rest []<-chan lane.Result
		for range metadata.MaxCommitEntries + 1 {
			rest = append(rest, b.send(b.segment(1, 2)))
		}
		b.check(<-first, nil)
		for i, c := range rest {
			r := <-c
			b.check(r, nil)
			if r.Order != int64(i+1) || r.Slots[1].Base != int64(2*i) {
				t.Errorf("segment %d: %+v", i, r)
			}
		}
		var sizes []int
		for _, c := range b.commits {
			sizes = append(sizes, c.Segments)
		}
		if !reflect.DeepEqual(sizes, []int{1, metadata.MaxCommitEntries, 1}) {
			t.Errorf("updates of %v segments", sizes)
		}
	})
}

// Places are given out by Reserve, whatever the order in which the uploads end.
func TestOrderIsThatOfReserve(t *testing.T) {
	on(t, func(b *bench) {
		var tickets []*lane.Ticket
		var results []lane.Result
		for range 3 {
			ticket, err := b.writer.Reserve([]metadata.Slot{1}, func(r lane.Result) { results = append(results, r) })
			if err != nil {
				t.Fatal(err)
			}
			tickets = append(tickets, ticket)
		}
		for _, i := range []int{2, 1, 0} {
			tickets[i].Commit(b.segment(1))
			synctest.Wait()
			if i > 0 && len(results) > 0 {
				t.Fatalf("%+v before its predecessors", results)
			}
		}
		for i, r := range results {
			b.check(r, nil)
			if r.Order != int64(i) {
				t.Errorf("segment %d has order %d", i, r.Order)
			}
		}
	})
}

// BR-11: segments 1, 2 and 3 of a partition are being uploaded and 2 fails for good. 1 is committed, 3 is not:
// it would follow a hole. Its other slots, and what is sealed after the owner was told, are.
func TestBR11_NothingFollowsAFailure(t *testing.T) {
	on(t, func(b *bench) {
		broken := errors.New("upload failed")
		var results []lane.Result
		var inside *lane.Ticket
		reserve := func(slots ...metadata.Slot) *lane.Ticket {
			ticket, err := b.writer.Reserve(slots, func(r lane.Result) {
				results = append(results, r)
				if r.Err == broken { // sealed before the owner has dealt with the failure
					inside, _ = b.writer.Reserve([]metadata.Slot{1, 6}, func(r lane.Result) { results = append(results, r) })
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			return ticket
		}
		one, two, three, four := reserve(1, 2), reserve(1), reserve(1, 3), reserve(1)
		if !two.Fail(broken) {
			t.Error("2 was not sent, yet could not be given up")
		}
		four.Commit(b.segment(1))
		three.Commit(b.segment(1, 3))
		synctest.Wait()
		one.Commit(b.segment(1, 2))
		synctest.Wait()
		inside.Commit(b.segment(1, 6))
		reserve(1).Commit(b.segment(1))
		synctest.Wait()

		prior := lane.ErrPriorFailed
		want := [][]error{{nil, nil}, {broken}, {prior, nil}, {prior}, {prior, nil}, {nil}}
		for i, r := range results {
			for j, s := range r.Slots {
				if !errors.Is(s.Err, want[i][j]) {
					t.Errorf("segment %d slot %d: %v, want %v", i, s.Slot, s.Err, want[i][j])
				}
			}
		}
		if len(results) != len(want) || !errors.Is(results[3].Err, prior) {
			t.Fatalf("results %+v", results)
		}
		if last := results[5]; last.Slots[0].Base != 2 || b.strong().Ends[1] != 4 {
			t.Errorf("slot 1 ends at %d, the last segment is at %+v", b.strong().Ends[1], last)
		}
	})
}

// A slot that was withdrawn takes nothing with it: what was sealed after its owner was told of the failure
// starts afresh.
func TestAfreshAfterAFailure(t *testing.T) {
	on(t, func(b *bench) {
		failed := make(chan lane.Result, 1)
		one, _ := b.writer.Reserve([]metadata.Slot{1}, func(r lane.Result) { failed <- r })
		withdrawn := make(chan lane.Result, 1)
		two, _ := b.writer.Reserve([]metadata.Slot{1, 2}, func(r lane.Result) { withdrawn <- r })
		one.Fail(errors.New("upload failed"))
		<-failed
		synctest.Wait()
		after := b.segment(1)
		after.Expect = []metadata.Expect{{Slot: 1, Offset: 0}} // in an update of its own
		fresh := b.send(after)
		two.Commit(b.segment(1, 2))
		r := <-withdrawn
		b.check(r, nil)
		if !errors.Is(r.Slots[0].Err, lane.ErrPriorFailed) {
			t.Errorf("%+v", r)
		}
		r = <-fresh
		b.check(r, nil)
		if r.Slots[0].Err != nil || r.Slots[0].Base != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// A segment whose outcome is unknown takes with it what was accepted behind it; but that has certainly not been
// appended.
func TestNothingFollowsAnUnknown(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(1)
		var down atomic.Bool
		down.Store(true)
		b.table.fault = func(op string, n int) *fault {
			if down.Load() {
				return &fault{wait: time.Second}
			}
			return nil
		}
		unknown := b.send(b.segment(1))
		synctest.Wait()
		later := func(slot metadata.Slot) <-chan lane.Result {
			s := b.segment(slot)
			s.Deadline += 2 * time.Minute
			return b.send(s)
		}
		behind, beside := later(1), later(2)
		b.check(<-unknown, lane.ErrUnknown)
		down.Store(false)
		r := <-behind
		b.check(r, lane.ErrPriorFailed)
		if errors.Is(r.Err, lane.ErrUnknown) {
			t.Errorf("%v", r.Err)
		}
		b.check(<-beside, nil)
		b.check(<-later(1), nil)
	})
}

// Two segments in one update, of which the first runs out of time: the second goes on without what the two share.
func TestNothingFollowsAFailureInItsOwnUpdate(t *testing.T) {
	on(t, func(b *bench) {
		b.table.fault = plan{"Commit": append([]*fault{{delay: time.Second}}, times(40, throttled)...)}.decide
		first := b.send(b.segment(0))
		synctest.Wait()
		short, long := b.segment(1), b.segment(1, 2)
		short.Deadline = b.env.Mono() + 10*time.Second
		one, two := b.send(short), b.send(long)
		b.check(<-first, nil)
		b.check(<-one, lane.ErrDeadline)
		r := <-two
		b.check(r, nil)
		if !errors.Is(r.Slots[0].Err, lane.ErrPriorFailed) || b.strong().Ends[1] != 0 || b.strong().Ends[2] != 2 {
			t.Errorf("%+v", r)
		}
	})
}

func TestConditionalAppends(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(1)
		good, bad := b.segment(1), b.segment(1)
		good.Expect = []metadata.Expect{{Slot: 1, Offset: 2}}
		bad.Tokens = []metadata.Token{{Slot: 1, Token: 5}}
		b.table.fault = plan{"Commit": {nil, {delay: time.Second}}}.decide
		waiting := []<-chan lane.Result{b.send(b.segment(2)), b.send(good), b.send(b.segment(1)), b.send(bad), b.send(b.segment(2))}
		for i, want := range []error{nil, nil, nil, lane.ErrFenced, nil} {
			b.check(<-waiting[i], want)
		}
		for _, c := range b.commits {
			if c.Segments != 1 {
				t.Errorf("an update of %d segments, though a conditional one goes alone", c.Segments)
			}
		}
	})
}

// The deadline: never sent after it, typed, with the last attempt's reason.
func TestDeadline(t *testing.T) {
	for _, cause := range []error{metadata.ErrUnavailable, metadata.ErrThrottled, metadata.ErrContended} {
		on(t, func(b *bench) {
			b.commit(1)
			b.table.fault = func(string, int) *fault { return &fault{err: cause} }
			start := time.Now()
			r := b.commit(1)
			if took := time.Since(start); took != 2*time.Minute {
				t.Errorf("%v: given up after %v", cause, took)
			}
			b.check(r, lane.ErrDeadline)
			if !errors.Is(r.Err, cause) || errors.Is(r.Err, lane.ErrUnknown) {
				t.Errorf("%v", r.Err)
			}
			if r.Attempts > 200 || r.Attempts < 100 {
				t.Errorf("%d attempts in two minutes", r.Attempts)
			}
		})
	}
}

// A call that hangs does not hold up the deadline, where nothing of the segment is under way.
func TestDeadlineWhileCallsHang(t *testing.T) {
	for _, op := range []string{"Head", "PutChunk"} {
		on(t, func(b *bench) {
			b.table.fault = func(called string, _ int) *fault {
				if called == op {
					return &fault{wait: time.Hour}
				}
				return nil
			}
			for range metadata.MaxHeadEntries {
				if op == "PutChunk" {
					b.commit(1)
				}
			}
			start := time.Now()
			b.check(b.commit(1), lane.ErrDeadline)
			if took := time.Since(start); took != 2*time.Minute {
				t.Errorf("%s hangs: told after %v", op, took)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			b.writer.Close(ctx)
		})
	}
}

// BR-12: 300 throttles in a row and then a healthy table. All are delivered, and the error that was met kept
// the service's own code.
func TestBR12_ThrottlesInARow(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(0)
		b.table.fault = func(op string, n int) *fault {
			if n <= 301 {
				return throttled
			}
			return nil
		}
		var waiting []<-chan lane.Result
		for i := range 50 {
			s := b.segment(metadata.Slot(i))
			s.Deadline += 10 * time.Minute
			waiting = append(waiting, b.send(s))
		}
		for _, c := range waiting {
			b.check(<-c, nil)
		}
		if b.waits != 300 {
			t.Errorf("the owner was told of %d waits", b.waits)
		}
	})
}

func TestLaneGone(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(1)
		b.table.fault = plan{"Commit": {nil, {err: &metadata.RefusedError{Lane: b.lane}}}}.decide
		b.check(b.commit(1), metadata.ErrNoLane)
	})
}

// Close waits for what was accepted.
func TestCloseWaits(t *testing.T) {
	on(t, func(b *bench) {
		b.table.fault = plan{"Commit": {{delay: time.Second}, {delay: time.Second}}}.decide
		first := b.send(b.segment(1))
		synctest.Wait()
		second := b.send(b.segment(1))
		b.close()
		b.check(<-first, nil)
		b.check(<-second, nil)
		if err := b.writer.Enqueue(b.segment(1), nil); !errors.Is(err, lane.ErrClosed) {
			t.Errorf("Enqueue after Close: %v", err)
		}
	})
}

// A segment that may have been sent cannot be given up.
func TestFailInTime(t *testing.T) {
	on(t, func(b *bench) {
		b.table.fault = plan{"Commit": {{delay: time.Second}}}.decide
		done := make(chan lane.Result, 2)
		var tickets []*lane.Ticket
		for range 2 {
			ticket, err := b.writer.Reserve([]metadata.Slot{1}, func(r lane.Result) { done <- r })
			if err != nil {
				t.Fatal(err)
			}
			ticket.Commit(b.segment(1))
			tickets = append(tickets, ticket)
			synctest.Wait()
		}
		mine := errors.New("given up")
		if tickets[0].Fail(mine) || !tickets[1].Fail(mine) {
			t.Error("the one under way could be given up, or the waiting one could not")
		}
		b.check(<-done, nil)
		b.check(<-done, mine)
	})
}

// Close resolves a ticket that was never ended, with no worker running.
func TestCloseGivesUpWaiting(t *testing.T) {
	on(t, func(b *bench) {
		done := make(chan lane.Result, 1)
		if _, err := b.writer.Reserve([]metadata.Slot{1}, func(r lane.Result) { done <- r }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.writer.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		b.check(<-done, lane.ErrClosed)
	})
}

// Close gives up when its context ends: unsent is ErrClosed, sent is ErrUnknown, and a ticket that never got
// its segment is resolved too.
func TestCloseGivesUp(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(1)
		b.table.fault = func(op string, n int) *fault { return &fault{wait: 5 * time.Second} }
		sent := b.send(b.segment(1))
		synctest.Wait()
		unsent := b.send(b.segment(2))
		never := make(chan lane.Result, 1)
		ticket, err := b.writer.Reserve([]metadata.Slot{3}, func(r lane.Result) { never <- r })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.writer.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		b.check(<-sent, lane.ErrUnknown)
		b.check(<-unsent, lane.ErrClosed)
		b.check(<-never, lane.ErrClosed)
		ticket.Commit(b.segment(3))
		synctest.Wait()
	})
}
