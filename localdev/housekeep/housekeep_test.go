package housekeep_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/localdev/housekeep"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Three days of a log whose house is kept: objects stay few, what has expired goes, the latest of each key stays, and readers that go on where the last one was miss nothing.
func TestThreeDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(embedded.Driver()))
		check(t, err)
		defer log.Close()
		for name, config := range map[string]map[string]string{
			"events": {"retention.ms": fmt.Sprint((24 * time.Hour).Milliseconds())},
			"state":  {"cleanup.policy": "compact"},
		} {
			_, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: name, Partitions: 2, Config: config})
			check(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		jobs := map[string]int{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			housekeep.Run(ctx, log.Backend(), housekeep.Options{Compact: time.Hour, Retain: 2 * time.Hour, Sweep: 12 * time.Hour, Env: env.System(), Tell: func(e housekeep.Event) {
				jobs[e.Job]++
				if e.Err != nil {
					t.Errorf("%s: %v", e.Job, e.Err)
				}
			}})
		}()
		p, err := log.NewProducer()
		check(t, err)
		const hours, each = 50, 8
		seen, next := 0, map[int]int64{0: 0, 1: 0}
		for hour := range hours {
			for i := range each {
				key := []byte(fmt.Sprint(i % 5))
				check(t, p.ProduceSync(t.Context(), &sdk.Record{Topic: "events", Key: key, Value: fmt.Append(nil, hour, i)}, &sdk.Record{Topic: "state", Key: key, Value: fmt.Append(nil, hour, i)}).Err())
			}
			live, err := log.NewReader(t.Context(), "events", sdk.FromOffsets(next)) // anew: one that waits looks every two seconds
			check(t, err)
			for seen < each*(hour+1) {
				fetches, err := live.Poll(t.Context())
				check(t, err)
				for _, f := range fetches {
					seen += len(f.Records)
					next[f.Partition] = f.Records[len(f.Records)-1].Offset + 1
				}
			}
			check(t, live.Close())
			time.Sleep(time.Hour)
		}
		count := func(topic string) (n int) {
			r, err := log.NewReplay(t.Context(), topic, sdk.ReplayParallel(1))
			check(t, err)
			check(t, r.Run(t.Context(), func(_ context.Context, f sdk.Fetch) error { n += len(f.Records); return nil }))
			return n
		}
		if n := count("events"); n < 23*each || n > 30*each { // what is kept longer shares a row with what is not that old
			t.Errorf("%d events are left of %d a hour and 24 hours", n, each)
		}
		time.Sleep(30 * time.Hour)
		if n := count("state"); n < 5 || n > 250 {
			t.Errorf("%d records are left of 5 keys", n)
		}
		objects := 0
		for after, more := "", true; more; {
			page, err := log.Backend().Store.List(t.Context(), "", after, store.MaxPage)
			check(t, err)
			objects, after, more = objects+len(page.Objects), page.Last, page.More
		}
		if objects > 300 {
			t.Errorf("%d objects are left of %d", objects, 2*each*hours)
		}
		cancel()
		<-done
		check(t, p.Close(t.Context()))
		t.Logf("%d objects, %v runs", objects, jobs)
		for _, job := range []string{"compact", "clean", "retain", "sweep"} {
			if jobs[job] < 4 {
				t.Errorf("%s ran %d times", job, jobs[job])
			}
		}
	})
}

// While a part of the log is compacted it is stored twice at most; after the sweep that follows the restore window, once, and a little for what objects say of themselves.
func TestStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(embedded.Driver()))
		check(t, err)
		defer log.Close()
		_, err = log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: 64})
		check(t, err)
		p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithCompression(segment.None))
		check(t, err)
		value := make([]byte, 1<<10)
		for range 60 {
			var records []*sdk.Record
			for partition := range 64 {
				records = append(records, &sdk.Record{Topic: "t", Partition: partition, Value: value})
			}
			check(t, p.ProduceSync(t.Context(), records...).Err())
		}
		check(t, p.Close(t.Context()))
		b := log.Backend()
		stored := func() (bytes float64) {
			page, err := b.Store.List(t.Context(), "", "", store.MaxPage)
			check(t, err)
			for _, o := range page.Objects {
				bytes += float64(o.Size)
			}
			return bytes
		}
		before := stored()
		_, err = compact.Run(t.Context(), b.Table, b.Store, compact.Options{All: true, Env: env.System()})
		check(t, err)
		during := stored()
		time.Sleep(metadata.RestoreWindow + 2*time.Hour)
		_, err = sweep.Run(t.Context(), b.Table, b.Store, sweep.Options{Env: env.System()})
		check(t, err)
		after := stored()
		t.Logf("%.0f bytes before, %.2f times while both are there, %.3f times after the sweep", before, during/before, after/before)
		if during > 2*before || after > 1.05*before || after < 0.9*before {
			t.Errorf("%.0f, %.0f, %.0f", before, during, after)
		}
	})
}
