package verify_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// used is a small log in which there is something everywhere: two archive segments, one of them with records erased, a chunk that is not archived, and a head.
func used(t testing.TB) *world {
	w := newWorld(t)
	w.topic("t", 2, 1)
	w.produce(2*metadata.ChunkOrders, at("t", 0, 1)...)
	w.compact(1)
	w.erase(func(r *segment.Record) bool { return r.Offset == 3 })
	w.table.rowsPage = 1
	w.produce(metadata.ChunkOrders+3, at("t", 0, 1)...)
	return w
}

func (w *world) everythingArchived() {
	w.t.Helper()
	_, err := compact.Run(w.t.Context(), w.plain(), w.store.Store, compact.Options{Topics: []string{"t"}, All: true, Env: w.env})
	check(w.t, err)
}

func (w *world) merge(partition int) {
	w.t.Helper()
	check(w.t, w.mergeRows(w.t.Context(), partition))
}

// mergeRows makes one row of all rows of a partition of t.
func (w *world) mergeRows(ctx context.Context, partition int) error {
	topic, err := w.table.Table.Topic(ctx, "t")
	if err != nil {
		return err
	}
	state, err := w.table.Table.State(ctx, topic.Place(partition).Lane, metadata.Strong)
	if err != nil {
		return err
	}
	rows, err := archive.Rows(ctx, w.plain(), topic, partition, state)
	if err != nil || len(rows) == 0 {
		return err
	}
	x := archive.Rewriting{Log: w.logID(), Topic: topic, Partition: partition, Groups: [][]*metadata.Row{rows[:min(len(rows), metadata.MaxPublishRows)]}, Keep: func(*segment.Record) bool { return true }}
	_, _, err = archive.Rewrite(ctx, archive.Services{Env: w.env, Table: w.plain(), Objects: w.store.Store}, x, func() {})
	return err
}

func (w *world) logID() segment.LogID {
	id, _, err := w.table.Table.Identity(w.t.Context())
	if err != nil {
		w.t.Error(err)
	}
	return id.Log
}

// keepArchiving archives what was committed, in small pieces, and merges them.
func (w *world) keepArchiving(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		_, err := compact.Run(ctx, w.plain(), w.store.Store, compact.Options{Topics: []string{"t"}, Target: 1, Env: w.env})
		if err == nil && i%3 == 0 {
			err = w.mergeRows(ctx, i%8)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, metadata.ErrChanged) {
			w.t.Error(err)
		}
	}
}

// sweep lets time pass and sweeps.
func (w *world) sweep(after time.Duration) {
	w.t.Helper()
	time.Sleep(after)
	_, err := sweep.Run(w.t.Context(), w.plain(), w.store.Store, sweep.Options{Env: w.env})
	check(w.t, err)
}

func (w *world) retain() {
	w.t.Helper()
	_, err := retain.Run(w.t.Context(), w.plain(), retain.Options{Env: w.env})
	check(w.t, err)
}

// afterWindow is when what was replaced is swept.
const afterWindow = metadata.RestoreWindow + 2*time.Hour

