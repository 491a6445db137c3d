package lane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// figure is what a lane costs at a rate, per commit, as the engine bills it: refused conditions and spills included.
type figure struct {
	writes, reads, requests float64
	latency                 time.Duration // mean, from enqueueing to being told
}

const figureWriters, figureWarm, figureCommits = 16, 80, 320 / raceShare / 16 * 16

// measure lets the writers commit at this rate together, each commit touching so many of the lane's 64 slots.
func measure(t *testing.T, perSecond, touched int) (f figure) {
	synctest.Test(t, func(t *testing.T) {
		e := env.System()
		e.Rand = env.NewRand(uint64(perSecond*100 + touched))
		latency := func(ctx context.Context, _ engine.Call) engine.Fault {
			pause(ctx, 3*time.Millisecond+time.Duration(e.Int64N(int64(4*time.Millisecond)))) // of the service within a region
			return engine.Fault{}
		}
		db := newDatabase(t, e, engine.Options{Hook: latency, ItemWriteUnits: 1000}, 1)
		var requests, done, total atomic.Int64 // total latency, ns
		table := db.open(t, e, func(metadata.Call) { requests.Add(1) })
		var before engine.Capacity
		var began int64
		told := func(took time.Duration) {
			switch n := done.Add(1); {
			case n == figureWarm:
				before, began = db.engine.Consumed(), requests.Load()
			case n > figureWarm:
				total.Add(int64(took))
			}
		}
		var all sync.WaitGroup
		for w := range figureWriters {
			all.Go(func() {
				writer := lane.New(lane.Config{Lane: db.lanes[0], Table: table, Env: e, Writer: w})
				defer writer.Close(context.Background())
				for range (figureWarm + figureCommits) / figureWriters {
					time.Sleep(time.Duration(e.Int64N(2 * figureWriters * int64(time.Second) / int64(perSecond))))
					told(commitOne(t, writer, flush(e, touched)))
				}
			})
		}
		all.Wait()
		after := db.engine.Consumed()
		f = figure{(after.WriteUnits - before.WriteUnits) / figureCommits, (after.ReadUnits - before.ReadUnits) / figureCommits,
			float64(requests.Load()-began) / figureCommits, time.Duration(total.Load() / figureCommits)}
		if err := db.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func commitOne(t *testing.T, w *lane.Writer, s *lane.Segment) time.Duration {
	start, told := time.Now(), make(chan error, 1)
	if err := w.Enqueue(s, func(r lane.Result) { told <- r.Err }); err != nil {
		t.Error(err)
		return 0
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	return time.Since(start)
}

// flush is a segment with some 20 records of 100 bytes in each of so many slots.
func flush(e env.Env, touched int) *lane.Segment {
	s := &lane.Segment{ID: segment.NewID(e.Now(), class, segment.InBucket, e.Uint64(), segment.ID{}), Minted: lane.Now(e), Version: 1, Deadline: e.Mono() + 2*time.Minute}
	slots := make([]metadata.Slot, metadata.SlotsPerLane)
	for i := range slots {
		j := int(e.Int64N(int64(i + 1)))
		slots[i], slots[j] = slots[j], metadata.Slot(i)
	}
	slots = slots[:touched]
	slices.Sort(slots)
	for _, slot := range slots {
		count := 10 + e.Int64N(20)
		s.Slots = append(s.Slots, metadata.SlotEntry{Slot: slot, Count: int32(count), Bytes: int32(count * 100), MaxTime: e.Now().UnixMilli() - e.Int64N(100)})
	}
	return s
}

// The cost of a commit, beside what the design claims for it: about 4, 5 and 6 write units at 20, 80 and 150
// commits/s when all 64 slots are touched, 3 when 14 are.
func TestFigures(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	fmt.Fprintf(&out, "\n%9s %7s | %11s %10s %8s %8s\n", "commits/s", "touched", "write units", "read units", "requests", "mean")
	rates := []struct {
		perSecond, touched int
		most               float64
	}{{150, 64, 6.5}, {20, 14, 3}, {80, 14, 3}, {150, 14, 3}, {20, 64, 4.5}, {80, 64, 5.5}}
	for _, c := range rates[:len(rates)/raceShare] {
		f := measure(t, c.perSecond, c.touched)
		fmt.Fprintf(&out, "%9d %7d | %11.2f %10.2f %8.2f %8v\n", c.perSecond, c.touched, f.writes, f.reads, f.requests, f.latency.Round(100*time.Microsecond))
		if f.writes > c.most {
			t.Errorf("%d slots at %d/s: %.2f write units a commit, want at most %.1f", c.touched, c.perSecond, f.writes, c.most)
		}
	}
	t.Log(out.String())
}
