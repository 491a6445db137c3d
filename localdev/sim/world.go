package sim

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store/mem"
)

// Scenario is what is played.
type Scenario struct {
	Topics  []sdk.NewTopic // that are there at the beginning
	Cast    func() []Actor // makes the actors of one run
	Checks  []Check        // besides Core
	Faults  Faults
	Without Rule
	Whole   int           // of a run of so many seeds, or more, every branch that a test names must have come up; 0 is 100
	Within  time.Duration // it gets calm after so long at the latest, and what is played is played out without trouble; 0: when all is played
	Removes bool          // jobs archive, rewrite and remove what was appended: readers may meet gaps, which Kept judges
}

// Actor is a part in the world.
type Actor interface {
	// Play plays the part while things fail, and returns when it is played out. What is to go on, as readers do, it hands to World.Follow.
	Play(w *World)
	// Prove is called when nothing fails any more, for one actor after another. It shows that the part goes on, within Soon, or reports with
	// World.Bad what does not.
	Prove(w *World)
}

// Settler is an actor that goes on when readers have ended, for days if it has to: for what is too slow for everybody to be awake.
type Settler interface{ Settle(w *World) }

// Sequel is an actor that goes on when all is over and judged, and judges itself what it does.
type Sequel interface{ Sequel(w *World) }

// Soon is within what everybody must advance when nothing fails any more.
const Soon = 30 * time.Second

// World is one run of a scenario. Its methods are for its actors.
type World struct {
	*History
	t         *testing.T
	seed      int64
	scenario  Scenario
	env       env.Env
	engine    atomic.Pointer[engine.Engine] // the table's, of the moment
	objects   *mem.Store
	actors    []Actor
	outage    [2]time.Duration // no chunk can be written between these
	commits   int64            // in the log at the end
	ledger    ledger           // of all that was ever committed
	judged    bool             // the history is over
	requested []object         // by then

	quiet     atomic.Bool    // nothing begins to fail any more
	calming   chan struct{}  // closed then; under mu
	calmed    atomic.Bool    // and what failed before is over
	played    atomic.Bool    // the load is over: no topic changes any more
	over      chan struct{}  // dead processes may end
	ended     chan struct{}  // those who follow may
	following sync.WaitGroup // they
	drivers   sync.WaitGroup // of all processes, the dead too
	later     sync.WaitGroup // what ends by itself

	mu         sync.Mutex
	processes  []*Process
	partitions map[string]int // of each topic, as far as they are known to be there
	rows       []*metadata.Topic
	members    membership
	audits     []*Audit
	putAgain   [][]byte // segments that were put under several ids
	proofs     string   // the directory with the log's proof, once there is one
}

// Play plays the scenario with this seed, in a bubble of its own.
func Play(t *testing.T, seed int64, s Scenario) (w *World) {
	collect()
	synctest.Test(t, func(t *testing.T) {
		w = &World{t: t, seed: seed, scenario: s, env: env.System(), calming: make(chan struct{}), over: make(chan struct{}),
			ended: make(chan struct{}), partitions: map[string]int{}, members: newMembership(), ledger: ledger{lanes: map[metadata.LaneID]*account{}}}
		w.env.Rand = w.Chance("the world's own").Rand
		w.History = NewHistory(w.clock)
		w.removes = s.Removes
		w.run()
	})
	linearizable(w.History, w.requested)
	return w
}

// collect collects garbage if there is much of it. It takes as long as a small seed does.
func collect() {
	const much = 256 << 20
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	if metrics.Read(heap); heap[0].Value.Uint64() > much {
		runtime.GC()
	}
}

// run plays the run. It is called in the bubble.
func (w *World) run() {
	w.setUp()
	var load sync.WaitGroup
	for _, a := range w.actors {
		load.Go(func() { a.Play(w) })
	}
	if w.await(&load) {
		w.played.Store(true)
	}
	w.calm()
	load.Wait()
	w.played.Store(true)
	for _, a := range w.actors {
		a.Prove(w)
	}
	close(w.ended)
	w.following.Wait()
	for _, a := range w.actors {
		if s, ok := a.(Settler); ok {
			s.Settle(w)
		}
	}
	w.showGroups()
	log := w.read()
	w.judge(log)
	for _, check := range append(slices.Clone(Core), w.scenario.Checks...) {
		check(w.History, log)
	}
	w.requested = w.linear(log)
	w.judged = true
	for _, a := range w.actors {
		if s, ok := a.(Sequel); ok {
			s.Sequel(w)
		}
	}
	close(w.over)
	w.tearDown()
}

// proof is the file in which each verification keeps what it proves for the next.
func (w *World) proof() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proofs == "" {
		w.proofs = w.t.TempDir()
	}
	return filepath.Join(w.proofs, "proof")
}

// await waits for the load, or until it has taken as long as it may, and tells whether it is over.
func (w *World) await(load *sync.WaitGroup) bool {
	if w.scenario.Within == 0 {
		load.Wait()
		return true
	}
	done := make(chan struct{})
	go func() {
		load.Wait()
		close(done)
	}()
	limit, stop := w.env.After(w.scenario.Within)
	defer stop()
	select {
	case <-done:
		return true
	case <-limit:
		return false
	}
}

