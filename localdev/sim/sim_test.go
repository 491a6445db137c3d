package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/sdk"
)

var (
	seeds   = flag.Int("seeds", 0, "how many seeds a simulation plays, from -from on; 0: a few")
	from    = flag.Int64("from", 1, "the first of the seeds that -seeds asks for")
	oneSeed = flag.Int64("seed", 0, "the only seed that a simulation plays; 0: as many as -seeds says")
	lines   = flag.Int("lines", 20, "how many lines of the trace a seed that fails prints at most")
)

const topic = "orders"

// One goroutine at a time, and no collection of garbage in between (Play does it before), so that a seed replays.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(2 << 30)
	os.Exit(m.Run())
}

// oneLane is 16 producers, 18 clients that have their requests appended by any of three processes, and two who read, on one lane whose retention class and floor change, while for some time no chunk can be written.
func oneLane() sim.Scenario {
	return sim.Scenario{Topics: []sdk.NewTopic{{Name: topic, Partitions: 6}}, Faults: sim.Trouble(), Cast: func() (cast []sim.Actor) {
		for i := range 16 {
			cast = append(cast, &sim.Producer{Name: fmt.Sprintf("w%d", i), Topic: topic, Bursts: 32 / raceShare, Reads: i == 0})
		}
		return append(cast, &sim.Callers{Name: "q", Topic: topic, Clients: 18, Gateways: 3, Requests: 4 / raceShare},
			keeper("86400000", "604800000"), &sim.Reader{Name: "r0", Topic: topic})
	}}
}

// manyLanes is all that the log can do, on lanes that come to be as the topic grows, and misfortune.
func manyLanes() sim.Scenario {
	return sim.Scenario{Topics: []sdk.NewTopic{{Name: topic, Partitions: 6, LaneWidth: 3}}, Faults: sim.Trouble(), Checks: []sim.Check{sim.BothOrNone}, Cast: func() (cast []sim.Actor) {
		for i := range 5 {
			cast = append(cast, &sim.Producer{Name: fmt.Sprintf("w%d", i), Topic: topic, Bursts: 14, Reads: i == 0})
		}
		for i := range 3 {
			cast = append(cast, &sim.Comparer{Name: fmt.Sprintf("c%d", i), Topic: topic, Partition: 1, Appends: 8},
				&sim.Holder{Name: fmt.Sprintf("h%d", i), Topic: topic, Partition: 2, Appends: 8},
				&sim.Transactor{Name: fmt.Sprintf("t%d", i), Topic: topic, Appends: 8})
		}
		cast = append(cast, &sim.Outbox{Name: "o0", Topic: topic, Appends: 8}, &sim.Outbox{Name: "o1", Topic: topic, Appends: 8})
		changes := keeper("86400000", "604800000")
		changes.Changes = append(changes.Changes, sdk.Alteration{Partitions: 8},
			sdk.Alteration{Partitions: 11, Config: map[string]string{"retention.ms": "86400000"}})
		return append(cast, changes, &sim.Misfortune{Name: "misfortune", Times: 5}, &sim.Reader{Name: "r0", Topic: topic})
	}}
}

func keeper(retentions ...string) *sim.Keeper {
	k := &sim.Keeper{Name: "k", Topic: topic}
	for _, ms := range retentions {
		k.Changes = append(k.Changes, sdk.Alteration{Config: map[string]string{"retention.ms": ms}})
	}
	return k
}

// TestBR13_Simulation plays seeds. 16 producers append to one lane while a fifth of their requests to table and store go wrong (lost, answer
// lost, applied late, throttled, 500; eventual reads up to 6 s old), processes are cut off, frozen for minutes, killed and replaced, spillers
// more often than others, while the topic's retention class and the floor change and for a while no chunk can be written. Readers follow. What
// was acknowledged is in the log once, where it was said to be; what was reported as failed is not; offsets are dense; each producer's order is
// kept through failures; readers saw exactly the log; and when the faults end everybody advances.
func TestBR13_Simulation(t *testing.T) {
	simulate(t, oneLane, 2, 300, "settled: found in head", "settled: found in chunk", "settled: committed again", "settled: unknown", "told: unknown",
		"told: prior failed", "refused: epoch", "refused: full", "spill by another", "minted anew", "small segment", "topic changed", "killed", "killed while spilling",
		"frozen", "suspended", "cut off", "once: applied", "once: repeated", "once: evicted", "once: too many producers", "once: condition held", "once: condition refused", "once: room made", "once: cut again",
		"refused: producer")
}

