package sdk_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// tally counts the requests of one process.
type tally struct {
	mu    sync.Mutex
	calls map[string]int // by service and operation
	reads float64        // units of the table, but for heads
}

func (c *tally) OnRequest(e sdk.RequestEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[e.Service+" "+e.Op]++
	if e.Op != "Head" {
		c.reads += e.ReadUnits
	}
}

func (c *tally) take() (calls map[string]int, reads float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, reads = c.calls, c.reads
	c.calls, c.reads = map[string]int{}, 0
	return calls, reads
}

func (b *bench) counted() (*sdk.Log, *tally) {
	c := &tally{calls: map[string]int{}}
	log, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(b.memory), sdk.WithHooks(c))
	check(b.t, err)
	c.take()
	return log, c
}

// Fan-out is free: what ten groups on one topic leave is what one leaves, but for the groups' own items.
func TestFanOutIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 4, 64)
		for range 20 {
			b.fill("t", 4, 5)
		}
		var logs []*sdk.Log
		var tallies []*tally
		for range 10 {
			log, calls := b.counted()
			logs, tallies = append(logs, log), append(tallies, calls)
		}
		var mu sync.Mutex
		written, changed := map[string]bool{}, 0
		b.faults(func(c fault.Call) fault.Fault {
			if c.Op != store.OpGet {
				mu.Lock()
				changed++
				mu.Unlock()
			}
			return fault.Fault{}
		}, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Op != "GetItem" && c.Op != "Query" && c.Op != "BatchGetItem" && !strings.HasPrefix(c.Op, "Describe") {
				mu.Lock()
				defer mu.Unlock()
				for _, k := range c.Keys {
					written[k.Partition] = true
				}
			}
			return dynamodb.Fault{}
		})
		var first string
		for g := range 10 {
			e := eat(t, logs[g], fmt.Sprint("g", g), []string{"t"})
			time.Sleep(20 * time.Second)
			e.close(t)
			for p := range 4 {
				if got := span(t, e.offsets()[tp("t", p)]); got != [2]int64{0, 99} {
					t.Fatalf("group %d has read %v", g, got)
				}
			}
			n, _ := tallies[g].take()
			gets := n["store get"]
			delete(n, "store get")
			figure := fmt.Sprintf("%d GETs, head reads %d, chunk reads %d", gets, n["table Head"], n["table Chunk"])
			if g == 0 {
				first = figure
				t.Logf("one group, from joining to leaving 20 s later, 20 segments of 4 partitions: %d GETs; table %v", gets, n)
			}
			if gets > 20 {
				t.Errorf("group %d: %d GETs of 20 segments", g, gets)
			}
		}
		t.Logf("each further group like the first: %s", first)
		for pk := range written {
			if pk != "GROUP" && !strings.HasPrefix(pk, "G#") {
				t.Errorf("a group has written to %s", pk)
			}
		}
		if changed > 0 || len(written) != 11 {
			t.Errorf("%d requests that change or list the store; written: %v", changed, slices.Sorted(maps.Keys(written)))
		}
	})
}

// An idle member costs one write and one query per heartbeat, and the rows of its topics at most every 9 s, whatever the number of partitions.
func TestIdleMemberCosts(t *testing.T) {
	const beats = 40 / raceHalf // in the time that is counted
	for _, partitions := range []int{4, 1000 / raceShare / raceHalf} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", partitions, 64)
			holder := eat(t, b.log, "g", []string{"t"}, sdk.WithInstanceID("a"))
			time.Sleep(time.Minute)
			count := func(what string, c *tally, topics int, look string) {
				t.Helper()
				c.take()
				time.Sleep(2 * time.Minute / raceHalf)
				n, units := c.take()
				tails := n["table Head"]
				delete(n, "table Head")
				t.Logf("%d partitions, %s, %d heartbeat intervals: %v, %.1f read units per heartbeat; besides %d reads of heads to follow the tail",
					partitions, what, beats, n, units/beats, tails)
				if n["table Beat"] > beats+1 || n["table GroupState"] > beats+1 || n[look] == 0 || n[look] > 14*topics/raceHalf || len(n) != 3 {
					t.Errorf("%d partitions, %s: %v", partitions, what, n)
				}
			}
			log, calls := b.counted()
			all := eat(t, log, "alone", []string{"t"})
			time.Sleep(time.Minute)
			if n := len(all.Assignment()); n != partitions {
				t.Fatalf("%d partitions", n)
			}
			count("holding them all, caught up", calls, 1, "table Topic")
			all.close(t)
			log, calls = b.counted()
			c, err := log.NewConsumer(b.ctx, "g", []string{"none"})
			check(t, err)
			go c.Poll(b.ctx)
			time.Sleep(time.Minute)
			count("holding none, in a group of two topics", calls, 2, "table Topic")
			check(t, c.Close(b.ctx))
			log, calls = b.counted()
			c, err = log.NewConsumer(b.ctx, "g", nil, sdk.SubscribePattern("none.*"))
			check(t, err)
			go c.Poll(b.ctx)
			time.Sleep(time.Minute)
			count("holding none, by a pattern", calls, 1, "table Topics")
			check(t, c.Close(b.ctx))
			holder.close(t)
		})
	}
}

// restarts keeps the books of a rolling restart.
type restarts struct {
	mu      sync.Mutex
	owner   map[sdk.TopicPartition]string
	since   map[sdk.TopicPartition]time.Time // it stopped
	stops   int
	moves   int
	inVain  int // stopped and came back to where it was
	stopped time.Duration
	longest time.Duration
}

