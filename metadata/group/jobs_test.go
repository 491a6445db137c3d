package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
)

// Jobs live for much less than the time-out, one after the other, behind one that died without a word and held everything. However they end, they come to
// hold each partition, not before the time-out is over; and what the dead leave behind does not grow without end.
func TestJobsOfAFractionOfTheTimeout(t *testing.T) {
	for _, c := range []struct {
		life  time.Duration
		lives int
	}{{timeout / 5, 24 / raceShare}, {timeout / 20, 30 + 50/raceShare/raceShare}} {
		for how, ends := range map[string]func(*process){
			"leave":  (*process).leave,
			"vanish": (*process).kill,
			"either": func(p *process) {
				if p.w.seed%2 == 0 {
					p.leave()
				} else {
					p.kill()
				}
			},
		} {
			t.Run(fmt.Sprintf("%v, %s", c.life, how), func(t *testing.T) {
				inWorld(t, func(w *world) {
					died, first := w.deadOwner(4), time.Duration(0)
					held, rows := map[int]int{}, 0
					for range c.lives {
						j := w.join(reads("t"))
						w.settle(c.life)
						for _, p := range j.Held() {
							held[p.Partition]++
						}
						if first == 0 && len(held) > 0 {
							first = time.Since(died)
						}
						ends(j)
						rows = max(rows, len(w.members()))
					}
					t.Logf("jobs that held each partition, of %d: %v; the first %v after the death, the time-out being %v; %d rows at most", c.lives, held, first, timeout, rows)
					if first < timeout-heartbeat || len(held) < 4 || rows > 30 {
						t.Errorf("want all four held, none before the time-out, and 30 rows at most")
					}
				})
			})
		}
	}
}

// deadOwner leaves a member that held all partitions of a topic and died without a word, and says when.
func (w *world) deadOwner(partitions int) time.Time {
	w.Helper()
	w.create("t", partitions, 64)
	dead := w.join(reads("t"))
	w.settle(2 * heartbeat)
	w.balanced("the first", partitions, dead)
	dead.kill()
	return time.Now()
}

// members is the rows of members.
func (w *world) members() []metadata.Member {
	w.Helper()
	s, err := w.table.GroupState(w.Context(), "g")
	w.ok(err)
	return s.Members
}

// The same, where every fourth job ends at one of its requests to the table, which may have been applied, and the others vanish when their time is over.
func TestJobsThatDieAtAnyRequest(t *testing.T) {
	for _, c := range []struct {
		life  time.Duration
		lives int
	}{{timeout / 5, 100 / raceShare}, {timeout / 20, 70 + 30/raceShare}} {
		life, lives := c.life, c.lives
		t.Run(fmt.Sprint(life), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.deadOwner(4)
				chance := rand.New(rand.NewPCG(1, uint64(life)))
				held, cut := map[int]int{}, 0
				for n := range lives {
					m, began := &mortal{Table: w.table, left: 1 << 20, applied: chance.IntN(2) == 0}, time.Now()
					if n%4 == 0 {
						m.left = 1 + chance.IntN(20)
					}
					w.plays(m, life, held)
					if m.left <= 0 {
						cut++
					}
					w.settle(time.Until(began.Add(life)))
				}
				t.Logf("jobs that held each partition, of %d, of which %d died at a request: %v; %d rows are left", lives, cut, held, len(w.members()))
				if len(held) < 4 || cut < lives/5 {
					t.Errorf("want all four held")
				}
			})
		})
	}
}

// Jobs that leave when they have looked once bury the dead together all the same.
func TestJobsThatLookOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		died := w.deadOwner(4)
		for held := 0; held < 4; {
			j := w.join(reads("t"))
			w.settle(timeout / 100)
			held = len(j.Held())
			j.leave()
			if since := time.Since(died); since > timeout+heartbeat || held > 0 && since < timeout {
				t.Fatalf("%v after the death a job holds %d partitions", since, held)
			}
		}
	})
}

