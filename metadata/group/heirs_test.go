package group

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// unowned looks four times a second for a while, without taking part, and returns the longest time for which a partition of the topic had no living owner.
// next is called with what each look shows, and says whose sessions live.
func (w *world) unowned(topic *metadata.Topic, d time.Duration, next func(*metadata.GroupState) map[metadata.SessionID]bool) (longest time.Duration) {
	w.Helper()
	since := make([]time.Time, topic.Partitions)
	for end := time.Now().Add(d); time.Now().Before(end); w.settle(250 * time.Millisecond) {
		s, err := w.table.GroupState(w.Context(), "g")
		w.ok(err)
		lives := next(s)
		for p, holder := range holders(topic, leases(s.Lanes)) {
			if since[p].IsZero() || lives[holder] {
				since[p] = time.Now()
			}
			longest = max(longest, time.Since(since[p]))
		}
	}
	return longest
}

// Jobs come, take part and die without a word, one after the other, while one member lives all the time. Whenever they die, be it at the moment that hurts
// most, nothing is without an owner for longer than the time-out of the one that had it, and the heartbeats after which that is seen and
// what it had is taken.
func TestJobsThatDieKeepNothingFromTheLiving(t *testing.T) {
	for what, dies := range map[string]func(beats int, given, holds bool) bool{
		"at once":                   func(int, bool, bool) bool { return true },
		"when proven":               func(beats int, _, _ bool) bool { return beats > 1 },
		"when something is given":   func(_ int, given, holds bool) bool { return given && !holds },
		"when something is held":    func(_ int, _, holds bool) bool { return holds },
		"after a third of its time": func(beats int, _, _ bool) bool { return beats > 3 },
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				topic := w.create("t", 6, 64)
				a, b := w.join(reads("t")), w.join(reads("t"))
				w.settle(4 * heartbeat)
				w.balanced("two", 6, a, b)
				b.kill()
				var jobs []*process
				last, lives, died := time.Now(), 0, 0
				longest := w.unowned(topic, 5*timeout/raceShare, func(s *metadata.GroupState) map[metadata.SessionID]bool {
					living := map[metadata.SessionID]bool{a.session(): true}
					var rest []*process
					for _, j := range jobs {
						given, beats := 0, 0
						for _, at := range s.Plan.Topics {
							for p := range at.Owners {
								if s.Plan.Owns(j.session(), at.ID, p) {
									given++
								}
							}
						}
						for _, m := range s.Members {
							if m.Name == j.Name() {
								beats = int(m.Beat)
							}
						}
						living[j.session()] = true // until now
						if dies(beats, given > 0, len(j.Held()) > 0) {
							j.kill()
							died++
							continue
						}
						rest = append(rest, j)
					}
					if jobs = rest; time.Since(last) > 2*time.Second && len(jobs) < 3 {
						jobs, last = append(jobs, w.join(reads("t"))), time.Now()
						living[jobs[len(jobs)-1].session()] = true
						lives++
					}
					return living
				})
				t.Logf("%d jobs came and %d died; a partition was without owner for %v at most, the time-out being %v", lives, died, longest, timeout)
				if most := timeout + 3*heartbeat; longest > most || died < 4 {
					t.Errorf("a partition was without owner for %v, want %v at most; %d have died", longest, most, died)
				}
				for _, j := range jobs {
					j.leave()
				}
				a.leave()
			})
		})
	}
}

// Members older than the one that lives die one after the other, each at its worst moment: shortly before it would be given what the one before it had. What has
// gone to one that never comes to hold it is given on as soon as that is silent, so that each costs a part of a time-out, not a whole one.
func TestHeirsThatDieBeforeTheyHold(t *testing.T) {
	const heirs = 3
	for _, every := range []time.Duration{timeout/silentAfter + heartbeat, timeout} {
		inWorld(t, func(w *world) {
			topic := w.create("t", 12, 64)
			var older []*process
			for range heirs {
				older = append(older, w.join(reads("t")))
				w.settle(4 * heartbeat)
			}
			owner := w.join(reads("t"))
			w.settle(4 * heartbeat)
			last := w.join(reads("t"))
			w.settle(6 * heartbeat)
			w.balanced("all", 12, append(older, owner, last)...)
			owner.kill()
			died := time.Now()
			lives := map[metadata.SessionID]bool{last.session(): true}
			for _, p := range older {
				lives[p.session()] = true
			}
			left := older
			longest := w.unowned(topic, 4*timeout, func(*metadata.GroupState) map[metadata.SessionID]bool {
				if len(left) > 0 && time.Since(died) > timeout-heartbeat/2+time.Duration(heirs-len(left))*every {
					left[0].kill()
					delete(lives, left[0].session())
					left = left[1:]
				}
				return lives
			})
			t.Logf("%d older ones, one dying every %v: without owner for %v at most, the time-out being %v", heirs, every, longest, timeout)
			if longest > 2*timeout || len(left) > 0 {
				t.Errorf("a partition was without owner for %v; %d older ones live", longest, len(left))
			}
			last.leave()
		})
	}
}

// doomed is the table of a member that dies when it is about to claim something, once somebody else has.
type doomed struct {
	Table
	when *atomic.Bool
	dead atomic.Bool
}

