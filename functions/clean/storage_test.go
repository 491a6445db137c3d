package clean_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/mem"
)

// TestStorage: keys are compacted every quarter of an hour for days, and the sweep comes daily. Where nothing is superseded nothing is written a third time, only to be together;
// where a few keys come again and again, not much is.
func TestStorage(t *testing.T) {
	for name, c := range map[string]struct {
		keys int
		most float64
	}{"each key once": {math.MaxInt, 2.03}, "ten keys": {10, 2.3}} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { storage(t, c.keys, c.most) }) })
	}
}

func storage(t *testing.T, keys int, most float64) {
	objects := mem.New()
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Objects: objects})
	check(t, err)
	defer memory.Close()
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(memory), sdk.WithCreateTable())
	check(t, err)
	topic, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: 2, Config: map[string]string{"cleanup.policy": "compact"}})
	check(t, err)
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithCompression(segment.None))
	check(t, err)
	const each, quarter, day, days = 16 << 10, 15 * time.Minute, 24 * time.Hour, 4
	appended, peak, passes, rows := 0.0, 0.0, 0, 0
	b := log.Backend()
	for n := range int(days * day / quarter) {
		for i := range 2 {
			check(t, p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Partition: i, Key: fmt.Append(nil, n%keys), Value: make([]byte, each)}).Err())
			appended += each
		}
		time.Sleep(quarter)
		_, err := compact.Run(t.Context(), b.Table, b.Store, compact.Options{Env: env.System()})
		check(t, err)
		r, err := clean.Run(t.Context(), b.Table, b.Store, clean.Options{Env: env.System()})
		check(t, err)
		passes += len(r.Partitions)
		if appended > 100*each {
			peak = max(peak, float64(objects.Size())/appended)
		}
		if (n+1)%int(day/quarter) == 0 {
			_, err = sweep.Run(t.Context(), b.Table, b.Store, sweep.Options{Env: env.System()})
			check(t, err)
		}
		page, _, err := b.Table.Rows(t.Context(), segment.TopicID(topic.ID), 0, 0, math.MaxInt64, 1000, metadata.Strong)
		check(t, err)
		rows = max(rows, len(page))
	}
	check(t, p.Close(t.Context()))
	t.Logf("at most %.3f times what was appended is stored; %d rows, %d passes", peak, rows, passes)
	if peak > most || passes < 4 || rows > 75 {
		t.Errorf("more than %.2f, or 75 rows, or there were no passes", most)
	}
}
