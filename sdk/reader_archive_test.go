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

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// ten is a topic whose partition 0 has ten records of one key in three segments, archived as a says.
func ten(t *testing.T, a archiver) *bench {
	b := newBench(t)
	b.create("t", 2, 64)
	b.write("t", one(0, numbers(0, 4)))
	b.write("t", one(0, numbers(4, 3)))
	b.write("t", one(0, numbers(7, 3)))
	b.remove(b.archive("t", a))
	return b
}

// A reader in front of offsets that compaction removed gets the next record, and ends where the offsets end.
func TestBR14_OffsetsThatCompactionRemoved(t *testing.T) {
	for i, rows := range []int64{0, 4, 3, 1} {
		for j, kept := range []int64{9, 5, 0, -1} {
			if raced && (i+j)%2 == 1 {
				continue // with the race detector every second pair, make sim plays all
			}
			b := ten(t, archiver{rowOffsets: rows, keep: func(_ int, offset int64) bool { return offset == kept }})
			for _, from := range []int64{0, 3, 8, 9} {
				want := ""
				if from <= kept {
					want = fmt.Sprint(kept)
				}
				r := b.reader("t", sdk.ReadPartitions(0), sdk.From(sdk.AtOffset(from)), sdk.To(sdk.Latest))
				got := b.values(r)[0]
				if at, err := r.Position(0); got != want || at != 10 || err != nil {
					t.Errorf("rows of %d offsets, only %d is left, from %d: %q, position %d, %v", rows, kept, from, got, at, err)
				}
				check(t, r.Seek(0, 8)) // into what the reader has been through
				if got := b.values(r)[0]; (got == "9") != (kept == 9) {
					t.Errorf("rows of %d offsets, only %d is left, after a seek to 8: %q", rows, kept, got)
				}
				r = b.reader("t", sdk.ReadPartitions(0), sdk.From(sdk.AtOffset(from)), sdk.WithWait(0))
				for at := int64(0); at < 10; at, _ = r.Position(0) { // one that follows
					_, err := r.Poll(b.ctx)
					check(t, err)
				}
			}
		}
	}
}

// A reader makes room for the records that compaction has left, not for the offsets.
func TestRoomIsForRecordsNotOffsets(t *testing.T) {
	const offsets = 5000
	b := newBench(t)
	b.create("t", 1, 64)
	b.write("t", one(0, numbers(0, offsets)))
	b.remove(b.archive("t", archiver{keep: func(_ int, offset int64) bool { return offset == 0 || offset == offsets-1 }}))
	fetches, err := b.reader("t", sdk.From(sdk.Earliest)).Poll(b.ctx)
	check(t, err)
	if got := fetches[0].Records; len(got) != 2 || cap(got) > 16 {
		t.Errorf("%d records, and room for %d", len(got), cap(got))
	}
}

// The lag of a group comes to 0 also where the last records of the log were removed, and where all of them were.
func TestBR14_TheLagOfAGroupComesToNothing(t *testing.T) {
	for _, kept := range []int64{9, 5, -1} {
		synctest.Test(t, func(t *testing.T) {
			b := ten(t, archiver{rowOffsets: 4, keep: func(_ int, offset int64) bool { return offset == kept }})
			c, err := reach(t, b.log, nil).NewConsumer(b.ctx, "g", []string{"t"}, sdk.Reading(sdk.WithWait(time.Second)), sdk.AutoCommit(time.Second))
			check(t, err)
			for range 10 {
				_, err := c.Poll(b.ctx)
				check(t, err)
			}
			check(t, c.Close(b.ctx))
			g, err := b.log.Admin().DescribeGroup(b.ctx, "g", sdk.Earliest)
			check(t, err)
			for _, p := range g.Partitions {
				if p.Partition == 0 && (p.Lag != 0 || p.Committed != 10) {
					t.Errorf("only %d is left: committed %d, lag %d", kept, p.Committed, p.Lag)
				}
			}
		})
	}
}