// A job that joins and ends before it has looked at the group once has seen nothing, and leaves nothing but its row, if it does not leave; what others have watched
// stands.
func TestJobsThatSeeNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.deadOwner(4)
		first := w.join(reads("t"))
		w.settle(timeout / 2)
		first.leave()
		c := reads("t")
		c.Group, c.Timeout, c.Refresh = "g", timeout, time.Minute
		for range 5 {
			w.seed++
			j, err := Join(w.Context(), w.table, env.Env{Clock: env.System().Clock, Rand: env.NewRand(w.seed)}, c)
			w.ok(err)
			w.settle(time.Second)
			w.ok(j.Leave(w.Context()))
		}
		if rows := w.members(); len(rows) != 1 || rows[0].Quiet != timeout/2 {
			t.Errorf("after half a time-out of watching, and jobs that looked at nothing: %+v", rows)
		}
		last := w.join(reads("t"))
		w.settle(timeout/2 + heartbeat)
		w.balanced("the last", 4, last)
		last.leave()
	})
}

// A job that has buried the owner, and cannot say of one that came before itself whether that lives, leaves the plan to others, also as it leaves.
func TestWhoLeavesDoesNotGiveToTheDoubtful(t *testing.T) {
	inWorld(t, func(w *world) {
		w.deadOwner(4)
		owner := w.members()[0]
		doubtful := w.join(reads("t"))
		w.settle(time.Millisecond)
		doubtful.kill()
		w.ok(w.table.Watched(w.Context(), "g", &owner, timeout))
		job := w.join(reads("t"))
		w.settle(time.Millisecond)
		job.leave()
		s, err := w.table.GroupState(w.Context(), "g")
		w.ok(err)
		if len(s.Members) != 1 || !s.Plan.Lives(doubtful.session()) {
			t.Fatalf("members %+v, plan %+v", s.Members, s.Plan)
		}
		for _, topic := range s.Plan.Topics {
			for p := range topic.Owners {
				if s.Plan.Owns(doubtful.session(), topic.ID, p) {
					t.Errorf("partition %d is given to one that may be dead", p)
				}
			}
		}
	})
}

// A static member that closes keeps its row, and writes down what it has watched all the same.
func TestStaticJobsBuryTheDead(t *testing.T) {
	inWorld(t, func(w *world) {
		died := w.deadOwner(4)
		for held := 0; held < 4; {
			j := w.join(named("job", reads("t")))
			w.settle(timeout / 20)
			held = len(j.Held())
			j.kill()
			w.ok(j.Pause(w.Context()))
			if since := time.Since(died); since > 3*timeout/2 || held > 0 && since < timeout {
				t.Fatalf("%v after the death a job holds %d partitions", since, held)
			}
		}
	})
}

