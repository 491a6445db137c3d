package sdk_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// eater is a member that polls until it is stopped, and remembers all that it was given.
type eater struct {
	*sdk.Consumer
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	got  map[sdk.TopicPartition][]int64
	errs []error
}

func eat(t *testing.T, log *sdk.Log, group string, topics []string, opts ...sdk.ConsumerOption) *eater {
	t.Helper()
	return eatFrom(t, reach(t, log, nil), group, topics, opts...)
}

func eatFrom(t *testing.T, log *sdk.Log, group string, topics []string, opts ...sdk.ConsumerOption) *eater {
	t.Helper()
	c, err := log.NewConsumer(t.Context(), group, topics, opts...)
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	e := &eater{Consumer: c, stop: stop, done: make(chan struct{}), got: map[sdk.TopicPartition][]int64{}}
	go func() {
		defer close(e.done)
		for {
			fetches, err := c.Poll(ctx)
			e.mu.Lock()
			for _, f := range fetches {
				for _, r := range f.Records {
					tp := sdk.TopicPartition{Topic: f.Topic, Partition: f.Partition}
					e.got[tp] = append(e.got[tp], r.Offset)
				}
			}
			if err != nil && ctx.Err() == nil {
				e.errs = append(e.errs, err)
			}
			e.mu.Unlock()
			if ctx.Err() != nil || errors.Is(err, sdk.ErrClosed) || errors.Is(err, sdk.ErrFenced) {
				return
			}
		}
	}()
	return e
}

// close ends the member in good order.
func (e *eater) close(t *testing.T) {
	t.Helper()
	e.stop()
	<-e.done
	check(t, e.Close(context.Background()))
	for _, err := range e.errs {
		t.Error(err)
	}
}

func (e *eater) offsets() map[sdk.TopicPartition][]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[sdk.TopicPartition][]int64{}
	for tp, o := range e.got {
		out[tp] = slices.Clone(o)
	}
	return out
}

// fill writes n records to each partition of a topic.
func (b *bench) fill(topic string, partitions, n int) {
	b.t.Helper()
	parts := map[int][][]segment.Record{}
	for p := range partitions {
		parts[p] = [][]segment.Record{numbers(0, n)}
	}
	b.write(topic, parts)
}

// Two members share a topic; one leaves, one dies; together they see every record, and the one who goes on sees none that was committed.
func TestConsumersShareATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 6, 64)
		b.fill("t", 6, 10)
		a := eat(t, b.log, "g", []string{"t"})
		time.Sleep(10 * time.Second)
		if got := a.offsets(); len(got) != 6 {
			t.Fatalf("the only member has read %v", got)
		}
		two := eat(t, b.log, "g", []string{"t"})
		time.Sleep(20 * time.Second)
		if n, m := len(a.Assignment()), len(two.Assignment()); n != 3 || m != 3 {
			t.Fatalf("they have %d and %d of 6 partitions", n, m)
		}
		b.fill("t", 6, 10)
		time.Sleep(10 * time.Second)
		two.close(t)
		b.fill("t", 6, 10)
		time.Sleep(20 * time.Second)
		a.close(t)
		for p := range 6 {
			tp := sdk.TopicPartition{Topic: "t", Partition: p}
			all := append(a.offsets()[tp], two.offsets()[tp]...)
			slices.Sort(all)
			if len(all) != 30 || all[29] != 29 || len(slices.Compact(all)) != 30 {
				t.Errorf("%v: %v and %v", tp, a.offsets()[tp], two.offsets()[tp])
			}
		}
	})
}

