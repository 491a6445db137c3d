package cost_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/cost"
	"github.com/varvelog/varve/sdk"
)

// tolerance is how far an estimate may be from what was billed.
const tolerance = 0.05

const seed = 1

const (
	ms  = time.Millisecond
	kib = 1 << 10
)

func plus(a, b cost.Usage) cost.Usage {
	return cost.Usage{Puts: a.Puts + b.Puts, Gets: a.Gets + b.Gets, WriteUnits: a.WriteUnits + b.WriteUnits, ReadUnits: a.ReadUnits + b.ReadUnits, StoreGiB: a.StoreGiB + b.StoreGiB}
}

// compare checks what was billed for a while against the estimate of the same, and returns a line for people.
func compare(t *testing.T, name string, billed cost.Usage, in cost.Input, while time.Duration) string {
	t.Helper()
	e, err := cost.Of(in)
	if err != nil {
		t.Fatal(err)
	}
	share := float64(while) / float64(cost.Month)
	line := fmt.Sprintf("%-34s", name)
	requests := e.Month
	requests.StoreGiB, requests.TableGiB = 0, 0 // the engine does not bill by the month
	stored := billed.StoreGiB
	billed.StoreGiB = 0
	type quantity struct {
		name              string
		billed, estimated float64
	}
	quantities := []quantity{
		{"PUT", billed.Puts, e.Month.Puts * share}, {"GET", billed.Gets, e.Month.Gets * share}, {"W", billed.WriteUnits, e.Month.WriteUnits * share},
		{"R", billed.ReadUnits, e.Month.ReadUnits * share}, {"$/month", billed.Dollars() / share, requests.Dollars()},
	}
	if stored > 0 {
		quantities = append(quantities, quantity{"MiB", stored * 1024, e.Month.StoreGiB * 1024})
	}
	for _, q := range quantities {
		line += fmt.Sprintf(" | %s %.5g %.5g %+.1f%%", q.name, q.billed, q.estimated, 100*(q.estimated/max(q.billed, 1e-9)-1))
		if math.Abs(q.estimated-q.billed) > max(tolerance*q.billed, 1e-6) {
			t.Errorf("%s: %s: billed %.6g, estimated %.6g", name, q.name, q.billed, q.estimated)
		}
	}
	return line
}

// input is Default without jobs and readers, uncompressed, in the world of these tests.
func input(change func(*cost.Input)) cost.Input {
	in := cost.Default()
	in.Ack, in.Small, in.Readers, in.Compact, in.Sweep, in.Retain, in.Undelete = putTakes+tableTakes, 0, 0, 0, 0, 0, 0
	change(&in)
	return in
}

// Real producers and readers, in virtual time: what the engine bills and the store is asked for is what the estimate says.
func TestEstimateIsWhatIsBilled(t *testing.T) {
	var out strings.Builder
	shapes := []struct {
		name    string
		worlds  int // that are counted together: how producers follow one another stays much the same in one
		counted time.Duration
		in      cost.Input
	}{
		{"1 producer, 14 partitions, 100 ms", 1, 40 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Linger = 100*kib, 100, 14, 100*ms
		})},
		{"trickle of 3/s, small, 1 reader", 1, 240 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Small, in.Readers = 300, 100, 4, 4000, 1
		})},
		{"1, 64, 250 ms, 2 readers", 1, 60 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Readers = 100*kib, 100, 64, 2
		})},
		{"8, 64, 250 ms, 1 reader", 4, 10 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Producers, in.Readers = 200*kib, 100, 64, 8, 1
		})},
		{"8, 14, 100 ms, 1 reader", 4, 8 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Producers, in.Linger, in.Readers = 200*kib, 50, 14, 8, 100*ms, 1
		})},
		{"8, 64 sparsely, 100 ms, a group", 2, 10 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Producers, in.Linger, in.Readers, in.Group = 200*kib, 1000, 64, 8, 100*ms, 1, true
		})},
		{"1, 2 lanes of 8, 250 ms, 1 reader", 1, 60 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.LaneWidth, in.Readers = 50*kib, 100, 16, 8, 1
		})},
		{"8, 14, up to 5 s, few records", 1, 200 * time.Second, input(func(in *cost.Input) { // which do not come together for hours
			in.Rate, in.Record, in.Partitions, in.Producers, in.Linger = 2*kib, 100, 14, 8, 5*time.Second
		})},
		{"50/s, few small, 1 reader", 1, 360 * time.Second, input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Small, in.Readers = 50*330, 330, 4, 4000, 1
		})},
	}
	for _, c := range shapes[:len(shapes)/raceShare] {
		const warm = 10 * time.Second
		c.counted /= raceShare
		var billed cost.Usage
		var produced float64
		for world := range c.worlds {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed+uint64(world))
				stop := w.start(c.in)
				time.Sleep(warm)
				meter := w.meter()
				time.Sleep(c.counted)
				used, bytes := meter()
				stop()
				w.close()
				billed, produced = plus(billed, used), produced+bytes
			})
		}
		counted := time.Duration(c.worlds) * c.counted
		c.in.Rate, c.in.Age = produced/counted.Seconds(), warm+c.counted/2
		fmt.Fprintln(&out, compare(t, c.name, billed, c.in, counted))
	}
	t.Log("billed, estimated\n" + out.String())
}

// The same for a day on which compaction, retention and the sweep run by their schedules, after days that have left them their work.
func TestEstimateOfJobsIsWhatIsBilled(t *testing.T) {
	var out strings.Builder
	shapes := []struct {
		name string
		in   cost.Input
	}{
		{"14 partitions", input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions = 50, 200, 14
		})},
		{"64 partitions", input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions = 50, 200, 64
		})},
		{"small segments", input(func(in *cost.Input) {
			in.Rate, in.Record, in.Partitions, in.Small = 20, 200, 4, 4000
		})},
	}
	for _, c := range shapes[:len(shapes)/raceShare] {
		c.in.LingerFloor, c.in.Linger = linger, linger
		c.in.Retention = 16 * (12*time.Hour + 30*time.Minute) // buckets that 9 rows fit
		c.in.Compact, c.in.Retain, c.in.Sweep = 80*time.Minute, 80*time.Minute, 24*time.Hour
		const day = 24 * time.Hour
		var billed cost.Usage
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			stop := w.start(c.in)
			log := w.process()
			for range 4 { // merges begin after compact.MergeAfter
				w.day(log.Backend())
			}
			meter := w.meter()
			billed.StoreGiB = w.day(log.Backend())
			used, bytes := meter()
			billed = plus(billed, used)
			stop()
			w.must(log.Close())
			w.close()
			c.in.Rate, c.in.Age = bytes/day.Seconds(), 4*day+day/2
		})
		fmt.Fprintln(&out, compare(t, c.name, billed, c.in, day))
	}
	t.Log("billed, estimated\n" + out.String())
}

// day is one day of the jobs' schedules. It returns what is stored, on average.
func (w *world) day(b sdk.Backend) (gib float64) {
	w.t.Helper()
	ctx := context.Background()
	const rounds = 18
	for range rounds {
		time.Sleep(80 * time.Minute)
		gib += float64(w.kept.Size()) / (1 << 30) / rounds
		_, err := compact.Run(ctx, b.Table, b.Store, compact.Options{Env: w.env()})
		w.must(err)
		_, err = retain.Run(ctx, b.Table, retain.Options{Env: w.env()})
		w.must(err)
	}
	_, err := sweep.Run(ctx, b.Table, b.Store, sweep.Options{Env: w.env()})
	w.must(err)
	return gib
}