// What a Poll passes behind its last record is finished with that, not before it.
func TestWhatIsPassedIsFinishedWithTheRecordBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ten(t, archiver{rowOffsets: 10, keep: func(_ int, offset int64) bool { return offset == 5 }})
		c, err := reach(t, b.log, nil).NewConsumer(b.ctx, "g", []string{"t"}, sdk.Reading(sdk.WithWait(time.Second)), sdk.AutoCommit(time.Second))
		check(t, err)
		committed := func() int64 {
			time.Sleep(10 * time.Second)
			return b.describe("g", sdk.Earliest).Partitions[0].Committed
		}
		for {
			fetches, err := c.Poll(b.ctx)
			check(t, err)
			if len(fetches) > 0 && fetches[0].Partition == 0 {
				break
			}
		}
		if at := committed(); at > 5 {
			t.Errorf("committed %d while the record at 5 is not finished", at)
		}
		_, err = c.Poll(b.ctx)
		check(t, err)
		if at := committed(); at != 10 {
			t.Errorf("committed %d after the next poll", at)
		}
		check(t, c.Close(b.ctx))
	})
}

// large is a topic with one partition in whose archive rows are many ranges long, and some batches too.
func large(t *testing.T, rows int64) (b *bench, records int, size int64) {
	b = newBench(t)
	b.create("t", 1, 64)
	for range 40 {
		var rs []segment.Record
		for range 30 {
			n := 1 + (records*7919)%2000
			if records%100 == 50 {
				n = 200 << 10
			}
			value := fmt.Sprint(records, "|", strings.Repeat("x", n))
			rs = append(rs, segment.Record{Timestamp: 1_000_000_000_000 + int64(records), Value: []byte(value)})
			size += int64(len(value))
			records++
		}
		b.write("t", one(0, rs))
	}
	b.remove(b.archive("t", archiver{rowOffsets: rows}))
	return b, records, size
}

// numbered polls until the end, or until n records have come, and sees to it that they are those from next on.
func (b *bench) numbered(r *sdk.Reader, next int64, n int) int64 {
	for n > 0 {
		fetches, err := r.Poll(b.ctx)
		if err == io.EOF {
			return next
		}
		check(b.t, err)
		for _, f := range fetches {
			for _, x := range f.Records {
				if head, _, _ := strings.Cut(string(x.Value), "|"); x.Offset != next || head != fmt.Sprint(next) {
					b.t.Fatalf("offset %d has %s, expected %d", x.Offset, head, next)
				}
				next++
				n--
			}
		}
	}
	return next
}

// An extent of the archive, however large, is read in ranges within the buffer, several at once, as few as there can be and all about as large, and each byte once.
func TestLargeArchiveExtentsAreReadInRanges(t *testing.T) {
	b, records, size := large(t, 0)
	for _, buffer := range []int{1, 300 << 10, 1 << 20, 64 << 20} {
		r := b.reader("t", sdk.To(sdk.Latest), sdk.WithReadBuffer(buffer), sdk.RecycleRecords())
		b.counts.fetched()
		if got := b.numbered(r, 0, 1<<30); got != int64(records) {
			t.Errorf("%d of %d records", got, records)
		}
		sum, gets, most := b.counts.fetched()
		limit := max(min(buffer/2, 8<<20), 64<<10)
		limit += limit / 8
		t.Logf("%d bytes, buffer %d: %d range requests of %d bytes at most, %d bytes in all", size, buffer, gets, most, sum)
		if most > limit || gets > sum/limit+1 || most > sum/gets+1 || int64(sum) > size*11/10 {
			t.Errorf("ranges of at most %d bytes are stated", limit)
		}
		r.Close()
	}
}

// From any offset on, with any pauses: a reader goes on where it was, and reads no more of an extent again than one range and what it had ahead.
func TestAReaderOfALargeExtentGoesOnWhereItWas(t *testing.T) {
	b, records, size := large(t, 0)
	for _, from := range []int64{0, 1, 29, 30, 649, 650, 651, 1199} {
		r := b.reader("t", sdk.From(sdk.AtOffset(from)), sdk.To(sdk.Latest), sdk.WithReadBuffer(1<<20))
		if got := b.numbered(r, from, 1<<30); got != int64(records) {
			t.Errorf("from %d: up to %d of %d", from, got, records)
		}
		r.Close()
		r = b.reader("t", sdk.From(sdk.AtOffset(from)), sdk.To(sdk.AtOffset(from+1)), sdk.WithReadBuffer(1<<20))
		if got := b.numbered(r, from, 1<<30); got != from+1 {
			t.Errorf("%d alone: up to %d", from, got)
		}
		r.Close()
	}
	b.counts.fetched()
	const buffer = 512 << 10
	r := b.reader("t", sdk.To(sdk.Latest), sdk.WithReadBuffer(buffer), sdk.WithPollBytes(buffer/8))
	next, pauses := int64(0), int64(0)
	for next < int64(records) {
		next = b.numbered(r, next, 50)
		check(t, r.Pause(0))
		check(t, r.Resume(0))
		pauses++
	}
	sum, _, _ := b.counts.fetched()
	t.Logf("%d bytes, %d pauses: %d bytes were read", size, pauses, sum)
	if int64(sum) > size*11/10+pauses*(buffer+500<<10) {
		t.Error("more than the buffer is read again after a pause")
	}
}