func (r *restarts) stop(_ context.Context, all []sdk.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range all {
		r.stops++
		r.since[p] = time.Now()
	}
}

func (r *restarts) begin(member string, all []sdk.TopicPartition, restart bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range all {
		if before := r.owner[p]; before != "" {
			d := time.Since(r.since[p])
			r.stopped += d
			r.longest = max(r.longest, d)
			if before != member {
				r.moves++
			} else if !restart {
				r.inVain++
			}
		}
		r.owner[p] = member
	}
}

// Rolling restart of 8 members over 64 partitions (4 over 16 with the race detector): static members move none; others stop only what moves.
func TestRollingRestart(t *testing.T) {
	const members, each = 8 / raceHalf, 8 / raceHalf
	const partitions = members * each
	for _, static := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", partitions, 64)
			r := &restarts{owner: map[sdk.TopicPartition]string{}, since: map[sdk.TopicPartition]time.Time{}}
			start := func(name string) *eater {
				opts := []sdk.ConsumerOption{sdk.OnRevoked(r.stop), sdk.OnLost(r.stop),
					sdk.OnAssigned(func(_ context.Context, all []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
						r.begin(name, all, static)
						return nil
					})}
				if static {
					opts = append(opts, sdk.WithInstanceID(name))
				}
				return eat(t, b.open(), "g", []string{"t"}, opts...)
			}
			running := make([]*eater, members)
			for i := range running {
				running[i] = start(fmt.Sprint("m", i))
			}
			time.Sleep(time.Minute)
			r.mu.Lock()
			r.stops, r.moves, r.inVain, r.stopped, r.longest = 0, 0, 0, 0, 0
			r.mu.Unlock()
			for i := range running {
				running[i].close(t)
				time.Sleep(10 * time.Second) // the new one starts
				name := fmt.Sprint("m", i)
				if !static {
					name += "'"
				}
				running[i] = start(name)
				time.Sleep(30 * time.Second)
			}
			synctest.Wait() // not the sleep, but this orders what the members have written before what is read here
			t.Logf("static %v: %d restarts of 10 s each, %d partitions: %d moved, %d stops, %.0f partition-seconds stopped, the longest %v",
				static, members, partitions, r.moves, r.stops, r.stopped.Seconds(), r.longest)
			if static && (r.moves != 0 || r.stops != partitions) {
				t.Errorf("%d moves, %d stops, want none and each partition's once, with its member", r.moves, r.stops)
			}
			if !static && (r.inVain != 0 || r.stops != r.moves) {
				t.Errorf("%d stops, %d moves, %d in vain: something stopped that did not move", r.stops, r.moves, r.inVain)
			}
			loads := map[string]int{}
			for _, o := range r.owner {
				loads[o]++
			}
			for _, e := range running {
				if n := len(e.Assignment()); n != each {
					t.Errorf("%d of %d partitions: %v", n, partitions, loads)
				}
				e.close(t)
			}
		})
	}
}

// Committing all partitions of a lane is one write, of several lanes one each, or one transaction when asked for.
func TestCommitCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 128, 64)
		b.fill("t", 128, 1)
		log, calls := b.counted()
		c, err := log.NewConsumer(b.ctx, "g", []string{"t"}, sdk.ManualCommit(), sdk.Reading(sdk.WithWait(time.Second)))
		check(t, err)
		b.takes(c)
		for what, commit := range map[string]struct {
			op    string
			n     int
			width int
			do    func(map[sdk.TopicPartition]sdk.CommitOffset) error
		}{
			"64 of one lane":           {"table CommitOffsets", 1, 64, func(o map[sdk.TopicPartition]sdk.CommitOffset) error { return c.CommitOffsets(b.ctx, o) }},
			"128 of two lanes":         {"table CommitOffsets", 2, 128, func(o map[sdk.TopicPartition]sdk.CommitOffset) error { return c.CommitOffsets(b.ctx, o) }},
			"128 in one transaction":   {"table CommitStep", 1, 128, func(o map[sdk.TopicPartition]sdk.CommitOffset) error { return c.CommitAtomic(b.ctx, o) }},
			"64 in one, further again": {"table CommitStep", 1, 64, func(o map[sdk.TopicPartition]sdk.CommitOffset) error { return c.CommitAtomic(b.ctx, o) }},
		} {
			offsets := map[sdk.TopicPartition]sdk.CommitOffset{}
			base := b.describe("g", sdk.Earliest)
			for p := range commit.width {
				offsets[tp("t", p)] = sdk.CommitOffset{Offset: base.Partitions[p].Committed + 1}
			}
			calls.take()
			check(t, commit.do(offsets))
			n, _ := calls.take()
			delete(n, "table Beat")
			delete(n, "table GroupState")
			delete(n, "table Head")
			t.Logf("%s: %v", what, n)
			if n[commit.op] != commit.n || len(n) != 1 {
				t.Errorf("%s: %v", what, n)
			}
			for _, p := range b.describe("g", sdk.Earliest).Partitions[:commit.width] {
				if p.Committed != offsets[p.TopicPartition].Offset {
					t.Errorf("%s: %v is at %d", what, p, p.Committed)
				}
			}
		}
		check(t, c.Close(b.ctx))
	})
}
