//go:build !race

// The race detector makes this take minutes, and sees the same code in the simulation itself. make sim runs it without.

package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// controlSeeds is within how many seeds a log with a rule taken out must be caught.
const controlSeeds = 12

type table = metadata.Table

// The simulation must be able to fail: each of these takes one rule out, outside the production code, and is caught.
func TestSimulationCatches(t *testing.T) {
	everybodys := func(wrap func(table) table) sim.Rule {
		return sim.Rule{Table: func(_ *sim.Process, t table) table { return wrap(t) }}
	}
	writers := func(wrap func(table) table) sim.Rule { // who do not read as well: that would be caught first
		return sim.Rule{Table: func(p *sim.Process, t table) table {
			if slices.Contains([]string{"w0", "r0"}, p.Part) {
				return t
			}
			return wrap(t)
		}}
	}
	for name, without := range map[string]sim.Rule{
		"no fence":                      everybodys(func(t table) table { return noFence{t} }),
		"blind retry":                   everybodys(func(t table) table { return blindRetry{t} }),
		"trim before the chunk is put":  everybodys(func(t table) table { return &trimFirst{Table: t} }),
		"trim wherever the head begins": everybodys(func(t table) table { return trimAnywhere{t} }),
		"settlement by eventual reads":  writers(func(t table) table { return settleEventually{t} }),
		"settlement without chunks":     writers(func(t table) table { return noChunks{t} }),
		"unknown taken for failed":      everybodys(func(t table) table { return unknownIsFailed{t} }),
		"conclusions from eventual reads": {Table: func(p *sim.Process, t table) table {
			if !strings.HasPrefix(p.Name, "r") {
				return t
			}
			return concludeEventually{t}
		}},
		"batches kept after a failure":           {Send: keepOn},
		"a request appended as whatever is next": everybodys(func(t table) table { return whateverIsNext{t} }),
		"put not waited for":                     {Store: func(_ *sim.Process, s store.Store) store.Store { return hasty{s} }},
	} {
		t.Run(name, func(t *testing.T) { caught(t, oneLane(), without) })
	}
	for name, without := range map[string]sim.Rule{
		"condition left out":            everybodys(func(t table) table { return unconditional{t} }),
		"several lanes, one at a time":  everybodys(func(t table) table { return oneByOne{t} }),
		"a transaction that is retried": everybodys(func(t table) table { return &newToken{Table: t} }),
		"the application's item apart":  {Wire: withoutTheirs},
	} {
		t.Run(name, func(t *testing.T) { caught(t, manyLanes(), without) })
	}
}

func caught(t *testing.T, s sim.Scenario, without sim.Rule) {
	s.Without = without
	for seed := int64(1); seed <= controlSeeds; seed++ {
		if w := sim.Play(t, seed, s); len(w.Violations()) > 0 {
			t.Logf("seed %d: %s", seed, w.Violations()[0].What)
			return
		}
	}
	t.Errorf("not caught in %d seeds", controlSeeds)
}

// withoutTheirs leaves the application's item out of its transactions.
func withoutTheirs(_ *sim.Process, op string, body []byte) []byte {
	var request map[string]any
	if !strings.HasSuffix(op, "TransactWriteItems") || !strings.Contains(string(body), `"APPLICATION"`) || json.Unmarshal(body, &request) != nil {
		return body
	}
	items := request["TransactItems"].([]any)
	request["TransactItems"] = items[:len(items)-1]
	b, _ := json.Marshal(request)
	return b
}

// noFence only pretends to raise an epoch, and commits under whatever epoch there is.
type noFence struct{ table }

func (f noFence) RaiseEpoch(ctx context.Context, l metadata.LaneID, writer int, from int64) (*metadata.Head, error) {
	h, err := f.Head(ctx, l, metadata.Strong)
	if err == nil {
		h.Epochs[writer] = max(h.Epochs[writer], from+1)
	}
	return h, err
}

func (f noFence) Commit(ctx context.Context, c metadata.Commit) (*metadata.Head, error) {
	if h, err := f.Head(ctx, c.Lane, metadata.Strong); err == nil {
		c.Epoch = h.Epochs[c.Writer]
	}
	return f.table.Commit(ctx, c)
}

// blindRetry sends an update of unknown outcome again.
type blindRetry struct{ table }

func (b blindRetry) Commit(ctx context.Context, c metadata.Commit) (h *metadata.Head, err error) {
	for range 5 {
		if h, err = b.table.Commit(ctx, c); !errors.Is(err, metadata.ErrOutcomeUnknown) {
			break
		}
	}
	return h, err
}

// trimFirst writes the chunks after the entries have left the head.
type trimFirst struct {
	metadata.Table
	mu      sync.Mutex
	waiting []*metadata.Chunk
}

func (f *trimFirst) PutChunk(_ context.Context, c *metadata.Chunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, c)
	return nil
}

func (f *trimFirst) Trim(ctx context.Context, l metadata.LaneID, from, to int64, ids []segment.ID) (*metadata.Head, error) {
	h, err := f.Table.Trim(ctx, l, from, to, ids)
	f.mu.Lock()
	chunks := f.waiting
	f.waiting = nil
	f.mu.Unlock()
	for _, c := range chunks {
		f.Table.PutChunk(ctx, c)
	}
	return h, err
}

