//go:build !race

// The race detector has the scheduler choose at random between goroutines that are woken by one event.

package sim_test

import (
	"strings"
	"testing"

	"github.com/varvelog/varve/localdev/sim"
)

// plays is how often a seed is played at most until two runs are the same. On a busy machine the Go runtime takes a goroutine off its thread now and then
// after 10 ms, which changes an order that the world cannot see to. Where a seed does not decide everything no two runs are ever the same.
const plays = 8

// A seed decides everything, so that one that fails can be played again: the same seed has the same history.
func TestSimulationReplays(t *testing.T) {
	for name, scenario := range map[string]func() sim.Scenario{"small world": func() sim.Scenario { return smallWorld(max(*oneSeed, 1)) }, "one lane": oneLane, "many lanes": manyLanes, "groups": groups, "archive": archive, "restores": restored} {
		t.Run(name, func(t *testing.T) {
			seed, seen := max(*oneSeed, 1), map[uint64]*sim.World{}
			for n := range plays {
				w := sim.Play(t, seed, scenario())
				if seen[w.Hash()] != nil {
					t.Logf("seed %d has hash %x, twice in %d plays", seed, w.Hash(), n+1)
					if other := sim.Play(t, seed+1, scenario()); other.Hash() == w.Hash() {
						t.Errorf("so has seed %d", seed+1)
					}
					return
				}
				for _, before := range seen {
					t.Logf("seed %d played again:\n%s", seed, before.Differs(w.History))
				}
				seen[w.Hash()] = w
			}
			t.Errorf("seed %d: %d plays, and no two the same", seed, plays)
		})
	}
}

// What a seed that fails prints is short, says how to play it again, and is the same when it is.
func TestReportReplays(t *testing.T) {
	s := oneLane()
	s.Without = sim.Rule{Table: func(_ *sim.Process, t table) table { return blindRetry{t} }}
	const seed, lines = 3, 12
	seen := map[string]bool{}
	for range plays {
		w := sim.Play(t, seed, s)
		if len(w.Violations()) == 0 {
			t.Fatal("no violation")
		}
		report := w.Report(lines)
		if n := strings.Count(report, "\n"); n > lines+2 || !strings.Contains(report, "replay: go test ./localdev/sim -run '^TestReportReplays$' -seed 3\n") {
			t.Errorf("a report of %d lines:\n%s", n, report)
		}
		if seen[report] {
			t.Log(report)
			return
		}
		seen[report] = true
	}
	t.Errorf("%d plays, and no two reports the same", plays)
}
