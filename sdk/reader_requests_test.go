package sdk_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// The requests of a fetch do not depend on how much there is.
func TestX07_RequestsPerFetchDoNotGrow(t *testing.T) {
	measure := func(segments int) (table map[string]int, gets int) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.many("t", segments)
		r := b.reader("t", sdk.From(sdk.AtOffset(int64(segments)/2)), sdk.To(sdk.AtOffset(int64(segments)/2+3)))
		b.counts.take()
		if got := len(strings.Fields(b.values(r)[0])); got != 3 {
			t.Fatalf("%d records", got)
		}
		return b.counts.take()
	}
	for segments, bound := range map[int]int{10: 2, 100: 2 + 4, 1000: 2 + 7, 10_000 / raceShare: 2 + 11} {
		table, gets := measure(segments)
		t.Logf("3 records in the middle of %d segments: %d range requests, %v", segments, gets, table)
		if gets != 3 || total(table) > bound {
			t.Errorf("%d segments: %d range requests, %v to the table, at most %d", segments, gets, table, bound)
		}
	}
}

// A reader that is slower than its store does not nibble at a segment whenever a little room is free.
func TestAFullBufferDoesNotMakeRequestsSmaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 8, 64)
		const segments, size = 24, 64 << 10
		batch, parts := b.encode([]segment.Record{{Value: make([]byte, size)}, {Value: make([]byte, size)}}), map[int][][]byte{}
		for p := range 8 {
			parts[p] = [][]byte{batch}
		}
		for range segments {
			b.writeBatches("t", parts)
		}
		b.counts.take()
		r := b.reader("t", sdk.To(sdk.Latest), sdk.WithReadBuffer(11*8*size), sdk.WithPollBytes(size))
		for records := 0; records < segments*8*2; {
			fetches, err := r.Poll(b.ctx)
			check(t, err)
			for _, f := range fetches {
				records += len(f.Records)
			}
			time.Sleep(time.Millisecond)
		}
		if _, gets := b.counts.take(); gets != segments {
			t.Errorf("%d range requests for %d segments, five and a half of which fit the buffer", gets, segments)
		}
	})
}

// One range request per segment serves all partitions of it, however they are spread over lanes, and however many readers want them.
func TestOneRequestServesAllPartitionsOfASegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("wide", 64, 64)
		b.create("lanes", 64, 8)
		for _, topic := range []string{"wide", "lanes"} {
			for i := range 20 {
				parts := map[int][][]segment.Record{}
				for p := range 64 {
					parts[p] = [][]segment.Record{numbers(i, 1)}
				}
				b.write(topic, parts)
			}
			b.counts.take()
			r := b.reader(topic, sdk.To(sdk.Latest))
			got := b.values(r)
			ops, gets := b.counts.take()
			t.Logf("%s: 64 partitions of 20 segments: %d range requests, %v", topic, gets, ops)
			if len(got) != 64 || gets != 20 {
				t.Errorf("%s: %d partitions, %d range requests for 20 segments", topic, len(got), gets)
			}
			r.Close()
		}
		var readers []*sdk.Reader // one for each partition, as members of a group in one process would have
		for p := range 64 {
			readers = append(readers, b.reader("wide", sdk.ReadPartitions(p), sdk.From(sdk.Latest)))
		}
		b.counts.take()
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() {
				if _, err := r.Poll(b.ctx); err != nil {
					t.Error(err)
				}
				r.Close()
			})
		}
		synctest.Wait()
		parts := map[int][][]segment.Record{}
		for p := range 64 {
			parts[p] = [][]segment.Record{numbers(0, 1)}
		}
		b.write("wide", parts)
		all.Wait()
		ops, gets := b.counts.take()
		t.Logf("a commit to 64 partitions that 64 readers follow: %d range requests, %v", gets, ops)
		if gets != 1 {
			t.Errorf("%d range requests", gets)
		}
	})
}

// Ranges that are far apart are read apart, those that are near are read together.
func TestRangesAreMergedOverSmallGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 4, 64)
		kib := func(n int) [][]segment.Record { return [][]segment.Record{{{Value: make([]byte, n<<10)}}} }
		b.write("t", map[int][][]segment.Record{0: kib(300), 1: kib(200), 2: kib(300), 3: kib(600)})
		for _, c := range []struct {
			partitions []int
			gets       int
		}{{[]int{0, 2}, 1}, {[]int{0, 3}, 2}, {[]int{1}, 1}, {[]int{0, 1, 2, 3}, 1}} {
			r := b.reader("t", sdk.ReadPartitions(c.partitions...), sdk.To(sdk.Latest))
			b.counts.take()
			got := b.values(r)
			if _, gets := b.counts.take(); gets != c.gets || len(got) != len(c.partitions) {
				t.Errorf("partitions %v: %d range requests, want %d", c.partitions, gets, c.gets)
			}
			r.Close()
		}
	})
}

