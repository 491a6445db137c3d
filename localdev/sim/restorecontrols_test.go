//go:build !race

package sim_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment/store"
)

// The simulation of restores must be able to fail: each of these takes something out of the repair, outside the production code, and is caught.
func TestRestoresCatches(t *testing.T) {
	repairs := func(wrap func(table) table) sim.Rule {
		return sim.Rule{Table: func(p *sim.Process, t table) table {
			if p.Part != "repair" {
				return t
			}
			return wrap(t)
		}}
	}
	pretended := &sync.Map{}
	for name, without := range map[string]sim.Rule{
		"the jump of offsets":              repairs(func(t table) table { return noJump{t, pretended} }),
		"the cuts of what was given twice": repairs(func(t table) table { return givenOnce{t} }),
		"what was not archived": {Store: func(p *sim.Process, s store.Store) store.Store {
			if p.Part != "repair" {
				return s
			}
			return archiveOnly{s}
		}},
	} {
		t.Run(name, func(t *testing.T) { caught(t, restored(), without) })
	}
}

// noJump leaves heads where they are, and shows them where they would have jumped to.
type noJump struct {
	table
	to *sync.Map // by lane
}

func (n noJump) Jump(ctx context.Context, l metadata.LaneID, _ int64, _ []metadata.Slot, to int64) (*metadata.Head, error) {
	n.to.Store(l, to)
	return n.Head(ctx, l, metadata.Strong)
}

func (n noJump) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	h, err := n.table.Head(ctx, l, c)
	if to, ok := n.to.Load(l); ok && err == nil {
		for slot := range h.Ends {
			h.Ends[slot] += to.(int64)
		}
	}
	return h, err
}

// givenOnce records of cuts only those that lead to the new era.
type givenOnce struct{ table }

func (g givenOnce) SetCuts(ctx context.Context, was *metadata.State, cuts []metadata.Cut) (*metadata.State, error) {
	var some []metadata.Cut
	for _, c := range cuts {
		if c.To%metadata.EraStep == 0 {
			some = append(some, c)
		}
	}
	return g.table.SetCuts(ctx, was, some)
}

// archiveOnly lists no intake.
type archiveOnly struct{ store.Store }

func (a archiveOnly) List(ctx context.Context, prefix, after string, most int) (store.Page, error) {
	p, err := a.Store.List(ctx, prefix, after, most)
	objects := p.Objects
	p.Objects = nil
	for _, o := range objects {
		if !strings.Contains(o.Name, "/intake/") {
			p.Objects = append(p.Objects, o)
		}
	}
	return p, err
}
