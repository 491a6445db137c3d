package sim

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store/fault"
)

// Process is one life of a part: a machine with a clock and a network of its own, which may be frozen, cut off, and dies. A dead process stands still,
// wherever it is, and nothing of it is seen any more.
type Process struct {
	Name    string
	Part    string // whose life it is, if it is one of several
	world   *World
	life    Life
	clock   *clock
	ctx     context.Context // ends with its death
	die     context.CancelFunc
	network *fault.Store // to the store

	mu                sync.Mutex
	appending         *appender // its producer, once it is open
	counts            map[string]int
	cutFrom, cutUntil time.Time     // without network between these
	stood             int           // times that something was found frozen
	frozen            chan struct{} // closed when it is thawed; nil when it is not frozen
	dead              bool
	bodies            map[string]string       // of segments that it has put, perhaps in vain, and under which name first
	beat              moment                  // when it sent its last confirmed heartbeat
	played            bool                    // it is done with what it was run for
	closers           []func(context.Context) // of what it opened, the last first
}

// Life says what befalls a process.
type Life struct {
	Safe   bool          // nothing does
	Seldom int           // how much less often than usual a request or a pause point is its end; 0 is 1
	Luck   int           // what would befall its requests does so only to one in so many; 0 is 1
	Skew   time.Duration // how far its wall clock may be off; 0 is skewMost
	Bucket bool          // no segment of its producer is put into the table
}

// Start makes a process. Its name is its chance: no two have the same.
func (w *World) Start(name string, l Life) *Process { return w.start(name, "", l) }

func (w *World) start(name, part string, l Life) *Process {
	l.Seldom, l.Luck, l.Skew = max(l.Seldom, 1), max(l.Luck, 1), cmp.Or(l.Skew, skewMost)
	p := &Process{world: w, Name: name, Part: part, life: l, counts: map[string]int{}, bodies: map[string]string{}}
	p.ctx, p.die = context.WithCancel(context.Background())
	p.clock = &clock{Clock: w.env.Clock, skew: w.Chance(name, "skew").Within(-l.Skew, l.Skew)}
	p.network = fault.New(w.objects, w.env, p.onStore)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes = append(w.processes, p)
	return p
}

// Lives plays a part of so many turns in as many processes as that takes: while turns are left, another life begins soon after the one before has
// played or died. play is told how many are left, and takes them with Process.Turn.
func (w *World) Lives(part string, l Life, turns int, play func(p *Process, left int)) {
	for n := 0; turns > 0 && !w.Over(); n++ {
		p, left := w.start(fmt.Sprintf("%s.%d", part, n), part, l), turns
		p.Run(func() { play(p, left) })
		turns -= p.taken("turn")
		w.Sleep(w.Chance(p.Name, "is replaced").Within(0, 3*time.Second))
	}
}

// Living is the life of the part that is not dead, nil if there is none.
func (w *World) Living(part string) *Process {
	for _, p := range w.Processes() {
		if p.Part == part && p.Alive() {
			return p
		}
	}
	return nil
}

// Open opens the log as this process, or returns nil if the process dies before it is open. The log is closed with the process.
func (p *Process) Open() *sdk.Log {
	e := p.Env()
	for p.Alive() {
		log, err := sdk.Open(p.ctx, "mem://", sdk.WithDriver(driver{p}), sdk.WithEnv(e), sdk.WithHooks(observer{p}))
		if err == nil {
			p.AtEnd(func(context.Context) { log.Close() })
			return log
		}
		if p.Alive() && (p.life.Safe || p.world.Calm()) {
			p.world.Bad(About{By: p.Name}, "cannot open the log: %v", err)
			return nil
		}
	}
	return nil
}

// Env is time, chance and pause points as the process has them.
func (p *Process) Env() env.Env {
	return env.Env{Clock: p.clock, Rand: p.Chance("env").Rand, Pause: p.reached}
}

// Backend is table and store as the process reaches them, for what uses them without the SDK.
func (p *Process) Backend() sdk.Backend {
	b, err := driver{p}.Open(p.ctx, nil, sdk.DriverOptions{Env: p.Env()})
	p.world.must(err)
	return b
}

