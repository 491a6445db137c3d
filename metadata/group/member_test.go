package group

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/metadata/topics"
)

// Members come and go, in good order and without a word. Each time only what must move stops.
func TestMembersShare(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 12, 4)
		a := w.join(reads("t"))
		w.settle(heartbeat)
		w.balanced("alone", 12, a)

		b := w.join(reads("t"))
		w.settle(4 * heartbeat)
		w.balanced("two", 12, a, b)
		if a.stopped() != 6 || b.stopped() != 0 {
			t.Errorf("%d and %d partitions stopped for the second member, want 6 and 0", a.stopped(), b.stopped())
		}

		c := w.join(reads("t"))
		w.settle(4 * heartbeat)
		w.balanced("three", 12, a, b, c)
		if a.stopped()+b.stopped() != 10 || c.stopped() != 0 {
			t.Errorf("%d and %d partitions stopped in all, want 10", a.stopped(), b.stopped())
		}

		b.leave()
		w.settle(3 * heartbeat)
		w.balanced("one left", 12, a, c)

		c.kill()
		w.settle(timeout + 3*heartbeat)
		w.balanced("one was killed", 12, a)
		if a.stopped() != 6+2 {
			t.Errorf("%d partitions of the member that stayed have stopped, want 8", a.stopped())
		}
		a.leave()
		s, err := w.table.GroupState(w.Context(), "g")
		w.ok(err)
		if len(s.Members) != 0 || len(s.Plan.Members) != 0 {
			t.Errorf("after all have left: %+v", s)
		}
	})
}

func TestMoreMembersThanPartitions(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 4, 64)
		var ps []*process
		for range 10 {
			ps = append(ps, w.join(reads("t")))
		}
		w.settle(10 * heartbeat)
		w.balanced("ten members", 4, ps...)
		for _, p := range ps {
			p.leave()
		}
	})
}

// A static member that starts again within its time-out has its partitions at once, and nobody else notices. Its earlier life is told, for good.
func TestStaticMemberStartsAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 8, 64)
		a, b := w.join(named("a", reads("t"))), w.join(named("b", reads("t")))
		w.settle(4 * heartbeat)
		w.balanced("two", 8, a, b)
		before, stopped := describe(b.Held()), a.stopped()
		b.kill()
		w.settle(timeout / 2)
		again := w.join(named("b", reads("t")))
		w.settle(heartbeat)
		if got := describe(again.Held()); got != before || a.stopped() != stopped {
			t.Errorf("held%s, after the restart%s; %d partitions of the other stopped", before, got, a.stopped()-stopped)
		}
		clone := w.join(named("b", reads("t")))
		w.settle(2 * heartbeat)
		<-again.done
		if !errors.Is(again.err, metadata.ErrFenced) || len(again.Held()) != 0 {
			t.Errorf("a second start under the same name: %v, still held%s", again.err, describe(again.Held()))
		}
		w.balanced("after the second start", 8, a, clone)
		a.leave()
		clone.leave()
	})
}

// A member that stood still for an hour and a half finds itself buried, has lost everything, and joins again. It may not deliver from half its time-out on.
func TestFrozenMember(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 6, 64)
		a, b := w.join(reads("t")), w.join(reads("t"))
		w.settle(4 * heartbeat)
		w.balanced("two", 6, a, b)
		held, stopped := b.Held(), b.stopped()
		lease := b.held[held[0]].lease
		b.freeze()
		w.settle(timeout/2 - heartbeat)
		if !b.MayDeliver() {
			t.Error("not allowed to deliver though half the time-out is not over")
		}
		w.settle(2 * heartbeat)
		if b.MayDeliver() {
			t.Error("allowed to deliver after half the time-out without a heartbeat")
		}
		w.settle(90 * time.Minute / raceShare)
		w.balanced("the other took over", 6, a)
		_, err := b.Commit(w.Context(), []Offset{{Partition: held[0], Lease: lease, Offset: 7}})
		var refused *PartitionError
		if !errors.Is(err, ErrNotHeld) || !errors.As(err, &refused) || refused.Partition != held[0] {
			t.Errorf("a commit for what another has taken over: %v", err)
		}
		b.thaw()
		w.settle(6 * heartbeat)
		w.balanced("it is back", 6, a, b)
		if lost := b.stopped() - stopped; lost != 3 {
			t.Errorf("%d partitions were reported lost, want 3", lost)
		}
		a.leave()
		b.leave()
	})
}

