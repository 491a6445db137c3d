package repair_test

import (
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/metadata"
)

// A lane's row without records lies behind the rows of what came before it, and a compaction may merge it with them. A run that comes after that, for what was young or because the
// last one was cut off, must not take where the merged row begins for where the cut does: the log would begin behind all that is older.
func TestRowsMergedBetweenTwoRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		for range 4 { // rows
			a.minutes("t", 2)
			w.compact("t")
		}
		o, old := w.copied()
		a.minutes("t", 20)
		w.putBack(old)
		if report := w.mustRepair(o); report.Young < 10 {
			t.Errorf("%+v", report)
		}
		w.reopen()
		b := w.writer()
		for range 8 {
			b.minutes("t", 2)
			w.compact("t")
		}
		topic, err := w.adapter(w.env).Topic(t.Context(), "t")
		check(w, err)
		rows, _, err := w.adapter(w.env).Rows(t.Context(), topic.ID, 0, 0, metadata.EraStep, 100, metadata.Strong)
		check(w, err)
		if len(rows) != 1 || rows[0].Count < 8 || rows[0].End < metadata.EraStep {
			t.Fatalf("the row without records was not merged: %+v", rows)
		}
		if report := w.mustRepair(o); report.Again < 10 {
			t.Errorf("second run: %+v", report)
		}
		if kept, _ := w.sound("t"); kept < 16 {
			t.Errorf("%d records kept their offsets", kept)
		}
		w.whole()
	})
}
