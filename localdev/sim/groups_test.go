package sim_test

import (
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/sdk"
)

const timeout = 6 * time.Second // of sessions

// groups is three groups on one topic that grows: one that is reset, one that steps, and one whose members are never there for long.
func groups() sim.Scenario {
	faults := sim.Trouble()
	faults.Kill, faults.Freeze, faults.CutOff, faults.Table.Throttled = 900, 3000, 400, 6
	return sim.Scenario{Topics: []sdk.NewTopic{{Name: "in", Partitions: 3, LaneWidth: 2}, {Name: "out", Partitions: 2, LaneWidth: 1}}, Faults: faults,
		Checks: sim.Groups, Cast: func() []sim.Actor {
			return []sim.Actor{
				&sim.Producer{Name: "w0", Topic: "in", Bursts: 18 / raceShare}, &sim.Producer{Name: "w1", Topic: "in", Bursts: 18 / raceShare},
				&sim.Keeper{Name: "k", Topic: "in", Changes: []sdk.Alteration{{Partitions: 4}, {Partitions: 6}}},
				&sim.Group{Name: "readers", Topic: "in", Least: 3, Most: 8, Timeout: timeout},
				&sim.Resetter{Name: "resetter", Group: "readers", Times: 2, Forward: true},
				&sim.Group{Name: "steppers", Topic: "in", Out: "out", Least: 2, Most: 3, Timeout: timeout},
				&sim.Resetter{Name: "resetter of steppers", Group: "steppers", Times: 2, Seldom: 3},
				&sim.Group{Name: "jobs", Topic: "in", Short: true, Least: 1, Most: 2, Timeout: timeout},
				&sim.Misfortune{Name: "misfortune", Times: 6, Among: "readers"},
				&sim.Misfortune{Name: "more of it", Times: 4, Among: "steppers"},
			}
		}}
}

// TestGroups plays seeds. Groups read a topic that grows, under the faults of the other simulations, with freezes for hours and wall clocks that are
// set. One has 3 to 8 members, static and not, slow, short-lived, that leave or vanish, or are started again while they still run, and its offsets are
// reset while they live; the members of one, seldom reset, write results by steps; those of one are all short-lived. Whoever commits holds the lease,
// nothing is taken from the living, offsets go back only by reset, nothing is committed that nobody has finished, each input of a step has its result once,
// no partition is without an owner for longer than two session time-outs while a member is well, whoever else comes and dies, no member is given anything of
// what it has learnt to have lost, none is fenced by an earlier start; and when the faults end all is committed.
func TestGroups(t *testing.T) {
	simulate(t, groups, 1, 50, "took over from the dead", "took over from one who was judged dead and lives", "handed over",
		"took what its life before had had", "took what it had, anew", "lost something after a freeze", "judged dead, and lives",
		"fenced", "told that it is fenced", "buried another", "buried one whom another had watched", "planned", "plan conflict",
		"lease refused", "commit refused by its lease", "reset under a living member", "reset refused, members live",
		"short-lived, and has committed", "brief, and has committed", "joined in place of another session", "without owner for more than a time-out, while a member was well", "stepped", "step unknown", "step refused by a lease or an offset", "results, each once",
		"results, after resets", "left", "topic changed", "killed", "frozen for hours", "suspended for hours", "wall clock jumped", "cut off")
}
