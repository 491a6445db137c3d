package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// A relative start is a number from the first answer on: what is appended between that and the first Poll, or while nothing can be reached, is delivered.
func TestX02_LatestIsFixedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.write("t", one(0, text("old")))
		r := b.reader("t", sdk.From(sdk.Latest))
		defer r.Close()
		b.write("t", one(0, numbers(0, 5)))
		b.faults(func(fault.Call) fault.Fault { return fault.Fault{Kind: fault.LostBefore} }, nil)
		if _, err := r.Poll(b.ctx); !errors.Is(err, sdk.ErrUnreachable) {
			t.Fatal(err)
		}
		b.faults(nil, nil)
		fetches, err := r.Poll(b.ctx)
		check(t, err)
		got := map[int]string{}
		collect(t, fetches, map[int]int64{0: 1}, got)
		if got[0] != "0 1 2 3 4" {
			t.Errorf("got %q", got[0])
		}
	})
}

// tiled is a store in which every segment holds the same batch once for each of 64 slots, and which knows how much of what it gave out was not returned yet.
type tiled struct {
	store.Store
	batch  []byte
	mu     sync.Mutex
	out    int64 // bytes given out or being read
	most   int64
	gets   int
	open   int // requests under way
	atOnce int
}

const tileStart = 16

func (s *tiled) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	if name == segment.IdentityName {
		return s.Store.Get(ctx, name, off, n, dst)
	}
	s.add(n)
	s.mu.Lock()
	s.gets++
	s.open++
	s.atOnce = max(s.atOnce, s.open)
	s.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	b := dst
	if int64(cap(b)) < n {
		b = make([]byte, n) // the race detector would make append allocate them twice
	}
	b = b[:n]
	for at := int64(0); at < n; {
		at += int64(copy(b[at:], s.batch[(off-tileStart+at)%int64(len(s.batch)):]))
	}
	return b, nil
}

func (s *tiled) add(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out += n
	s.most = max(s.most, s.out)
}

// 1,000 partitions with 1 MiB each waiting: what is in memory stays under the bounds, and so does each fetch; every partition is served in as many
// polls as the bytes take.
func TestX03_ManyPartitionsWaiting(t *testing.T) {
	for _, size := range []int{1 << 20, 32 << 10} { // one record of 1 MiB, 32 of 32 KiB
		t.Run(fmt.Sprint("records of ", size>>10, " KiB"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testManyPartitions(t, size) })
		})
	}
}

func testManyPartitions(t *testing.T, size int) {
	const partitions, pollBytes, bufferBytes = 1000 / raceShare / raceHalf, 8 << 20, 32 << 20
	var builder segment.BatchBuilder
	for range (1 << 20) / size {
		check(t, builder.Append(&segment.Record{Value: make([]byte, size-100)}))
	}
	batch, info, err := builder.Finish(nil, segment.DefaultBatchOptions())
	check(t, err)
	b := newBench(t)
	tiles := &tiled{Store: mem.New(), batch: batch}
	b.reopen(tiles)
	b.create("t", partitions, 64)
	row := b.topics["t"]
	for i, lane := range row.Lanes {
		e := metadata.Entry{ID: segment.NewID(time.Now(), row.Class(), segment.InBucket, uint64(i), segment.ID{}), Start: tileStart}
		for slot := range min(64, partitions-64*i) {
			e.Slots = append(e.Slots, metadata.SlotEntry{Slot: metadata.Slot(slot), Count: int32(info.Count), Bytes: int32(len(batch)), MaxTime: info.MaxTime})
		}
		b.append(lane, e)
	}
	r := b.reader("t", sdk.To(sdk.Latest), sdk.WithPollBytes(pollBytes), sdk.WithReadBuffer(bufferBytes))
	defer r.Close()
	served, finished, polls := map[int]int{}, 0, 0
	for {
		fetches, err := r.Poll(b.ctx)
		if err == io.EOF {
			break
		}
		check(t, err)
		polls++
		bytes := 0
		for _, f := range fetches {
			for _, record := range f.Records {
				bytes += len(record.Value)
			}
			if served[f.Partition] += len(f.Records); served[f.Partition] == info.Count {
				finished++
			}
		}
		tiles.add(-int64(bytes))
		if bytes > pollBytes {
			t.Fatalf("poll %d returned %d bytes, bound %d", polls, bytes, pollBytes)
		}
	}
	if limit := partitions*len(batch)/pollBytes + partitions*len(batch)/bufferBytes*2; len(served) != partitions || finished != partitions || polls > limit {
		t.Errorf("%d partitions served, %d wholly, in %d polls, bound %d", len(served), finished, polls, limit)
	}
	// What a Poll returns is in the caller's hands, and its room taken again, before it is counted here.
	const bound = bufferBytes + pollBytes + 1<<20
	t.Logf("%d polls, %d range requests, at most %d at once, at most %d KiB fetched and not returned, bound %d", polls, tiles.gets, tiles.atOnce, tiles.most>>10, bound>>10)
	if tiles.most > bound || tiles.atOnce < 3 {
		t.Errorf("%d bytes fetched and not returned, bound %d; %d requests at once", tiles.most, bound, tiles.atOnce)
	}
}

