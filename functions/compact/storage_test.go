package compact_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/mem"
)

// TestStorageIsTwiceAtMost: whatever was appended is in two objects at most, at any time, though compaction runs every quarter of an hour for days, merges what it has
// compacted, and the sweep comes daily only; and in one when the restore window is over and the sweep has come. Rows stay few nonetheless.
func TestStorageIsTwiceAtMost(t *testing.T) {
	for _, retention := range []time.Duration{-time.Millisecond, 7 * 24 * time.Hour}[:min(2, 1+2/raceShare)] {
		t.Run(fmt.Sprint("kept for ", retention), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storage(t, retention) })
		})
	}
}

func storage(t *testing.T, retention time.Duration) {
	objects := mem.New()
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Objects: objects})
	check(t, err)
	defer memory.Close()
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(memory), sdk.WithCreateTable())
	check(t, err)
	topic, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: 2, Config: map[string]string{"retention.ms": fmt.Sprint(retention.Milliseconds())}})
	check(t, err)
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithCompression(segment.None))
	check(t, err)
	const each, quarter, day, days = 16 << 10, 15 * time.Minute, 24 * time.Hour, 6
	appended, peak, rows, merged := 0.0, 0.0, 0, 0
	measure := func() {
		if appended > 100*each {
			peak = max(peak, float64(objects.Size())/appended)
		}
	}
	b := log.Backend()
	run := func() {
		r, err := compact.Run(t.Context(), b.Table, b.Store, compact.Options{Env: env.System()})
		check(t, err)
		measure()
		merged += r.Merged
		page, _, err := b.Table.Rows(t.Context(), segment.TopicID(topic.ID), 0, 0, math.MaxInt64, 1000, metadata.Strong)
		check(t, err)
		rows = max(rows, len(page))
	}
	for n := range days * day / quarter {
		for i := range 2 {
			check(t, p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Partition: i, Value: make([]byte, each)}).Err())
			appended += each
		}
		time.Sleep(quarter)
		run()
		if (n+1)%(day/quarter) == 0 {
			_, err = sweep.Run(t.Context(), b.Table, b.Store, sweep.Options{Env: env.System()})
			check(t, err)
			measure()
		}
	}
	check(t, p.Close(t.Context()))
	time.Sleep(2 * time.Hour)
	run()
	for range 2 { // merges after the last of it are swept, too
		time.Sleep(metadata.RestoreWindow + time.Hour)
		_, err = sweep.Run(t.Context(), b.Table, b.Store, sweep.Options{Env: env.System()})
		check(t, err)
	}
	left := float64(objects.Size()) / appended
	t.Logf("at most %.3f times what was appended is stored, %.3f times in the end; %d rows, %d merges", peak, left, rows, merged)
	if peak > 2.03 || left > 1.05 || rows > 75 || merged < 8 {
		t.Error("more than 2.03, 1.05 or 75 rows, or there were no merges")
	}
}
