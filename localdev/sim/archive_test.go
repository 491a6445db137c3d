package sim_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/sdk"
)

// archive is a log in which all that archives, rewrites and removes is at work: one topic expires after hours, of one the latest record of each key stays, from
// one keys are erased, and one is deleted and created again.
func archive() sim.Scenario {
	const keys = 6
	retention := func(d time.Duration) map[string]string {
		return map[string]string{"retention.ms": strconv.FormatInt(d.Milliseconds(), 10)}
	}
	short := sdk.NewTopic{Name: "short", Partitions: 2, Config: retention(5 * time.Hour)}
	keyed := sdk.NewTopic{Name: "keyed", Partitions: 2, Config: map[string]string{"cleanup.policy": "compact"}}
	both := sdk.NewTopic{Name: "both", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "21600000"}}
	kept := sdk.NewTopic{Name: "kept", Partitions: 3, LaneWidth: 2, Config: map[string]string{"retention.ms": "-1"}}
	fleeting := sdk.NewTopic{Name: "fleeting", Partitions: 1, Config: map[string]string{"retention.ms": "-1"}}
	faults := sim.Trouble()
	faults.FreezeArchive = 30
	return sim.Scenario{Topics: []sdk.NewTopic{short, keyed, both, kept, fleeting}, Faults: faults, Checks: append(slices.Clone(sim.Removed), sim.OneOwner, sim.NotFromTheLiving, sim.NeverBack), Removes: true, Whole: 40, Cast: func() (cast []sim.Actor) {
		var jobs []*sim.Job
		for i := range 3 {
			jobs = append(jobs, &sim.Job{Name: fmt.Sprintf("compact%d", i), Every: 2 * time.Hour, Luck: 3, Do: sim.Compact})
		}
		erase := &sim.Job{Name: "erase", Every: 8 * time.Hour, Luck: 6, Do: sim.Erase("kept", keys)}
		jobs = append(jobs, &sim.Job{Name: "clean0", Every: 3 * time.Hour, Luck: 3, Do: sim.Clean}, &sim.Job{Name: "clean1", Every: 3 * time.Hour, Luck: 3, Do: sim.Clean},
			&sim.Job{Name: "retain0", Every: time.Hour, Do: sim.Retain}, &sim.Job{Name: "retain1", Every: 2 * time.Hour, Do: sim.Retain},
			&sim.Job{Name: "sweep0", Skew: sim.SweepSkew, Every: 8 * time.Hour, Luck: 10, Do: sim.Sweep}, &sim.Job{Name: "sweep1", Skew: sim.SweepSkew, Every: 10 * time.Hour, Luck: 10, Do: sim.Sweep})
		for i := range 2 {
			cast = append(cast,
				&sim.Producer{Name: fmt.Sprintf("s%d", i), Topic: "short", Bursts: 16 / raceShare, Lull: 4},
				&sim.Producer{Name: fmt.Sprintf("k%d", i), Topic: "keyed", Also: []string{"kept"}, Keys: keys, Bursts: 16 / raceShare, Lull: 4})
		}
		cast = append(cast, &sim.Producer{Name: "p0", Topic: "kept", Also: []string{"short", "both"}, Bursts: 10 / raceShare, Lull: 3, Keys: keys},
			&sim.Producer{Name: "f0", Topic: "fleeting", Also: []string{"kept"}, Bursts: 10 / raceShare, Lull: 3},
			&sim.Reader{Name: "r0", Topic: "short"}, &sim.Reader{Name: "r1", Topic: "keyed"}, &sim.Reader{Name: "r2", Topic: "kept"},
			&sim.Replayer{Name: "y0", Topic: "keyed", Every: 5 * time.Hour}, &sim.Replayer{Name: "y1", Topic: "kept", Every: 5 * time.Hour},
			&sim.Reader{Name: "r3", Topic: "both"},
			&sim.Commuter{Name: "g0", Topic: "kept", Away: 5 * time.Hour}, &sim.Commuter{Name: "g1", Topic: "short", Away: 8 * time.Hour},
			&sim.Replayer{Name: "y2", Topic: "short", Every: 5 * time.Hour},
			&sim.Changer{Name: "t0", Topic: "short", Changes: []sdk.Alteration{{Config: retention(30 * time.Hour)}, {Config: retention(5 * time.Hour)}, {Config: retention(3 * time.Hour)}}},
			&sim.Changer{Name: "t1", Topic: "kept", Changes: []sdk.Alteration{{Partitions: 4, MoveKeys: true}, {Partitions: 5, MoveKeys: true}}},
			&sim.Deleter{Name: "d0", Topic: fleeting, Times: 2}, &sim.Misfortune{Name: "misfortune", Times: 4, Every: 5 * time.Hour},
			&sim.Visitor{Name: "v0", Topic: "kept", Visits: 6, Trims: true}, &sim.Visitor{Name: "v1", Topic: "short", Visits: 6}, &sim.Visitor{Name: "v2", Topic: "keyed", Visits: 6},
			&sim.Job{Name: "verify", Every: 12 * time.Hour, Luck: 10, Do: sim.Verify},
			&sim.Job{Name: "off", Every: 10 * time.Hour, Do: sim.SweepYearsOff})
		full := &sim.Job{Name: "sweep2", Do: sim.SweepAll}
		for _, j := range append(jobs, erase) {
			cast = append(cast, j)
		}
		cast = append(cast, &sim.Restorer{Name: "z0", Writes: []string{"kept", "keyed"}, Keys: keys, OneIn: 4})
		return append(cast, &sim.Accountant{Jobs: []*sim.Job{jobs[0], jobs[3], jobs[5], {Name: "verify0", Do: sim.Verify}}, Sweep: jobs[7], Full: full})
	}}
}

// TestArchive plays, under the usual faults and over days, compactors, key compactors, an eraser, retainers, sweepers, a topic whose retention changes and one that
// is deleted and created again, while producers append, readers and replays read, and groups come, commit and go. What they do they may do late, after hours, or half. No reader meets
// damage, a repeat, or a gap that no rule made; no log start passes what has not expired; what no rule has removed is there, at its offset; and when all is over
// and the restore window has passed nothing is left that nothing names.
func TestArchive(t *testing.T) {
	simulate(t, archive, 1, 60, "archived", "archived by another", "merged", "left out by key", "tombstones left out", "erased", "erased: proven", "log start moved", "records deleted", "looked up by time", "offsets passed", "replayed",
		"swept: object", "swept: small segment", "swept: chunk", "swept: archive row", "swept: work list entry", "swept: deleted topic", "sweep refused: clock",
		"frozen before-publish", "frozen before-commit", "frozen after-upload", "frozen after-publish", "frozen before-delete", "topic changed", "topic deleted", "killed", "frozen for hours", "small segment",
		"commuter has come", "took what its life before had had",
		"table put back", "repaired", "repair cut off", "appended again", "kept its offset", "lost its offset")
}
