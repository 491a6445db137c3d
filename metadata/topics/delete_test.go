package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// clean runs Clean as the next days would, and returns how often.
func clean(t *testing.T, table Table) {
	t.Helper()
	for range 5 {
		left, err := keeper(table).Clean(t.Context(), emptied)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(SecondPass)
	}
	t.Fatal("something is left for ever")
}

// emptied is what the sweep does, for topics that have no objects.
func emptied(context.Context, *metadata.GoneTopic) (bool, error) { return true, nil }

// The GONE row has what the heads named, without repeats: nobody else knows of it any more.
func TestGoneNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		topic := mustCreate(t, table, "orders", 2, 1)
		ids := []segment.ID{segment.NewID(time.Now(), 7, segment.InBucket, 1, segment.ID{}), segment.NewID(time.Now(), 7, segment.InTable, 2, segment.ID{})}
		for i, lane := range topic.Lanes {
			for _, id := range ids[:2-i] { // the first is in both lanes
				h, err := table.Head(t.Context(), lane, metadata.Strong)
				if err != nil {
					t.Fatal(err)
				}
				e := metadata.Entry{ID: id, Start: 16, Slots: []metadata.SlotEntry{{Count: 1, Bytes: 100}}}
				if _, err := table.Commit(t.Context(), metadata.Commit{Lane: lane, Entries: []metadata.Entry{e}, Cap: metadata.CapFor(h.First, 1)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := keeper(table).Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		rows, err := table.Gone(t.Context())
		if err != nil || len(rows) != 1 || !slices.Equal(rows[0].Named, ids) {
			t.Errorf("%+v, %v, want %v", rows, err, ids)
		}
	})
}

// Until what the topic had elsewhere is gone no pass counts, and the chunks, which name it, stay. Who cannot remove that leaves it at removing heads.
func TestCleanWaitsForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		topic := mustCreate(t, table, "orders", 1, 1)
		spilled(t, table, topic.Lanes[0], 0)
		if err := keeper(table).Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		not := func(context.Context, *metadata.GoneTopic) (bool, error) { return false, nil }
		for _, empty := range []Empty{nil, not, nil} {
			time.Sleep(2 * SecondPass)
			left, err := keeper(table).Clean(t.Context(), empty)
			if err != nil || len(left) != 1 || left[0].Pass != 0 {
				t.Fatal(left, err)
			}
			if _, err := table.Chunk(t.Context(), topic.Lanes[0], 0, metadata.Strong); err != nil {
				t.Error(err)
			}
		}
		clean(t, table)
		gone(t, table, topic.Lanes)
	})
}

// Neighbours by name stay whole.
func TestBR46_DeleteLeavesNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		names := []string{"orders", "orders-archive", "orders2"}
		var lanes [][]metadata.LaneID
		for _, name := range names {
			topic := mustCreate(t, table, name, 4, 2)
			lanes = append(lanes, topic.Lanes)
			for _, lane := range topic.Lanes {
				spilled(t, table, lane, 0)
				spilled(t, table, lane, 8)
			}
		}
		if err := keeper(table).Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		clean(t, table)
		gone(t, table, lanes[0])
		for i, name := range names[1:] {
			whole(t, table, name)
			if chunks, _, err := table.Chunks(t.Context(), lanes[i+1][0], 0, 100, 10, metadata.Strong); err != nil || len(chunks) != 2 {
				t.Errorf("%s: %d chunks, %v", name, len(chunks), err)
			}
		}
		if _, err := table.Topic(t.Context(), "orders"); !errors.Is(err, metadata.ErrUnknownTopic) {
			t.Error(err)
		}
	})
}

// At once: name and heads. After the grace: the rest. After another hour: what a process that stood still has put since, and the row.
func TestDeleteInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		topic := mustCreate(t, table, "orders", 2, 1)
		for _, lane := range topic.Lanes {
			spilled(t, table, lane, 0)
		}
		p := &process{Table: table}
		if err := keeper(p).Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if want := []string{"DeleteTopic", "DeleteHead", "DeleteHead"}; !slices.Equal(p.writes, want) {
			t.Errorf("steps %v, want %v", p.writes, want)
		}
		left := func(wait time.Duration) int {
			t.Helper()
			time.Sleep(wait)
			gone, err := keeper(table).Clean(t.Context(), emptied)
			if err != nil {
				t.Fatal(err)
			}
			return len(gone)
		}
		chunks := func() int {
			t.Helper()
			chunks, _, err := table.Chunks(t.Context(), topic.Lanes[1], 0, 100, 10, metadata.Strong)
			if err != nil {
				t.Fatal(err)
			}
			return len(chunks)
		}
		if n := left(Grace - 2*time.Second); n != 1 || chunks() != 1 {
			t.Errorf("within the grace: %d left, %d chunks", n, chunks())
		}
		if n := left(4 * time.Second); n != 1 || chunks() != 0 {
			t.Errorf("after the grace: %d left, %d chunks", n, chunks())
		}
		spilled(t, table, topic.Lanes[1], 8)
		if n := left(SecondPass - 2*time.Second); n != 1 || chunks() != 1 {
			t.Errorf("before the second pass: %d left, %d chunks", n, chunks())
		}
		if n := left(4 * time.Second); n != 0 {
			t.Errorf("after the second pass: %d left", n)
		}
		gone(t, table, topic.Lanes)
	})
}