// An intake extent of several batches is read anew after a pause in the middle of it.
func TestAReaderGoesOnInTheMiddleOfAnIntakeExtent(t *testing.T) {
	b := newBench(t)
	b.create("t", 1, 64)
	b.write("t", map[int][][]segment.Record{0: {numbers(0, 2), numbers(2, 3), numbers(5, 1), numbers(6, 4)}})
	r := b.reader("t", sdk.To(sdk.Latest), sdk.WithPollBytes(1))
	for next := int64(0); next < 10; {
		if next = b.plain(r, next, 1); next < 10 {
			check(t, r.Pause(0))
			check(t, r.Resume(0))
		}
	}
}

// Objects are replaced and deleted while a reader is in the middle of them, whole segments and large extents alike: it goes on from the exact offset.
func TestBR18_ObjectsGoneInMidRead(t *testing.T) {
	for i, rows := range []int64{0, 100, 13} {
		b, records, _ := large(t, rows)
		for j, buffer := range []int{1, 300 << 10, 4 << 20} {
			if raced && i+j != 0 && i+j != 2 {
				continue // with the race detector four pairs, make sim plays all
			}
			r := b.reader("t", sdk.To(sdk.Latest), sdk.WithReadBuffer(buffer), sdk.WithPollBytes(20<<10))
			next, gone := int64(0), 0
			for i := int64(1); next < int64(records); i++ {
				next = b.numbered(r, next, 60)
				old := b.rewrite("t", 0, next/100*100, next+200, archiver{rowOffsets: 3 + (i*37+rows)%150})
				b.remove(old)
				gone += len(old)
			}
			if next != int64(records) {
				t.Errorf("%d of %d records", next, records)
			}
			t.Logf("rows of %d offsets, buffer %d: %d objects were replaced and deleted, %d requests for those so far", rows, buffer, gone, b.counts.holes)
			r.Close()
		}
		if b.counts.holes == 0 {
			t.Error("no object was missed")
		}
	}
	// intake that is archived and deleted between a reader's knowing of it and its getting it
	b := newBench(t)
	b.create("t", 1, 64)
	for i := range 40 {
		b.write("t", one(0, numbers(5*i, 5)))
	}
	r := b.reader("t", sdk.To(sdk.Latest), sdk.WithReadBuffer(1), sdk.WithPollBytes(1), sdk.WithPrefetch(1))
	fetches, err := r.Poll(b.ctx)
	check(t, err)
	b.remove(b.archive("t", archiver{rowOffsets: 33}))
	next, got := map[int]int64{}, map[int]string{}
	for collect(t, fetches, next, got); err == nil; collect(t, fetches, next, got) {
		fetches, err = r.Poll(b.ctx)
	}
	if err != io.EOF || next[0] != 200 || len(strings.Fields(got[0])) != 200 {
		t.Errorf("up to %d, %v", next[0], err)
	}
}

