package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
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

// chances is chance that hooks may share.
type chances struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *chances) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// A writer goes on, heads are spilled and log starts raised, what is spilled is archived and archived anew; every eventual read is up to 5 s old, one in ten requests fails, objects below the log start
// vanish. A reader in another process, which seeks back now and then, sees every record once and in order: no gap, no repeat, no false end, no
// false damage.
func TestReaderUnderStaleReads(t *testing.T) {
	var total staleRun
	for seed := range uint64(12 / raceShare) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := readUnderStaleReads(t, &chances{r: rand.New(rand.NewPCG(seed, 9))})
				total.records += run.records
				total.stale += run.stale
				total.failed += run.failed
				total.resets += run.resets
				total.seeks += run.seeks
				total.archived += run.archived
			})
		})
	}
	t.Logf("%+v", total)
	least := staleRun{records: 5000 / raceShare, stale: 1000 / raceShare, failed: 50 / raceShare, resets: 5 / raceShare, seeks: 30 / raceShare, archived: 100 / raceShare}
	if raced {
		least.resets = 0 // which come in bursts: so few seeds may have none
	}
	if total.records < least.records || total.stale < least.stale || total.failed < least.failed || total.resets < least.resets || total.seeks < least.seeks ||
		total.archived < least.archived {
		t.Errorf("too little happened: %+v", total)
	}
}

type staleRun struct{ records, stale, failed, resets, seeks, archived int }

func readUnderStaleReads(t *testing.T, chance *chances) (run staleRun) {
	const partitions = 5
	b := newBench(t)
	b.create("t", partitions, 3)
	var mu sync.Mutex
	writing := true
	b.faults(func(c fault.Call) fault.Fault {
		if c.Op != store.OpGet || c.Name == segment.IdentityName {
			return fault.Fault{}
		}
		f := fault.Fault{Delay: time.Duration(chance.n(50)) * time.Millisecond}
		mu.Lock()
		defer mu.Unlock()
		if writing && chance.n(10) == 0 {
			f.Kind = fault.LostBefore
		}
		return f
	}, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if c.Consistent || c.Op != "GetItem" && c.Op != "Query" {
			return dynamodb.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		if run.stale++; writing && chance.n(10) == 0 {
			return dynamodb.Throttle()
		}
		return dynamodb.StaleBy(time.Duration(chance.n(5000)) * time.Millisecond)
	})
	written := [partitions]int{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		names := []string{}
		for range 60 {
			parts := map[int][][]segment.Record{}
			for p := range partitions {
				if n := chance.n(5); n > 0 {
					parts[p] = [][]segment.Record{numbers(written[p], n)}
					written[p] += n
				}
			}
			if len(parts) > 0 {
				names = append(names, b.write("t", parts))
			}
			if chance.n(6) == 0 { // all but the last ten segments go, in all partitions
				b.expire("t", names[:max(len(names)-10, 0)])
			}
			if chance.n(8) == 0 { // as nobody would: at once, without a window
				old := b.archive("t", archiver{rowOffsets: 5 + int64(chance.n(30)), batchRecords: 1 + chance.n(5)})
				b.remove(old)
				names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(old, name) })
				p := chance.n(partitions)
				b.remove(b.rewrite("t", p, int64(chance.n(written[p]+1)), int64(written[p]), archiver{rowOffsets: 5 + int64(chance.n(30))}))
				run.archived += len(old)
			}
			time.Sleep(time.Duration(chance.n(400)) * time.Millisecond)
		}
		mu.Lock()
		writing = false
		mu.Unlock()
	}()
	r, err := b.open().NewReader(b.ctx, "t", sdk.OnExpired(sdk.ResetEarliest), sdk.WithPollBytes(1+chance.n(200)), sdk.WithReadBuffer(1+chance.n(2000)), sdk.WithPrefetch(1+chance.n(8)))
	check(t, err)
	defer r.Close()
	b.drain(r, chance, &run, func(next map[int]int64) bool {
		select {
		case <-done:
			for p := range partitions {
				if next[p] < int64(written[p]) {
					return false
				}
			}
			return true
		default:
			return false
		}
	})
	return run
}

