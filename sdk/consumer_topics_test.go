package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// told is what a member was told, in order: "gone t", and for each partition "+t/0", "-t/0", "!t/0".
type told struct {
	mu   sync.Mutex
	what []string
}

func (w *told) note(sign string) func(context.Context, []sdk.TopicPartition) {
	return func(_ context.Context, all []sdk.TopicPartition) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range all {
			w.what = append(w.what, sign+p.String())
		}
	}
}

func (w *told) OnTopicGone(e sdk.TopicGoneEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what = append(w.what, fmt.Sprintf("gone %s, anew %v, left %d", e.Topic, e.Anew, e.Left))
}

func (w *told) options() []sdk.ConsumerOption {
	return []sdk.ConsumerOption{sdk.OnRevoked(w.note("-")), sdk.OnLost(w.note("!")), sdk.OnAssigned(func(ctx context.Context, all []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
		w.note("+")(ctx, all)
		return nil
	})}
}

// take returns what was told since the last take.
func (w *told) take() (what []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what, w.what = w.what, nil
	return what
}

// told makes a member of group g in a process of its own that remembers what it was told.
func (b *bench) told(topics []string, opts ...sdk.ConsumerOption) (*eater, *told) {
	b.t.Helper()
	w := &told{}
	log, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(b.memory), sdk.WithHooks(w))
	check(b.t, err)
	return eatFrom(b.t.(*testing.T), reach(b.t, log, w), "g", topics, append(w.options(), opts...)...), w
}

// soon is the longest that it takes until what has become of topics is read: a look, a heartbeat of who is to read it, by a plan that another may have made, and the
// first read.
const soon = (10 + 3 + 1) * time.Second

// A topic that is deleted leaves the subscription of each member, which is told once; what was held of it is lost once, and the others go on everywhere.
func TestTopicGoneLeavesTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.create("u", 2, 64)
		var members []*eater
		var tolds []*told
		for range 5 { // one holds nothing
			e, w := b.told([]string{"t", "u"})
			members, tolds = append(members, e), append(tolds, w)
		}
		time.Sleep(20 * time.Second)
		held := map[string]bool{}
		for i, w := range tolds {
			w.take()
			for _, p := range members[i].Assignment() {
				held[p.String()] = true
			}
		}
		if len(held) != 4 {
			t.Fatalf("held: %v", held)
		}
		check(t, b.log.Admin().DeleteTopic(b.ctx, "t"))
		read := func() (n int) {
			for p := range 2 {
				seen := map[int64]bool{}
				for _, e := range members {
					for _, o := range e.offsets()[tp("u", p)] {
						seen[o] = true
					}
				}
				n += len(seen)
			}
			return n
		}
		for i := range 25 {
			b.fill("u", 2, 1)
			time.Sleep(time.Second)
			if behind := 2*(i+1) - read(); behind > 2*6 {
				t.Fatalf("after %d s, %d records of the other topic are not read", i, behind)
			}
		}
		var all []string
		for i, w := range tolds {
			what := w.take()
			if n := len(what); n == 0 || what[0] != "gone t, anew false, left 1" || n > 1 && slices.Contains(what[1:], what[0]) {
				t.Errorf("member %d was told %v", i, what)
			}
			all = append(all, what...)
		}
		for p := range 2 {
			at := tp("t", p).String()
			if lost := len(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s != "!"+at })); lost != 1 || slices.Contains(all, "-"+at) {
				t.Errorf("%s was lost %d times: %v", at, lost, all)
			}
		}
		for _, e := range members {
			e.close(t)
		}
	})
}

// When the last topic goes, a member that has subscribed by name gets a typed error, once, and one with a pattern waits in silence. Both read the topic that is
// created anew from its start, also under Latest.
func TestLastTopicGone(t *testing.T) {
	for what, c := range map[string]struct {
		topics []string
		opts   []sdk.ConsumerOption
		errs   int
	}{"by name": {[]string{"t", "none", "t"}, nil, 1}, "by pattern": {nil, []sdk.ConsumerOption{sdk.SubscribePattern("t|t[0-9]")}, 0}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.create("t", 2, 64)
				e, w := b.told(c.topics, append(c.opts, sdk.StartAt(sdk.Latest))...)
				time.Sleep(time.Minute)
				check(t, b.log.Admin().DeleteTopic(b.ctx, "t"))
				time.Sleep(time.Minute)
				errs := e.errors()
				e.setErrors(nil)
				var none *sdk.TopicsGoneError
				if len(errs) != c.errs || c.errs > 0 && (!errors.As(errs[0], &none) || !errors.Is(errs[0], sdk.ErrTopicGone) || !slices.Equal(none.Topics, []string{"none", "t"})) {
					t.Errorf("errors %v", errs)
				}
				if what := w.take(); !slices.Equal(what, []string{"+t/0", "+t/1", "gone t, anew false, left 0", "!t/0", "!t/1"}) {
					t.Errorf("told %v", what)
				}
				b.create("t", 2, 64)
				b.fill("t", 2, 5)
				time.Sleep(soon)
				for p := range 2 {
					if got := span(t, e.offsets()[tp("t", p)]); got != [2]int64{0, 4} {
						t.Errorf("of the new topic read %v", got)
					}
				}
				e.close(t)
			})
		})
	}
}

