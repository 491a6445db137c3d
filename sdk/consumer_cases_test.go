package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// stall lets no heartbeat of these members through, as if their processes stood still; without names all go through again.
func (b *bench) stall(names ...string) {
	b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		for _, name := range names {
			if c.Op == "UpdateItem" && c.Keys[0].Sort == "M#"+name && bytes.Contains(c.Body, []byte("ADD ")) { // not what observers note there
				return dynamodb.Dropped()
			}
		}
		return dynamodb.Fault{}
	})
}

// joins makes a member that waits a second for records.
func (b *bench) joins(opts ...sdk.ConsumerOption) *sdk.Consumer {
	b.t.Helper()
	c, err := reach(b.t, b.open(), nil).NewConsumer(b.ctx, "g", []string{"t"}, append([]sdk.ConsumerOption{sdk.Reading(sdk.WithWait(time.Second))}, opts...)...)
	check(b.t, err)
	return c
}

// takes polls until there is nothing for a second, and returns what there was of partition 0. Errors but those of an outage are the test's.
func (b *bench) takes(c *sdk.Consumer) (offsets []int64) {
	b.t.Helper()
	for {
		fetches, err := c.Poll(b.ctx)
		if err != nil && !errors.Is(err, sdk.ErrUnreachable) {
			b.t.Fatal(err)
		}
		if err == nil && len(fetches) == 0 {
			return offsets
		}
		for _, f := range fetches {
			for _, r := range f.Records {
				if f.Partition == 0 {
					offsets = append(offsets, r.Offset)
				}
			}
		}
	}
}

func upTo(partition int, offset int64) map[sdk.TopicPartition]sdk.CommitOffset {
	return map[sdk.TopicPartition]sdk.CommitOffset{tp("t", partition): {Offset: offset}}
}

// span is the first and the last of offsets, which must have no gap.
func span(t *testing.T, offsets []int64) [2]int64 {
	t.Helper()
	for i, o := range offsets {
		if o != offsets[0]+int64(i) {
			t.Fatalf("offsets %v", offsets)
		}
	}
	if len(offsets) == 0 {
		return [2]int64{-1, -1}
	}
	return [2]int64{offsets[0], offsets[len(offsets)-1]}
}

// BR-23: what a member has read before it lost a partition is not committed when the partition is back, whichever way it tries.
func TestBR23_CommittedOffsetNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 100)
		a := b.joins(sdk.WithInstanceID("a"), sdk.ManualCommit())
		if got := span(t, b.takes(a)); got != [2]int64{0, 99} {
			t.Fatalf("a has read %v", got)
		}
		b.stall("a")
		other := b.joins(sdk.ManualCommit())
		time.Sleep(time.Minute)
		b.fill("t", 1, 400)
		if got := span(t, b.takes(other)); got != [2]int64{0, 499} {
			t.Fatalf("the other has read %v", got)
		}
		check(t, other.Commit(b.ctx))
		for what, commit := range map[string]func() error{
			"offsets":    func() error { return a.CommitOffsets(b.ctx, upTo(0, 100)) },
			"everything": func() error { return a.Commit(b.ctx) },
			"at once":    func() error { return a.CommitAtomic(b.ctx, upTo(0, 100)) },
		} {
			if err := commit(); err != nil && !errors.Is(err, sdk.ErrNotHeld) || err == nil && what != "everything" {
				t.Errorf("%s, while it is the other's: %v", what, err)
			}
		}
		b.stall()
		check(t, other.Close(b.ctx))
		time.Sleep(time.Minute)
		if err := a.Commit(b.ctx); err != nil && !errors.Is(err, sdk.ErrNotHeld) { // of what was read before, Poll knows nothing yet
			t.Error(err)
		}
		if got := b.takes(a); len(got) != 0 {
			t.Errorf("back again, a has read %v", span(t, got))
		}
		for _, o := range []int64{100, 499} {
			if err := a.CommitOffsets(b.ctx, upTo(0, o)); !errors.Is(err, sdk.ErrBehind) {
				t.Errorf("%d after 500: %v", o, err)
			}
		}
		b.fill("t", 1, 1)
		if got := span(t, b.takes(a)); got != [2]int64{500, 500} {
			t.Errorf("back again, a goes on with %v", got)
		}
		if err := a.CommitOffsets(b.ctx, upTo(7, 1)); !errors.Is(err, sdk.ErrNotHeld) {
			t.Errorf("for a partition that it has not: %v", err)
		}
		if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != 500 {
			t.Errorf("committed %d", p.Committed)
		}
		check(t, a.Close(b.ctx))
	})
}