func (t *doomed) SetLeases(ctx context.Context, group string, lane metadata.LaneID, changes []metadata.LeaseChange) (*metadata.GroupLane, error) {
	if t.when.Load() && slices.ContainsFunc(changes, func(c metadata.LeaseChange) bool { return c.To.Held() }) {
		t.dead.Store(true)
		return nil, errDead
	}
	return t.Table.SetLeases(ctx, group, lane, changes)
}

func (t *doomed) Beat(ctx context.Context, group, member string, s metadata.SessionID) error {
	if t.dead.Load() {
		return errDead
	}
	return t.Table.Beat(ctx, group, member, s)
}

func (t *doomed) GroupState(ctx context.Context, group string) (*metadata.GroupState, error) {
	if t.dead.Load() {
		return nil, errDead
	}
	return t.Table.GroupState(ctx, group)
}

func (t *doomed) Watched(ctx context.Context, group string, m *metadata.Member, more time.Duration) error {
	if t.dead.Load() {
		return errDead
	}
	return t.Table.Watched(ctx, group, m, more)
}

// From the first death on everybody but one member dies at the moment in which it would take what the plan gives it, and for each that dies another comes: so whoever is
// to have a partition never does. That one member, be it the eldest or the youngest, comes to have each within the time for which a partition may be without owner.
func TestHoweverManyHeirsDie(t *testing.T) {
	const heirs = 6
	for _, eldest := range []bool{true, false} {
		t.Run(fmt.Sprintf("eldest=%v", eldest), func(t *testing.T) {
			inWorld(t, func(w *world) {
				topic := w.create("t", 16, 64)
				var when atomic.Bool
				var heir []*doomed
				var all []*process
				come := func() {
					d := &doomed{Table: w.table, when: &when}
					p, err := w.joinOn(d, reads("t"), 0)
					w.ok(err)
					heir, all = append(heir, d), append(all, p)
				}
				var well *process
				if eldest {
					well = w.join(reads("t"))
				}
				for range heirs {
					come()
					w.settle(3 * heartbeat)
				}
				owner := w.join(reads("t"))
				w.settle(3 * heartbeat)
				if !eldest {
					well = w.join(reads("t"))
				}
				w.settle(6 * heartbeat)
				w.balanced("all", 16, append(all, owner, well)...)
				when.Store(true)
				owner.kill()
				died := 0
				longest := w.unowned(topic, 9*timeout/4+15*timeout/4/raceShare/raceShare, func(*metadata.GroupState) map[metadata.SessionID]bool {
					lives := map[metadata.SessionID]bool{well.session(): true}
					dead := 0
					for i, d := range heir {
						if d.dead.Load() {
							dead++
						} else {
							lives[all[i].session()] = true
						}
					}
					for ; died < dead; died++ {
						come()
					}
					return lives
				})
				t.Logf("%d died as they would have taken it; a partition was without owner for %v at most, the time-out being %v", died, longest, timeout)
				if longest > 2*timeout || died < heirs {
					t.Errorf("a partition was without owner for %v; %d have died", longest, died)
				}
				for _, p := range all {
					p.kill()
				}
				well.leave()
			})
		})
	}
}

// A static member whose lives end before they hold anything keeps what it had for one of them, not for all.
func TestStaticMemberThatNeverGetsSoFar(t *testing.T) {
	inWorld(t, func(w *world) {
		topic := w.create("t", 4, 64)
		a, b := w.join(named("a", reads("t"))), w.join(named("b", reads("t")))
		w.settle(4 * heartbeat)
		w.balanced("two", 4, a, b)
		b.kill()
		last, lives := time.Now(), 0
		longest := w.unowned(topic, 5*timeout, func(*metadata.GroupState) map[metadata.SessionID]bool {
			if time.Since(last) > timeout/2 {
				w.seed++
				c := named("b", reads("t"))
				c.Group, c.Timeout, c.Refresh = "g", timeout, time.Minute
				_, err := Join(w.Context(), w.table, env.Env{Clock: env.System().Clock, Rand: env.NewRand(w.seed)}, c)
				w.ok(err)
				last = time.Now()
				lives++
			}
			return map[metadata.SessionID]bool{a.session(): true}
		})
		t.Logf("%d lives, %v without owner, the time-out being %v", lives, longest, timeout)
		if longest > 2*timeout {
			t.Errorf("a partition was without owner for %v", longest)
		}
		a.leave()
	})
}

// Jobs that each live for half the time-out, and die without a word: with nobody else there they bury each other, and come to hold everything again and again.
func TestJobsAlone(t *testing.T) {
	for _, life := range []time.Duration{timeout / 2, 7 * timeout / 10, timeout} {
		t.Run(fmt.Sprint(life), func(t *testing.T) {
			inWorld(t, func(w *world) {
				const jobs = 24 / raceShare
				w.create("t", 4, 64)
				held := map[int]int{} // by partition: by how many jobs
				for range jobs {
					j := w.join(reads("t"))
					w.settle(life)
					for _, p := range j.Held() {
						held[p.Partition]++
					}
					j.kill()
				}
				synctest.Wait()
				t.Logf("jobs that held each partition, of %d: %v", jobs, held)
				for p := range 4 {
					if held[p] < jobs/6 {
						t.Errorf("partition %d was held by %d of %d jobs", p, held[p], jobs)
					}
				}
			})
		})
	}
}