// expire removes segments of the topic, and before that raises the log starts above them.
func (b *bench) expire(topic string, names []string) {
	for _, name := range names {
		if footer := b.footers[name]; footer != nil {
			for _, x := range footer.Extents {
				_, err := b.log.Admin().DeleteRecords(b.ctx, topic, int(x.Partition), b.ends[name][int(x.Partition)])
				check(b.t, err)
			}
			check(b.t, b.raw.Delete(b.ctx, name))
			delete(b.footers, name)
		}
	}
}

// drain polls until the reader has all, and checks every record on the way.
func (b *bench) drain(r *sdk.Reader, chance *chances, run *staleRun, all func(next map[int]int64) bool) {
	t := b.t
	next := map[int]int64{}
	deadline := time.Now().Add(10 * time.Minute)
	for !all(next) {
		if time.Now().After(deadline) {
			t.Fatalf("no progress: at %v", next)
		}
		ctx, cancel := context.WithTimeout(b.ctx, 500*time.Millisecond)
		fetches, err := r.Poll(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded), err == nil:
		case errors.Is(err, sdk.ErrUnreachable):
			run.failed++
		default:
			t.Fatalf("at %v: %v", next, err)
		}
		for _, f := range fetches {
			for _, record := range f.Records {
				if record.Offset != next[f.Partition] && !b.counts.wasReset(f.Partition, next[f.Partition], record.Offset) {
					t.Fatalf("partition %d: offset %d after %d, and no reset says why", f.Partition, record.Offset, next[f.Partition]-1)
				}
				if string(record.Value) != fmt.Sprint(record.Offset) {
					t.Fatalf("partition %d offset %d: %q", f.Partition, record.Offset, record.Value)
				}
				next[f.Partition] = record.Offset + 1
				run.records++
			}
		}
		if p := chance.n(5); chance.n(40) == 0 {
			run.seeks++
			next[p] = max(next[p]-int64(chance.n(30)), 0)
			check(t, r.Seek(p, next[p]))
		}
	}
	b.counts.mu.Lock()
	run.resets = len(b.counts.resets)
	b.counts.mu.Unlock()
}

// wasReset tells whether the reader reported that it went on at an offset instead of another: at once, or where the log start moved on before a
// record could be read, by several steps. A Seek between them may have gone back to where the first began.
func (c *counts) wasReset(partition int, from, to int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	reached := map[int64]bool{from: true}
	for _, e := range c.resets {
		if e.Partition == partition && reached[e.From] {
			reached[e.Position] = true
		}
	}
	return reached[to]
}

// What could not be looked up is an error, never "unknown topic", never another start.
func TestBR53_WhatCouldNotBeReadIsNotAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		fail int // how often each read fails
		with dynamodb.Fault
		want error
	}{
		"throttled 3 times": {3, dynamodb.Throttle(), nil},
		"throttled":         {1 << 30, dynamodb.Throttle(), sdk.ErrThrottled},
		"no answer":         {1 << 30, dynamodb.Fault{Skip: true, Reply: dynamodb.ErrNoAnswer}, sdk.ErrUnreachable},
		"server error":      {1 << 30, dynamodb.ServerError(), sdk.ErrUnreachable},
	} {
		for _, item := range []string{"TOPIC", "A#", "L#"} {
			t.Run(name+" "+item, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					b.create("t", 1, 64)
					for i := range 25 {
						b.write("t", one(0, numbers(4*i, 4)))
					}
					_, err := b.log.Admin().DeleteRecords(b.ctx, "t", 0, 40)
					check(t, err)
					var failures atomic.Int32
					b.faults(nil, func(_ context.Context, call dynamodb.Call) dynamodb.Fault {
						if call.Op == "GetItem" && strings.HasPrefix(call.Keys[0].Partition, item) && int(failures.Add(1)) <= c.fail {
							return c.with
						}
						return dynamodb.Fault{}
					})
					r, err := b.log.NewReader(b.ctx, "t", sdk.To(sdk.Latest))
					if c.want != nil {
						if !errors.Is(err, sdk.ErrUnreachable) || !errors.Is(err, c.want) || errors.Is(err, sdk.ErrUnknownTopic) || errors.Is(err, sdk.ErrTopicGone) {
							t.Errorf("%v", err)
						}
						return
					}
					check(t, err)
					defer r.Close()
					if got := b.values(r)[0]; !strings.HasPrefix(got, "40 41 ") || !strings.HasSuffix(got, " 99") {
						t.Errorf("read %s", got)
					}
				})
			})
		}
	}
}

