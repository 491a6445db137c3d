package sim_test

import (
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/sdk"
)

// restored is a small archive whose table is put back in every seed.
func restored() sim.Scenario {
	forever := map[string]string{"retention.ms": "-1"}
	kept := sdk.NewTopic{Name: "kept", Partitions: 3, LaneWidth: 2, Config: forever}
	plain := sdk.NewTopic{Name: "plain", Partitions: 2, Config: forever}
	return sim.Scenario{Topics: []sdk.NewTopic{kept, plain}, Faults: sim.Trouble(), Checks: sim.Removed, Removes: true, Whole: 40, Cast: func() []sim.Actor {
		return []sim.Actor{
			&sim.Producer{Name: "p0", Topic: "kept", Also: []string{"plain"}, Bursts: 6 / raceShare, Lull: 3},
			&sim.Job{Name: "compact0", Every: time.Hour, Luck: 10, Do: sim.Compact},
			&sim.Restorer{Name: "z0", Writes: []string{"kept", "plain"}, OneIn: 1},
		}
	}}
}

// TestRestores puts the table back to an earlier moment while writers go on, who like the repair are killed and frozen, and of whose requests a fifth goes wrong. No record that was
// acknowledged is lost or comes twice, and no offset stands for two.
func TestRestores(t *testing.T) {
	simulate(t, restored, 2, 6, "table put back", "repaired", "repair cut off", "repair failed", "repaired again for what was young", "came back at their offsets", "appended again", "grown by a repair",
		"kept its offset", "lost its offset", "archived", "swept: object", "topic changed")
}
