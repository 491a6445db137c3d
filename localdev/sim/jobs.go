package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/erase"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// The actors of this file are the jobs that work on a log in the background: each run is a process of its own.

// Job does something again and again until it gets calm.
type Job struct {
	Name  string
	Every time.Duration // it begins within this after the last run
	Times int           // that it does it at most; 0: as often as there is time
	Luck  int           // of its processes; 0 is 1
	Skew  time.Duration // how far their clocks may be off; 0 is minutes
	Do    func(*Process, sdk.Backend) error

	err error // of the latest run
}

// life: what makes hundreds of requests would hardly ever come to its end.
func (x *Job) life() Life { return Life{Seldom: 12, Luck: x.Luck, Skew: x.Skew} }

// SweepSkew is how far the clock of a machine may be off on which a sweep does not refuse to work.
const SweepSkew = sweep.MaxClockSkew / 2

// Play implements Actor.
func (x *Job) Play(w *World) {
	w.Follow(func() {
		for n := 0; x.Times == 0 || n < x.Times; n++ {
			p := w.start(fmt.Sprintf("%s.%d", x.Name, n), x.Name, x.life())
			if w.Idle(p.Chance("begins").Within(0, x.Every)); w.Calming() {
				return
			}
			x.run(w, p)
		}
	})
}

// run is one run. Whatever a process meets, a job that finds damage is wrong, because there is none.
func (x *Job) run(w *World, p *Process) {
	p.Run(func() {
		err := x.Do(p, p.Backend())
		if !p.Rest(1) {
			return
		}
		x.err = err
		switch {
		case err == nil:
			w.Count(x.Name + ": done")
			p.Note("done")
		case damaged(err):
			w.Bad(About{By: p.Name}, "%s found damage: %v", p.Name, err)
		default:
			w.Count(x.Name + ": failed")
			p.Note("failed: %v", err)
		}
	})
}

// damaged tells whether an error says that the log is damaged.
func damaged(err error) bool {
	return errors.Is(err, metadata.ErrCorrupt) || errors.Is(err, segment.ErrCorrupt) || strings.Contains(err.Error(), "varve verify")
}

// Prove implements Actor. What keeps it from being done shows when the world is settled.
func (x *Job) Prove(*World) {}

// once does it when nothing fails any more.
func (x *Job) once(w *World) {
	p := w.start(fmt.Sprintf("%s at %v", x.Name, w.Now()), x.Name, Life{Safe: true, Skew: time.Second})
	x.run(w, p)
	if x.err != nil {
		w.Bad(About{By: p.Name}, "%s failed, though nothing fails any more: %v", p.Name, x.err)
	}
}

// Compact archives, with segments so small that there is much to merge.
func Compact(p *Process, b sdk.Backend) error {
	c := p.Chance("compact")
	r, err := compact.Run(p.ctx, b.Table, b.Store, compact.Options{Target: 300 + c.Int64N(5000), Deadline: c.Within(20*time.Second, compact.MaxDeadline), All: c.OneIn(3), Env: p.Env()})
	p.counted("archived", r.Segments-r.Merged)
	p.counted("merged", r.Merged)
	p.counted("archived by another", r.Lost)
	return err
}

// Clean compacts keys, and drops tombstones that are TombstonesFor old.
func Clean(p *Process, b sdk.Backend) error {
	c := p.Chance("clean")
	r, err := clean.Run(p.ctx, b.Table, b.Store, clean.Options{Dirty: 0.01 + 0.3*c.Float64(), Tombstones: TombstonesFor, Target: 300 + c.Int64N(5000),
		Deadline: c.Within(20*time.Second, 20*time.Minute), Env: p.Env()})
	for _, pass := range r.Partitions {
		p.counted("left out by key", int(pass.Records-pass.Kept))
		p.counted("tombstones left out", int(pass.Tombstones))
	}
	return err
}

// Erase erases one key of a topic now and then.
func Erase(topic string, keys int) func(*Process, sdk.Backend) error {
	return func(p *Process, b sdk.Backend) error {
		key := fmt.Sprintf("k%d", p.Chance("key").Below(keys))
		e := p.world.Erases(topic, key)
		r, err := erase.Run(p.ctx, b.Table, b.Store, erase.Options{Topic: topic, Match: func(r *segment.Record) bool { return string(r.Key) == key }, Env: p.Env(),
			Archive: func(ctx context.Context, topic string) error {
				o := compact.Options{All: true, Env: p.Env()}
				if topic != "" {
					o.Topics = []string{topic}
				}
				r, err := compact.Run(ctx, b.Table, b.Store, o)
				if err == nil && r.Left > 0 {
					err = errNoTime
				}
				return err
			}})
		if !p.Rest(1) {
			return err
		}
		p.counted("erased", int(r.Erased))
		if found := new(erase.FoundError); errors.As(err, &found) { // appended meanwhile
			p.world.Count("erased: found again")
			err = nil
		} else if err == nil {
			p.world.Erased(e, true)
			p.counted("erased: proven", 1)
		}
		return err
	}
}