// A member whose heartbeats come as seldom as they may is never buried, however many jobs come, watch it, and leave or die. What they write of its silence is
// never more than that was, though requests and answers take time, and monotonic clocks stand still.
func TestNotesAreNeverMoreThanTheSilence(t *testing.T) {
	for seed := range uint64(1 + 1/raceShare) {
		inWorld(t, func(w *world) {
			w.create("t", 4, 64)
			c := reads("t")
			c.Group, c.Timeout, c.Refresh, c.Name = "g", timeout, time.Minute, "slow"
			slow, err := Join(w.Context(), w.table, env.Env{Clock: env.System().Clock, Rand: env.NewRand(1000 + seed)}, c)
			w.ok(err)
			session, beats := slow.session(), time.Now()
			c.Name = ""
			chance := rand.New(rand.NewPCG(seed, 0))
			jobs, over := make(chan bool), time.Now().Add(12*timeout/raceShare)
			const atOnce = 3
			for n := range uint64(atOnce) {
				chance := rand.New(rand.NewPCG(seed, 1+n))
				go func() {
					defer func() { jobs <- true }()
					for time.Now().Before(over) {
						j, err := Join(w.Context(), &slowTable{w.table, chance}, env.Env{Clock: &stopping{Clock: env.System().Clock, chance: chance}, Rand: env.NewRand(chance.Uint64())}, c)
						if err != nil {
							t.Error(err)
							return
						}
						for looks := chance.IntN(12); looks > 0; looks-- {
							j.Tick(w.Context()) // conflicts are as good
							time.Sleep(time.Duration(chance.Int64N(int64(heartbeat))))
						}
						if chance.IntN(2) == 0 {
							j.Leave(w.Context())
						}
					}
				}()
			}
			most, late := time.Duration(0), func() time.Duration { return time.Duration(chance.Int64N(int64(timeout) * 97 / 100)) }
			for next := late(); time.Now().Before(over); w.settle(200 * time.Millisecond) {
				if time.Since(beats) >= next {
					beats, next = time.Now(), late()
					w.ok(w.table.Beat(w.Context(), "g", "slow", session))
				}
				m, err := w.table.Member(w.Context(), "g", "slow")
				w.ok(err)
				if silence := time.Since(beats); m.Session != session || m.Quiet > silence {
					t.Fatalf("seed %d: session %s, silent for %v by its row and for %v in truth", seed, m.Session, m.Quiet, silence)
				}
				most = max(most, m.Quiet)
			}
			for range atOnce {
				<-jobs
			}
			t.Logf("seed %d: of silences of up to %v, %v was written down at most", seed, timeout*97/100, most)
			if most < timeout/10 {
				t.Error("hardly anything was written down")
			}
		})
	}
}

// slowTable is a table whose answers about the group are under way for long, there and back.
type slowTable struct {
	*dynamo.Table
	chance *rand.Rand
}

func (s *slowTable) GroupState(ctx context.Context, group string) (*metadata.GroupState, error) {
	travel := func() { time.Sleep(time.Duration(s.chance.Int64N(int64(2 * heartbeat)))) }
	travel()
	defer travel()
	return s.Table.GroupState(ctx, group)
}

// stopping is a clock whose monotonic time now and then has stood still, as where a machine sleeps.
type stopping struct {
	env.Clock
	chance *rand.Rand
	last   time.Duration // that it showed
	stood  time.Duration
}

func (s *stopping) Mono() time.Duration {
	now := s.Clock.Mono() - s.stood
	if s.chance.IntN(10) == 0 {
		s.stood, now = s.stood+now-s.last, s.last
	}
	s.last = now
	return now
}

// A program that crashed as it started, a thousand times, leaves more rows than a plan can hold. Who comes is told so, and has buried them after a time-out.
func TestMoreDeadThanAPlanCanHold(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 4, 64)
		for n := range metadata.MaxMembers {
			w.ok(w.table.Join(w.Context(), "g", &metadata.Member{Name: fmt.Sprint("dead-", n), Session: metadata.SessionID(fmt.Sprintf("%016d", n)),
				Timeout: timeout, Topics: []string{"t"}}, ""))
		}
		c := reads("t")
		c.Group, c.Timeout, c.Refresh = "g", timeout, time.Minute
		m, err := Join(w.Context(), w.table, env.Env{Clock: env.System().Clock, Rand: env.NewRand(1)}, c)
		w.ok(err)
		_, err = m.Tick(w.Context())
		var refused *metadata.FieldError
		if !errors.As(err, &refused) || refused.Field != "members of the group" {
			t.Errorf("among a thousand dead: %v", err)
		}
		w.settle(timeout + time.Second)
		change, err := m.Tick(w.Context())
		w.ok(err)
		if rows := w.members(); len(change.Assigned) != 4 || len(rows) != 1 {
			t.Errorf("a time-out later it holds %d partitions, among %d rows", len(change.Assigned), len(rows))
		}
	})
}