// A topic that was deleted and created anew, at once or a little later, is read within the refresh interval, from its start; and what was committed for the old one
// says nothing of it.
func TestTopicCreatedAnewIsReadSoon(t *testing.T) {
	for _, gap := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 2, 64)
			b.create("u", 2, 64)
			b.fill("t", 2, 10)
			a, wa := b.told([]string{"t", "u"}, sdk.StartAt(sdk.Latest))
			c, wc := b.told([]string{"u", "t"}, sdk.StartAt(sdk.Latest))
			time.Sleep(10 * time.Second)
			check(t, b.log.Admin().DeleteTopic(b.ctx, "t"))
			time.Sleep(gap)
			b.create("t", 2, 64)
			b.fill("t", 2, 5)
			time.Sleep(soon)
			for p := range 2 {
				all := append(a.offsets()[tp("t", p)], c.offsets()[tp("t", p)]...)
				if got := span(t, all); got != [2]int64{0, 4} {
					t.Errorf("created anew after %v: read %v", gap, got)
				}
			}
			time.Sleep(10 * time.Second)
			for _, p := range b.describe("g", sdk.Earliest).Partitions {
				if p.Topic == "t" && (p.Committed != 5 || p.Lag != 0) {
					t.Errorf("%+v", p)
				}
			}
			for _, w := range []*told{wa, wc} {
				what := w.take()
				if n := len(slices.DeleteFunc(slices.Clone(what), func(s string) bool { return s[:4] != "gone" })); n != 1 {
					t.Errorf("gap %v: told %v", gap, what)
				}
			}
			a.close(t)
			c.close(t)
		})
	}
}

// A growing topic is noticed within the refresh interval too.
func TestGrowthIsNoticedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		e, _ := b.told([]string{"t"})
		time.Sleep(time.Minute)
		_, err := b.log.Admin().AlterTopic(b.ctx, "t", sdk.Alteration{Partitions: 3})
		check(t, err)
		time.Sleep(soon)
		if n := len(e.Assignment()); n != 3 {
			t.Errorf("%d partitions are read", n)
		}
		e.close(t)
	})
}

// What is said of a group while a topic of it is gone, and while the plan does not have the new one, is so.
func TestDescribeGroupWhoseTopicIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.create("u", 1, 64)
		b.fill("t", 2, 7)
		e, _ := b.told([]string{"t"})
		only := eat(t, b.open(), "p", nil, sdk.SubscribePattern("t"))
		once(t, b.log, "left", []string{"t"})
		time.Sleep(time.Minute)
		idle := func(d *sdk.GroupDescription) string { return d.Members[0].Idle }
		if d := b.describe("g", sdk.Earliest); len(d.Gone)+len(d.New) > 0 || idle(d) != "" {
			t.Errorf("before: %+v", d)
		}
		check(t, b.log.Admin().DeleteTopic(b.ctx, "t"))
		for _, group := range []string{"g", "p", "left"} {
			d := b.describe(group, sdk.Earliest)
			if !slices.Equal(d.Gone, []string{"t"}) || len(d.New)+len(d.Partitions) > 0 || group != "left" && idle(d) != "no topic that it reads is there; it reads those that are created" {
				t.Errorf("%s, while the topic is gone: %+v", group, d)
			}
		}
		time.Sleep(8 * time.Second) // the plan is made without it
		if d := b.describe("g", sdk.Earliest); !slices.Equal(d.Gone, []string{"t"}) || len(d.New)+len(d.Partitions) > 0 {
			t.Errorf("after that: %+v", d)
		}
		b.create("t", 2, 64)
		b.fill("t", 2, 3)
		for _, group := range []string{"g", "p"} {
			d := b.describe(group, sdk.Earliest)
			if len(d.Gone) > 0 || !slices.Equal(d.New, []string{"t"}) || len(d.Partitions) != 2 ||
				idle(d) != `topic "t", as it is now, was created or grown since the plan was made; the next look of a member at the topics makes one` {
				t.Errorf("%s, created anew: %+v", group, d)
			}
			for _, p := range d.Partitions {
				if p.Committed != -1 || p.Lag != 3 || p.Owner != "" {
					t.Errorf("%s: %+v", group, p)
				}
			}
		}
		if d := b.describe("left", sdk.Earliest); len(d.Gone)+len(d.New)+len(d.Partitions) > 0 {
			t.Errorf("a group without members has nothing to do with the new topic: %+v", d)
		}
		time.Sleep(soon)
		if d := b.describe("g", sdk.Earliest); len(d.Gone)+len(d.New) > 0 || len(d.Partitions) != 2 || idle(d) != "" {
			t.Errorf("planned: %+v", d)
		}
		e.setErrors(nil) // that no topic was left
		e.close(t)
		only.close(t)
	})
}

// A topic that is deleted while a group is described does not make it fail.
func TestTopicGoneWhileDescribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.create("u", 1, 64)
		b.fill("u", 1, 1)
		once(t, b.log, "g", []string{"t", "u"})
		var deleted atomic.Bool
		b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Op == "Query" && c.Keys[0].Partition == "TOPIC" && deleted.CompareAndSwap(false, true) {
				return dynamodb.Fault{Hold: func(context.Context) { check(t, b.log.Admin().DeleteTopic(b.ctx, "t")) }}
			}
			return dynamodb.Fault{}
		})
		if d := b.describe("g", sdk.Earliest); !slices.Equal(d.Gone, []string{"t"}) || len(d.Partitions) != 1 || d.Partitions[0].Topic != "u" {
			t.Errorf("%+v", d)
		}
	})
}