// what a Poll returned is not committed before the next one.
func TestX05_WhatWasNotFinishedComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		for life := range 3 {
			c, err := reach(t, b.log, nil).NewConsumer(t.Context(), "g", []string{"t"}, sdk.WithInstanceID("only"))
			check(t, err)
			fetches, err := c.Poll(t.Context())
			check(t, err)
			if n := len(fetches[0].Records); n != 10 || fetches[0].Records[0].Offset != 0 {
				t.Fatalf("life %d begins with %d records from %d on", life, n, fetches[0].Records[0].Offset)
			}
			time.Sleep(time.Minute) // many commits
			check(t, c.Close(t.Context()))
		}
		c, err := reach(t, b.log, nil).NewConsumer(t.Context(), "g", []string{"t"}, sdk.WithInstanceID("only"), sdk.Reading(sdk.WithWait(time.Second)))
		check(t, err)
		_, err = c.Poll(t.Context())
		check(t, err)
		_, err = c.Poll(t.Context())
		check(t, err)
		check(t, c.Close(t.Context()))
		c, err = reach(t, b.log, nil).NewConsumer(t.Context(), "g", []string{"t"}, sdk.WithInstanceID("only"), sdk.Reading(sdk.WithWait(5*time.Second)))
		check(t, err)
		if fetches, err := c.Poll(t.Context()); err != nil || len(fetches) != 0 {
			t.Errorf("after it was finished: %v, %v", fetches, err)
		}
		check(t, c.Close(t.Context()))
	})
}

func TestConsumerRefuses(t *testing.T) {
	b := newBench(t)
	for what, opts := range map[string][]sdk.ConsumerOption{
		"time-out":   {sdk.WithSessionTimeout(time.Millisecond)},
		"start":      {sdk.StartAt(sdk.AtOffset(3))},
		"instance":   {sdk.WithInstanceID("a/b")},
		"pattern":    {sdk.SubscribePattern("(")},
		"refresh":    {sdk.WithTopicRefresh(0)},
		"revoke":     {sdk.WithRevokeTimeout(0)},
		"commit":     {sdk.AutoCommit(-1)},
		"stop":       {sdk.Reading(sdk.To(sdk.Latest))},
		"poll bytes": {sdk.Reading(sdk.WithPollBytes(0))},
	} {
		if _, err := reach(t, b.log, nil).NewConsumer(t.Context(), "g", []string{"t"}, opts...); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// BR-46 for groups: names outside the set are refused by every call before anything is written, and every name within it is a group of its own.
func TestBR46_GroupNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, len(goodNames))
		admin := b.log.Admin()
		for _, group := range badNames {
			_, consumes := reach(t, b.log, nil).NewConsumer(b.ctx, group, []string{"t"})
			_, described := admin.DescribeGroup(b.ctx, group, sdk.Earliest)
			_, reset := admin.ResetGroup(b.ctx, sdk.GroupReset{Group: group})
			for _, err := range []error{consumes, described, reset, admin.DeleteGroup(b.ctx, group, false)} {
				if !errors.Is(err, sdk.ErrInvalid) {
					t.Errorf("%q: %v", group, err)
				}
			}
		}
		if all, err := admin.ListGroups(b.ctx); err != nil || len(all) > 0 {
			t.Errorf("%v, %v", all, err)
		}
		for i, group := range goodNames {
			c, err := reach(t, b.log, nil).NewConsumer(b.ctx, group, []string{"t"}, sdk.ManualCommit(), sdk.Reading(sdk.WithWait(time.Second)))
			check(t, err)
			b.takes(c)
			check(t, c.CommitOffsets(b.ctx, map[sdk.TopicPartition]sdk.CommitOffset{tp("t", 0): {Offset: int64(i)}}))
			check(t, c.Close(b.ctx))
		}
		for i, group := range goodNames {
			if p := b.describe(group, sdk.Earliest).Partitions[0]; p.Committed != int64(i) {
				t.Errorf("%s: committed %d, want %d", group, p.Committed, i)
			}
		}
		if all, err := admin.ListGroups(b.ctx); err != nil || !slices.Equal(all, slices.Sorted(slices.Values(goodNames))) {
			t.Errorf("%v, %v", all, err)
		}
	})
}
