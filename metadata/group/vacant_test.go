package group

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// A member of a long time-out is well though its heartbeats are rare: what is on its way to it is not taken by one of a short time-out.
func TestMembersOfDifferentTimeouts(t *testing.T) {
	inWorld(t, func(w *world) {
		const short, long = 10 * time.Second, 5 * time.Minute
		w.create("t", 8, 64)
		quick, slow := reads("t"), reads("t")
		quick.Timeout, slow.Timeout = short, long
		a := w.join(quick)
		w.settle(short)
		b := w.join(slow)
		w.settle(2 * long)
		w.balanced("two", 8, a, b)
		if a.stopped() != 4 || b.stopped() != 0 {
			t.Errorf("%d and %d partitions stopped, want 4 and 0", a.stopped(), b.stopped())
		}
		a.leave()
		b.leave()
	})
}

// troubled is a member's table that refuses some of its requests.
type troubled struct {
	Table
	claims func() bool // the next is refused
	looks  atomic.Bool // all are
}

func (t *troubled) SetLeases(ctx context.Context, group string, lane metadata.LaneID, changes []metadata.LeaseChange) (*metadata.GroupLane, error) {
	if t.claims() {
		return nil, metadata.ErrThrottled
	}
	return t.Table.SetLeases(ctx, group, lane, changes)
}

func (t *troubled) GroupState(ctx context.Context, group string) (*metadata.GroupState, error) {
	if t.looks.Load() {
		return nil, metadata.ErrThrottled
	}
	return t.Table.GroupState(ctx, group)
}

// While the table takes plans and refuses leases, a partition stays without owner, whoever tries; each member tries for itself, and writes a plan for that, no more than once in
// a third of a time-out. When it is over, so is that.
func TestClaimsThatFail(t *testing.T) {
	for _, refused := range []int64{4, 5} { // of five
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			inWorld(t, func(w *world) {
				const trouble = 9*timeout/4 + 7*timeout/4/raceShare/raceShare
				topic := w.create("t", 32, 8)
				var of, n atomic.Int64
				claims := func() bool { return n.Add(1)%5 < of.Load() }
				var ps []*process
				for range 6 {
					p, err := w.joinOn(&troubled{Table: w.table, claims: claims}, reads("t"), 0)
					w.ok(err)
					ps = append(ps, p)
					w.settle(2 * heartbeat)
				}
				w.settle(6 * heartbeat)
				w.balanced("all", 32, ps...)
				ps[5].kill()
				ps = ps[:5]
				of.Store(refused)
				w.counted()
				lives := map[metadata.SessionID]bool{}
				for _, p := range ps {
					lives[p.session()] = true
				}
				longest := w.unowned(topic, trouble, func(*metadata.GroupState) map[metadata.SessionID]bool { return lives })
				plans := w.counted()["PutPlan"]
				t.Logf("%d plans in %v, %d members; without owner for %v at most", plans, trouble, len(ps), longest)
				if most := len(ps) * (2 + int(trouble/(timeout/overdueAfter))); plans > most || refused < 5 && longest > 2*timeout {
					t.Errorf("want %d plans and %v at most", most, 2*timeout)
				}
				of.Store(0)
				w.settle(timeout)
				w.balanced("afterwards", 32, ps...)
				w.counted()
				w.settle(trouble)
				if calls := w.counted(); calls["PutPlan"]+calls["SetLeases"] > 0 {
					t.Errorf("in a group that is well: %v", calls)
				}
				for _, p := range ps {
					p.leave()
				}
			})
		})
	}
}

// A member that sends heartbeats and cannot look claims nothing of what it is given. The others take that, whenever it is given something for the balance.
func TestMemberThatCannotLook(t *testing.T) {
	inWorld(t, func(w *world) {
		topic := w.create("t", 12, 64)
		var ps []*process
		sick := &troubled{Table: w.table, claims: func() bool { return false }}
		for _, table := range []Table{w.table, sick, w.table} {
			p, err := w.joinOn(table, reads("t"), 0)
			w.ok(err)
			ps = append(ps, p)
			w.settle(2 * heartbeat)
		}
		w.settle(6 * heartbeat)
		w.balanced("all", 12, ps...)
		sick.looks.Store(true)
		ps[0].leave()
		lives := map[metadata.SessionID]bool{ps[1].session(): true, ps[2].session(): true}
		longest := w.unowned(topic, 5*timeout, func(*metadata.GroupState) map[metadata.SessionID]bool { return lives })
		t.Logf("without owner for %v at most", longest)
		if longest > timeout {
			t.Errorf("a partition was without owner for %v", longest)
		}
		sick.looks.Store(false)
		w.settle(timeout)
		w.balanced("afterwards", 12, ps[1:]...)
		ps[1].leave()
		ps[2].leave()
	})
}

// Static members that are older than the one that lives crash as they start, one after the other, so that it never knows of all of them whether they live. That
// keeps it from a plan for what others have left, not from taking what is overdue.
func TestEldersThatAreAlwaysInDoubt(t *testing.T) {
	inWorld(t, func(w *world) {
		const statics = 7
		topic := w.create("t", 8, 64)
		elder := func(i int) Config { return named(fmt.Sprint("elder-", i%statics), reads("t")) }
		var dead []*process
		for i := range statics {
			dead = append(dead, w.join(elder(i)))
			w.settle(heartbeat)
		}
		dead = append(dead, w.join(reads("t")))
		w.settle(6 * heartbeat)
		w.balanced("all", 8, dead...)
		for _, p := range dead {
			p.kill()
		}
		well := w.join(reads("t"))
		w.settle(heartbeat / 2)
		s, err := w.table.GroupState(w.Context(), "g")
		w.ok(err)
		for i := range s.Members {
			for _, p := range dead[1:statics] {
				if s.Members[i].Name == p.Name() {
					w.ok(w.table.Bury(w.Context(), "g", &s.Members[i])) // by one that knew them for longer
				}
			}
		}
		lives, came := 0, time.Now()
		longest := w.unowned(topic, 5*timeout, func(*metadata.GroupState) map[metadata.SessionID]bool {
			if time.Since(came) > timeout/silentAfter-heartbeat {
				lives++
				came = time.Now()
				w.seed++
				c := elder(lives)
				c.Group, c.Timeout, c.Refresh = "g", timeout, time.Minute
				_, err := Join(w.Context(), w.table, env.Env{Clock: env.System().Clock, Rand: env.NewRand(w.seed)}, c)
				w.ok(err)
			}
			return map[metadata.SessionID]bool{well.session(): true}
		})
		t.Logf("%d lives, %v without owner at most, the time-out being %v", lives, longest, timeout)
		if longest > 2*timeout {
			t.Errorf("a partition was without owner for %v", longest)
		}
		well.leave()
	})
}
