package compact_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/sdk"
)

// driver opens the world's log.
type driver struct{ *world }

func (driver) Schemes() []string { return []string{"mem"} }
func (d driver) Open(context.Context, *url.URL, sdk.DriverOptions) (sdk.Backend, error) {
	return sdk.Backend{Table: d.table, Store: d.objects, Bucket: "b", Prefix: "p"}, nil
}

// TestLive: while a producer appends and readers read, from the start, from anywhere and the tail, compactors run without a pause. Nobody notices.
func TestLive(t *testing.T) {
	w := newWorld(t)
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(driver{w}))
	check(t, err)
	defer log.Close()
	const partitions, rounds, each = 4, 60 / min(raceShare, 3), 5
	_, err = log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: partitions, LaneWidth: 2})
	check(t, err)
	var all, compactors sync.WaitGroup
	done := make(chan struct{})
	jobs, merges := make([]int, 2), make([]int, 2)
	var merged atomic.Int64
	for i := range jobs {
		compactors.Go(func() {
			further := 0
			for at := (&table{Table: w.table}); ; at.ahead += compact.MergeAfter { // each run merges what those before it have made
				report, err := compact.Run(t.Context(), at, w.objects, compact.Options{Env: w.env, Target: 1 << 10}) // whole chunks, at once
				if err != nil {
					t.Error(err)
					return
				}
				jobs[i], merges[i] = jobs[i]+report.Segments, merges[i]+report.Merged
				merged.Add(int64(report.Merged))
				select {
				case <-done:
					if further++; merged.Load() > 0 || further > 100 { // what is merged a run finds by chance
						return
					}
				default:
				}
			}
		})
	}
	for range 2 {
		all.Go(func() { tail(t, log, partitions, rounds*each) })
	}
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	check(t, err)
	for i := range rounds {
		var records []*sdk.Record
		for j := range each * partitions {
			records = append(records, &sdk.Record{Topic: "t", Partition: j % partitions, Value: fmt.Appendf(nil, "%d", i*each+j/partitions)})
		}
		for _, r := range p.ProduceSync(t.Context(), records...) {
			check(t, r.Err)
		}
		if i%20 == 10 {
			all.Go(func() { tail(t, log, partitions, (i+1)*each) })
		}
	}
	check(t, p.Close(t.Context()))
	all.Wait()
	close(done)
	compactors.Wait()
	if jobs[0]+jobs[1] == 0 || merges[0]+merges[1] == 0 {
		t.Error("nothing was compacted, or merged")
	}
	t.Logf("%v segments were published, %v of them merges", jobs, merges)
	tail(t, log, partitions, rounds*each)
	anywhere(t, log, partitions, rounds*each)
	report, err := verify.Run(t.Context(), w.table, w.objects, verify.Options{Env: w.env})
	check(t, err)
	if !report.OK() {
		t.Errorf("%+v", report.Findings)
	}
}

// tail reads n records of each partition from the start on, as they come.
func tail(t *testing.T, log *sdk.Log, partitions, n int) {
	r, err := log.NewReader(t.Context(), "t", sdk.From(sdk.Earliest))
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	next := make([]int, partitions)
	for left := partitions * n; left > 0; {
		fetches, err := r.Poll(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		for _, f := range fetches {
			for _, record := range f.Records {
				at := &next[record.Partition]
				if *at < n {
					left--
				}
				if record.Offset != int64(*at) || string(record.Value) != fmt.Sprint(*at) {
					t.Errorf("partition %d: offset %d with %q, not %d", record.Partition, record.Offset, record.Value, *at)
					return
				}
				*at++
			}
		}
	}
}

// anywhere reads from offsets by chance.
func anywhere(t *testing.T, log *sdk.Log, partitions, n int) {
	chance := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		from := chance.IntN(n)
		r, err := log.NewReader(t.Context(), "t", sdk.From(sdk.AtOffset(int64(from))), sdk.To(sdk.Latest))
		check(t, err)
		read := 0
		for {
			fetches, err := r.Poll(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			check(t, err)
			for _, f := range fetches {
				read += len(f.Records)
			}
		}
		check(t, r.Close())
		if read != partitions*(n-from) {
			t.Fatalf("from offset %d: %d records, not %d", from, read, partitions*(n-from))
		}
	}
}
