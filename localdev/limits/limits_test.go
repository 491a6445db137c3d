package limits_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

var full = flag.Bool("full", false, "the whole sizes, which take some minutes")

// size is n, or with -full the whole.
func size(n, whole int) int {
	if *full {
		return whole
	}
	return n
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, opts ...sdk.Option) *sdk.Log {
	t.Helper()
	log, err := sdk.Open(context.Background(), "mem://", append(opts, sdk.WithDriver(embedded.Driver()))...)
	check(t, err)
	t.Cleanup(func() { log.Close() })
	return log
}

// counter counts requests by service and operation.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) OnRequest(e sdk.RequestEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[e.Service+" "+e.Op] += e.Requests
}

func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = nil
	return n
}

// heap is what is in use after a collection of garbage.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// parallel calls do for 0 … n-1, a few at a time.
func parallel(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	check(t, g.Wait())
}

func produce(p *sdk.Producer, topic string, partition int) error {
	return p.ProduceSync(context.Background(), &sdk.Record{Topic: topic, Partition: partition, Value: []byte("v")}).Err()
}

// A log of so many topics: a producer that appends to all of them has a row of each and no goroutine of its own for any, and when it is closed nothing is left.
func TestTopics(t *testing.T) {
	n := size(500, 10_000)
	ctx, log := context.Background(), open(t)
	name := func(i int) string { return fmt.Sprintf("topic-%05d", i) }
	parallel(t, n, func(i int) error {
		_, err := log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: name(i), Partitions: 1})
		return err
	})
	all, err := log.Admin().ListTopics(ctx)
	check(t, err)
	if len(all) != n || all[n-1].Name != name(n-1) {
		t.Fatalf("%d topics, the last is %s", len(all), all[len(all)-1].Name)
	}
	all = nil
	routines, before := runtime.NumGoroutine(), heap()
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	check(t, err)
	var told atomic.Int64
	for i := range n {
		p.Produce(ctx, &sdk.Record{Topic: name(i), Value: []byte("v")}, func(_ *sdk.Record, err error) {
			if err != nil {
				t.Error(err)
			}
			told.Add(1)
		})
	}
	check(t, p.Flush(ctx))
	check(t, p.Idle(ctx))
	if told.Load() != int64(n) {
		t.Errorf("%d records were told", told.Load())
	}
	if now := runtime.NumGoroutine(); now > routines+20 {
		t.Errorf("%d goroutines before, %d with a producer that has appended to %d topics and rests", routines, now, n)
	}
	with := heap()
	check(t, p.Close(ctx))
	p = nil
	t.Logf("%d topics: %d bytes a topic while a producer is open, log included, %d when it is closed", n, (with-before)/int64(n), (heap()-before)/int64(n))
	if each := (with - before) / int64(n); each > 12<<10 {
		t.Errorf("%d bytes a topic", each)
	}
}

// A topic of so many partitions in lanes of 64: an append to all of them is one segment and a commit a lane, and all of it is read.
func TestPartitions(t *testing.T) {
	n := size(200, 1000)
	ctx, requests := context.Background(), &counter{}
	log := open(t, sdk.WithHooks(requests))
	_, err := log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "wide", Partitions: n, LaneWidth: metadata.SlotsPerLane})
	check(t, err)
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	check(t, err)
	var records []*sdk.Record
	for i := range n {
		records = append(records, &sdk.Record{Topic: "wide", Partition: i, Value: []byte("v")})
	}
	requests.take()
	check(t, p.ProduceSync(ctx, records...).Err())
	check(t, p.Close(ctx))
	lanes := (n + metadata.SlotsPerLane - 1) / metadata.SlotsPerLane
	if got := requests.take(); got["store put"] != 1 || got["table Commit"] != lanes {
		t.Errorf("an append to %d partitions in %d lanes: %v", n, lanes, got)
	}
	r, err := log.NewReader(ctx, "wide")
	check(t, err)
	seen := map[int]int{}
	for len(seen) < n {
		fetches, err := r.Poll(ctx)
		check(t, err)
		for _, f := range fetches {
			seen[f.Partition] += len(f.Records)
		}
	}
	check(t, r.Close())
	t.Logf("%d partitions are read by %v", n, requests.take())
	d, err := log.Admin().DescribeTopic(ctx, "wide")
	check(t, err)
	if len(d.Load) != n {
		t.Errorf("%d partitions are described", len(d.Load))
	}
}

// Beyond 49 lanes a topic cannot be created in one transaction, and says so.
func TestLanes(t *testing.T) {
	log := open(t)
	most := metadata.MaxLanes * metadata.SlotsPerLane
	var field *sdk.FieldError
	_, err := log.Admin().CreateTopic(context.Background(), sdk.NewTopic{Name: "t", Partitions: most + 1, LaneWidth: metadata.SlotsPerLane})
	if !errors.As(err, &field) || field.Field != "partitions" || field.Valid != "1 to 3136 (49 lanes of 64)" {
		t.Errorf("%d partitions: %v", most+1, err)
	}
	_, err = log.Admin().CreateTopic(context.Background(), sdk.NewTopic{Name: "t", Partitions: most, LaneWidth: metadata.SlotsPerLane})
	check(t, err)
}