// errNoTime is a compaction that had no time for all lanes.
var errNoTime = errors.New("there was no time to archive all")

// Retain lets expire.
func Retain(p *Process, b sdk.Backend) error {
	_, err := retain.Run(p.ctx, b.Table, retain.Options{Env: p.Env()})
	return err
}

// Sweep sweeps.
func Sweep(p *Process, b sdk.Backend) error { return sweeps(p, b, p.Chance("full").OneIn(8)) }

// SweepAll sweeps and looks at everything.
func SweepAll(p *Process, b sdk.Backend) error { return sweeps(p, b, true) }

func sweeps(p *Process, b sdk.Backend, full bool) error {
	c := p.Chance("sweep")
	r, err := sweep.Run(p.ctx, b.Table, b.Store, sweep.Options{Full: full, Force: true, Deadline: c.Within(10*time.Minute, 6*time.Hour), Env: p.Env()})
	for kind, heap := range r.Deleted {
		p.counted("swept: "+fmt.Sprint(kind), int(heap.Count))
	}
	return err
}

// Verify verifies the log, in which nothing is damaged, whatever happens to it meanwhile, and nothing has changed since the last time but what removes and repairs account for.
func Verify(p *Process, b sdk.Backend) error {
	r, err := verify.Run(p.ctx, b.Table, b.Store, verify.Options{Env: p.Env(), Proof: p.world.proof(), All: p.Chance("reads all").OneIn(2)})
	if !p.Rest(1) {
		return err
	}
	p.counted("proven again", int(r.Totals.Compared))
	p.counted("not compared with the proof", int(r.Totals.Uncompared))
	for _, f := range r.Findings {
		if f.Severity == verify.Damage { // what is suspicious can come of machines that stand still or die in numbers before their commit
			p.world.Bad(About{By: p.Name}, "%s found damage: %v", p.Name, f)
		}
	}
	return err
}

// SweepYearsOff is a sweep on a machine whose clock is years off.
func SweepYearsOff(p *Process, b sdk.Backend) error {
	p.Jump(time.Duration(1+p.Chance("years").Below(10)) * 365 * 24 * time.Hour * []time.Duration{1, -1}[p.Chance("off").Below(2)])
	_, err := sweep.Run(p.ctx, b.Table, b.Store, sweep.Options{Force: true, Full: true, Env: p.Env()})
	refused := new(sweep.ClockError)
	switch {
	case err == nil:
		p.world.Bad(About{By: p.Name}, "%s swept, by a clock that is years off", p.Name)
	case errors.As(err, &refused):
		p.counted("sweep refused: clock", 1)
		return nil
	}
	return err
}

func (p *Process) counted(what string, n int) {
	if p.Alive() {
		p.world.add(what, n)
	}
}

// Auditor has the world read what was committed, and audits what the log still has when it has got calm. It is the last of the cast.
type Auditor struct{}

// Accountant is an Auditor that audits again when everything that the jobs have to wait for has passed.
type Accountant struct {
	Auditor
	Jobs  []*Job // that are done then, one after another
	Sweep *Job   // likewise, and once more when what they have replaced is out of the restore window
	Full  *Job   // a sweep that looks at everything, in the end
}

// recordEvery is less than the time that what was committed stays, in chunks and segments, at least.
const recordEvery = 2 * time.Hour

// Play implements Actor.
func (Auditor) Play(w *World) {
	w.Follow(func() {
		for !w.Calming() {
			w.record()
			w.Idle(recordEvery)
		}
	})
}

// Prove implements Actor.
func (Auditor) Prove(w *World) { w.Audit() }

// Settle implements Settler: after two days in which nobody appends, nothing is left that is of no use.
func (x *Accountant) Settle(w *World) {
	for _, pause := range []time.Duration{2 * time.Hour, 20 * time.Hour} {
		w.Sleep(pause)
		for _, j := range append(slices.Clone(x.Jobs), x.Sweep) {
			j.once(w)
		}
	}
	w.Sleep(metadata.RestoreWindow + time.Hour)
	x.Sweep.once(w)
	w.Leftovers(w.Audit())
	x.Full.once(w)
	w.auditObjects(w.Audit())
}