// Members whose wall clocks are minutes apart: nobody compares them.
func TestSkewedClocks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 6, 64)
		a := w.join(reads("t"))
		b, err := w.tryJoin(reads("t"), 20*time.Minute)
		w.ok(err)
		c, err := w.tryJoin(reads("t"), -20*time.Minute)
		w.ok(err)
		w.settle(10 * heartbeat)
		w.balanced("three", 6, a, b, c)
		stops := a.stopped() + b.stopped() + c.stopped()
		w.settle(10 * time.Minute)
		if now := a.stopped() + b.stopped() + c.stopped(); now != stops {
			t.Errorf("%d partitions stopped in ten minutes in which nothing happened", now-stops)
		}
		a.kill()
		w.settle(timeout + 6*heartbeat) // the eldest has it first, and gives of it when it is seen to hold it
		w.balanced("one was killed", 6, b, c)
		b.leave()
		c.leave()
	})
}

// BR-26 and short-lived members: nobody lives as long as the time-out, one member died without a word, and yet its partitions are taken over, after
// the time-out and not before.
func TestBR26_ShortLivedMembersBuryTheDead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 4, 64)
		dead := w.join(reads("t"))
		w.settle(2 * heartbeat)
		dead.kill()
		died := time.Now()
		for lives := 1; ; lives++ {
			p := w.join(reads("t"))
			w.settle(timeout / 2)
			if n := len(p.Held()); n == 4 {
				if since := time.Since(died); since < timeout || lives < 2 {
					t.Errorf("the dead one's partitions were taken after %v, by life %d", since, lives)
				}
				p.leave()
				return
			}
			if n := len(p.Held()); n > 2 || time.Since(died) > 4*timeout {
				t.Fatalf("life %d, %v after the death: holds %d", lives, time.Since(died), n)
			}
			p.leave()
		}
	})
}

// Growth, new topics that match a pattern, and topics that go are noticed while running.
func TestTopicsChange(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("orders-eu", 4, 64)
		w.create("other", 4, 64)
		a, b := w.join(Config{Pattern: "orders-.*"}), w.join(Config{Pattern: "orders-.*"})
		w.settle(4 * heartbeat)
		w.balanced("one topic", 4, a, b)
		w.create("orders-us", 5, 64)
		w.settle(time.Minute + 4*heartbeat)
		w.balanced("two topics", 9, a, b)
		_, err := w.keeper.Alter(w.Context(), "orders-eu", topics.Change{Partitions: 7})
		w.ok(err)
		w.settle(time.Minute + 4*heartbeat)
		w.balanced("grown", 12, a, b)
		w.ok(w.keeper.Delete(w.Context(), "orders-us"))
		w.create("orders-us", 3, 64)
		w.settle(time.Minute + 4*heartbeat)
		w.balanced("deleted and created again", 10, a, b)
		w.ok(w.keeper.Delete(w.Context(), "orders-us"))
		w.settle(time.Minute + 4*heartbeat)
		w.balanced("deleted", 7, a, b)
		a.leave()
		b.leave()
	})
}

// Commits: fenced by leases, never backwards, one update for all the partitions of a lane, and what is refused does not hold up the rest.
func TestCommit(t *testing.T) {
	inWorld(t, func(w *world) {
		topic := w.create("t", 8, 4)
		a := w.join(reads("t"))
		w.settle(heartbeat)
		var offsets []Offset
		for i, p := range a.Held() {
			offsets = append(offsets, Offset{p, a.held[p].lease, int64(10 + i), "note"})
		}
		w.calls = map[string]int{}
		done, err := a.Commit(w.Context(), offsets)
		w.ok(err)
		if w.calls["CommitOffsets"] != 2 || len(done) != 8 {
			t.Errorf("%v for 8 partitions of two lanes, %d committed", w.calls, len(done))
		}
		offsets[3].Offset, offsets[4].Offset = 2, 50
		done, err = a.Commit(w.Context(), offsets)
		var refused *PartitionError
		if len(done) != 7 || !errors.Is(err, ErrBehind) || !errors.As(err, &refused) || refused.Partition != offsets[3].Partition {
			t.Errorf("an offset that goes back: %v", err)
		}
		for p, want := range []int64{10, 11, 12, 13, 50, 15, 16, 17} {
			at := topic.Place(p)
			lane, err := w.table.GroupLane(w.Context(), "g", at.Lane)
			w.ok(err)
			if got := lane.Slots[at.Slot].Offset; got != want {
				t.Errorf("partition %d: committed %d, want %d", p, got, want)
			}
		}
		if _, err := a.Commit(w.Context(), []Offset{{Partition: Partition{Topic: "t", Partition: 9}}}); !errors.Is(err, ErrNotHeld) {
			t.Errorf("a partition that is not there: %v", err)
		}
		a.leave()
		b := w.join(reads("t"))
		w.settle(heartbeat)
		w.balanced("the next", 8, b)
		for _, h := range b.held {
			if h.committed < 10 {
				t.Errorf("the next member starts at %d", h.committed)
			}
		}
		b.leave()
	})
}

func TestJoinRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		for what, c := range map[string]Config{
			"name":     named("a/b", reads("t")),
			"topics":   {},
			"pattern":  {Pattern: "("},
			"brackets": {Pattern: "a)|(b"},
			"time-out": {Topics: []string{"t"}, Timeout: time.Millisecond},
			"refresh":  {Topics: []string{"t"}, Refresh: -1},
		} {
			if _, err := w.tryJoin(c, 0); !errors.Is(err, metadata.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
			if groups, _, err := w.table.Groups(w.Context(), "", 10); err != nil || len(groups) > 0 {
				t.Errorf("%s has left a group: %v, %v", what, groups, err)
			}
		}
	})
}

// BR-26: a row that is past its time to live but still there, for the service may take days, is no member: it stands for one time-out, like any that does not move.
func TestBR26_RowPastItsTimeToLive(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 4, 64)
		dead := w.join(reads("t"))
		w.settle(2 * heartbeat)
		dead.kill()
		w.settle(40 * 24 * time.Hour)
		s, err := w.table.GroupState(w.Context(), "g")
		w.ok(err)
		if len(s.Members) != 1 {
			t.Fatalf("the row of the dead member is gone already: %+v", s.Members)
		}
		p := w.join(reads("t"))
		joined := time.Now()
		for len(p.Held()) < 4 && time.Since(joined) < 3*timeout {
			w.settle(time.Second)
		}
		took := time.Since(joined)
		t.Logf("the new member holds all 4 partitions %v after it joined; the time-out is %v", took, timeout)
		if took > timeout+2*heartbeat {
			t.Error("too late")
		}
		p.leave()
	})
}

// BR-26: a wall clock that steps back, and a monotonic one that stands while the machine sleeps, do not lengthen a member's belief: the worse of the two counts.
func TestBR26_ClockStepsBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 1, 64)
		for _, step := range []time.Duration{-time.Hour, -time.Second} {
			a := w.join(reads("t"))
			w.settle(2 * heartbeat)
			a.kill() // no more heartbeats
			a.clock.skew += step
			w.settle(timeout/2 - heartbeat - time.Second)
			if !a.MayDeliver() {
				t.Error("not allowed to deliver, though half the time-out is not over")
			}
			w.settle(heartbeat + 2*time.Second)
			if a.MayDeliver() {
				t.Errorf("allowed to deliver after half the time-out, because the wall clock stepped by %v", step)
			}
		}
		a := w.join(reads("t"))
		w.settle(2 * heartbeat)
		a.kill()
		a.clock.skew += timeout / 2 // the machine slept: only the wall clock has gone on
		if a.MayDeliver() {
			t.Error("allowed to deliver after a sleep that only the wall clock shows")
		}
	})
}

// A commit names the lease under which it read: by another, though it is the same member's, it is refused.
func TestCommitNamesItsLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 1, 64)
		a := w.join(reads("t"))
		w.settle(heartbeat)
		p := a.Held()[0]
		lease := a.held[p].lease
		s, err := w.table.GroupState(w.Context(), "g")
		w.ok(err)
		_, err = w.table.ResetOffsets(w.Context(), "g", s.Lanes[0].Lane, time.Now(), []metadata.OffsetReset{{From: s.Lanes[0].Slots[0], Offset: 3}})
		w.ok(err)
		w.settle(2 * heartbeat)
		if !a.holds(p) || a.Holds(p, lease) {
			t.Fatal("the partition is not held anew")
		}
		old := []Offset{{Partition: p, Lease: lease, Offset: 9}}
		_, err = a.Commit(w.Context(), old)
		if !errors.Is(err, ErrNotHeld) {
			t.Errorf("commit: %v", err)
		}
		if _, err := a.Moves(old); !errors.Is(err, ErrNotHeld) {
			t.Errorf("moves: %v", err)
		}
		if err := a.CommitAtomic(w.Context(), old); !errors.Is(err, ErrNotHeld) {
			t.Errorf("commit in a transaction: %v", err)
		}
		a.Doubt(old)
		if !a.holds(p) {
			t.Error("doubt about the old lease has given up the new one")
		}
		// A transaction that moves nothing forward could be applied twice.
		now := []Offset{{Partition: p, Lease: a.held[p].lease, Offset: 3}}
		if _, err := a.Moves(now); !errors.Is(err, ErrBehind) {
			t.Errorf("moves to where it is: %v", err)
		}
		a.leave()
	})
}