// A forced reset is not undone by what its members have read before, although the same heartbeat that shows them the loss has claimed the partition anew.
func TestResetIsNotUndoneByWhatWasRead(t *testing.T) {
	for _, auto := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 1, 64)
			b.fill("t", 1, 10)
			commits := sdk.ManualCommit()
			if auto {
				commits = sdk.AutoCommit(time.Second)
			}
			c := b.joins(commits)
			b.takes(c)
			b.fill("t", 1, 10)
			if fetches, err := c.Poll(b.ctx); err != nil || len(fetches) != 1 {
				t.Fatal(fetches, err)
			}
			c.Poll(b.ctx) // which finishes them
			_, err := b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", Force: true, To: sdk.ResetTo{Position: sdk.AtOffset(3)}})
			check(t, err)
			time.Sleep(time.Minute) // claimed anew, and Poll not called
			if err := c.Commit(b.ctx); err != nil && !errors.Is(err, sdk.ErrNotHeld) {
				t.Error(err)
			}
			if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != 3 {
				t.Fatalf("automatic %v: committed %d after a reset to 3", auto, p.Committed)
			}
			if got := span(t, b.takes(c)); got != [2]int64{3, 19} {
				t.Errorf("automatic %v: after the reset it has read %v", auto, got)
			}
			check(t, c.Close(b.ctx))
		})
	}
}

// BR-24: a member that stood still commits nothing and delivers nothing of what it has lost, and begins with what is committed when it has it back.
func TestBR24_Zombie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		a := b.joins(sdk.WithInstanceID("a"), sdk.ManualCommit(), sdk.Reading(sdk.WithPollBytes(1)))
		fetches, err := a.Poll(b.ctx)
		for err == nil && len(fetches) == 0 {
			fetches, err = a.Poll(b.ctx)
		}
		check(t, err)
		if n := len(fetches[0].Records); n != 1 {
			t.Fatalf("%d records in the first poll, the other 9 were to be buffered", n)
		}
		before, err := a.Epoch(tp("t", 0))
		check(t, err)
		b.stall("a")
		other := b.joins(sdk.ManualCommit())
		time.Sleep(time.Minute)
		if got := span(t, b.takes(other)); got != [2]int64{0, 9} {
			t.Fatalf("the other has read %v", got)
		}
		check(t, other.Commit(b.ctx))
		after, err := other.Epoch(tp("t", 0))
		check(t, err)
		if after <= before {
			t.Errorf("epoch %d of the zombie, %d of its successor", before, after)
		}
		// It wakes. The commit shows it the loss; a poll gives nothing, before a heartbeat has got through and after.
		b.faults(nil, nil)
		if err := a.CommitOffsets(b.ctx, upTo(0, 1)); !errors.Is(err, sdk.ErrNotHeld) {
			t.Errorf("the zombie's commit: %v", err)
		}
		if _, err := a.Epoch(tp("t", 0)); !errors.Is(err, sdk.ErrNotHeld) {
			t.Errorf("the zombie's epoch, once it has learnt: %v", err)
		}
		for range 20 {
			if fetches, err := a.Poll(b.ctx); len(fetches) != 0 || err != nil && !errors.Is(err, sdk.ErrUnreachable) {
				t.Fatalf("the zombie was given %v, %v", fetches, err)
			}
		}
		check(t, other.Close(b.ctx))
		b.fill("t", 1, 5)
		time.Sleep(10 * time.Second)
		if got := span(t, b.takes(a)); got != [2]int64{10, 14} {
			t.Errorf("when it was back: %v", got)
		}
		if again, err := a.Epoch(tp("t", 0)); err != nil || again <= after {
			t.Errorf("epoch %d after %d: %v", again, after, err)
		}
		check(t, a.Close(b.ctx))
	})
}