// trimAnywhere removes as many entries, whichever the head begins with.
type trimAnywhere struct{ table }

func (a trimAnywhere) Trim(ctx context.Context, l metadata.LaneID, from, to int64, ids []segment.ID) (*metadata.Head, error) {
	h, err := a.table.Trim(ctx, l, from, to, ids)
	if !errors.Is(err, metadata.ErrChanged) || h == nil || len(h.Entries) < len(ids) {
		return h, err
	}
	for i := range ids {
		ids[i] = h.Entries[i].ID
	}
	return a.table.Trim(ctx, l, h.First, h.First+to-from, ids)
}

// settleEventually settles by what it reads without asking for the latest, the head after the fence too.
type settleEventually struct{ table }

func (e settleEventually) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	return concludeEventually(e).Head(ctx, l, c)
}

func (e settleEventually) Chunks(ctx context.Context, l metadata.LaneID, from, to int64, limit int, _ metadata.Consistency) (
	[]*metadata.Chunk, bool, error) {
	return e.table.Chunks(ctx, l, from, to, limit, metadata.Eventual)
}

func (e settleEventually) RaiseEpoch(ctx context.Context, l metadata.LaneID, writer int, from int64) (*metadata.Head, error) {
	now, err := e.table.RaiseEpoch(ctx, l, writer, from)
	if err != nil {
		return nil, err
	}
	h, err := e.Head(ctx, l, metadata.Eventual)
	if err == nil {
		h.Epochs[writer] = now.Epochs[writer]
	}
	return h, err
}

// noChunks settles by the head alone: every chunk looks as if the entry were not there.
type noChunks struct{ table }

func (n noChunks) Chunks(ctx context.Context, l metadata.LaneID, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Chunk, bool, error) {
	chunks, more, err := n.table.Chunks(ctx, l, from, to, limit, c)
	for _, c := range chunks {
		c.Entries = nil
	}
	return chunks, more, err
}

// unknownIsFailed takes no answer for an answer.
type unknownIsFailed struct{ table }

func (u unknownIsFailed) Commit(ctx context.Context, c metadata.Commit) (*metadata.Head, error) {
	h, err := u.table.Commit(ctx, c)
	if errors.Is(err, metadata.ErrOutcomeUnknown) {
		err = metadata.ErrDenied
	}
	return h, err
}

// concludeEventually reads head and chunks without asking for the latest, except that it knows that the topic is there.
type concludeEventually struct{ table }

func (e concludeEventually) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	h, err := e.table.Head(ctx, l, metadata.Eventual)
	if errors.Is(err, metadata.ErrNoLane) {
		return e.table.Head(ctx, l, c)
	}
	return h, err
}

func (e concludeEventually) Chunk(ctx context.Context, l metadata.LaneID, first int64, _ metadata.Consistency) (*metadata.Chunk, error) {
	return e.table.Chunk(ctx, l, first, metadata.Eventual)
}

// keepOn sends what failed behind another record's failure again, as if it had stayed in the queue.
func keepOn(send sim.Send) sim.Send {
	return func(ctx context.Context, p *sdk.Producer, r *sdk.Record, promise func(*sdk.Record, error)) {
		send(ctx, p, r, func(r *sdk.Record, err error) {
			if errors.Is(err, sdk.ErrPriorFailed) {
				p.TryProduce(ctx, r, promise)
				return
			}
			promise(r, err)
		})
	}
}

// hasty takes a put that may yet come for one that has.
type hasty struct{ store.Store }

func (h hasty) Put(ctx context.Context, name string, body []byte) error {
	if err := h.Store.Put(ctx, name, body); err != nil && !errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return nil
}

// unconditional forgets what a commit was to depend on.
type unconditional struct{ table }

func (u unconditional) Commit(ctx context.Context, c metadata.Commit) (*metadata.Head, error) {
	c.Expect, c.Tokens = nil, nil
	return u.table.Commit(ctx, c)
}

// whateverIsNext appends a request as the one that the head wants of its producer, whichever it is.
type whateverIsNext struct{ table }

func (n whateverIsNext) Commit(ctx context.Context, c metadata.Commit) (*metadata.Head, error) {
	for i, s := range c.Producers {
		if h, err := n.Head(ctx, c.Lane, metadata.Strong); err == nil {
			c.Producers[i].Sequence = h.Expected(s.ID)
		}
	}
	return n.table.Commit(ctx, c)
}

// oneByOne commits to one lane after another.
type oneByOne struct{ table }

func (o oneByOne) CommitAll(ctx context.Context, _ string, commits []metadata.Commit) error {
	for _, c := range commits {
		if _, err := o.Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// newToken sends a transaction of unknown outcome again as if it were another one, to whatever epochs and entries there are.
type newToken struct{ metadata.Table }

func (n *newToken) CommitAll(ctx context.Context, token string, commits []metadata.Commit) error {
	err := n.Table.CommitAll(ctx, token, commits)
	if errors.Is(err, metadata.ErrOutcomeUnknown) {
		return metadata.ErrDenied
	}
	return err
}