// A Join of which every answer is lost, though one of its attempts was applied, is settled by reading the row; one that was overtaken is made again.
func TestJoinIsSettledByTheRow(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 2, 64)
		errLost := fmt.Errorf("%w: answer lost", metadata.ErrUnavailable)
		join := func(do func(put func() error) error) error {
			w.seed++
			c := named("a", reads("t"))
			c.Group, c.Timeout, c.Refresh = "g", timeout, time.Minute
			_, err := Join(w.Context(), &joinTable{Table: w.table, do: do}, env.Env{Clock: env.System().Clock, Rand: env.NewRand(w.seed)}, c)
			return err
		}
		w.ok(join(func(put func() error) error { return errors.Join(put(), errLost) }))
		if err := join(func(func() error) error { return errLost }); !errors.Is(err, metadata.ErrUnavailable) {
			t.Errorf("a join that was never applied: %v", err)
		}
		first, err := w.table.Member(w.Context(), "g", "a")
		w.ok(err)
		tries := 0
		w.ok(join(func(put func() error) error {
			if tries++; tries == 2 { // the first has found that there is one; another start comes before the second
				w.ok(w.table.Join(w.Context(), "g", &metadata.Member{Name: "a", Session: "0123456789abcdef", Timeout: timeout, Topics: []string{"t"}}, first.Session))
			}
			return put()
		}))
		if last, err := w.table.Member(w.Context(), "g", "a"); err != nil || tries != 3 || last.Session == first.Session || last.Session == "0123456789abcdef" {
			t.Errorf("after %d tries: %+v, %v", tries, last, err)
		}
	})
}

// A member that was judged dead joins again, and nothing tells whether it did: it goes on either way, and is fenced only by another that came meanwhile.
func TestJoinAgainOfUnknownOutcome(t *testing.T) {
	errLost := fmt.Errorf("%w: answer lost", metadata.ErrUnavailable)
	other := &metadata.Member{Name: "a", Session: "0123456789abcdef", Timeout: timeout, Topics: []string{"t"}}
	for name, c := range map[string]struct {
		do   func(w *world, put func() error) error
		want error
	}{
		"applied":     {func(_ *world, put func() error) error { return errors.Join(put(), errLost) }, nil},
		"not applied": {func(*world, func() error) error { return errLost }, nil},
		"another came": {func(w *world, _ func() error) error {
			return errors.Join(w.table.Join(w.Context(), "g", other, ""), errLost)
		}, metadata.ErrFenced},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.create("t", 2, 64)
				config := named("a", reads("t"))
				config.Group, config.Timeout, config.Refresh = "g", timeout, time.Minute
				table := &joinTable{Table: w.table, do: func(put func() error) error { return put() }}
				m, err := Join(w.Context(), table, env.Env{Clock: env.System().Clock, Rand: env.NewRand(1)}, config)
				w.ok(err)
				row, err := w.table.Member(w.Context(), "g", "a")
				w.ok(err)
				w.ok(w.table.Bury(w.Context(), "g", row))
				table.do, table.blind = func(put func() error) error { return c.do(w, put) }, errLost
				if _, err := m.Tick(w.Context()); !errors.Is(err, metadata.ErrUnavailable) {
					t.Errorf("the heartbeat that joins again: %v", err)
				}
				table.do, table.blind = func(put func() error) error { return put() }, nil
				if _, err := m.Tick(w.Context()); !errors.Is(err, c.want) {
					t.Errorf("the next one: %v, want %v", err, c.want)
				}
				if row, err := w.table.Member(w.Context(), "g", "a"); err != nil || (row.Session == m.session()) != (c.want == nil) {
					t.Errorf("the row is %+v, %v", row, err)
				}
			})
		})
	}
}

// joinTable lets a test come between a Join and its row, and keep the row from being read.
type joinTable struct {
	*dynamo.Table
	do    func(put func() error) error
	blind error
}

func (t *joinTable) Member(ctx context.Context, group, name string) (*metadata.Member, error) {
	if t.blind != nil {
		return nil, t.blind
	}
	return t.Table.Member(ctx, group, name)
}

func (t *joinTable) Join(ctx context.Context, group string, m *metadata.Member, before metadata.SessionID) error {
	return t.do(func() error { return t.Table.Join(ctx, group, m, before) })
}
