package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// readAll is the values of a topic's records.
func (b *bench) readAll(topic string) (values []string) {
	b.t.Helper()
	r, err := b.log.NewReader(b.ctx, topic, sdk.To(sdk.Latest))
	check(b.t, err)
	defer r.Close()
	for {
		fetches, err := r.Poll(b.ctx)
		if err == io.EOF {
			return values
		}
		check(b.t, err)
		for _, f := range fetches {
			for _, rec := range f.Records {
				values = append(values, string(rec.Value))
			}
		}
	}
}

// copier reads "in" and writes each record to "out" by steps, until ctx is done. It dies, without a word, when die says so: between having read and the
// step, or after it.
func copier(ctx context.Context, t *testing.T, log *sdk.Log, die func(point string) bool) {
	c, err := log.NewConsumer(ctx, "g", []string{"in"}, sdk.WithInstanceID("copier"), sdk.ManualCommit(), sdk.WithSessionTimeout(10*time.Second))
	if err != nil {
		return
	}
	defer c.Close(context.Background())
	p, err := log.NewProducer(sdk.WithDeliveryDeadline(20 * time.Second))
	check(t, err)
	defer p.Close(context.Background())
	for ctx.Err() == nil {
		fetches, err := c.Poll(ctx)
		if errors.Is(err, sdk.ErrClosed) || errors.Is(err, sdk.ErrFenced) {
			return
		}
		for _, f := range fetches {
			from := sdk.TopicPartition{Topic: f.Topic, Partition: f.Partition}
			for _, r := range f.Records {
				if die("received") {
					return
				}
				result := &sdk.Record{Topic: "out", Value: fmt.Appendf(nil, "%d/%d", r.Partition, r.Offset)}
				step := func() error {
					return c.Step(ctx, p, map[sdk.TopicPartition]sdk.CommitOffset{from: {Offset: r.Offset + 1}}, result)
				}
				err := step()
				for err != nil && !errors.Is(err, sdk.ErrUnknown) && !errors.Is(err, sdk.ErrNotHeld) && !errors.Is(err, sdk.ErrBehind) && ctx.Err() == nil {
					err = step() // nothing was appended or committed
				}
				if err != nil {
					break // what was read is to be dropped
				}
				if die("stepped") {
					return
				}
			}
		}
	}
}

// Each input has its effect exactly once, whether transactions are lost, applied and lost, or applied late, and the worker dies between any two things.
func TestStepsAreExactlyOnce(t *testing.T) {
	seeds := uint64(12)
	if raced {
		seeds = 2
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("in", 2, 64)
			b.create("out", 2, 64)
			b.fill("in", 2, 15)
			var mu sync.Mutex
			chance := rand.New(rand.NewPCG(seed, 1))
			maybe := func(p float64) bool {
				mu.Lock()
				defer mu.Unlock()
				return chance.Float64() < p
			}
			b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
				switch {
				case c.Op != "TransactWriteItems":
				case maybe(0.15):
					return dynamodb.Dropped()
				case maybe(0.2):
					return dynamodb.AnswerLost()
				case maybe(0.1):
					return dynamodb.AppliedLate(func(context.Context) { time.Sleep(time.Minute) })
				}
				return dynamodb.Fault{}
			})
			ctx, cancel := context.WithTimeout(b.ctx, 2*time.Hour)
			defer cancel()
			for lives := 0; len(b.readAll("out")) < 30 && ctx.Err() == nil; lives++ {
				life, end := context.WithTimeout(ctx, 5*time.Minute)
				copier(life, t, b.log, func(string) bool { return maybe(0.05) })
				end()
			}
			b.faults(nil, nil)
			time.Sleep(5 * time.Minute)
			seen := map[string]int{}
			for _, v := range b.readAll("out") {
				seen[v]++
			}
			for p := range 2 {
				for o := range 15 {
					if n := seen[fmt.Sprintf("%d/%d", p, o)]; n != 1 {
						t.Errorf("seed %d: the result of %d/%d is there %d times", seed, p, o, n)
					}
				}
			}
		})
	}
}

