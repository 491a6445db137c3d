package sweep

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func rowLine(r metadata.Row) []string { return []string{fmt.Sprintf("%s %s", Row, r.Key())} }

// Rows wholly below the log start go, and the archive segments that no other row names.
func TestExpiredRows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 2, 2)
		lane := topic.Lanes[0]
		var ps []*metadata.Publication
		for range 3 {
			w.fill(16, part{topic, 0, 1}, part{topic, 1, 1})
			ps = append(ps, w.compact(topic, lane))
		}
		time.Sleep(RestoreWindow + 2*time.Hour)
		w.swept()
		zero, one := w.rows(topic, 0), w.rows(topic, 1)
		w.start(topic, 0, 40) // within the third row
		want(t, w.swept(), rowLine(zero[0]), rowLine(zero[1]))
		if !w.there(segment.ArchiveName(topic.ID, ps[0].ID)) {
			t.Fatal("the other partition's row names it")
		}
		w.start(topic, 1, 16)
		want(t, w.swept(), rowLine(one[0]), archiveLine(topic, ps[0].ID))
		w.start(topic, 1, 48)
		want(t, w.swept(), rowLine(one[1]), rowLine(one[2]), archiveLine(topic, ps[1].ID))
		w.start(topic, 0, 48)
		want(t, w.swept(), rowLine(zero[2]), archiveLine(topic, ps[2].ID))
		if got := w.rows(topic, 0); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
}

// An archive segment of two rows, of which a merge has replaced one, stays until the other goes too, and then for the restore window.
func TestReplacedInTheArchive(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 2, 2)
		w.fill(16, part{topic, 0, 1}, part{topic, 1, 1})
		p := w.compact(topic, topic.Lanes[0])
		name := segment.ArchiveName(topic.ID, p.ID)
		time.Sleep(RestoreWindow + 2*time.Hour)
		w.swept()
		first := w.merge(topic, w.rows(topic, 0)...)
		time.Sleep(RestoreWindow + time.Minute)
		want(t, w.swept(), entryLine(first.ID))
		second := w.merge(topic, w.rows(topic, 1)...)
		time.Sleep(RestoreWindow - time.Minute)
		want(t, w.swept())
		time.Sleep(2 * time.Minute)
		want(t, w.swept(), entryLine(second.ID), []string{"object " + name})
	})
}

// A segment that was replaced long ago in one partition and lately in another is kept for the restore window of the latter.
func TestReplacedTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 2, 2)
		w.fill(16, part{topic, 0, 1}, part{topic, 1, 1})
		p := w.compact(topic, topic.Lanes[0])
		time.Sleep(RestoreWindow + 2*time.Hour)
		w.swept()
		first := w.merge(topic, w.rows(topic, 0)...)
		time.Sleep(20 * time.Hour)
		second := w.merge(topic, w.rows(topic, 1)...)
		time.Sleep(6 * time.Hour)
		want(t, w.swept(), entryLine(first.ID))
		time.Sleep(20 * time.Hour)
		want(t, w.swept(), entryLine(second.ID), archiveLine(topic, p.ID))
	})
}

// What is below the log start and was never archived goes too: compaction passes over it, writes nothing, and what it has passed over is superseded.
func TestExpiredBeforeItWasArchived(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 2, 2)
		ids := w.fill(34, part{topic, 0, 1}, part{topic, 1, 2})
		time.Sleep(2 * time.Hour)
		w.start(topic, 0, 34)
		w.start(topic, 1, 68)
		want(t, w.swept())
		_, err := compact.Run(t.Context(), w.table, w.bucket, compact.Options{Env: w.env})
		check(t, err)
		before := len(w.everything())
		time.Sleep(RestoreWindow + time.Hour)
		w.swept()
		for _, id := range ids {
			if w.has(id) {
				t.Errorf("%s is there", id)
			}
		}
		if got := w.everything(); before != 1+len(ids) || len(got) != 1 || len(w.rows(topic, 0)) != 0 {
			t.Errorf("%d objects before, %q now, rows %v", before, got, w.rows(topic, 0))
		}
		if n := len(w.chunks(topic.Lanes[0], 0, 1000)); n != 1 {
			t.Errorf("%d chunks, the newest stays", n)
		}
		want(t, w.swept())
	})
}

// --full lists everything: what a search by windows of ids has passed, and archive segments of topics of which nothing is left.
func TestFull(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic, gone := w.topic("orders", 1, 1), w.topic("gone", 1, 1)
		w.fill(40, part{topic, 0, 1})
		p := w.compact(topic, topic.Lanes[0])
		w.delete("gone")
		for range 6 {
			time.Sleep(3 * time.Hour)
			w.swept()
		}
		old := w.id(time.Now().Add(-12*time.Hour), segment.InBucket)
		oldSmall := w.id(time.Now().Add(-12*time.Hour), segment.InTable)
		w.upload(old, part{topic, 0, 1})
		w.upload(oldSmall, part{topic, 0, 1})
		lost := w.lost(gone)
		time.Sleep(2 * time.Hour)
		want(t, w.swept())
		o := w.options()
		o.Full, o.DryRun = true, true
		_, would, err := w.sweep(o)
		check(t, err)
		o.DryRun = false
		_, did, err := w.sweep(o)
		check(t, err)
		want(t, names(did), intakeLines(old, oldSmall), archiveLine(gone, lost))
		want(t, names(would), names(did))
		if !w.there(segment.ArchiveName(topic.ID, p.ID)) {
			t.Error("a published segment was deleted")
		}
		w.sound()
	})
}

// Several sweeps at once, and producers and compactors beside them.
func TestSeveralAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		y := newBusy(w)
		for i := range 4 {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					o := Options{Env: w.env}
					o.Env.Rand = env.NewRand(uint64(i))
					if _, err := Run(t.Context(), w.table, w.store, o); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				for range 30 {
					y.produce(part{y.b, 0, 1})
				}
				y.compact(y.b, y.b.Lanes[0])
			})
			wg.Wait()
			y.sound()
			time.Sleep(RestoreWindow / 2)
		}
		y.settle()
	})
}
