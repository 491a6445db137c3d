package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// dice is chance that the calls of a world share.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 99))} }

func (d *dice) float() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Float64()
}

func (d *dice) intN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func conflict() dynamodb.Fault {
	return dynamodb.Fault{Skip: true, Reply: &dynamodb.Error{Code: "TransactionConflictException", Message: "Transaction is ongoing for the item", Status: 400}}
}

// 32 writers append 100 records each to one partition, through a table that refuses three commits in ten for a conflict
// and one for throttling.
func TestBR12a_ConflictsAndThrottlingAreRiddenOut(t *testing.T) {
	const each = 100 / raceShare
	const all = 32 * each
	for seed := range uint64(1) {
		synctest.Test(t, func(t *testing.T) {
			w, chance := newWorld(t), newDice(seed)
			attempts := &commitCounter{}
			log := w.open(sdk.WithHooks(attempts))
			w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
			w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
				if !isCommit(c) {
					return dynamodb.Fault{}
				}
				time.Sleep(5 * ms)
				switch x := chance.float(); {
				case x < 0.3:
					return conflict()
				case x < 0.4:
					return dynamodb.Throttle()
				}
				return dynamodb.Fault{}
			})
			var writers sync.WaitGroup
			seen := &acks{}
			for i := range 32 {
				writers.Go(func() {
					p := w.producer(log)
					for j := range each {
						r := rec("t", fmt.Sprint(i, " ", j))
						seen.promise(r, p.ProduceSync(ctx, r).Err())
					}
					w.must(p.Close(ctx))
				})
			}
			writers.Wait()
			if n := w.verify("t", seen.list()); n != all {
				t.Errorf("seed %d: %d of %d acknowledged", seed, n, all)
				for _, a := range seen.list() {
					if a.err != nil {
						t.Fatalf("the first that was not: %v", a.err)
					}
				}
			}
			if n := len(w.contents("t")[0]); n != all {
				t.Errorf("seed %d: %d records", seed, n)
			}
			per := float64(attempts.total.Load()) / all
			if per > 2.2 || attempts.most.Load() > 30 {
				t.Errorf("seed %d: %.2f attempts a record, at most %d for one", seed, per, attempts.most.Load())
			}
			t.Logf("seed %d: %.2f commits a record, at most %d for one", seed, per, attempts.most.Load())
		})
	}
}

// commitCounter counts updates of heads.
type commitCounter struct{ total, most atomic.Int64 }

func (c *commitCounter) OnCommit(e sdk.CommitEvent) {
	c.total.Add(1)
	for most := c.most.Load(); int64(e.Attempts) > most && !c.most.CompareAndSwap(most, int64(e.Attempts)); most = c.most.Load() {
	}
}

