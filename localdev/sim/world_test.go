package sim_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/sdk"
)

// age is for how long a small world lasts, and what becomes of its records.
type age int

const (
	keeping  age = iota // seconds; nothing is removed
	removing            // seconds; what was appended is rewritten and removed
	lasting             // hours; it expires and is swept too
)

// small is the drawing of a small world.
type small struct {
	sim.Chance
	age
	topics     []sdk.NewTopic
	cast       []sim.Actor
	names      []string // of the parts in it
	expires    bool     // of the first topic
	compacted  bool
	restored   bool // in the end its table is put back
	removed    bool // some of its records
	grouped    bool // members who must not be kept waiting for hours
	keys       int
	compacting int // compactors
	lull       int
}

// part is something that a small world may have.
type part struct {
	name string
	from age // the first age that has it
	to   age // and the last
	add  func(*small)
}

const first = "in" // the topic that every small world has

// parts are all that there are.
var parts = []part{
	{"producers", keeping, lasting, func(d *small) { d.producers(1+d.Below(2), false) }},
	{"producer that reads", keeping, lasting, func(d *small) { d.producers(1, true) }},
	{"callers", keeping, lasting, func(d *small) {
		d.add(&sim.Callers{Name: "q", Topic: first, Clients: 2 + d.Below(2), Gateways: 2, Requests: 2 + d.Below(2), Busy: d.age != lasting})
	}},
	{"comparers", keeping, lasting, func(d *small) {
		for i := range 2 {
			d.add(&sim.Comparer{Name: fmt.Sprintf("c%d", i), Topic: first, Appends: 3, Lull: d.lull})
		}
	}},
	{"holders", keeping, lasting, func(d *small) {
		for i := range 2 {
			d.add(&sim.Holder{Name: fmt.Sprintf("h%d", i), Topic: first, Appends: 3, Lull: d.lull})
		}
	}},
	{"transactors", keeping, lasting, func(d *small) {
		for i := range 1 + d.Below(2) {
			d.add(&sim.Transactor{Name: fmt.Sprintf("t%d", i), Topic: first, Appends: 3, Lull: d.lull})
		}
	}},
	{"outbox", keeping, lasting, func(d *small) { d.add(&sim.Outbox{Name: "o", Topic: first, Appends: 3, Lull: d.lull}) }},
	{"reader", keeping, lasting, func(d *small) { d.add(&sim.Reader{Name: "r", Topic: first}) }},
	{"replayer", keeping, lasting, func(d *small) { d.add(&sim.Replayer{Name: "y", Topic: first, Every: d.every(4 * time.Hour), Times: 2}) }},
	{"group", keeping, removing, func(d *small) {
		d.group(&sim.Group{Name: "readers", Topic: first, Least: 1, Most: 3})
		if d.OneIn(2) {
			d.add(&sim.Misfortune{Name: "misfortune of readers", Times: 2, Among: "readers"})
		}
	}},
	{"group that steps", keeping, keeping, func(d *small) {
		d.topics = append(d.topics, sdk.NewTopic{Name: "out", Partitions: 1 + d.Below(2), LaneWidth: 1, Config: forever})
		d.group(&sim.Group{Name: "steppers", Topic: first, Out: "out", Least: 1, Most: 2})
		if d.OneIn(2) {
			d.add(&sim.Misfortune{Name: "misfortune of steppers", Times: 2, Among: "steppers"})
		}
	}},
	{"group of jobs", keeping, removing, func(d *small) { d.group(&sim.Group{Name: "jobs", Topic: first, Short: true, Least: 1, Most: 2}) }},
	{"group that is reset", keeping, removing, func(d *small) {
		d.group(&sim.Group{Name: "again", Topic: first, Least: 1, Most: 2})
		d.add(&sim.Resetter{Name: "resetter", Group: "again", Times: 1, Forward: d.OneIn(2)})
	}},
	{"commuter", keeping, lasting, func(d *small) { d.add(&sim.Commuter{Name: "g", Topic: first, Away: d.every(5 * time.Hour), Times: 3}) }},
	{"compactors", keeping, lasting, func(d *small) {
		d.compactors(1 + d.Below(2))
	}},
	{"key compaction", removing, lasting, func(d *small) {
		d.compacted = true
		d.compactors(1)
		d.job(&sim.Job{Name: "clean", Every: 2 * time.Hour, Times: 3, Luck: 3, Do: sim.Clean})
	}},
	{"erasure", removing, lasting, func(d *small) {
		d.keys = cmp.Or(d.keys, 3)
		d.job(&sim.Job{Name: "erase", Every: 3 * time.Hour, Times: 2, Luck: 6, Do: sim.Erase(first, 3)})
	}},
	{"retention", lasting, lasting, func(d *small) {
		d.expires = true
		d.job(&sim.Job{Name: "retain", Every: time.Hour, Times: 6, Do: sim.Retain})
		d.add(&sim.Changer{Name: "retention", Topic: first, Changes: []sdk.Alteration{{Config: keptFor(30 * time.Hour)}, {Config: keptFor(2 * time.Hour)}}[:1+d.Below(2)]})
	}},
	{"sweep", lasting, lasting, func(d *small) {
		d.compactors(1)
		do := sim.Sweep
		if d.OneIn(3) {
			do = sim.SweepAll
		}
		d.job(&sim.Job{Name: "sweep", Skew: sim.SweepSkew, Every: 5 * time.Hour, Times: 3, Luck: 10, Do: do})
		if d.OneIn(4) {
			d.job(&sim.Job{Name: "off", Every: 5 * time.Hour, Times: 1, Do: sim.SweepYearsOff})
		}
	}},
	{"verify", keeping, lasting, func(d *small) {
		d.job(&sim.Job{Name: "verify", Every: 3 * time.Hour, Times: 2, Luck: 10, Do: sim.Verify})
	}},
	{"visitor", removing, lasting, func(d *small) {
		d.add(&sim.Visitor{Name: "v", Topic: first, Visits: 2, Every: d.every(3 * time.Hour), Trims: true})
	}},
	{"growth", keeping, lasting, func(d *small) {
		n := d.topics[0].Partitions
		grow := []sdk.Alteration{{Partitions: n + 1, MoveKeys: true}, {Partitions: n + 3, MoveKeys: true}}[:1+d.Below(2)]
		if d.age == lasting {
			d.add(&sim.Changer{Name: "growth", Topic: first, Changes: grow})
		} else {
			d.add(&sim.Keeper{Name: "growth", Topic: first, Changes: grow})
		}
	}},
	{"configuration", keeping, keeping, func(d *small) {
		d.add(&sim.Keeper{Name: "configuration", Topic: first, Changes: []sdk.Alteration{{Config: keptFor(24 * time.Hour)}, {Config: keptFor(7 * 24 * time.Hour)}}})
	}},
	{"deletion", lasting, lasting, func(d *small) {
		fleeting := sdk.NewTopic{Name: "fleeting", Partitions: 1, Config: forever}
		d.topics = append(d.topics, fleeting)
		d.add(&sim.Deleter{Name: "d", Topic: fleeting, Times: 1}, &sim.Producer{Name: "f", Topic: "fleeting", Also: []string{first}, Bursts: 3, Lull: 2})
	}},
	{"misfortune", keeping, lasting, func(d *small) { d.add(&sim.Misfortune{Name: "misfortune", Times: 2, Every: d.every(5 * time.Hour)}) }},
	{"restore", keeping, lasting, func(d *small) {
		d.add(&sim.Restorer{Name: "z", Writes: []string{first}, OneIn: 1})
		d.restored = true
	}},
}