// So many groups that have read a topic and gone: what is left of each is items of the table, and lag is told of all.
func TestGroups(t *testing.T) {
	n := size(40, 500)
	synctest.Test(t, func(t *testing.T) {
		ctx, log := context.Background(), open(t)
		_, err := log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "t", Partitions: 2})
		check(t, err)
		p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		check(t, err)
		check(t, produce(p, "t", 0))
		check(t, produce(p, "t", 1))
		name := func(i int) string { return fmt.Sprintf("group-%03d", i) }
		routines := runtime.NumGoroutine()
		parallel(t, n, func(i int) error {
			c, err := log.NewConsumer(ctx, name(i), []string{"t"}, sdk.AutoCommit(time.Second))
			if err != nil {
				return err
			}
			for read := 0; read < 2; {
				fetches, err := c.Poll(ctx)
				if err != nil {
					return err
				}
				for _, f := range fetches {
					read += len(f.Records)
				}
			}
			now, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			c.Poll(now) // which finishes what the one before returned
			return c.Close(ctx)
		})
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > routines {
			t.Errorf("%d goroutines before, %d after %d groups have gone", routines, now, n)
		}
		check(t, produce(p, "t", 1))
		check(t, p.Close(ctx))
		groups, err := log.Admin().ListGroups(ctx)
		check(t, err)
		if len(groups) != n {
			t.Errorf("%d groups", len(groups))
		}
		for _, g := range groups {
			d, err := log.Admin().DescribeGroup(ctx, g, sdk.Earliest)
			check(t, err)
			if len(d.Partitions) != 2 || d.Partitions[0].Lag+d.Partitions[1].Lag != 1 {
				t.Fatalf("%s: %+v", g, d)
			}
		}
	})
}

// So many members of groups that have nothing to do: a few goroutines and some kilobytes each, and as many requests as they beat and look.
func TestIdleConsumers(t *testing.T) {
	n := size(10, 1000)
	synctest.Test(t, func(t *testing.T) {
		ctx, requests := context.Background(), &counter{}
		log := open(t, sdk.WithHooks(requests))
		_, err := log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "t", Partitions: 4})
		check(t, err)
		routines, before := runtime.NumGoroutine(), heap()
		life, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		for i := range n {
			c, err := log.NewConsumer(ctx, fmt.Sprint("g", i), []string{"t"}, sdk.AutoCommit(time.Second))
			check(t, err)
			ended.Go(func() {
				for life.Err() == nil {
					c.Poll(life)
				}
				if err := c.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(2 * time.Minute)
		first := heap()
		requests.take()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		sent, now, later := requests.take(), runtime.NumGoroutine(), heap()
		total := 0
		for _, n := range sent {
			total += n
		}
		t.Logf("%d idle members: %d goroutines, %d KiB each; in ten minutes %d requests each: %v", n, (now-routines)/n, (later-before)/int64(n)>>10, total/n, sent)
		if (now-routines)/n > 8 {
			t.Errorf("%d goroutines of %d members", now-routines, n)
		}
		if later > first+first/5+4<<20 {
			t.Errorf("the heap has grown from %d to %d", first, later)
		}
		stop()
		ended.Wait()
		synctest.Wait()
		if left := runtime.NumGoroutine(); left > routines {
			t.Errorf("%d goroutines before, %d after", routines, left)
		}
	})
}

// A producer at so many MiB a second, for a minute: its memory is that of its buffer and of what it has under way.
func TestRate(t *testing.T) {
	const record, perSecond = 1 << 10, 100 << 20
	seconds := size(1, 60)
	e, ctx := env.System(), context.Background()
	log, err := sdk.Open(ctx, "file://"+t.TempDir(), sdk.WithDriver(embedded.Driver()), sdk.WithCreateTable())
	check(t, err)
	defer log.Close()
	_, err = log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "t", Partitions: 16})
	check(t, err)
	p, err := log.NewProducer(sdk.WithCompression(0))
	check(t, err)
	var told atomic.Int64
	value := make([]byte, record)
	start, sent, peak, routines := e.Mono(), int64(0), int64(0), 0
	var m runtime.MemStats
	for second := range seconds {
		for due := int64(second+1) * perSecond / record; sent < due; sent++ {
			p.Produce(ctx, &sdk.Record{Topic: "t", Value: value}, func(_ *sdk.Record, err error) {
				if err == nil {
					told.Add(1)
				}
			})
		}
		runtime.ReadMemStats(&m)
		peak, routines = max(peak, int64(m.HeapInuse)), max(routines, runtime.NumGoroutine())
		if ahead := time.Duration(second+1)*time.Second - (e.Mono() - start); ahead > 0 {
			check(t, e.Sleep(ctx, ahead))
		}
	}
	took := e.Mono() - start
	check(t, p.Close(ctx))
	t.Logf("%d records of %d bytes in %v, %d MiB a second; the heap was %d MiB at most, of %d goroutines", sent, record, took, int64(float64(sent)*record/took.Seconds())>>20, peak>>20, routines)
	if told.Load() != sent {
		t.Errorf("%d of %d records were acknowledged", told.Load(), sent)
	}
	if peak > 4*192<<20 || routines > 200 { // a buffer of 192 MiB, its segments once more, and as much garbage again before it is collected
		t.Errorf("%d bytes of heap, %d goroutines", peak, routines)
	}
}