// 503, then 200: the second attempt has the same bytes. 503 for ever: the error shows the store's code. While it waits,
// no lock is held: other partitions, even of the same lane in another producer, and Produce itself, go on.
func TestBR41_RetryHoldsNoLockAndNoEmptyBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 2})
		w.create(log, sdk.NewTopic{Name: "other"})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		var sizes []int
		w.onPut(func(c fault.Call) fault.Fault {
			if c.N <= 3 {
				sizes = append(sizes, c.Bytes)
			}
			if c.N == 1 {
				return fault.Fault{Kind: fault.LostBefore, Err: &store.Error{Op: store.OpPut, Code: "ServiceUnavailable", Err: store.ErrUnavailable}}
			}
			return fault.Fault{}
		})
		r := rec("t", strings.Repeat("x", 1000))
		w.must(p.ProduceSync(ctx, r).Err())
		if len(sizes) != 2 || sizes[0] != sizes[1] || sizes[0] == 0 {
			t.Errorf("bodies of %v bytes", sizes)
		}
		w.verify("t", []ack{{r, nil}})

		first := true
		w.onPut(func(fault.Call) fault.Fault {
			if first {
				first = false
				return fault.Fault{Kind: fault.LostBefore, Err: fmt.Errorf("503 SlowDown: %w", store.ErrUnavailable)}
			}
			return fault.Fault{}
		})
		seen := &acks{}
		p.Produce(ctx, rec("t", "waits"), seen.promise)
		time.Sleep(5 * ms)
		synctest.Wait() // the first attempt has failed, and the retry sleeps
		start := time.Now()
		w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "other", Partition: 1}).Err())
		if took := time.Since(start); took > 15*ms {
			t.Errorf("another lane waited %v for the retry", took)
		}
		if n := len(seen.list()); n != 0 {
			t.Errorf("the retry was over already: %d", n)
		}
		w.must(p.Flush(ctx))

		w.onPut(func(fault.Call) fault.Fault {
			return fault.Fault{Kind: fault.LostBefore, Err: &store.Error{Op: store.OpPut, Code: "ServiceUnavailable", Err: store.ErrUnavailable}}
		})
		failsAtDeadline := func() {
			t.Helper()
			start := time.Now()
			err := p.ProduceSync(ctx, rec("t", "never")).Err()
			if took := time.Since(start); took != 2*time.Minute || !errors.Is(err, sdk.ErrTimedOut) ||
				!errors.Is(err, sdk.ErrUnreachable) || !contains(err, "ServiceUnavailable") {
				t.Errorf("after %v: %v", took, err)
			}
		}
		failsAtDeadline()
		w.onPut(func(c fault.Call) fault.Fault { // once, and then there is no answer any more
			f := fault.Fault{Kind: fault.LostBefore, Err: &store.Error{Op: store.OpPut, Code: "ServiceUnavailable", Err: store.ErrUnavailable}}
			if c.N > 1 {
				f.Stall = make(chan struct{})
			}
			return f
		})
		failsAtDeadline()
		w.must(p.Close(ctx))
	})
}

// Linger 10 s, room for 5, 11 are sent with the clock stopped: what fills the buffer goes at once.
func TestX01_FullBufferDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		warm := w.producer(log)
		w.must(warm.ProduceSync(ctx, rec("t", "warm")).Err())
		w.must(warm.Close(ctx))
		p := w.producer(log, sdk.WithLinger(10*time.Second, 10*time.Second), sdk.WithBufferBytes(1_100_000))
		start := time.Now()
		for i := range 11 {
			p.Produce(ctx, rec("t", fmt.Sprintf("%0100000d", i)), seen.promise)
		}
		synctest.Wait()
		if took := time.Since(start); took != 0 || len(seen.list()) != 10 {
			t.Errorf("%d acknowledged after %v, want 10 at once", len(seen.list()), took)
		}
		w.must(p.Close(ctx))
		if n := w.verify("t", seen.list()); n != 11 {
			t.Errorf("%d acknowledged in the end", n)
		}
	})
}

// Five wait for room for one, each in a goroutine of its own: none of them has to wait for a linger but the last.
func TestX01_WaitersDoNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithLinger(time.Hour, time.Hour), sdk.WithBufferBytes(1))
		for i := range 5 {
			go p.Produce(ctx, rec("t", fmt.Sprint(i)), seen.promise)
		}
		synctest.Wait()
		if n := len(seen.list()); n != 4 {
			t.Errorf("%d acknowledged while the clock stands still, want 4", n)
		}
		w.must(p.Close(ctx))
	})
}