// The tail of all partitions of a lane is one read request at a time for the whole process, and none when its own producer commits.
func TestTailOfALaneIsOneReadRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 64, 64)
		var readers []*sdk.Reader
		for range 5 {
			readers = append(readers, b.reader("t", sdk.From(sdk.Latest), sdk.WithWait(10*time.Second)))
		}
		b.counts.take()
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() {
				fetches, err := r.Poll(b.ctx)
				if fetches != nil || err != nil {
					t.Errorf("%v, %v", fetches, err)
				}
			})
		}
		all.Wait()
		ops, _ := b.counts.take()
		t.Logf("10 s at the tail of 64 partitions in 5 readers: %v", ops)
		// one reader of one partition would have as many
		if ops["Head"] > 17 {
			t.Errorf("%v", ops)
		}
		p, err := b.log.NewProducer(sdk.WithLinger(0, 0), sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		check(t, err)
		check(t, p.ProduceSync(b.ctx, &sdk.Record{Topic: "t", Value: []byte("warm")}).Err())
		for _, r := range readers {
			for at := int64(0); at < 1; at, _ = r.Position(0) {
				_, err := r.Poll(b.ctx)
				check(t, err)
			}
		}
		time.Sleep(10 * time.Second) // the next poll is 2 s away
		synctest.Wait()
		b.counts.take()
		start := time.Now()
		check(t, p.ProduceSync(b.ctx, &sdk.Record{Topic: "t", Partition: 9, Value: []byte("new")}).Err())
		for _, r := range readers {
			if fetches, err := r.Poll(b.ctx); err != nil || len(fetches) != 1 || fetches[0].Partition != 9 {
				t.Errorf("%v, %v", fetches, err)
			}
		}
		ops, gets := b.counts.take()
		t.Logf("woken by the producer of the process after %v: %d range requests, %v", time.Since(start), gets, ops)
		if time.Since(start) > 10*time.Millisecond || ops["Head"] > 0 || gets != 1 {
			t.Errorf("after %v: %d range requests, %v", time.Since(start), gets, ops)
		}
		check(t, p.Close(b.ctx))
		for _, r := range readers {
			r.Close()
		}
	})
}

// The one who polls for all may go, or meet an error; another takes over.
func TestPollingOfALaneIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		var readers []*sdk.Reader
		var all sync.WaitGroup
		var failed, got atomic.Int32
		for range 4 {
			r := b.reader("t")
			readers = append(readers, r)
			all.Go(func() {
				for {
					fetches, err := r.Poll(b.ctx)
					switch {
					case err == sdk.ErrClosed:
						return
					case errors.Is(err, sdk.ErrUnreachable):
						failed.Add(1)
						continue
					case err != nil:
						t.Error(err)
					}
					got.Add(int32(len(fetches)))
					return
				}
			})
		}
		time.Sleep(10 * time.Second)
		for _, r := range readers[:2] { // one of them is waiting out the pause
			r.Close()
			time.Sleep(3 * time.Second)
		}
		var down atomic.Bool
		down.Store(true)
		b.faults(nil, func(context.Context, dynamodb.Call) dynamodb.Fault {
			if down.Load() {
				return dynamodb.ServerError()
			}
			return dynamodb.Fault{}
		})
		time.Sleep(time.Minute)
		down.Store(false)
		b.write("t", one(0, numbers(0, 1)))
		start := time.Now()
		all.Wait()
		if got.Load() != 2 || failed.Load() == 0 || time.Since(start) > 10*time.Second {
			t.Errorf("%d readers got the record after %v, %d errors", got.Load(), time.Since(start), failed.Load())
		}
		t.Logf("%d errors in a minute without a table, then the record after %v", failed.Load(), time.Since(start))
	})
}

// Of two readers that want the same bytes one reads them. When it is closed meanwhile, the other reads them itself.
func TestAReaderThatGivesUpFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.write("t", map[int][][]segment.Record{0: {text("a")}, 1: {text("b")}})
		var gets atomic.Int32
		b.faults(func(c fault.Call) fault.Fault {
			if c.Op == store.OpGet {
				if gets.Add(1) == 1 {
					return fault.Fault{Stall: make(chan struct{})}
				}
			}
			return fault.Fault{}
		}, nil)
		first, second := b.reader("t", sdk.ReadPartitions(0), sdk.WithWait(time.Second)), b.reader("t", sdk.ReadPartitions(1))
		defer second.Close()
		if fetches, err := first.Poll(b.ctx); fetches != nil || err != nil {
			t.Fatalf("%v, %v", fetches, err)
		}
		time.AfterFunc(time.Second, func() { first.Close() })
		fetches, err := second.Poll(b.ctx)
		if err != nil || len(fetches) != 1 || gets.Load() != 2 {
			t.Errorf("%v, %v after %d range requests", fetches, err, gets.Load())
		}
	})
}