func (w *World) setUp() {
	from := w.Chance("outage").Within(0, 10*time.Second)
	w.outage = [2]time.Duration{from, from + w.Chance("outage length").Within(0, w.scenario.Faults.Outage+1)}
	w.objects = mem.New()
	w.engine.Store(w.newEngine())
	w.must(w.table().EnsureTable(context.Background()))
	var err error
	log := w.Start("setup", Life{Safe: true}).Open()
	for _, topic := range w.scenario.Topics {
		_, err = log.Admin().CreateTopic(context.Background(), topic)
		w.must(err)
		w.Grown(topic.Name, topic.Partitions)
		w.rules(topic)
	}
	w.actors = w.scenario.Cast()
}

func (w *World) newEngine() *engine.Engine {
	e, err := engine.New(engine.Options{Now: w.clock, History: 10 * time.Second, Hook: w.onTable})
	w.must(err)
	return e
}

// rules notes what will remove records of a topic.
func (w *World) rules(topic sdk.NewTopic) {
	if ms, err := strconv.Atoi(topic.Config[metadata.RetentionMs]); err == nil {
		w.Keep(topic.Name, time.Duration(ms)*time.Millisecond)
	}
	if strings.Contains(topic.Config[metadata.CleanupPolicy], "compact") {
		w.Compacts(topic.Name)
	}
}

// trouble lets things fail once more, until calm.
func (w *World) trouble() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calming = make(chan struct{})
	w.calmed.Store(false)
	w.quiet.Store(false)
}

// settling is longer than the longest time-out of a request, which is what a call that has failed may still wait for.
const settling = 12 * time.Second

// calm ends all faults, and waits until what is under way has arrived.
func (w *World) calm() {
	w.quiet.Store(true)
	close(w.calms())
	for _, p := range w.Processes() {
		p.Thaw()
	}
	w.Sleep(settling)
	w.calmed.Store(true)
}

// calms is closed when it gets calm the next time, or is already if it is.
func (w *World) calms() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calming
}

// late waits until what is late by so much arrives. When it gets calm all of it does, within a second, and still not all at one moment.
func (w *World) late(by time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		c, stop := w.env.After(by)
		defer stop()
		select {
		case <-c:
		case <-ctx.Done():
		case <-w.calms():
			w.pause(ctx, time.Duration(float64(time.Second)*float64(by)/float64(lateMost)))
		}
	}
}

func (w *World) tearDown() {
	for _, p := range w.Processes() {
		p.Thaw()
		p.end()
	}
	w.drivers.Wait()
	w.later.Wait()
	w.must(w.engine.Load().Close())
}

func (w *World) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Chance is chance of its own for whatever the parts name.
func (w *World) Chance(parts ...string) Chance { return NewChance(w.seed, parts...) }

func (w *World) clock() time.Time { return w.env.Now() }

// Now is the time since the world began.
func (w *World) Now() time.Duration { return w.env.Now().Sub(w.began) }

// Sleep waits. It is for what is no process.
func (w *World) Sleep(d time.Duration) { w.pause(context.Background(), d) }

// Idle waits, but not longer than until it gets calm.
func (w *World) Idle(d time.Duration) {
	c, stop := w.env.After(d)
	defer stop()
	select {
	case <-c:
	case <-w.calms():
	}
}

func (w *World) pause(ctx context.Context, d time.Duration) { w.env.Sleep(ctx, d) }

// Calm tells whether nothing fails any more, and what failed before is over.
func (w *World) Calm() bool { return w.calmed.Load() }

// Calming tells whether nothing begins to fail any more.
func (w *World) Calming() bool { return w.quiet.Load() }

// Over tells whether those who follow should end.
func (w *World) Over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// Follow lets work go on beside what is played, until Over.
func (w *World) Follow(work func()) { w.following.Go(work) }

// Processes are all that were started.
func (w *World) Processes() []*Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// Topics are the names of the topics.
func (w *World) Topics() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.partitions))
}

// Grown records that a topic is known to have so many partitions.
func (w *World) Grown(topic string, partitions int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partitions[topic] = max(w.partitions[topic], partitions)
}

// Partitions is how many the topic is known to have.
func (w *World) Partitions(topic string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.partitions[topic]
}

// Commits is how many the log has at the end.
func (w *World) Commits() int64 { return w.commits }

// Report is what a run that failed says: how to replay it, what was violated, and the last events of the process and the partition that the first
// violation is about.
func (w *World) Report(lines int) string {
	v := w.violations[0]
	return fmt.Sprintf("seed %d, %d steps, replay: go test ./localdev/sim -run '^%s$' -seed %d\n%d violations, the first: %s\n%s",
		w.seed, w.steps, w.t.Name(), w.seed, len(w.violations), v.What, w.Story(v, lines))
}