// A loss that a commit shows is known at once: nothing more is delivered, though no heartbeat has told.
func TestNothingIsDeliveredAfterARefusedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		c := b.joins(sdk.ManualCommit(), sdk.Reading(sdk.WithPollBytes(1), sdk.WithWait(0)), sdk.WithSessionTimeout(time.Hour))
		var got []int64
		for len(got) < 3 {
			time.Sleep(10 * time.Millisecond)
			fetches, err := c.Poll(b.ctx)
			check(t, err)
			for _, f := range fetches {
				got = append(got, f.Records[0].Offset)
			}
		}
		_, err := b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", Force: true, To: sdk.ResetTo{Position: sdk.Earliest}})
		check(t, err)
		if err := c.Commit(b.ctx); !errors.Is(err, sdk.ErrNotHeld) {
			t.Fatal(err)
		}
		for range 20 {
			if fetches, err := c.Poll(b.ctx); len(fetches) > 0 || err != nil {
				t.Fatalf("delivered %v (%v) after it was lost", fetches, err)
			}
			time.Sleep(time.Second)
		}
		check(t, c.Close(b.ctx))
	})
}

// BR-25: a member that stops in good order has committed, and its successor has the partitions at its next tick, not after a time-out.
func TestBR25_CleanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 4, 64)
		b.fill("t", 4, 10)
		a := eat(t, b.log, "g", []string{"t"})
		time.Sleep(10 * time.Second)
		other := eat(t, b.open(), "g", []string{"t"})
		time.Sleep(20 * time.Second)
		b.fill("t", 4, 10)
		time.Sleep(time.Second)
		a.close(t)
		stopped := time.Now()
		for len(other.Assignment()) < 4 {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(stopped)
		t.Logf("the successor had the partitions after %v; heartbeats are 3s apart, the session time-out is 30s", took)
		if took > 3500*time.Millisecond {
			t.Error("too late")
		}
		time.Sleep(10 * time.Second)
		other.close(t)
		for p := range 4 {
			all := slices.Sorted(slices.Values(append(a.offsets()[tp("t", p)], other.offsets()[tp("t", p)]...)))
			if got := span(t, all); got != [2]int64{0, 19} {
				t.Errorf("partition %d: read %v", p, got)
			}
		}
	})
}

// skewed is a wall clock that is off.
type skewed struct {
	env.Clock
	by time.Duration
}

func (s skewed) Now() time.Time { return s.Clock.Now().Add(s.by) }

func (b *bench) openAt(skew time.Duration) *sdk.Log {
	e := env.System()
	e.Clock = skewed{e.Clock, skew}
	log, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(b.memory), sdk.WithEnv(e))
	check(b.t, err)
	return log
}

