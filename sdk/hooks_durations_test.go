package sdk_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store/fault"
)

// stopwatch keeps what hooks say of durations.
type stopwatch struct {
	mu         sync.Mutex
	put        sdk.PutEvent
	commit     sdk.CommitEvent
	settle     sdk.SettleEvent
	fetch      sdk.FetchEvent
	writeUnits float64
}

func (s *stopwatch) OnPut(e sdk.PutEvent)       { s.mu.Lock(); s.put = e; s.mu.Unlock() }
func (s *stopwatch) OnCommit(e sdk.CommitEvent) { s.mu.Lock(); s.commit = e; s.mu.Unlock() }
func (s *stopwatch) OnSettle(e sdk.SettleEvent) { s.mu.Lock(); s.settle = e; s.mu.Unlock() }
func (s *stopwatch) OnFetch(e sdk.FetchEvent)   { s.mu.Lock(); s.fetch = e; s.mu.Unlock() }
func (s *stopwatch) OnRequest(e sdk.RequestEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Op == "Commit" && e.Duration == 7*ms {
		s.writeUnits += e.WriteUnits
	}
}

// Put, commit, settle and fetch: how long each took, how many bytes, what it cost.
func TestHooksTellDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &stopwatch{}
		log := w.open(sdk.WithHooks(seen))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "warm")).Err())
		w.slow(80*ms, 7*ms)
		w.must(p.ProduceSync(ctx, rec("t", "x")).Err())
		if seen.put.Duration != 80*ms || seen.put.Bytes == 0 || seen.put.Records != 1 || seen.commit.Duration != 7*ms || seen.writeUnits < 1 {
			t.Errorf("%+v, %+v, %v write units", seen.put, seen.commit, seen.writeUnits)
		}
		lost := false
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			time.Sleep(7 * ms)
			if isCommit(c) && !lost {
				lost = true
				return dynamodb.AnswerLost()
			}
			return dynamodb.Fault{}
		})
		w.must(p.ProduceSync(ctx, rec("t", "y")).Err())
		if seen.settle.Duration != 7*ms || seen.settle.Branch != "found in head" {
			t.Errorf("%+v", seen.settle)
		}
		w.must(p.Close(ctx))
	})
	synctest.Test(t, func(t *testing.T) {
		b, seen := newBench(t), &stopwatch{}
		b.create("t", 1, 64)
		name := b.write("t", one(0, numbers(0, 10)))
		log, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(b.memory), sdk.WithHooks(seen))
		check(t, err)
		b.faults(func(fault.Call) fault.Fault { return fault.Fault{Delay: 30 * ms} }, nil)
		r, err := log.NewReader(b.ctx, "t")
		check(t, err)
		defer r.Close()
		_, err = r.Poll(b.ctx)
		check(t, err)
		if e := seen.fetch; e.Duration != 30*ms || e.Bytes == 0 || e.Object != name || e.Extents != 1 {
			t.Errorf("%+v", e)
		}
	})
}