// Run lets the process work until it is done or dead. What a dead one was about stands still.
func (p *Process) Run(work func()) {
	done := make(chan struct{})
	p.world.drivers.Go(func() {
		defer close(done)
		work()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.played = true
	})
	select {
	case <-done:
	case <-p.ctx.Done():
	}
}

// Rest lets the process wait, and tells whether it lives. Whatever a process does on its own, it rests before: so two processes never do something
// at one moment.
func (p *Process) Rest(d time.Duration) bool {
	p.world.Sleep(d)
	return p.stand()
}

// Context ends when the process dies.
func (p *Process) Context() context.Context { return p.ctx }

// Chance is for whatever this is, the next time that the process does it.
func (p *Process) Chance(what string) Chance {
	return p.world.Chance(p.Name, what, strconv.Itoa(p.tally(what)))
}

// tally is how many times the process has done this by now.
func (p *Process) tally(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[what]++
	return p.counts[what]
}

// Turn takes a turn of the part that is played.
func (p *Process) Turn() { p.tally("turn") }

func (p *Process) taken(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[what]
}

// Note adds to the trace what a living process does.
func (p *Process) Note(format string, args ...any) {
	if p.Alive() {
		p.world.note(About{By: p.Name}, format, args...)
	}
}

// Alive tells whether the process has not been killed.
func (p *Process) Alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead
}

// Kill is kill -9.
func (p *Process) Kill(where string) {
	p.Note("killed, %s", where)
	p.mu.Lock()
	died := !p.dead
	p.dead = true
	p.mu.Unlock()
	if died {
		p.world.Died(p.Name)
		p.world.Count("killed")
		p.die()
	}
}

// Freeze stops the process for d, or until Thaw. A suspended one does not even see its monotonic clock go on.
func (p *Process) Freeze(d time.Duration, suspended bool) {
	p.mu.Lock()
	already := p.frozen != nil || p.dead
	frozen := make(chan struct{})
	if !already {
		p.frozen = frozen
	}
	p.mu.Unlock()
	if already {
		return
	}
	what := "frozen"
	if suspended {
		what = "suspended"
		p.clock.suspend(true)
	}
	if d >= time.Hour {
		p.world.Count(what + " for hours")
	}
	p.Note("%s for %v", what, d)
	p.world.Count(what)
	p.tally("frozen")
	p.world.later.Go(func() {
		c, stop := p.world.env.After(d)
		defer stop()
		select {
		case <-c:
			p.Thaw()
		case <-frozen:
		}
	})
}

// Frozen says whether the process stands still.
func (p *Process) Frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen != nil
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw() {
	p.clock.suspend(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// Jump sets the process's wall clock forward, or back.
func (p *Process) Jump(by time.Duration) {
	p.Note("wall clock jumps by %v", by)
	p.world.Count("wall clock jumped")
	p.clock.jump(by)
}

// stand is passed by everything that can be seen of the process: it waits while the process is frozen, and tells whether it lives. A dead process
// stands still until the simulation is over, and then can do nothing.
func (p *Process) stand() bool {
	for {
		p.mu.Lock()
		frozen, dead := p.frozen, p.dead
		if frozen != nil {
			p.stood++
		}
		place := strconv.Itoa(p.stood)
		p.mu.Unlock()
		switch {
		case dead:
			<-p.world.over
			return false
		case frozen == nil:
			return true
		}
		select {
		case <-frozen:
			p.world.Sleep(p.world.Chance(p.Name, "thawed", place).Within(1, time.Millisecond)) // not all in one moment
		case <-p.ctx.Done():
		}
	}
}

// AtEnd has f called when the world ends, for what the process opened. Its context is done already if the process is dead.
func (p *Process) AtEnd(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closers = append(p.closers, f)
}

// end closes what the process opened; a process that is killed does so only when nothing can come of it.
func (p *Process) end() {
	p.mu.Lock()
	closers := p.closers
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	if !p.Alive() {
		cancel()
	}
	defer cancel()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i](ctx)
	}
	p.die()
	p.network.Close()
}

// Played tells whether the process is done with what it was run for.
func (p *Process) Played() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.played
}