// A topic that is deleted under a reader ends it, whether or not another of that name is there.
func TestReaderOfADeletedTopic(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 2, 64)
			b.write("t", one(0, numbers(0, 3)))
			r := b.reader("t")
			defer r.Close()
			_, err := r.Poll(b.ctx)
			check(t, err)
			check(t, b.log.Admin().DeleteTopic(b.ctx, "t"))
			if again {
				b.create("t", 2, 64)
				b.write("t", one(0, numbers(100, 10)))
			}
			for range 2 {
				if fetches, err := r.Poll(b.ctx); !errors.Is(err, sdk.ErrTopicGone) {
					t.Errorf("again %v: %v, %v", again, fetches, err)
				}
			}
			if _, err := b.log.NewReader(b.ctx, "t", sdk.To(sdk.Latest)); again != (err == nil) || !again && !errors.Is(err, sdk.ErrUnknownTopic) {
				t.Errorf("a new reader: %v", err)
			}
		})
	}
}

func TestReaderRefusesNonsense(t *testing.T) {
	b := newBench(t)
	b.create("t", 2, 64)
	for name, c := range map[string]struct {
		opts []sdk.ReaderOption
		want error
	}{
		"partition 2":           {[]sdk.ReaderOption{sdk.ReadPartitions(0, 2)}, sdk.ErrNoPartition},
		"partition -1":          {[]sdk.ReaderOption{sdk.ReadPartitions(-1)}, sdk.ErrNoPartition},
		"start of partition 5":  {[]sdk.ReaderOption{sdk.FromOffsets(map[int]int64{5: 0})}, sdk.ErrNoPartition},
		"start of one not read": {[]sdk.ReaderOption{sdk.ReadPartitions(0), sdk.FromOffsets(map[int]int64{1: 0})}, sdk.ErrNoPartition},
		"start -1":              {[]sdk.ReaderOption{sdk.From(sdk.AtOffset(-1))}, sdk.ErrInvalid},
		"start -1 of one":       {[]sdk.ReaderOption{sdk.FromOffsets(map[int]int64{1: -1})}, sdk.ErrInvalid},
		"stop -1":               {[]sdk.ReaderOption{sdk.To(sdk.AtOffset(-1))}, sdk.ErrInvalid},
		"stop at the start":     {[]sdk.ReaderOption{sdk.To(sdk.Earliest)}, sdk.ErrInvalid},
		"no start":              {[]sdk.ReaderOption{sdk.From(sdk.Position{})}, sdk.ErrInvalid},
		"no poll bytes":         {[]sdk.ReaderOption{sdk.WithPollBytes(0)}, sdk.ErrInvalid},
		"no buffer":             {[]sdk.ReaderOption{sdk.WithReadBuffer(0)}, sdk.ErrInvalid},
		"no requests":           {[]sdk.ReaderOption{sdk.WithPrefetch(0)}, sdk.ErrInvalid},
		"too many requests":     {[]sdk.ReaderOption{sdk.WithPrefetch(257)}, sdk.ErrInvalid},
		"policy 9":              {[]sdk.ReaderOption{sdk.OnExpired(9)}, sdk.ErrInvalid},
	} {
		if _, err := b.log.NewReader(b.ctx, "t", c.opts...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, topic := range []string{"", "..", "a/b", "\x00", "x y"} {
		if _, err := b.log.NewReader(b.ctx, topic); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	if _, err := b.log.NewReader(b.ctx, "u"); !errors.Is(err, sdk.ErrUnknownTopic) {
		t.Errorf("unknown topic: %v", err)
	}
	r := b.reader("t", sdk.To(sdk.Latest))
	if _, err := r.Poll(b.ctx); err != io.EOF {
		t.Errorf("empty and bounded: %v", err)
	}
	check(t, r.Close())
	check(t, r.Close())
	if _, err := r.Poll(b.ctx); err != sdk.ErrClosed {
		t.Errorf("closed: %v", err)
	}
	if err := r.Seek(0, 0); err != sdk.ErrClosed {
		t.Errorf("closed: %v", err)
	}
}