// What is wrong in an archive extent is said with its offsets, and those after it can be read.
func TestDamageInTheArchive(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(object []byte, batches []int)
		to     int64 // of the error, from 20 on
	}{
		"flipped bit":         {func(o []byte, at []int) { o[at[2]+70] ^= 1 }, 30},
		"header":              {func(o []byte, at []int) { o[at[2]+16] = 9 }, 40},
		"length":              {func(o []byte, at []int) { o[at[2]+8] = 0x7f }, 40},
		"offset below":        {func(o []byte, at []int) { o[at[2]+7] = 3 }, 40},
		"offset past the end": {func(o []byte, at []int) { o[at[2]+7] = 200 }, 40},
	} {
		b := newBench(t)
		b.create("t", 1, 64)
		b.write("t", one(0, numbers(0, 100)))
		b.archive("t", archiver{rowOffsets: 40, damage: func(o []byte) {
			var at []int
			for rest := o[16:]; len(at) < 10; {
				at = append(at, len(o)-len(rest))
				var err error
				_, rest, err = segment.SplitBatch(rest)
				check(t, err)
			}
			c.damage(o, at)
		}})
		row, err := b.backend.Table.Row(b.ctx, b.topics["t"].ID, 0, 0, true)
		check(t, err)
		object := segment.ArchiveName(row.Topic, row.Segment)
		r := b.reader("t", sdk.To(sdk.Latest))
		if next := b.plain(r, 0, 20); next != 20 {
			t.Fatalf("%s: up to %d", name, next)
		}
		var data *sdk.DataError
		if _, err := r.Poll(b.ctx); !errors.As(err, &data) || data.From != 20 || data.To != c.to || data.Object != object {
			t.Fatalf("%s: %v", name, err)
		}
		check(t, r.Seek(0, data.To))
		if next := b.plain(r, data.To, 1<<30); next != 100 {
			t.Errorf("%s: after a seek up to %d", name, next)
		}
	}
}

// plain is numbered for the values of numbers.
func (b *bench) plain(r *sdk.Reader, next int64, n int64) int64 {
	for end := next + n; next < end; {
		fetches, err := r.Poll(b.ctx)
		if err == io.EOF {
			return next
		}
		check(b.t, err)
		at, got := map[int]int64{0: next}, map[int]string{}
		collect(b.t, fetches, at, got)
		next = at[0]
	}
	return next
}

// The queries of BR-16 over the archive, and over archive and intake together.
func TestBR16_TimeLookupInTheArchive(t *testing.T) {
	for _, rows := range []int64{0, 1, 2, 3} {
		b := newBench(t)
		b.create("t", 1, 64)
		b.write("t", one(0, at(2, 4)))
		b.write("t", one(0, at(6)))
		b.remove(b.archive("t", archiver{rowOffsets: rows, batchRecords: 2}))
		b.write("t", one(0, at(8)))
		for query, want := range []int64{0, 0, 0, 1, 1, 2, 2, 3, 3, -1} {
			got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.UnixMilli(int64(query)))
			if errors.Is(err, sdk.ErrNoOffset) {
				got, err = -1, nil
			}
			if got != want || err != nil {
				t.Errorf("rows of %d, query %d: %d, %v, want %d", rows, query, got, err, want)
			}
		}
	}
	b := newBench(t)
	b.create("t", 1, 64)
	b.write("t", one(0, at(5, 3, 9, 9, 7)))
	b.write("t", one(0, at(9, 12)))
	b.remove(b.archive("t", archiver{rowOffsets: 3, keep: func(_ int, offset int64) bool { return offset != 2 }}))
	for query, want := range map[int64]int64{1: 0, 5: 0, 6: 3, 8: 3, 9: 3, 10: 6, 12: 6} {
		if got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.UnixMilli(query)); got != want || err != nil {
			t.Errorf("query %d: %d, %v, want %d", query, got, err, want)
		}
	}
}

// The lag of a group that stands in a gap is as old as the next record that is left: its extent's first append time, past emptied rows.
func TestTheOldestRecordOfAGroupInAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.write("t", one(0, numbers(0, 5)))
		time.Sleep(time.Hour)
		second := time.Now()
		b.write("t", one(0, numbers(5, 5)))
		b.remove(b.archive("t", archiver{rowOffsets: 5, keep: func(_ int, offset int64) bool { return offset == 8 }}))
		time.Sleep(time.Hour)
		c, err := reach(t, b.log, nil).NewConsumer(b.ctx, "g", []string{"t"}, sdk.StartAt(sdk.Earliest), sdk.Reading(sdk.WithWait(0)))
		check(t, err)
		check(t, c.Close(b.ctx))
		_, err = b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", Topics: []string{"t"}, To: sdk.ResetTo{Position: sdk.AtOffset(1)}, Force: true})
		check(t, err)
		g, err := b.log.Admin().DescribeGroup(b.ctx, "g", sdk.Earliest)
		check(t, err)
		if p := g.Partitions[0]; p.Lag != 9 || p.Oldest.Sub(second).Abs() > time.Second {
			t.Errorf("lag %d, oldest %v, appended %v", p.Lag, p.Oldest, second)
		}
	})
}