// archiveEvents are what may happen to the log of used while it is verified.
var archiveEvents = []struct {
	name   string
	happen func(w *world)
}{
	{"a chunk archived", func(w *world) { w.compact(1) }},
	{"everything archived, the head emptied", func(w *world) { w.everythingArchived() }},
	{"rows merged", func(w *world) { w.merge(0) }},
	{"everything archived, rows merged, all that was replaced swept", func(w *world) {
		w.everythingArchived()
		w.merge(1)
		w.merge(0)
		w.sweep(afterWindow)
	}},
	{"records erased", func(w *world) { w.erase(func(r *segment.Record) bool { return r.Offset%2 == 0 }) }},
	{"all records erased, and what held them swept", func(w *world) {
		w.erase(func(*segment.Record) bool { return true })
		w.sweep(afterWindow)
	}},
	{"keys compacted, and what was replaced swept", func(w *world) {
		_, err := w.log.Admin().AlterTopic(w.t.Context(), "t", sdk.Alteration{Config: map[string]string{metadata.CleanupPolicy: "compact"}})
		check(w.t, err)
		w.compact(1)
		_, err = clean.Run(w.t.Context(), w.plain(), w.store.Store, clean.Options{Dirty: 0.01, Env: w.env})
		check(w.t, err)
		w.sweep(afterWindow)
	}},
	{"records deleted, their rows and objects swept", func(w *world) {
		for p, offset := range []int64{9, 16} {
			_, err := w.log.Admin().DeleteRecords(w.t.Context(), "t", p, offset)
			check(w.t, err)
		}
		w.sweep(afterWindow)
	}},
	{"everything expired and swept, more appended and archived", func(w *world) {
		time.Sleep(8 * 24 * time.Hour)
		w.produce(1, at("t", 1)...)
		w.retain()
		w.sweep(time.Minute)
		w.produce(metadata.ChunkOrders, at("t", 0, 1)...)
		w.everythingArchived()
	}},
	{"topic deleted, everything swept", func(w *world) {
		check(w.t, w.log.Admin().DeleteTopic(w.t.Context(), "t"))
		for range 3 {
			w.sweep(afterWindow)
		}
	}},
	{"segments in the table, and all of it archived", func(w *world) {
		w.small = 4000
		w.produce(metadata.ChunkOrders, at("t", 0, 1)...)
		w.small = 0
		w.everythingArchived()
	}},
}

// Each of them at each moment, and a check of what it leaves.
func TestEveryArchiveEventAtEveryMoment(t *testing.T) {
	for _, e := range archiveEvents {
		t.Run(e.name, func(t *testing.T) {
			for moment, requests := 0, 1; moment < requests && !t.Failed(); moment += stride {
				synctest.Test(t, func(t *testing.T) {
					w := used(t)
					o := w.options()
					if o.Proof = filepath.Join(t.TempDir(), "proof"); moment%2 == 0 {
						w.verify(o)
					}
					if requests = happeningIn(w, o, e.happen, moment); moment > 1 {
						return
					}
					if r := w.verify(o); !harmless(r) || r.Totals.Orphans.Objects > 0 {
						t.Fatalf("afterwards: %s\n%+v", describe(r), r.Totals)
					}
				})
			}
		})
	}
}

// A query may see some of what a publication changes and not the rest.
func TestTornQueries(t *testing.T) {
	for name, tear := range map[string]func(before, after []*metadata.Row) []*metadata.Row{
		"the new row, and an old one":  func(before, after []*metadata.Row) []*metadata.Row { return []*metadata.Row{after[0], before[1]} },
		"an old row, the other gone":   func(before, _ []*metadata.Row) []*metadata.Row { return before[:1] },
		"the other old row, not a new": func(before, _ []*metadata.Row) []*metadata.Row { return before[1:] },
		"all as they were":             func(before, _ []*metadata.Row) []*metadata.Row { return before },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := used(t)
			rows := func() []*metadata.Row {
				rows, _, err := w.table.Table.Rows(t.Context(), w.row("t").ID, 1, 0, 100, 100, metadata.Strong)
				check(t, err)
				return rows
			}
			before := rows()
			w.merge(1)
			after := rows()
			if len(before) != 2 || len(after) != 1 {
				t.Fatalf("%d rows, then %d", len(before), len(after))
			}
			sums := w.verify(w.options()).Partitions
			w.table.torn = tear(before, after)
			if r := w.verify(w.options()); len(r.Findings) != 0 || w.table.torn != nil || !slices.Equal(r.Partitions, sums) || sums[1].Partial {
				t.Errorf("%s: %s\n%+v, %+v", name, describe(r), r.Partitions, sums)
			}
			w.table.torn = tear(before, after)
			w.store.show(w.archiveName(1, 0), nil)
			if r := w.verify(w.options()); r.OK() && name != "all as they were" {
				t.Errorf("%s: the missing segment is not found", name)
			}
		})
	}
}