// removers are the parts that remove records of the first topic, as a table that is put back to a time before would not know.
var removers = map[string]bool{"key compaction": true, "erasure": true, "retention": true, "configuration": true, "visitor": true}

var forever = map[string]string{"retention.ms": "-1"}

func keptFor(d time.Duration) map[string]string {
	return map[string]string{"retention.ms": strconv.FormatInt(d.Milliseconds(), 10)}
}

func (d *small) add(actors ...sim.Actor) { d.cast = append(d.cast, actors...) }

// every is how often something comes that in worlds that last for hours comes within so long.
func (d *small) every(within time.Duration) time.Duration {
	if d.age < lasting {
		return 5 * time.Second
	}
	return within
}

func (d *small) job(j *sim.Job) {
	j.Every = d.every(j.Every)
	d.add(j)
}

// compactors are so many, or as many as there are already.
func (d *small) compactors(n int) {
	for ; d.compacting < n; d.compacting++ {
		d.job(&sim.Job{Name: fmt.Sprintf("compact%d", d.compacting), Every: time.Hour, Times: 4, Luck: 3, Do: sim.Compact})
	}
}

func (d *small) group(g *sim.Group) {
	g.Timeout = timeout
	d.grouped = true
	d.add(g)
}

func (d *small) producers(n int, reads bool) {
	for range n {
		d.add(&sim.Producer{Name: fmt.Sprintf("w%d", len(d.cast)), Topic: first, Bursts: 2 + d.Below(3) + 2*int(d.age/lasting), Reads: reads})
	}
}

// draw draws a small world: two to five parts besides a producer.
func draw(seed int64) *small {
	d := &small{Chance: sim.NewChance(seed, "small world")}
	d.age = []age{keeping, keeping, keeping, removing, lasting}[d.Below(5)]
	d.topics = []sdk.NewTopic{{Name: first, Partitions: 2 + d.Below(3), LaneWidth: 1 + d.Below(3), Config: forever}}
	if d.age == lasting {
		d.lull = 2 + d.Below(2)
	}
	d.producers(1, false)
	var fit []part
	for _, p := range parts {
		if d.age >= p.from && d.age <= p.to {
			fit = append(fit, p)
		}
	}
	for _, i := range d.Some(2+d.Below(4), len(fit)) {
		if removes := removers[fit[i].name]; removes && d.restored || fit[i].name == "restore" && (d.removed || d.age < lasting && !d.OneIn(3)) { // it takes as long as three others
			continue
		} else if removes {
			d.removed = true
		}
		d.names = append(d.names, fit[i].name)
		fit[i].add(d)
	}
	d.configure()
	return d
}

