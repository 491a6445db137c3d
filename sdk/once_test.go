package sdk_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/sdk"
)

var atOnce = sdk.WithLinger(0, 0)

// request is a request of one record for the partition.
func request(partition int, value string) []*sdk.Record {
	return []*sdk.Record{{Topic: "orders", Partition: partition, Value: []byte(value)}}
}

// twoProcesses are producers of two processes, in a world that has the topic orders.
func twoProcesses(t *testing.T) (w *world, a, b *sdk.Producer) {
	w = newWorld(t)
	log, other := w.open(), w.open()
	w.create(log, sdk.NewTopic{Name: "orders", Partitions: 3})
	a, b = w.producer(log, atOnce), w.producer(other, atOnce)
	t.Cleanup(func() {
		w.must(a.Close(ctx))
		w.must(b.Close(ctx))
		w.must(log.Close())
		w.must(other.Close())
	})
	return w, a, b
}

// TestAppendOnce: a producer's requests, sent again by itself and by another process, are appended once, and answered as at first.
func TestAppendOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := twoProcesses(t)
		id := a.NewProducerID()
		for n := int64(1); n <= 12; n++ {
			records := func() []*sdk.Record {
				return append(request(2, fmt.Sprint(n, "b")), append(request(0, fmt.Sprint(n, "a")), request(2, fmt.Sprint(n, "c"))...)...)
			}
			first, err := a.AppendOnce(ctx, id, n, records()...)
			if err != nil || first.Repeated || !first.OffsetsKnown {
				t.Fatalf("%+v, %v", first, err)
			}
			for _, p := range []*sdk.Producer{a, b} {
				again, err := p.AppendOnce(ctx, id, n, records()...)
				if err != nil || !again.Repeated || !again.OffsetsKnown {
					t.Fatalf("%+v, %v", again, err)
				}
				for i, r := range again.Results {
					if f := first.Results[i].Record; r.Record.Offset != f.Offset || r.Record.Partition != f.Partition || f.Offset != []int64{2 * (n - 1), n - 1, 2*n - 1}[i] {
						t.Fatalf("sequence %d, record %d: at %d, then at %d", n, i, f.Offset, r.Record.Offset)
					}
				}
			}
		}
		all := w.contents("orders")
		if len(all[0]) != 12 || len(all[1]) != 0 || len(all[2]) != 24 {
			t.Fatal(len(all[0]), len(all[1]), len(all[2]))
		}
		var gap *sdk.SequenceGapError
		if _, err := b.AppendOnce(ctx, id, 14, request(0, "x")...); !errors.As(err, &gap) || gap.Expected != 13 || !errors.Is(err, sdk.ErrSequenceGap) {
			t.Fatal(err)
		}
	})
}

// TestAppendOnceIf: a request under a condition is appended once, by whomever it is sent again. What has ended its condition are its own records then, and it is not
// refused for that, even by a process that believes the request to be the next; and after a refusal the sequence is still the next one's.
func TestAppendOnceIf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := twoProcesses(t)
		id := a.NewProducerID()
		for n := int64(1); n <= 8; n++ {
			first, second := a, b
			if n%2 == 0 {
				first, second = b, a
			}
			var refused *sdk.ConditionError
			if _, err := first.AppendOnceIf(ctx, id, n, "orders", 1, request(0, "x"), sdk.EndIs(n)); !errors.As(err, &refused) || refused.End != n-1 || refused.Partition != 1 {
				t.Fatalf("sequence %d, expecting an end that is not there yet: %v", n, err)
			}
			for i, p := range []*sdk.Producer{first, second, first} {
				got, err := p.AppendOnceIf(ctx, id, n, "orders", 1, request(0, fmt.Sprint(n)), sdk.EndIs(n-1))
				if err != nil || got.Repeated != (i > 0) || got.Results[0].Record.Offset != n-1 {
					t.Fatalf("sequence %d, attempt %d: %+v, %v", n, i, got, err)
				}
			}
		}
		if all := w.contents("orders"); len(all[1]) != 8 || len(all[0]) != 0 {
			t.Fatal(len(all[0]), len(all[1]))
		}
		if _, err := a.AppendOnceIf(ctx, id, 9, "orders", 1, request(0, "x")); !errors.Is(err, sdk.ErrInvalid) {
			t.Fatalf("no condition: %v", err)
		}
	})
}
