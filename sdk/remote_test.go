package sdk_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/sdk"
)

// readAll reads what the reader has, up to its stop, and checks that offsets ascend without gaps. The values are by partition.
func readAll(t testing.TB, r *sdk.Reader) map[int][]string {
	t.Helper()
	defer r.Close()
	all, next := map[int][]string{}, map[int]int64{}
	for {
		fetches, err := r.Poll(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return all
		case errors.Is(err, sdk.ErrUnreachable): // halts nothing
		case err != nil:
			t.Fatal(err)
		}
		for _, f := range fetches {
			for _, x := range f.Records {
				if before, ok := next[f.Partition]; ok && x.Offset != before {
					t.Fatalf("partition %d: offset %d where %d should be", f.Partition, x.Offset, before)
				}
				next[f.Partition] = x.Offset + 1
				all[f.Partition] = append(all[f.Partition], string(x.Value))
			}
		}
	}
}

// inOrder checks that each partition's values, which are producer/number, ascend for each producer, and returns how many there are.
func inOrder(t testing.TB, all map[int][]string) (n int) {
	t.Helper()
	for p, values := range all {
		last := map[string]int{}
		for _, v := range values {
			name, number, _ := strings.Cut(v, "/")
			var i int
			fmt.Sscan(number, &i)
			if before, ok := last[name]; ok && i <= before {
				t.Fatalf("partition %d: %s comes after %s/%d", p, v, name, before)
			}
			last[name] = i
			n++
		}
	}
	return n
}

// What is produced over HTTP is in the log in order, at the offsets that were told, and read over HTTP as it was written.
func TestRemote_ProduceAndRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 5, LaneWidth: 2})
		p, seen := f.producer(f.log), &acks{}
		const n = 3000
		for i := range n {
			p.Produce(ctx, &sdk.Record{Topic: "t", Key: fmt.Append(nil, i%17), Value: fmt.Append(nil, "a/", i), Headers: []sdk.Header{{Key: "h"}}}, seen.promise)
		}
		f.must(p.Close(ctx))
		if got := f.verify("t", seen.list()); got != n {
			t.Fatalf("%d acknowledged", got)
		}
		r, err := f.log.NewReader(ctx, "t", sdk.To(sdk.Latest))
		f.must(err)
		if got := inOrder(t, readAll(t, r)); got != n {
			t.Fatalf("read %d of %d", got, n)
		}
	})
}

// Whatever happens between client and function, and however often: each acknowledged record is in the log once, at its offset, and in order; and a reader whose
// requests fare no better reads each once.
func TestRemote_Faults(t *testing.T) {
	for _, c := range []struct {
		name    string
		mishaps []mishap
	}{
		{"cut before", []mishap{cutBefore}},
		{"cut after", []mishap{cutAfter}},
		{"500 not applied", []mishap{fails500}},
		{"500 applied", []mishap{failed500}},
		{"throttled", []mishap{throttled}},
		{"retry later", []mishap{retryLater}},
		{"cut body", []mishap{cutBody}},
		{"garbage", []mishap{garbage}},
		{"silence", []mishap{silence}},
		{"everything", []mishap{cutBefore, cutAfter, fails500, failed500, throttled, retryLater, cutBody, garbage, silence}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t)
				f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 5, LaneWidth: 2})
				chance := rand.New(rand.NewPCG(1, 2))
				f.befall(func(r *http.Request) mishap { // called one at a time
					if chance.IntN(3) > 0 {
						return nothing
					}
					return c.mishaps[chance.IntN(len(c.mishaps))]
				})
				seen := &acks{}
				const n = 150 / raceShare
				var producers []*sdk.Producer
				for range 2 {
					producers = append(producers, f.producer(f.log, sdk.WithDeliveryDeadline(time.Hour)))
				}
				for i := range n {
					for j, p := range producers {
						p.Produce(ctx, &sdk.Record{Topic: "t", Key: fmt.Append(nil, i%11), Value: fmt.Append(nil, j, "/", i)}, seen.promise)
					}
					time.Sleep(20 * ms)
				}
				for _, p := range producers {
					f.must(p.Close(ctx))
				}
				if got := f.verify("t", seen.list()); got != 2*n {
					t.Errorf("%d acknowledged of %d", got, 2*n)
				}
				r, err := f.log.NewReader(ctx, "t", sdk.To(sdk.Latest), sdk.WithReadBuffer(1<<20))
				for errors.Is(err, sdk.ErrUnreachable) || errors.Is(err, sdk.ErrThrottled) {
					r, err = f.log.NewReader(ctx, "t", sdk.To(sdk.Latest), sdk.WithReadBuffer(1<<20))
				}
				f.must(err)
				if got := inOrder(t, readAll(t, r)); got != 2*n {
					t.Errorf("%d records read, %d were produced", got, 2*n)
				}
			})
		})
	}
}