// BR-26: wall clocks that are fast or slow neither take from the living nor wait for the dead.
func TestBR26_Clocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 6, 64)
		b.fill("t", 6, 1)
		const lease = 20 * time.Second
		session := sdk.WithSessionTimeout(lease)
		a := eat(t, b.log, "g", []string{"t"}, session, sdk.WithInstanceID("a"))
		time.Sleep(10 * time.Second)
		fast := eat(t, b.openAt(30*time.Second), "g", []string{"t"}, session)
		slow := eat(t, b.openAt(-time.Minute), "g", []string{"t"}, session)
		time.Sleep(time.Minute)
		generation := b.describe("g", sdk.Earliest).Generation
		time.Sleep(20 * time.Minute / raceShare / raceHalf)
		if d := b.describe("g", sdk.Earliest); d.Generation != generation || len(a.Assignment()) != 2 {
			t.Errorf("generation %d, then %d: somebody took from a member that lives; it has %v", generation, d.Generation, a.Assignment())
		}
		fast.close(t)
		time.Sleep(10 * time.Second)
		a.errs = nil
		b.stall("a")
		died := time.Now()
		for len(slow.Assignment()) < 6 {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(died)
		t.Logf("the slow one took over %v after the last heartbeat could get through, the lease is %v", took, lease)
		if took < lease-lease/10 || took > 2*lease {
			t.Error("too early or too late")
		}
		b.stall()
		time.Sleep(time.Minute)
		a.errs = nil // of the outage
		a.close(t)
		slow.close(t)
	})
}

// BR-27: after a topic was deleted and created again the group reads the new one from its start, also under Latest; nothing of the old life is committed for it.
func TestBR27_GroupReadsTheNewTopic(t *testing.T) {
	for _, start := range []sdk.Position{sdk.Earliest, sdk.Latest} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 1, 64)
			b.create("u", 1, 64)
			e, w := b.told([]string{"t", "u"}, sdk.StartAt(start), sdk.AutoCommit(time.Second))
			time.Sleep(10 * time.Second)
			b.fill("t", 1, 10)
			b.fill("u", 1, 10)
			time.Sleep(10 * time.Second)
			check(t, b.log.Admin().DeleteTopic(b.ctx, "t"))
			b.create("t", 1, 64)
			b.fill("t", 1, 5)
			check(t, ignore(e.CommitOffsets(b.ctx, upTo(0, 10)), sdk.ErrNotHeld)) // from the old life: its own lane's
			time.Sleep(2 * time.Minute)
			if got := e.offsets()[tp("t", 0)]; len(got) != 15 || span(t, got[10:]) != [2]int64{0, 4} {
				t.Errorf("start %v: read %v", start, got)
			}
			d := b.describe("g", sdk.Earliest)
			for _, p := range d.Partitions {
				if p.Topic == "t" && (p.Committed != 5 || p.Lag != 0 || p.End != 5) {
					t.Errorf("start %v: %+v", start, p)
				}
			}
			b.fill("u", 1, 1)
			time.Sleep(10 * time.Second)
			if got := e.offsets()[tp("u", 0)]; len(got) != 11 {
				t.Errorf("start %v: of the other topic read %v", start, got)
			}
			if what := w.take(); !slices.Equal(what, []string{"+t/0", "+u/0", "gone t, anew true, left 2", "!t/0", "+t/0"}) {
				t.Errorf("told %v", what)
			}
			e.close(t)
		})
	}
}

func ignore(err error, known ...error) error {
	for _, k := range known {
		if errors.Is(err, k) {
			return nil
		}
	}
	return err
}

// BR-28: what comes into new partitions, and into new topics of a pattern, before the group has noticed them is delivered, also under Latest.
func TestBR28_GroupReadsNewPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 1)
		b.fill("t", 2, 10)
		e := eat(t, b.log, "g", nil, sdk.SubscribePattern("t|u"), sdk.StartAt(sdk.Latest), sdk.WithTopicRefresh(time.Minute))
		time.Sleep(10 * time.Second)
		grown, err := b.log.Admin().AlterTopic(b.ctx, "t", sdk.Alteration{Partitions: 4})
		check(t, err)
		if grown.Lanes != 4 {
			t.Fatalf("lanes %v", grown.Lanes)
		}
		b.topics["t"], err = b.backend.Table.Topic(b.ctx, "t")
		check(t, err)
		b.write("t", one(3, numbers(0, 3)))
		b.create("u", 1, 64)
		b.fill("u", 1, 3)
		time.Sleep(10 * time.Second)
		if got := e.offsets(); len(got) != 0 {
			t.Fatalf("noticed too early for this test: %v", got)
		}
		time.Sleep(2 * time.Minute)
		got := e.offsets()
		if len(got) != 2 || span(t, got[tp("t", 3)]) != [2]int64{0, 2} || span(t, got[tp("u", 0)]) != [2]int64{0, 2} {
			t.Errorf("read %v, want 0 to 2 of t/3 and of u/0", got)
		}
		e.close(t)
	})
}