// The store stands still and 1 GiB, with the race detector a share of it, is pushed at it: memory stays under the buffer's limit and 64 MiB, records fail
// typed at their deadline, and Close returns and counts.
func TestStalledStore_MemoryStaysBounded(t *testing.T) {
	const value, total, limit = 64 << 10, 1 << 30 / raceShare / raceHalf, 64 << 20 / raceShare
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t"})
		w.stalled()
		p := w.producer(log, sdk.WithBufferBytes(limit), sdk.WithCompression(segment.None)) // the race detector makes zstd crawl
		base, peak := heap(), int64(0)
		var told, closed, wrong atomic.Int64
		noise := make([]byte, 8*value)
		rand.NewChaCha8([32]byte{7}).Read(noise)
		for n := range total / value {
			v := bytes.Clone(noise[n%7*value:][:value]) // each record brings its own, as they do in life, and incompressible
			p.Produce(ctx, &sdk.Record{Topic: "t", Value: v}, func(_ *sdk.Record, err error) {
				told.Add(1)
				if errors.Is(err, sdk.ErrClosed) {
					closed.Add(1)
				}
				if !errors.Is(err, sdk.ErrTimedOut) && !errors.Is(err, sdk.ErrPriorFailed) && !errors.Is(err, sdk.ErrClosed) {
					wrong.Add(1)
				}
			})
			if n%(1024/raceShare) == 0 {
				peak = max(peak, heap()-base)
			}
		}
		within, cancel := context.WithTimeout(ctx, 100*ms)
		defer cancel()
		var unsent *sdk.UnsentError
		synctest.Wait()
		left := total/value - int(told.Load()) // some of which may have failed, and are not told yet
		if err := p.Close(within); !errors.As(err, &unsent) || unsent.Records > left || unsent.Records < int(closed.Load()) || unsent.Records == 0 {
			t.Errorf("Close with %d records left, of which it told %d: %v", left, closed.Load(), err)
		}
		if told.Load() != total/value || wrong.Load() != 0 {
			t.Errorf("%d of %d promises, %d with another error than they should", told.Load(), total/value, wrong.Load())
		}
		t.Logf("live heap peaked at %d MiB above its start", peak>>20)
		if peak > limit+64<<20 {
			t.Errorf("heap peaked at %d MiB, limit is %d + 64", peak>>20, limit>>20)
		}
	})
}

// A failure has taken everything that a later flush had, whose upload stands still: it is aborted, or it would hold a
// slot for nothing until its deadline.
func TestFailure_AbortsTheUploadsBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithMaxInFlight(2))
		w.must(p.ProduceSync(ctx, rec("t", "0")).Err())
		var puts atomic.Int64
		never := make(chan struct{})
		w.onPut(func(fault.Call) fault.Fault {
			if puts.Add(1) == 1 {
				return fault.Fault{Delay: time.Second, Kind: fault.LostBefore, Err: store.ErrDenied}
			}
			return fault.Fault{Stall: never}
		})
		for _, v := range []string{"1", "2"} {
			p.Produce(ctx, rec("t", v), seen.promise)
			time.Sleep(300 * ms)
		}
		time.Sleep(time.Second)
		got := seen.list()
		if len(got) != 2 || !errors.Is(got[0].err, store.ErrDenied) || !errors.Is(got[1].err, sdk.ErrPriorFailed) || puts.Load() != 2 {
			t.Fatalf("%d puts, told %v", puts.Load(), got)
		}
		for _, v := range []string{"3", "4"} {
			p.Produce(ctx, rec("t", v), seen.promise)
			time.Sleep(300 * ms)
		}
		if puts.Load() != 4 {
			t.Errorf("%d puts: the slot of an aborted upload is not free", puts.Load())
		}
		w.heal()
		close(never)
		w.must(p.Close(ctx))
		if n := w.verify("t", seen.list()); n != 2 {
			t.Errorf("%d acknowledged", n)
		}
	})
}

// The table throttles: the producer lingers longer, so that it asks less.
func TestThrottling_MakesTheProducerLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "0")).Err())
		var calls atomic.Int64
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if calls.Add(1) <= 3 {
				return dynamodb.Throttle()
			}
			return dynamodb.Fault{}
		})
		w.must(p.ProduceSync(ctx, rec("t", "1")).Err())
		start := time.Now()
		w.must(p.ProduceSync(ctx, rec("t", "2")).Err())
		if took := time.Since(start); took != 8*5*ms {
			t.Errorf("after three refusals the linger is %v, want the floor doubled three times", took)
		}
		w.must(p.Close(ctx))
	})
}