// Members that live write nothing about each other: one that has come, at most a little about each of those that were there, and nothing from then on.
func TestNobodyWritesAboutTheLiving(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("t", 12, 64)
		var ps []*process
		for n := range 6 {
			ps = append(ps, w.join(reads("t")))
			w.settle(3*heartbeat + heartbeat/7)
			w.mu.Lock()
			notes := w.calls["Watched"]
			clear(w.calls)
			w.mu.Unlock()
			if notes > 3*n {
				t.Errorf("the member that came to %d others has written %d notes", n, notes)
			}
		}
		const d = 6 * time.Minute / raceShare
		w.settle(d)
		w.mu.Lock()
		defer w.mu.Unlock()
		most := len(ps) * int(d/heartbeat+1)
		t.Logf("6 members, %v: %v", d, w.calls)
		if w.calls["Beat"] > most || w.calls["GroupState"] > most || w.calls["Topic"] > int(d/time.Minute)*len(ps) || len(w.calls) != 3 {
			t.Errorf("6 members in %v: %v", d, w.calls)
		}
	})
}

// plays is one life of a job, until it dies at a request or is as old as it becomes. It counts what it holds.
func (w *world) plays(m *mortal, life time.Duration, held map[int]int) {
	w.seed++
	began := time.Now()
	c := reads("t")
	c.Group, c.Timeout, c.Refresh = "g", timeout, time.Minute
	j, err := Join(w.Context(), m, env.Env{Clock: env.System().Clock, Rand: env.NewRand(w.seed)}, c)
	for look := (*Member).Tick; m.left > 0 && time.Since(began) < life; look = (*Member).Look {
		w.ok(err)
		var change Change
		if change, err = look(j, w.Context()); errors.Is(err, metadata.ErrChanged) {
			err = nil
		}
		for _, a := range change.Assigned {
			held[a.Partition.Partition]++
		}
		w.settle(heartbeat / 4)
	}
}

// mortal is the table as a process reaches it that dies at one of its requests.
type mortal struct {
	*dynamo.Table
	left    int // requests before that
	applied bool
}

var errDead = fmt.Errorf("%w: the process is dead", metadata.ErrUnavailable)

func (m *mortal) request(do func() error) error {
	if m.left--; m.left < 0 || m.left == 0 && !m.applied {
		return errDead
	}
	err := do()
	if m.left == 0 {
		return errDead
	}
	return err
}

func (m *mortal) PutGroup(ctx context.Context, g *metadata.Group) error {
	return m.request(func() error { return m.Table.PutGroup(ctx, g) })
}

func (m *mortal) Join(ctx context.Context, group string, r *metadata.Member, before metadata.SessionID) error {
	return m.request(func() error { return m.Table.Join(ctx, group, r, before) })
}

func (m *mortal) Member(ctx context.Context, group, name string) (r *metadata.Member, err error) {
	return r, m.request(func() error { r, err = m.Table.Member(ctx, group, name); return err })
}

func (m *mortal) Beat(ctx context.Context, group, member string, s metadata.SessionID) error {
	return m.request(func() error { return m.Table.Beat(ctx, group, member, s) })
}

func (m *mortal) GroupState(ctx context.Context, group string) (s *metadata.GroupState, err error) {
	err = m.request(func() error { s, err = m.Table.GroupState(ctx, group); return err })
	return s, err
}

func (m *mortal) Topic(ctx context.Context, name string) (r *metadata.Topic, err error) {
	err = m.request(func() error { r, err = m.Table.Topic(ctx, name); return err })
	return r, err
}

func (m *mortal) Watched(ctx context.Context, group string, r *metadata.Member, d time.Duration) error {
	return m.request(func() error { return m.Table.Watched(ctx, group, r, d) })
}

func (m *mortal) Bury(ctx context.Context, group string, r *metadata.Member) error {
	return m.request(func() error { return m.Table.Bury(ctx, group, r) })
}

func (m *mortal) PutPlan(ctx context.Context, group string, p *metadata.Plan) error {
	return m.request(func() error { return m.Table.PutPlan(ctx, group, p) })
}

func (m *mortal) SetLeases(ctx context.Context, group string, l metadata.LaneID, c []metadata.LeaseChange) (image *metadata.GroupLane, err error) {
	err = m.request(func() error { image, err = m.Table.SetLeases(ctx, group, l, c); return err })
	return image, err
}