// No partition waits for the backlog of another: while one has megabytes, those with a little are served in each round.
func TestReaderServesPartitionsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 8, 64)
		big := make([]segment.Record, 200)
		for i := range big {
			big[i].Value = make([]byte, 10<<10)
		}
		batch := b.encode(big)
		for range 10 {
			b.writeBatches("t", map[int][][]byte{0: {batch}})
		}
		for p := 1; p < 8; p++ {
			for i := range 10 {
				b.write("t", one(p, numbers(i, 1)))
			}
		}
		b.faults(func(fault.Call) fault.Fault { return fault.Fault{Delay: 20 * time.Millisecond} }, nil)
		r := b.reader("t", sdk.To(sdk.Latest), sdk.WithPollBytes(64<<10), sdk.WithReadBuffer(4<<20))
		defer r.Close()
		var last [8]int
		for poll := 1; ; poll++ {
			fetches, err := r.Poll(b.ctx)
			if err == io.EOF {
				break
			}
			check(t, err)
			for _, f := range fetches {
				last[f.Partition] = poll
			}
			time.Sleep(10 * time.Millisecond) // what is done with them
		}
		t.Logf("last polls with records: %v", last)
		for p, poll := range last[1:] {
			if poll > 30 {
				t.Errorf("partition %d got its 10 records only by poll %d, partition 0 its 20 MB by poll %d", p+1, poll, last[0])
			}
		}
	})
}

func TestX04_SeekDropsWhatWasFetchedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		for i := range 100 {
			b.write("t", map[int][][]segment.Record{0: {numbers(5*i, 5)}, 1: {numbers(5*i, 5)}})
		}
		r := b.reader("t", sdk.WithPollBytes(20), sdk.To(sdk.Latest))
		defer r.Close()
		first, err := r.Poll(b.ctx)
		check(t, err)
		synctest.Wait() // all is fetched ahead
		for _, to := range []int64{0, 0, 250, 3, 499, 0} {
			check(t, r.Seek(0, to))
			if at, err := r.Position(0); at != to || err != nil {
				t.Errorf("position %d after a seek to %d, %v", at, to, err)
			}
			next := map[int]int64{0: to, 1: first[len(first)-1].Records[0].Offset + 1}
			for next[0] == to {
				fetches, err := r.Poll(b.ctx)
				check(t, err)
				for _, f := range fetches {
					if f.Partition == 0 {
						collect(t, []sdk.Fetch{f}, next, map[int]string{})
						if want := fmt.Sprint(to); string(f.Records[0].Value) != want {
							t.Errorf("after a seek to %d: %s", to, f.Records[0].Value)
						}
					}
				}
			}
			synctest.Wait()
		}
		if err := r.Seek(2, 0); !errors.Is(err, sdk.ErrNoPartition) {
			t.Errorf("seek in a partition that is not there: %v", err)
		}
		if err := r.Seek(0, -1); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("seek to -1: %v", err)
		}
	})
}