// Nothing lingers and a lane stands still: not only bytes are bounded, the number of flushes is too, and other lanes go on.
func TestStalledLane_OthersGoOnAndFlushesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "stuck", Partitions: 1})
		w.create(log, sdk.NewTopic{Name: "other", Partitions: 1})
		p := w.producer(log, sdk.WithLinger(0, 0), sdk.WithBufferBytes(16<<20))
		w.must(p.ProduceSync(ctx, rec("stuck", "0"), rec("other", "0")).Err())
		row, err := w.view.Table.Topic(judge, "stuck")
		w.must(err)
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if len(c.Keys) > 0 && c.Keys[0].Partition == "L#"+string(row.Lanes[0]) {
				return dynamodb.Dropped()
			}
			return dynamodb.Fault{}
		})
		var told atomic.Int64
		for range 500 {
			p.Produce(ctx, rec("stuck", "x"), func(*sdk.Record, error) { told.Add(1) })
			synctest.Wait()
		}
		start := time.Now()
		for range 20 {
			w.must(p.ProduceSync(ctx, rec("other", "x")).Err())
		}
		if took := time.Since(start); took != 0 || told.Load() != 0 {
			t.Errorf("20 records of another lane took %v; %d of the stuck lane's were told", took, told.Load())
		}
		flushes := runtime.NumGoroutine()
		for full := false; !full; {
			p.TryProduce(ctx, rec("stuck", "x"), func(_ *sdk.Record, err error) { full = errors.Is(err, sdk.ErrBufferFull) })
			synctest.Wait()
		}
		if n := runtime.NumGoroutine() - flushes; n > 600 {
			t.Errorf("%d more goroutines before the buffer was full", n)
		}
		now, cancel := context.WithCancel(ctx)
		cancel()
		var unsent *sdk.UnsentError
		if err := p.Close(now); !errors.As(err, &unsent) || unsent.Records < 1000 {
			t.Errorf("Close: %v", err)
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Commits whose answers never come: what may have been applied is ErrUnknown, and not told as a failure; what was
// behind it certainly failed.
func TestDeadline_UnknownIsToldApartFromTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithDeliveryDeadline(10*time.Second))
		w.must(p.ProduceSync(ctx, rec("t", "0")).Err())
		var gone atomic.Bool // from the moment of the commit, which is applied, the table does not answer
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if isCommit(c) && !gone.Swap(true) {
				return dynamodb.AnswerLost()
			}
			if gone.Load() {
				return dynamodb.Dropped()
			}
			return dynamodb.Fault{}
		})
		start := time.Now()
		p.Produce(ctx, rec("t", "1"), seen.promise)
		time.Sleep(20 * ms)
		p.Produce(ctx, rec("t", "2"), seen.promise)
		w.must(p.Flush(ctx))
		if took := time.Since(start); took > 13*time.Second {
			t.Errorf("told after %v, the deadline is 10 s and 2.5 s for settling", took)
		}
		got := seen.list()
		if len(got) != 2 || !errors.Is(got[0].err, sdk.ErrUnknown) || sdk.OutcomeOf(got[0].err) != sdk.Unknown ||
			!errors.Is(got[1].err, sdk.ErrPriorFailed) || sdk.OutcomeOf(got[1].err) != sdk.NotApplied {
			t.Fatalf("told %v", got)
		}
		w.heal()
		w.must(p.ProduceSync(ctx, rec("t", "3")).Err())
		w.must(p.Close(ctx))
		var values []string
		for _, r := range w.contents("t")[0] {
			values = append(values, string(r.Value))
		}
		if fmt.Sprint(values) != "[0 1 3]" {
			t.Errorf("the log has %v", values)
		}
	})
}

// The table refuses everything: certainly not appended, with the table's own words.
func TestDeadline_ThrottledForEverIsTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t"})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "0")).Err())
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault { return dynamodb.Throttle() })
		start := time.Now()
		err := p.ProduceSync(ctx, rec("t", "1")).Err()
		if took := time.Since(start); took != 2*time.Minute || !errors.Is(err, sdk.ErrTimedOut) || !errors.Is(err, sdk.ErrThrottled) || !contains(err, "Throughput") {
			t.Errorf("after %v: %v", took, err)
		}
		w.must(p.Close(ctx))
	})
}
