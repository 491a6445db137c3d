package repair_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/erase"
	"github.com/varvelog/varve/functions/repair"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// The table is lost an hour after an erasure, or a pass of key compaction, while the objects that producers wrote are still there: what was removed from their batches is not appended
// again, behind what came later.
func TestWhatWasRemovedIsNotAppendedAgain(t *testing.T) {
	for name, remove := range map[string]func(*world){
		"keys": func(w *world) {
			report, err := clean.Run(w.Context(), w.adapter(w.env), w.objects, clean.Options{Env: w.env})
			check(w, err)
			if p := report.Partitions; len(p) != 1 || p[0].Kept != 2 {
				w.Fatalf("%+v", report)
			}
		},
		"erasure": func(w *world) {
			report, err := erase.Run(w.Context(), w.adapter(w.env), w.objects, erase.Options{Topic: "u", Env: w.env, Match: func(r *segment.Record) bool { return r.Offset == 0 || r.Offset == 2 },
				Archive: func(context.Context, string) error { return nil }})
			check(w, err)
			if report.Erased != 2 {
				w.Fatalf("%+v", report)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l := w.open()
				_, err := l.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "u", Partitions: 1, Config: map[string]string{metadata.CleanupPolicy: "compact"}})
				check(t, err)
				p, err := l.NewProducer()
				check(t, err)
				record := func(key string, value int) *sdk.Record {
					return &sdk.Record{Topic: "u", Key: []byte(key), Value: fmt.Append(nil, value)}
				}
				check(t, p.ProduceSync(t.Context(), record("k", 0), record("other", 1)).Err())
				check(t, p.ProduceSync(t.Context(), record("k", 2), record("k", 3)).Err())
				w.compact("u") // at once: by its clock before they were produced
				time.Sleep(time.Minute)
				remove(w)
				before := w.read("u")
				time.Sleep(time.Hour)
				w.lose()
				o := repair.Options{Lost: true, Env: w.env, DryRun: true}
				plan := w.mustRepair(o)
				o.DryRun, o.Names = false, map[segment.TopicID]string{segment.TopicID(plan.Topics[0].ID): "u"}
				report := w.mustRepair(o)
				w.reopen()
				w.whole() // what had been removed is not known any more, which is told from what was changed
				w.compact("u")
				w.whole()
				if after := w.read("u"); len(after) != len(before) || report.Partitions[0].Appended != 0 {
					t.Errorf("%d records were there, now there are %d: %+v", len(before), len(after), report.Partitions)
				}
			})
		})
	}
}