// A commit by the clock would count as done what no step did: a consumer that commits by itself can neither step nor commit with state, and nothing is sent.
func TestStepWantsManualCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("in", 1, 64)
		b.create("out", 1, 64)
		b.fill("in", 1, 3)
		p, err := b.log.NewProducer()
		check(t, err)
		for what, commits := range map[string]sdk.ConsumerOption{"by default": sdk.WithSessionTimeout(time.Minute), "as asked": sdk.AutoCommit(time.Hour)} {
			c, err := b.log.NewConsumer(b.ctx, "g-"+what[:2], []string{"in"}, commits)
			check(t, err)
			_, err = c.Poll(b.ctx)
			check(t, err)
			offsets := map[sdk.TopicPartition]sdk.CommitOffset{{Topic: "in"}: {Offset: 2}}
			if err := c.Step(b.ctx, p, offsets, &sdk.Record{Topic: "out"}); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("a step with automatic commits %s: %v", what, err)
			}
			if _, err := c.PrepareCommit(offsets); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("a commit with state with automatic commits %s: %v", what, err)
			}
			check(t, c.Close(b.ctx))
		}
		if got := b.readAll("out"); len(got) != 0 {
			t.Errorf("%d results", len(got))
		}
		check(t, p.Close(b.ctx))
	})
}

func TestStepRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("in", 2, 64)
		b.create("out", 2, 64)
		b.fill("in", 2, 3)
		c, err := b.log.NewConsumer(b.ctx, "g", []string{"in"}, sdk.ManualCommit())
		check(t, err)
		p, err := b.log.NewProducer()
		check(t, err)
		_, err = c.Poll(b.ctx)
		check(t, err)
		result := &sdk.Record{Topic: "out", Value: []byte("x")}
		at := func(partition int, offset int64) map[sdk.TopicPartition]sdk.CommitOffset {
			return map[sdk.TopicPartition]sdk.CommitOffset{{Topic: "in", Partition: partition}: {Offset: offset}}
		}
		check(t, c.Step(b.ctx, p, at(0, 2), result))
		for what, try := range map[string]struct {
			err  error
			step func() error
		}{
			"no offsets":    {sdk.ErrInvalid, func() error { return c.Step(b.ctx, p, nil, result) }},
			"no records":    {sdk.ErrInvalid, func() error { return c.Step(b.ctx, p, at(0, 3)) }},
			"not held":      {sdk.ErrNotHeld, func() error { return c.Step(b.ctx, p, at(7, 3), result) }},
			"backwards":     {sdk.ErrBehind, func() error { return c.Step(b.ctx, p, at(0, 1), result) }},
			"no such topic": {sdk.ErrUnknownTopic, func() error { return c.Step(b.ctx, p, at(0, 3), &sdk.Record{Topic: "nowhere"}) }},
		} {
			if err := try.step(); !errors.Is(err, try.err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		// Another member takes over under the same name: what this one does late is refused, and nothing of it appended.
		_, err = b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", To: sdk.ResetTo{Position: sdk.Earliest}, Force: true})
		check(t, err)
		if err := c.Step(b.ctx, p, at(0, 3), result); !errors.Is(err, sdk.ErrNotHeld) {
			t.Errorf("after a reset: %v", err)
		}
		if got := b.readAll("out"); len(got) != 1 {
			t.Errorf("%d results, want 1", len(got))
		}
		check(t, p.Close(b.ctx))
		check(t, c.Close(b.ctx))
	})
}

// A commit that was applied though nobody knows leaves the member with an offset that the table has not: the step that is refused for it is the last one to be.
func TestStepAfterACommitInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.create("out", 1, 64)
		b.fill("t", 1, 10)
		c := b.joins(sdk.ManualCommit())
		b.takes(c)
		p, err := b.log.NewProducer()
		check(t, err)
		b.faults(nil, func(_ context.Context, call dynamodb.Call) dynamodb.Fault {
			if call.Op == "UpdateItem" {
				return dynamodb.AnswerLost()
			}
			return dynamodb.Fault{}
		})
		if err := c.CommitOffsets(b.ctx, upTo(0, 4)); err == nil {
			t.Error("committed without an answer")
		}
		b.faults(nil, nil)
		result := &sdk.Record{Topic: "out", Value: []byte("x")}
		if err := c.Step(b.ctx, p, upTo(0, 6), result); !errors.Is(err, sdk.ErrNotHeld) {
			t.Errorf("a step from where nothing stands: %v", err)
		}
		time.Sleep(10 * time.Second)
		if got := span(t, b.takes(c)); got != [2]int64{4, 9} {
			t.Errorf("read again %v", got)
		}
		check(t, c.Step(b.ctx, p, upTo(0, 6), result))
		if got := b.readAll("out"); len(got) != 1 {
			t.Errorf("%d results, want 1", len(got))
		}
		check(t, p.Close(b.ctx))
		check(t, c.Close(b.ctx))
	})
}
