package sim

import (
	"context"
	"testing"
	"time"

	"github.com/varvelog/varve/sdk"
)

// part is an actor for a test.
type part struct{ play, prove func(*World) }

func (p part) Play(w *World)  { p.play(w) }
func (p part) Prove(w *World) { p.prove(w) }

// peace is a world without trouble, with one topic and one actor.
func peace(play func(*World)) Scenario {
	return Scenario{Topics: []sdk.NewTopic{{Name: "orders", Partitions: 1}}, Cast: func() []Actor {
		return []Actor{part{play, func(*World) {}}}
	}}
}

func holds(t *testing.T, w *World) {
	for _, v := range w.Violations() {
		t.Error(v.What)
	}
}

// A suspended process does nothing for hours and does not see them go by, except by its wall clock; another one of its world does. Thawed, it
// goes on with what it was about.
func TestFreezeAndThaw(t *testing.T) {
	for name, suspended := range map[string]bool{"frozen": false, "suspended": true} {
		t.Run(name, func(t *testing.T) {
			holds(t, Play(t, 1, peace(func(w *World) {
				p := w.Start("w", Life{})
				a := p.appender("orders")
				a.proven([]*Op{a.now(t)})
				wall, mono, began := p.clock.Now(), p.clock.Mono(), w.Now()
				p.Freeze(3*time.Hour, suspended)
				o := a.produce(a.ctx, 0)
				w.Sleep(2 * time.Hour)
				if !o.Told.IsZero() {
					t.Errorf("told after %v", w.Now()-began)
				}
				if !p.Rest(1) || w.Now()-began < 3*time.Hour {
					t.Errorf("thawed after %v", w.Now()-began)
				}
				if d := p.clock.Now().Sub(wall); d < 3*time.Hour {
					t.Errorf("its wall clock has gone on by %v", d)
				}
				if d := p.clock.Mono() - mono; suspended && d > time.Minute || !suspended && d < 3*time.Hour {
					t.Errorf("its monotonic clock has gone on by %v", d)
				}
				a.proven([]*Op{a.now(t)})
			})))
		})
	}
}

// now appends a record and waits until it is told.
func (a *appender) now(t *testing.T) *Op {
	o := a.produce(context.Background(), 0)
	if err := a.producer.Flush(context.Background()); err != nil {
		t.Error(err)
	}
	return o
}

// A process that is killed is told nothing any more, and its part goes on in another.
func TestKillAndRestart(t *testing.T) {
	holds(t, Play(t, 1, peace(func(w *World) {
		w.Lives("w", Life{}, 3, func(p *Process, left int) {
			a := p.appender("orders")
			p.Turn()
			a.now(t)
			if left > 1 {
				o := a.produce(a.ctx, 0)
				p.Kill("here")
				w.Sleep(time.Minute)
				if !o.Told.IsZero() || p.Alive() {
					t.Errorf("told %v, alive %v", o.Told, p.Alive())
				}
			}
		})
		if p := w.Living("w"); p == nil || p.Name != "w.2" {
			t.Errorf("living is %v", p)
		}
	})))
}

// Wall clocks are a process's own, and can be set.
func TestClocksAreApart(t *testing.T) {
	holds(t, Play(t, 1, peace(func(w *World) {
		a, b := w.Start("a", Life{}), w.Start("b", Life{})
		apart := a.clock.Now().Sub(b.clock.Now())
		if apart == 0 || apart.Abs() > 2*skewMost {
			t.Errorf("walls are %v apart", apart)
		}
		before := a.clock.Mono()
		a.Jump(-7 * time.Minute)
		if got := a.clock.Now().Sub(b.clock.Now()); got != apart-7*time.Minute || a.clock.Mono() != before {
			t.Errorf("after the jump they are %v apart, and the monotonic clock went on by %v", got, a.clock.Mono()-before)
		}
	})))
}

// Actors and checks can be added from outside; a check sees the whole history and the whole log.
func TestOwnActorAndCheck(t *testing.T) {
	s := peace(func(w *World) { w.Start("w", Life{}).appender("orders").now(t) })
	s.Checks = []Check{func(h *History, l *Log) {
		if len(h.Ops) == 1 && len(l.Values[Partition{"orders", 0}]) == 1 {
			h.BadOp(h.Ops[0], "seen")
		}
	}}
	w := Play(t, 1, s)
	if v := w.Violations(); len(v) != 1 || v[0].What != "seen" || v[0].By != "w" {
		t.Errorf("violations %v", v)
	}
}