// TestBR13_SimulationOfLanes plays, under the same faults and with processes that are frozen for hours and whose wall clocks are set, several lanes
// that grow in number: conditional appends are made where their conditions held, fenced ones behind no later holder's, those to several lanes at once in
// all of them or in none.
func TestBR13_SimulationOfLanes(t *testing.T) {
	simulate(t, manyLanes, 2, 60, "settled: found in head", "settled: found in chunk", "settled: committed again", "told: unknown", "told: condition refused",
		"refused: conflict", "fence taken", "appended to several lanes at once", "outbox: applied", "outbox: not applied, or not known", "topic changed", "frozen for hours", "suspended for hours",
		"wall clock jumped", "killed", "spill by another", "minted anew", "small segment")
}

// What goes wrong, each in every whole run.
var (
	tableFaults = []string{"table: lost", "table: answer lost", "table: late", "table: throttled", "table: 500", "table: 500 though applied"}
	storeFaults = []string{"store: lost", "store: answer lost", "store: late", "store: throttled", "store: slow", "store: short"}
)

// played is what came of playing seeds.
type played struct {
	first, seeds int64
	counts       sim.Counts
	least        int64 // commits in a seed
	wrong        int   // of a hundred requests to the table so many
}

// simulate plays the seeds that were asked for, or a few. Each must have so many commits, and in a whole run each of the branches must
// come up.
func simulate(t *testing.T, s func() sim.Scenario, few, commitsAtLeast int64, branches ...string) {
	if *seeds == 0 {
		commitsAtLeast /= raceShare
	}
	p := play(t, func(int64) sim.Scenario { return s() }, few)
	if p.wrong < 20 && !s().Removes { // jobs are spared much of it
		t.Errorf("only %d %% of the requests to the table went wrong", p.wrong)
	}
	if p.least < commitsAtLeast {
		t.Errorf("a seed has only %d commits", p.least)
	}
	if p.seeds >= int64(cmp.Or(s().Whole, 100)) {
		p.must(t, branches...)
	}
}

// play plays the seeds that were asked for, or a few. What a seed costs is printed where the system tells.
func play(t *testing.T, of func(seed int64) sim.Scenario, few int64) played {
	p := played{first: *from, seeds: int64(*seeds), counts: sim.Counts{}, least: 1 << 62}
	if p.seeds == 0 {
		p.seeds = few
		if raced {
			p.seeds = 1
		}
	}
	if *oneSeed != 0 {
		p.first, p.seeds = *oneSeed, 1
	}
	commits, began := int64(0), cpuTime()
	for seed := p.first; seed < p.first+p.seeds; seed++ {
		w := sim.Play(t, seed, of(seed))
		p.counts.Add(w.Counts())
		p.least, commits = min(p.least, w.Commits()), commits+w.Commits()
		if len(w.Violations()) > 0 {
			t.Fatal(w.Report(*lines))
		}
	}
	for _, kind := range tableFaults {
		p.wrong += 100 * p.counts[kind]
	}
	p.wrong /= p.counts["table: requests"]
	t.Logf("%d seeds from %d on, %.3f s of a core each; %d commits, %d or more in each; %d %% of the requests to the table went wrong\n%v",
		p.seeds, p.first, (cpuTime()-began).Seconds()/float64(p.seeds), commits, p.least, p.wrong, p.counts)
	if n := p.counts["porcupine: undecided"]; int64(n) > p.seeds/100 {
		t.Errorf("of %d partitions porcupine could not decide in time whether they are linearizable", n)
	}
	return p
}

// must tells what has never come up and should have, the faults too.
func (p played) must(t *testing.T, branches ...string) {
	for _, must := range slices.Concat(branches, tableFaults, storeFaults) {
		if p.counts[must] == 0 {
			t.Errorf("%q never came up", must)
		}
	}
}
