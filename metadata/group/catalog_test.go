package group

import (
	"context"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// assignedOf is how many partitions of a topic a tick has assigned, and how many of them as added.
func assignedOf(c Change, topic string) (n, added int) {
	for _, claim := range c.Assigned {
		if claim.Topic == topic {
			n++
			if claim.Added {
				added++
			}
		}
	}
	return n, added
}

// Of a topic that was created, perhaps anew, while a member looked for it nothing is passed over, also when somebody joins who reads others at the same time. One
// that a member has only seen, since it looks for others by a pattern, is new to the group when somebody names it, and gets that member's policy.
func TestWhatWasCreatedWhileSomebodyLooked(t *testing.T) {
	inWorld(t, func(w *world) {
		tick := func(m *Member) (c Change) {
			c, err := m.Tick(w.Context())
			w.ok(err)
			return c
		}
		join := func(name string, c Config) *Member {
			c.Group, c.Name, c.Timeout, c.Refresh = "g", name, timeout, 10*time.Second
			m, err := Join(w.Context(), w.table, env.System(), c)
			w.ok(err)
			return m
		}
		w.create("t", 2, 64)
		w.create("u", 1, 64)
		a := join("a", reads("t"))
		if n, added := assignedOf(tick(a), "t"); n != 2 || added != 0 {
			t.Fatalf("at first: %d, %d added", n, added)
		}
		w.ok(w.keeper.Delete(w.Context(), "t"))
		w.create("t", 2, 64)
		b := join("b", reads("u"))
		if n, added := assignedOf(tick(a), "t"); n != 2 || added != 2 {
			t.Errorf("created anew while another joined: %d, %d added", n, added)
		}
		w.ok(b.Leave(w.Context()))
		w.ok(a.Leave(w.Context()))

		p := join("p", Config{Pattern: "x.*"})
		tick(p)
		w.create("y", 1, 64)
		p.LookAgain()
		tick(p)
		join("c", reads("y"))
		tick(p) // which makes the plan
		state, err := w.table.GroupState(w.Context(), "g")
		w.ok(err)
		if len(state.Plan.Topics) != 1 || state.Plan.Topics[0].Known != 1 {
			t.Errorf("a topic that nobody looked for: %+v", state.Plan.Topics)
		}
	})
}

// rows is a table of topics that can fail.
type rows struct {
	metadata.TopicReader
	err   error
	reads int
}

func (r *rows) Topic(_ context.Context, name string) (*metadata.Topic, error) {
	r.reads++
	return &metadata.Topic{Name: name}, r.err
}

// A look that was asked for and fails is made again by the next Tick.
func TestLookAgain(t *testing.T) {
	table := &rows{}
	k, err := newCatalog(table, env.System(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	look := func(what string, want int) {
		t.Helper()
		before := table.reads
		k.of(t.Context(), []metadata.Member{{Topics: []string{"t"}}}, false)
		if n := table.reads - before; n != want {
			t.Errorf("%s: %d reads, want %d", what, n, want)
		}
	}
	look("the first", 1)
	look("within the interval", 0)
	(&Member{catalog: k}).LookAgain()
	table.err = metadata.ErrUnavailable
	look("asked for", 1)
	table.err = nil
	look("after one that failed", 1)
	look("after one that did not", 0)
}
