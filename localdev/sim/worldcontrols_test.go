//go:build !race

package sim_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/localdev/sim"
)

// Small worlds must be able to fail: each of these takes one rule out, outside the production code, and is caught by a few of those that have the part in them that it
// concerns.
func TestWorldCatches(t *testing.T) {
	everybodys := func(wrap func(table) table) sim.Rule {
		return sim.Rule{Table: func(_ *sim.Process, t table) table { return wrap(t) }}
	}
	of := func(part string, wrap func(table) table) sim.Rule {
		return sim.Rule{Table: func(p *sim.Process, t table) table {
			if !strings.HasPrefix(p.Part, part) {
				return t
			}
			return wrap(t)
		}}
	}
	pretended := &sync.Map{}
	for name, c := range map[string]struct {
		without sim.Rule
		part    string // that the worlds have
		by      string // what some violation says; empty: anything
	}{
		"no fence":                               {everybodys(func(t table) table { return noFence{t} }), "producers", ""},
		"blind retry":                            {everybodys(func(t table) table { return blindRetry{t} }), "producers", ""},
		"unknown taken for failed":               {everybodys(func(t table) table { return unknownIsFailed{t} }), "producers", ""},
		"settlement by eventual reads":           {of("w", func(t table) table { return settleEventually{t} }), "producers", ""},
		"batches kept after a failure":           {sim.Rule{Send: keepOn}, "producers", ""},
		"a request appended as whatever is next": {everybodys(func(t table) table { return whateverIsNext{t} }), "callers", ""},
		"condition left out":                     {everybodys(func(t table) table { return unconditional{t} }), "comparers", ""},
		"ends from eventual reads":               {of("c", func(t table) table { return concludeEventually{t} }), "comparers", "not linearizable"},
		"several lanes, one at a time":           {everybodys(func(t table) table { return oneByOne{t} }), "transactors", ""},
		"the application's item apart":           {sim.Rule{Wire: withoutTheirs}, "outbox", ""},
		"conclusions from eventual reads":        {of("r", func(t table) table { return concludeEventually{t} }), "reader", ""},
		"commits of what was not read":           {of("g", func(t table) table { return eager{t} }), "commuter", ""},
		"commits that are forgotten":             {sim.Rule{Table: func(p *sim.Process, t table) table { return forgetful{t, p} }}, "group", "commits of"},
		"groups from eventual reads":             {sim.Rule{Wire: groupsEventually}, "group", "commits of"},
		"resets that leave the lease":            {sim.Rule{Wire: leaseStays}, "group that is reset", ""},
		"stealing from the living":               {everybodys(func(t table) table { return thief{t} }), "group", "which lives"},
		"offsets apart from the append":          {everybodys(func(t table) table { return apart{t} }), "group that steps", "results in the log"},
		"log starts moved too far":               {of("retain", func(t table) table { return tooFar{t} }), "retention", ""},
		"the jump of offsets":                    {of("repair", func(t table) table { return noJump{t, pretended} }), "restore", ""},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 60
			played := 0
			for seed := int64(1); played < most && seed < 10000; seed++ {
				if !slices.Contains(draw(seed).names, c.part) {
					continue
				}
				played++
				s := smallWorld(seed)
				s.Without = c.without
				for _, v := range sim.Play(t, seed, s).Violations() {
					if strings.Contains(v.What, c.by) {
						t.Logf("seed %d, the %dth that has %q: %s", seed, played, c.part, v.What)
						return
					}
				}
			}
			t.Errorf("not caught in %d seeds", played)
		})
	}
}