// BR-30: a handler of one partition that is blocked for ten lease periods stalls neither the other partition nor the membership.
func TestBR30_OneSlowPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 10)
		var seen handled
		blocked := make(chan struct{})
		handler := func(ctx context.Context, r *sdk.Record) error {
			if r.Partition == 0 && r.Offset == 3 {
				select {
				case <-blocked:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			seen.note(r)
			return nil
		}
		stop, other := handle(b, handler), handle(b, handler)
		time.Sleep(time.Minute)
		first := b.describe("g", sdk.Earliest)
		for range 10 {
			b.fill("t", 2, 10)
			time.Sleep(30 * time.Second)
		}
		d := b.describe("g", sdk.Earliest)
		if d.Generation != first.Generation || d.Partitions[0].Owner != first.Partitions[0].Owner || d.Partitions[1].Owner != first.Partitions[1].Owner {
			t.Errorf("after ten lease periods generation %d, before %d; owners %v, before %v", d.Generation, first.Generation, d.Partitions, first.Partitions)
		}
		if d.Partitions[0].Committed != 3 || d.Partitions[1].Committed != 110 {
			t.Errorf("committed %d and %d, want 3 and 110", d.Partitions[0].Committed, d.Partitions[1].Committed)
		}
		close(blocked)
		time.Sleep(20 * time.Second)
		if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != 110 {
			t.Errorf("committed %d once it goes on", p.Committed)
		}
		var order []string
		for _, s := range seen.list() {
			if s[:4] == "t/0@" {
				order = append(order, s)
			}
		}
		for i, s := range order[len(order)-107:] {
			if s != fmt.Sprint("t/0@", 3+i) {
				t.Fatalf("order %v", order)
			}
		}
		stop()
		other()
	})
}

// BR-31: groups do not expire. One whose topic is quiet keeps its place, with a member that lives and without any.
func TestBR31_IdleGroupKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		const month = 30 * 24 * time.Hour
		once(t, b.log, "g", []string{"t"})
		c := b.joins(sdk.WithSessionTimeout(24*time.Hour), sdk.ManualCommit(), sdk.WithTopicRefresh(24*time.Hour)) // it holds the lease, and looks for nothing
		is := func(when string, members int) {
			t.Helper()
			d := b.describe("g", sdk.Earliest)
			if p := d.Partitions[0]; p.Committed != 10 || p.Lag != 0 || len(d.Members) != members {
				t.Errorf("%s: %+v, %d members", when, p, len(d.Members))
			}
		}
		time.Sleep(month)
		is("a month with a member", 1)
		check(t, c.Close(b.ctx))
		time.Sleep(month)
		is("a month without", 0)
		b.fill("t", 1, 2)
		c = b.joins(sdk.StartAt(sdk.StartFail))
		if got := span(t, b.takes(c)); got != [2]int64{10, 11} {
			t.Errorf("goes on with %v", got)
		}
		check(t, c.Close(b.ctx))
		// Only a deletion ends it, and then a start says so instead of applying a policy.
		check(t, b.log.Admin().DeleteGroup(b.ctx, "g", false))
		c = b.joins(sdk.StartAt(sdk.StartFail))
		var err error
		for range 5 {
			if _, e := c.Poll(b.ctx); e != nil {
				err = e
			}
		}
		if !errors.Is(err, sdk.ErrNoCommit) {
			t.Errorf("after the deletion: %v", err)
		}
		check(t, c.Close(b.ctx))
	})
}
