package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// life is one process that reads a poll of ten records at most and is killed, without a word, when die says so: at "received", between having the record and the
// work, or at "worked", between the work and what finishes it. work is given each record.
func (b *bench) life(finish func(c *sdk.Consumer, r *sdk.Record) error, first bool, work func(r *sdk.Record), die func(point string, r *sdk.Record) bool) {
	b.t.Helper()
	c := b.joins(sdk.WithInstanceID("worker"), sdk.ManualCommit())
	defer func() { check(b.t, c.Close(b.ctx)) }() // of a static member with manual commits, which gives up nothing: as good as a kill, and its goroutines end
	for {
		fetches, err := c.Poll(b.ctx)
		check(b.t, err)
		if len(fetches) == 0 {
			return
		}
		for i := range fetches[0].Records {
			r := &fetches[0].Records[i]
			if first {
				check(b.t, finish(c, r))
			}
			if die("received", r) {
				return
			}
			work(r)
			if die("worked", r) {
				return
			}
			if !first {
				check(b.t, finish(c, r))
			}
		}
	}
}

// committing commits one record.
func committing(c *sdk.Consumer, r *sdk.Record) error {
	return c.CommitOffsets(context.Background(), upTo(r.Partition, r.Offset+1))
}

// At most once (commit first) and at least once (work first), with a crash exactly between receiving a record and finishing it, and between the work and its commit.
func TestCrashBetweenReceivingAndFinishing(t *testing.T) {
	for _, at := range []string{"received", "worked"} {
		for _, first := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.create("t", 1, 64)
				b.fill("t", 1, 10)
				var worked []int64
				crashed := false
				for range 2 {
					b.life(committing, first, func(r *sdk.Record) { worked = append(worked, r.Offset) }, func(point string, r *sdk.Record) bool {
						if crashed || point != at || r.Offset != 4 {
							return false
						}
						crashed = true
						return true
					})
				}
				want := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
				switch {
				case first && at == "received": // its offset is committed, its work was never done
					want = slices.Delete(want, 4, 5)
				case !first && at == "worked": // its work is done twice
					want = slices.Insert(want, 4, 4)
				}
				if !slices.Equal(worked, want) {
					t.Errorf("commit first %v, crash when %s: worked on %v, want %v", first, at, worked, want)
				}
			})
		}
	}
}

// Exactly once: the result and the offset are one step, so a crash on either side of it, or whose answer is lost, leaves each result once.
func TestCrashAroundAStep(t *testing.T) {
	for _, at := range []string{"received", "worked", "step lost", "step's answer lost"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 1, 64)
			b.create("out", 1, 64)
			b.fill("t", 1, 10)
			p, err := b.log.NewProducer()
			check(t, err)
			crashed := false
			for range 2 {
				step := func(c *sdk.Consumer, r *sdk.Record) error {
					if !crashed && r.Offset == 4 && at[:4] == "step" {
						crashed = true
						b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
							switch {
							case c.Op != "TransactWriteItems":
								return dynamodb.Fault{}
							case at == "step lost":
								return dynamodb.Dropped()
							}
							return dynamodb.AnswerLost()
						})
						ctx, cancel := context.WithTimeout(b.ctx, time.Second)
						defer cancel()
						if err := c.Step(ctx, p, upTo(0, r.Offset+1), result(r)); err == nil {
							t.Errorf("%s: the step succeeded", at)
						}
						b.faults(nil, nil)
						panic("crash")
					}
					return c.Step(b.ctx, p, upTo(0, r.Offset+1), result(r))
				}
				func() {
					defer func() {
						if r := recover(); r != nil && r != "crash" {
							panic(r)
						}
					}()
					b.life(step, false, func(*sdk.Record) {}, func(point string, r *sdk.Record) bool {
						if crashed || point != at || r.Offset != 4 {
							return false
						}
						crashed = true
						return true
					})
				}()
				time.Sleep(time.Minute)
			}
			if !crashed {
				t.Error("no crash")
			}
			check(t, p.Close(b.ctx))
			var want []string
			for o := range 10 {
				want = append(want, fmt.Sprintf("0/%d", o))
			}
			if got := b.readAll("out"); !slices.Equal(got, want) {
				t.Errorf("crash when %s: results %v", at, got)
			}
		})
	}
}