func TestDeleteCrash(t *testing.T) {
	for _, f := range crashes(3) {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(t)
				topic := mustCreate(t, table, "orders", 2, 1)
				spilled(t, table, topic.Lanes[0], 0)
				if err := keeper(&process{Table: table, fault: f}).Delete(t.Context(), "orders"); !errors.Is(err, errCrashed) {
					t.Fatal(err)
				}
				if f.at == 0 && !f.applied {
					whole(t, table, "orders")
					return
				}
				clean(t, table)
				gone(t, table, topic.Lanes)
			})
		})
	}
}

// What an interrupted deletion has left of the heads goes with the next deletion or creation of that name, and not with another's.
func TestDeletionIsFinishedByTheNext(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, k *Keeper) error{
		"deletion": func(t *testing.T, k *Keeper) error {
			if err := k.Delete(t.Context(), "orders"); !errors.Is(err, metadata.ErrUnknownTopic) {
				return fmt.Errorf("told: %w", err)
			}
			return nil
		},
		"creation": func(t *testing.T, k *Keeper) error {
			_, err := k.Create(t.Context(), Spec{Name: "orders", Partitions: 2, LaneWidth: 1, Config: metadata.DefaultTopicConfig()})
			return err
		},
	} {
		for _, f := range crashes(3)[1:] { // behind the transaction
			t.Run(name+" "+f.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					table := newTable(t)
					topic, other := mustCreate(t, table, "orders", 2, 1), mustCreate(t, table, "bills", 2, 1)
					if err := keeper(&process{Table: table, fault: f}).Delete(t.Context(), "orders"); !errors.Is(err, errCrashed) {
						t.Fatal(err)
					}
					if err := next(t, keeper(table)); err != nil {
						t.Fatal(err)
					}
					for _, lane := range topic.Lanes {
						if _, err := table.Head(t.Context(), lane, metadata.Strong); !errors.Is(err, metadata.ErrNoLane) {
							t.Errorf("lane %s: %v", lane, err)
						}
					}
					if got := whole(t, table, "bills"); got.ID != other.ID {
						t.Error("another topic is there")
					}
				})
			})
		}
	}
}

func TestCleanCrash(t *testing.T) {
	for pass := range 2 {
		for _, f := range crashes(5) {
			t.Run(f.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					table := newTable(t)
					topic := mustCreate(t, table, "orders", 2, 1)
					if err := keeper(table).Delete(t.Context(), "orders"); err != nil {
						t.Fatal(err)
					}
					for range pass {
						time.Sleep(Grace)
						if _, err := keeper(table).Clean(t.Context(), emptied); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(SecondPass)
					if _, err := keeper(&process{Table: table, fault: f}).Clean(t.Context(), emptied); !errors.Is(err, errCrashed) {
						t.Fatal(err)
					}
					clean(t, table)
					gone(t, table, topic.Lanes)
				})
			})
		}
	}
}

func TestDeleteSettlesUnknownOutcomes(t *testing.T) {
	for _, f := range doubts(3) {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(t)
				topic := mustCreate(t, table, "orders", 2, 1)
				if err := keeper(&process{Table: table, fault: f}).Delete(t.Context(), "orders"); err != nil {
					t.Fatal(err)
				}
				clean(t, table)
				gone(t, table, topic.Lanes)
			})
		})
	}
}

// A topic that took the name while the outcome of the deletion was unknown is left alone.
func TestDeleteSparesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		old := mustCreate(t, table, "orders", 2, 1)
		p := &createdAgain{process: &process{Table: table, fault: fault{applied: true, err: metadata.ErrOutcomeUnknown}}, t: t}
		if err := keeper(p).Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if got := whole(t, table, "orders"); got.ID == old.ID {
			t.Error("the old topic is there")
		}
		clean(t, table)
		gone(t, table, old.Lanes)
	})
}

type createdAgain struct {
	*process
	t *testing.T
}

func (p *createdAgain) DeleteTopic(ctx context.Context, topic *metadata.Topic, g *metadata.GoneTopic) error {
	err := p.process.DeleteTopic(ctx, topic, g)
	if len(p.writes) == 1 {
		mustCreate(p.t, p.Table, topic.Name, 2, 1)
	}
	return err
}

// The GONE row names every class that the topic has had: objects of each are left to be found.
func TestGoneKeepsEveryClass(t *testing.T) {
	table := newTable(t)
	topic := mustCreate(t, table, "orders", 1, 1)
	for _, ms := range []string{"86400000", "-1", "604800000"} {
		if _, err := keeper(table).Alter(t.Context(), "orders", Change{Set: map[string]string{metadata.RetentionMs: ms}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := keeper(table).Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	rows, err := table.Gone(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if g := rows[0]; g.ID != topic.ID || g.Name != "orders" || !slices.Equal(g.Classes, []segment.Class{7, 1, segment.Keep}) || !slices.Equal(g.Lanes, topic.Lanes) {
		t.Errorf("%+v", g)
	}
}

// Deleted and created again: another id, other lanes, and cleaning the old one leaves the new one whole.
func TestBR27_CreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		old := mustCreate(t, table, "orders", 2, 1)
		if err := keeper(table).Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		again := mustCreate(t, table, "orders", 2, 1)
		if again.ID == old.ID || slices.ContainsFunc(again.Lanes, func(l metadata.LaneID) bool { return slices.Contains(old.Lanes, l) }) {
			t.Fatalf("ids are used again: %+v, %+v", old, again)
		}
		clean(t, table)
		whole(t, table, "orders")
		gone(t, table, old.Lanes)
		if err := keeper(table).Delete(t.Context(), "nothing"); !errors.Is(err, metadata.ErrUnknownTopic) {
			t.Error(err)
		}
	})
}