// configure gives the first topic and who writes to it what the parts need.
func (d *small) configure() {
	config := map[string]string{"retention.ms": "-1"}
	if d.expires {
		config = keptFor(5 * time.Hour)
	}
	if d.compacted {
		d.keys = 3
		config["cleanup.policy"] = "compact"
		if d.expires {
			config["cleanup.policy"] = "compact,delete"
		}
	}
	d.topics[0].Config = config
	for _, a := range d.cast {
		if p, ok := a.(*sim.Producer); ok {
			p.Keys, p.Lull = d.keys, d.lull
			if len(d.topics) > 1 && d.topics[1].Name == "out" && d.OneIn(3) {
				p.Also = []string{"out"}
			}
		}
	}
}

// smallWorld is the world of a seed: a few of all parts that there are, for a short time.
func smallWorld(seed int64) sim.Scenario {
	d := draw(seed)
	faults := sim.Trouble()
	worse := 1 + d.Below(3)
	faults.Kill, faults.CutOff, faults.Freeze = faults.Kill/worse, faults.CutOff/worse, faults.Freeze/worse
	s := sim.Scenario{Topics: d.topics, Faults: faults, Checks: slices.Concat([]sim.Check{sim.BothOrNone}, sim.Groups)}
	if d.grouped {
		s.Within = 40 * time.Second
	}
	if d.age > keeping {
		s.Removes, s.Checks = true, append(s.Checks, sim.Removed...)
		s.Faults.FreezeArchive = []int{2, 15}[d.Below(2)]
		if d.age == lasting && d.OneIn(4) {
			compact, sweep := &sim.Job{Name: "compact at last", Do: sim.Compact}, &sim.Job{Name: "sweep at last", Do: sim.Sweep}
			d.add(&sim.Accountant{Jobs: []*sim.Job{compact}, Sweep: sweep, Full: &sim.Job{Name: "sweep of all", Do: sim.SweepAll}})
		} else {
			d.add(sim.Auditor{})
		}
	}
	s.Cast = func() []sim.Actor { return d.cast }
	return s
}

// TestWorld plays worlds that are so small that thousands are cheap: in each a few of all actors that there are, for a few bursts, under the usual faults and with all
// checks that apply to them. In a whole run each of them has met each other that it can meet.
func TestWorld(t *testing.T) {
	p := play(t, smallWorld, 20)
	met := map[[2]string]int{}
	for seed := p.first; seed < p.first+p.seeds; seed++ {
		names := draw(seed).names
		for _, a := range names {
			for _, b := range names {
				met[[2]string{a, b}]++
			}
		}
	}
	if p.seeds < 2000 {
		return
	}
	for _, a := range parts {
		for _, b := range parts {
			apart := a.from > b.to || b.from > a.to || a.name == "restore" && removers[b.name] || b.name == "restore" && removers[a.name]
			if !apart && met[[2]string{a.name, b.name}] == 0 {
				t.Errorf("%s and %s have never met", a.name, b.name)
			}
		}
	}
	p.must(t, "porcupine: linearizable commits", "archived", "archived by another", "merged", "left out by key", "erased", "erased: proven", "log start moved", "records deleted", "looked up by time",
		"offsets passed", "replayed", "swept: object", "swept: small segment", "swept: chunk", "swept: archive row", "swept: work list entry", "swept: deleted topic", "sweep refused: clock",
		"frozen before-publish", "frozen before-commit", "frozen after-upload", "frozen after-publish", "frozen before-delete", "topic changed", "topic deleted",
		"killed", "killed while spilling", "frozen", "suspended", "frozen for hours", "suspended for hours", "wall clock jumped", "cut off", "small segment", "minted anew",
		"settled: found in head", "settled: found in chunk", "settled: committed again", "settled: unknown", "told: unknown", "told: prior failed", "told: condition refused",
		"refused: epoch", "refused: conflict", "refused: offset", "refused: token", "refused: producer", "spill by another", "fence taken", "once: applied", "once: repeated",
		"appended to several lanes at once", "outbox: applied", "outbox: not applied, or not known", "commuter has come",
		"took over from the dead", "took over from one who was judged dead and lives", "handed over", "took what its life before had had", "took what it had, anew",
		"lost something after a freeze", "judged dead, and lives", "fenced", "told that it is fenced", "buried another", "buried one whom another had watched", "planned",
		"plan conflict", "lease refused", "commit refused by its lease", "reset under a living member", "reset refused, members live", "short-lived, and has committed",
		"brief, and has committed", "joined in place of another session", "without owner for more than a time-out, while a member was well", "stepped", "step unknown",
		"step refused by a lease or an offset", "results, each once", "left",
		"table put back", "repaired", "repair cut off", "came back at their offsets", "appended again", "grown by a repair", "kept its offset", "lost its offset")
}