func result(r *sdk.Record) *sdk.Record {
	return &sdk.Record{Topic: "out", Value: fmt.Appendf(nil, "%d/%d", r.Partition, r.Offset)}
}

// CommitAtomic is all or none whether its transaction is lost, applied and lost, applied late, or in conflict.
func TestCommitAtomicUnderFaults(t *testing.T) {
	for what, fault := range map[string]struct {
		hook func(n int) dynamodb.Fault
		err  error // nil: it succeeds
	}{
		"lost three times":                   {func(n int) dynamodb.Fault { return until(n, 3, dynamodb.Dropped()) }, nil},
		"applied, answer lost":               {func(n int) dynamodb.Fault { return until(n, 3, dynamodb.AnswerLost()) }, nil},
		"always applied, answer always lost": {func(int) dynamodb.Fault { return dynamodb.AnswerLost() }, nil},
		"applied late": {func(n int) dynamodb.Fault {
			return until(n, 1, dynamodb.AppliedLate(func(context.Context) { time.Sleep(time.Second) }))
		}, nil},
		"in conflict": {func(n int) dynamodb.Fault {
			return until(n, 3, dynamodb.Conflict(dynamodb.Call{Op: "TransactWriteItems"}))
		}, nil},
		"never applied": {func(int) dynamodb.Fault { return dynamodb.Dropped() }, sdk.ErrUnknown},
		"applied after it was given up": {func(int) dynamodb.Fault {
			return dynamodb.AppliedLate(func(context.Context) { time.Sleep(5 * time.Minute) })
		}, sdk.ErrUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 2, 1) // of two lanes
			b.fill("t", 2, 10)
			c := b.joins(sdk.ManualCommit())
			b.takes(c)
			n := 0
			b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
				if c.Op != "TransactWriteItems" {
					return dynamodb.Fault{}
				}
				n++
				return fault.hook(n)
			})
			both := map[sdk.TopicPartition]sdk.CommitOffset{tp("t", 0): {Offset: 4}, tp("t", 1): {Offset: 7, Metadata: "m"}}
			err := c.CommitAtomic(b.ctx, both)
			b.faults(nil, nil)
			want := [2]int64{4, 7}
			if fault.err != nil {
				want = [2]int64{0, 0}
			}
			if (err == nil) != (fault.err == nil) || fault.err != nil && !errors.Is(err, fault.err) {
				t.Errorf("%s: %v", what, err)
			}
			if fault.err != nil {
				time.Sleep(6 * time.Minute) // what was given up is applied by now, if it ever is
			}
			d := b.describe("g", sdk.Earliest)
			if got := [2]int64{d.Partitions[0].Committed, d.Partitions[1].Committed}; got != want {
				t.Errorf("%s: committed %v, want %v", what, got, want)
			}
			if fault.err != nil { // it reads again from what is committed
				if got := span(t, b.takes(c)); got != [2]int64{0, 9} {
					t.Errorf("%s: goes on with %v", what, got)
				}
			}
			check(t, c.CommitAtomic(b.ctx, map[sdk.TopicPartition]sdk.CommitOffset{tp("t", 0): {Offset: 5}, tp("t", 1): {Offset: 8}}))
			if err := c.CommitAtomic(b.ctx, map[sdk.TopicPartition]sdk.CommitOffset{tp("t", 0): {Offset: 9}, tp("t", 1): {Offset: 3}}); !errors.Is(err, sdk.ErrBehind) {
				t.Errorf("one goes back: %v", err)
			}
			if d := b.describe("g", sdk.Earliest); d.Partitions[0].Committed != 5 || d.Partitions[1].Committed != 8 {
				t.Errorf("%s: afterwards %d and %d", what, d.Partitions[0].Committed, d.Partitions[1].Committed)
			}
			check(t, c.Close(b.ctx))
		})
	}
}

// until is the fault of the first calls.
func until(n, last int, f dynamodb.Fault) dynamodb.Fault {
	if n > last {
		return dynamodb.Fault{}
	}
	return f
}