// Records stay as they are after later Polls, unless they are recycled; and then memory is really used again.
func TestRecordsStayValidUnlessRecycled(t *testing.T) {
	read := func(t *testing.T, opts ...sdk.ReaderOption) (changed bool, allocated uint64) {
		b := newBench(t)
		b.create("t", 1, 64)
		for i := range 30 {
			var records []segment.Record
			for j := range 300 {
				records = append(records, segment.Record{Value: []byte(strings.Repeat(fmt.Sprintf("%02d%03d", i, j), 250))})
			}
			b.write("t", one(0, records))
		}
		r := b.reader("t", append(opts, sdk.To(sdk.Latest), sdk.WithPollBytes(400<<10), sdk.WithReadBuffer(1<<20), sdk.WithPrefetch(2))...)
		var kept []sdk.Record
		var copies []string
		var before, after runtime.MemStats
		for n := 0; ; n++ {
			if n == 10 {
				runtime.ReadMemStats(&before)
			}
			fetches, err := r.Poll(b.ctx)
			if err == io.EOF {
				break
			}
			check(t, err)
			if n < 10 {
				kept = append(kept, fetches[0].Records...)
				for _, record := range fetches[0].Records {
					copies = append(copies, string(record.Value))
				}
			}
		}
		runtime.ReadMemStats(&after)
		for i := range kept {
			changed = changed || string(kept[i].Value) != copies[i]
		}
		return changed, after.TotalAlloc - before.TotalAlloc
	}
	changed, kept := read(t)
	if changed {
		t.Error("records changed after they were returned")
	}
	changed, recycled := read(t, sdk.RecycleRecords())
	t.Logf("allocated for 20 polls: %d KiB kept, %d KiB recycled", kept>>10, recycled>>10)
	if !changed || recycled > kept/3 {
		t.Errorf("recycled: %d bytes allocated, %d without; overwritten: %v", recycled, kept, changed)
	}
}

// Small polls over many partitions leave many batches half returned. What is decoded and waits stays within the bound, and all are served all the same.
func TestDecodedRecordsAreBounded(t *testing.T) {
	const partitions = 40 / raceHalf / raceHalf
	for _, pollBytes := range []int{1 << 10, partitions << 10} { // of one partition, of all
		t.Run(fmt.Sprint(pollBytes, " bytes a poll"), func(t *testing.T) { testDecodedBound(t, partitions, pollBytes) })
	}
}

func testDecodedBound(t *testing.T, partitions, pollBytes int) {
	const perBatch, bound = 256, 1 << 20
	b := newBench(t)
	b.create("t", partitions, 64)
	b.codec = segment.Zstd
	records := make([]segment.Record, perBatch)
	for i := range records {
		records[i].Value = make([]byte, 1<<10) // 256 KiB in all, some hundred bytes as stored
	}
	parts := map[int][][]segment.Record{}
	for p := range partitions {
		parts[p] = [][]segment.Record{records}
	}
	b.write("t", parts)
	r := b.reader("t", sdk.To(sdk.Latest), sdk.WithPollBytes(pollBytes), sdk.WithReadBuffer(bound))
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools held takes two
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most := heap(), int64(0)
	served, early := map[int]int{}, 0
	for polls := 1; len(served) < partitions; polls++ {
		fetches, err := r.Poll(b.ctx)
		check(t, err)
		for _, f := range fetches {
			served[f.Partition]++
		}
		if polls == 20 {
			early = len(served)
		}
		if polls < 30 || polls%100 == 0 {
			most = max(most, heap()-before)
		}
		if polls > partitions*perBatch {
			t.Fatalf("%d partitions served in %d polls of one record", len(served), polls)
		}
	}
	t.Logf("%d partitions in the first 20 polls; at most %d KiB held, bound %d", early, most>>10, bound>>10)
	if early < 4 {
		t.Errorf("%d partitions served in 20 polls, though 4 fit into the bound", early)
	}
	if most > bound+1<<20 {
		t.Errorf("%d bytes held, bound %d, the batch that is being decoded and the decoder", most, bound)
	}
}
