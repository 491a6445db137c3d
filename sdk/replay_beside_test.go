package sdk_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// A replay has requests of its own: a live reader that wants the segment that a replay's request hangs on does not wait for it.
func TestReplayAndAReaderWantTheSameSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.write("t", one(0, numbers(0, 10)))
		hangs := make(chan struct{})
		var mu sync.Mutex
		gets := 0
		b.faults(func(c fault.Call) fault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if c.Op == store.OpGet {
				if gets++; gets == 1 {
					return fault.Fault{Stall: hangs}
				}
			}
			return fault.Fault{}
		}, nil)
		r, err := b.log.NewReplay(b.ctx, "t")
		check(t, err)
		done := make(chan error)
		go func() { done <- r.Run(b.ctx, func(context.Context, sdk.Fetch) error { return nil }) }()
		synctest.Wait()
		if gets != 1 {
			t.Fatalf("%d range requests", gets)
		}
		live := b.reader("t", sdk.WithWait(time.Hour))
		defer live.Close()
		start := time.Now()
		if fetches, err := live.Poll(b.ctx); err != nil || len(fetches) != 1 || time.Since(start) > time.Second {
			t.Errorf("%v, %v after %v", fetches, err, time.Since(start))
		}
		close(hangs)
		check(t, <-done)
	})
}

// Progress: records, bytes, and the time left at the pace so far.
func TestReplayProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		filled(b, 1, 100)
		r, err := reach(t, b.log, nil).NewReplay(b.ctx, "t", sdk.ReplayParallel(1), sdk.ReplayBuffer(40))
		check(t, err)
		var bytes, polls int64
		check(t, r.Run(b.ctx, func(_ context.Context, f sdk.Fetch) error {
			time.Sleep(time.Second)
			if g := r.Progress(); g.Bytes != bytes || g.Done != f.Records[0].Offset || g.Offsets != 100 || g.Elapsed != time.Duration(polls+1)*time.Second ||
				g.Done > 0 && g.Left != time.Duration(float64(g.Elapsed)/float64(g.Done)*float64(100-g.Done)) {
				t.Errorf("after %d polls, %d bytes: %+v", polls, bytes, g)
			}
			polls++
			for _, record := range f.Records {
				bytes += int64(len(record.Value))
			}
			return nil
		}))
		if g := r.Progress(); polls < 5 || g.Bytes != bytes || g.Left != 0 || g.Elapsed != time.Duration(polls)*time.Second {
			t.Errorf("%d polls, %d bytes: %+v", polls, bytes, g)
		}
	})
}