// A seek into an archive extent reads it from its beginning, as no index says where in it an offset is: so what it costs is bounded by the extent, and what is read
// ahead.
func TestASeekIntoALargeExtentReadsUpToIt(t *testing.T) {
	const records, size, buffer = 64, 256 << 10 / raceHalf, 2 << 20 / raceHalf
	b := newBench(t)
	b.create("t", 1, 64)
	for i := range records {
		b.write("t", one(0, []segment.Record{{Timestamp: 1_000_000_000_000, Key: fmt.Appendf(nil, "%d", i), Value: make([]byte, size)}}))
	}
	b.remove(b.archive("t", archiver{batchRecords: 1}))
	for _, from := range []int64{0, records / 2, records - 1} {
		b.log = b.open() // which remembers no ranges
		b.counts.fetched()
		r := b.reader("t", sdk.From(sdk.AtOffset(from)), sdk.WithReadBuffer(buffer), sdk.WithPollBytes(1))
		fetches, err := r.Poll(b.ctx)
		check(t, err)
		if got := fetches[0].Records[0]; got.Offset != from || string(got.Key) != fmt.Sprint(from) {
			t.Errorf("from %d: offset %d, key %s", from, got.Offset, got.Key)
		}
		sum, gets, most := b.counts.fetched()
		t.Logf("from %d of %d records of %d KiB: %d KiB by %d requests of %d at most", from, records, size>>10, sum>>10, gets, most>>10)
		if least := int(from) * size; sum < least || sum > least+buffer+4*size {
			t.Errorf("from %d: %d bytes were read, before it are %d", from, sum, least)
		}
		check(t, r.Close())
	}
}

// A large range of the archive is asked for as soon as it is known, while other partitions are looked up still.
func TestALargeRangeWaitsForNoLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		for range 4 {
			big := [][]segment.Record{{{Timestamp: 1_000_000_000_000, Value: make([]byte, 200<<10)}}}
			b.write("t", map[int][][]segment.Record{0: big, 1: big})
		}
		b.remove(b.archive("t", archiver{batchRecords: 1}))
		var mu sync.Mutex
		started, first, lookups := time.Now(), time.Duration(-1), 0
		b.faults(func(c fault.Call) fault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if c.Op == store.OpGet && first < 0 {
				first = time.Since(started)
			}
			return fault.Fault{}
		}, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Op != "Query" {
				return dynamodb.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			if lookups++; lookups == 1 {
				return dynamodb.Fault{}
			}
			return dynamodb.Fault{Hold: func(context.Context) { time.Sleep(time.Second) }}
		})
		r := b.reader("t", sdk.To(sdk.Latest), sdk.WithReadBuffer(1<<20))
		if got, want := b.values(r), 4*(200<<10)+3; len(got[0]) != want || len(got[1]) != want {
			t.Errorf("values of %d and %d bytes, want %d", len(got[0]), len(got[1]), want)
		}
		if first != 0 || lookups < 2 {
			t.Errorf("the first range request after %v, with %d lookups", first, lookups)
		}
		check(t, r.Close())
	})
}

// A reader that stands holds nothing of what it has returned, however many partitions it reads.
func TestAReaderHoldsNothingOfWhatItReturned(t *testing.T) {
	const partitions, size = 8, 2 << 20 / raceHalf
	b := newBench(t)
	b.create("t", partitions, 64)
	parts := map[int][][]segment.Record{}
	for p := range partitions {
		for range 4 {
			parts[p] = append(parts[p], []segment.Record{{Timestamp: 1_000_000_000_000, Value: make([]byte, size/4)}})
		}
	}
	b.write("t", parts)
	b.remove(b.archive("t", archiver{batchRecords: 1}))
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools held takes two
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	r := b.reader("t", sdk.WithWait(0), sdk.WithReadBuffer(64<<20))
	before := heap()
	for returned := 0; returned < 4*partitions; {
		fetches, err := r.Poll(b.ctx)
		check(t, err)
		for _, f := range fetches {
			returned += len(f.Records)
		}
	}
	if held := heap() - before; held > size {
		t.Errorf("%d KiB are held of %d that were returned", held>>10, partitions*size>>10)
	}
	check(t, r.Close())
}
