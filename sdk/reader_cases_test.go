package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// one is a segment with one batch of one partition.
func one(partition int, records []segment.Record) map[int][][]segment.Record {
	return map[int][][]segment.Record{partition: {records}}
}

func TestReaderReadsWhatWasWritten(t *testing.T) {
	b := newBench(t)
	b.create("t", 3, 2) // two lanes
	var want [3][]string
	for i := range 40 {
		parts := map[int][][]segment.Record{}
		for p := range 3 {
			if (i+p)%3 > 0 {
				parts[p] = [][]segment.Record{numbers(4*i, 2), numbers(4*i+2, 2)}
				want[p] = append(want[p], fmt.Sprint(4*i, 4*i+1, 4*i+2, 4*i+3))
			}
		}
		b.write("t", parts)
	}
	for _, opts := range [][]sdk.ReaderOption{nil, {sdk.RecycleRecords(), sdk.WithPollBytes(50), sdk.WithReadBuffer(500), sdk.WithPrefetch(1)}} {
		got := b.values(b.reader("t", append(opts, sdk.To(sdk.Latest))...))
		for p := range want {
			if w := strings.Trim(fmt.Sprint(want[p]), "[]"); got[p] != w {
				t.Errorf("partition %d: got %s\nwant %s", p, got[p], w)
			}
		}
	}
	r := b.reader("t", sdk.ReadPartitions(1), sdk.From(sdk.AtOffset(17)), sdk.To(sdk.AtOffset(35)))
	if got := b.values(r)[1]; got != strings.Join(strings.Fields(strings.Trim(fmt.Sprint(want[1]), "[]"))[17:35], " ") {
		t.Errorf("offsets 17 to 34: %s", got)
	}
	if at, err := r.Position(1); at != 35 || err != nil {
		t.Errorf("position %d, %v", at, err)
	}
	if _, err := r.Position(0); !errors.Is(err, sdk.ErrNoPartition) {
		t.Errorf("position of another partition: %v", err)
	}
	got := b.values(b.reader("t", sdk.ReadPartitions(0, 2), sdk.From(sdk.AtTime(time.UnixMilli(1_000_000_000_001))), sdk.FromOffsets(map[int]int64{2: 100}), sdk.ToOffsets(map[int]int64{0: 3}), sdk.To(sdk.Latest)))
	if got[0] != strings.Join(strings.Fields(strings.Trim(fmt.Sprint(want[0]), "[]"))[1:3], " ") || !strings.HasSuffix(want[2][len(want[2])-1], got[2][len(got[2])-3:]) || len(got) != 2 {
		t.Errorf("from a time: %v", got)
	}
}

func TestBR05_NullAndEmptyAreReadAsTheyWere(t *testing.T) {
	b := newBench(t)
	b.create("t", 1, 64)
	many := make([]segment.Header, 1000)
	for i := range many {
		many[i] = segment.Header{Key: fmt.Sprint(i % 7), Value: []byte(fmt.Sprint(i))}
	}
	kinds := [][]byte{nil, {}, []byte("x")}
	for _, codec := range []segment.Codec{segment.None, segment.Gzip, segment.Snappy, segment.LZ4, segment.Zstd} {
		b.codec = codec
		var records []segment.Record
		for _, key := range kinds {
			for _, value := range kinds {
				for _, header := range kinds {
					records = append(records, segment.Record{Key: key, Value: value, Headers: []segment.Header{{Key: "", Value: header}, {Key: "h", Value: header}, {Key: "h"}}})
				}
				records = append(records, segment.Record{Key: key, Value: value})
			}
		}
		records = append(records, segment.Record{Headers: many})
		b.write("t", one(0, records))
		r := b.reader("t", sdk.From(sdk.AtOffset(int64(codec)*int64(len(records)))), sdk.To(sdk.Latest))
		var got []sdk.Record
		for {
			fetches, err := r.Poll(b.ctx)
			if err == io.EOF {
				break
			}
			check(t, err)
			got = append(got, fetches[0].Records...)
		}
		for i, want := range records {
			// reflect tells nil from empty
			if !reflect.DeepEqual([]any{got[i].Key, got[i].Value, got[i].Headers}, []any{want.Key, want.Value, want.Headers}) {
				t.Errorf("%v, record %d: got %#v, want %#v", codec, i, got[i], want)
			}
		}
	}
}

// A new process with nothing in memory takes the end from the log, not from what it has seen.
func TestBR08_AReaderSeesWhatAColdProcessAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		r := b.reader("t")
		for i := range 10 {
			b.write("t", one(0, numbers(i, 1)))
		}
		next, got := map[int]int64{}, map[int]string{}
		for next[0] < 10 {
			fetches, err := r.Poll(b.ctx)
			check(t, err)
			collect(t, fetches, next, got)
		}
		cold := b.open()
		p, err := cold.NewProducer()
		check(t, err)
		record := &sdk.Record{Topic: "t", Value: []byte("10")}
		done := make(chan error, 1)
		go func() { done <- p.ProduceSync(b.ctx, record).Err() }()
		fetches, err := r.Poll(b.ctx)
		check(t, err)
		collect(t, fetches, next, got)
		check(t, <-done)
		check(t, p.Close(b.ctx))
		if record.Offset != 10 || got[0] != "0 1 2 3 4 5 6 7 8 9 10" {
			t.Fatalf("appended at %d, read %s", record.Offset, got[0])
		}
		// Removing what is below 7 does not move the end, for a cold process neither.
		_, err = cold.Admin().DeleteRecords(b.ctx, "t", 0, 7)
		check(t, err)
		offsets, err := b.open().Admin().Offsets(b.ctx, "t")
		if err != nil || !reflect.DeepEqual(offsets, []sdk.PartitionOffsets{{Start: 7, End: 11}}) {
			t.Fatalf("%v, %v", offsets, err)
		}
		again, err := b.open().NewReader(b.ctx, "t", sdk.To(sdk.Latest))
		check(t, err)
		defer again.Close()
		if got := b.values(again)[0]; got != "7 8 9 10" {
			t.Fatalf("read %s after the removal", got)
		}
	})
}

// at is records of these times.
func at(times ...int64) (rs []segment.Record) {
	for _, x := range times {
		rs = append(rs, segment.Record{Timestamp: x})
	}
	return rs
}

func TestBR16_TimeLookup(t *testing.T) {
	for name, c := range map[string]struct {
		segments [][][]segment.Record
		first    int64 // query
		want     []int64
	}{
		"one segment, one batch":    {[][][]segment.Record{{at(2, 4, 6, 8)}}, 1, []int64{0, 0, 1, 1, 2, 2, 3, 3, -1}},
		"one segment, two batches":  {[][][]segment.Record{{at(2, 4, 6), at(8)}}, 1, []int64{0, 0, 1, 1, 2, 2, 3, 3, -1}},
		"two segments":              {[][][]segment.Record{{at(2, 4)}, {at(6, 8)}}, 1, []int64{0, 0, 1, 1, 2, 2, 3, 3, -1}},
		"equal times":               {[][][]segment.Record{{at(5, 5)}, {at(5)}}, 4, []int64{0, 0, -1}},
		"times that do not ascend":  {[][][]segment.Record{{at(5, 3, 9)}}, 2, []int64{0, 0, 0, 0, 2, 2, 2, 2, -1}},
		"the same, in two segments": {[][][]segment.Record{{at(5)}, {at(3), at(9)}}, 2, []int64{0, 0, 0, 0, 2, 2, 2, 2, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 1, 64)
			for _, s := range c.segments {
				b.write("t", map[int][][]segment.Record{0: s})
			}
			for spilled := range 2 {
				for i, want := range c.want {
					query := time.UnixMilli(c.first + int64(i))
					got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, query)
					if want < 0 && !errors.Is(err, sdk.ErrNoOffset) || want >= 0 && (err != nil || got != want) {
						t.Errorf("spilled %d, time %d: got %d, %v; want %d", spilled, c.first+int64(i), got, err, want)
					}
				}
				for range 9 { // the same again from chunks: later records are too old to matter
					b.write("t", one(0, at(1)))
				}
			}
		})
	}
}

func TestBR16_TimesBelowTheLogStartAndBetweenMilliseconds(t *testing.T) {
	b := newBench(t)
	b.create("t", 1, 64)
	b.write("t", one(0, at(2, 100, 6, 8, 6)))
	_, err := b.log.Admin().DeleteRecords(b.ctx, "t", 0, 2)
	check(t, err)
	for query, want := range map[time.Duration]int64{7 * time.Millisecond: 3, 6*time.Millisecond + 1: 3, 6 * time.Millisecond: 2, 0: 2} {
		if got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.UnixMilli(0).Add(query)); err != nil || got != want {
			t.Errorf("time %v: got %d, %v; want %d", query, got, err, want)
		}
	}
	if got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.UnixMilli(9)); !errors.Is(err, sdk.ErrNoOffset) {
		t.Errorf("only a removed record is that late: %d, %v", got, err)
	}
}

func TestBR16_ARecordFromTheFarFuture(t *testing.T) {
	b := newBench(t)
	b.create("t", 1, 64)
	now := time.Now().UnixMilli()
	b.write("t", one(0, at(now, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), now+1)))
	b.write("t", one(0, at(now+2)))
	if got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.Now().Add(2*time.Hour)); !errors.Is(err, sdk.ErrNoOffset) {
		t.Errorf("it counts as an hour ahead at most: got %d, %v", got, err)
	}
	if got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.Now().Add(30*time.Minute)); err != nil || got != 1 {
		t.Errorf("half an hour ahead: got %d, %v", got, err)
	}
}

// belowStart is a log that retains 15..30, and a reader of it.
func belowStart(t *testing.T, opts ...sdk.ReaderOption) (*bench, *sdk.Reader) {
	b := newBench(t)
	b.create("t", 1, 64)
	for i := range 31 {
		b.write("t", one(0, numbers(i, 1)))
	}
	_, err := b.log.Admin().DeleteRecords(b.ctx, "t", 0, 15)
	check(t, err)
	return b, b.reader("t", append(opts, sdk.WithWait(time.Second))...)
}

// firstOffset is the offset of the first record of the next Poll, -1 if there is none.
func firstOffset(t *testing.T, r *sdk.Reader) (int64, error) {
	fetches, err := r.Poll(t.Context())
	if err != nil || len(fetches) == 0 {
		return -1, err
	}
	return fetches[0].Records[0].Offset, nil
}

// The part of BR-17 that is the reader's: what was lost is reported once, and where it goes on follows the stated policy.
func TestBR17_BelowTheLogStartFollowsThePolicy(t *testing.T) {
	for _, c := range []struct {
		policy                 sdk.ResetPolicy
		first, position, event int64
	}{
		{sdk.ResetEarliest, 15, 31, 15},
		{sdk.ResetLatest, -1, 31, 31},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, r := belowStart(t, sdk.From(sdk.AtOffset(10)), sdk.OnExpired(c.policy))
			defer r.Close()
			got, err := firstOffset(t, r)
			check(t, err)
			for more := got; more >= 0; more, err = firstOffset(t, r) { // until nothing is left
				check(t, err)
			}
			if at, _ := r.Position(0); got != c.first || at != c.position {
				t.Errorf("policy %d: first %d, position %d", c.policy, got, at)
			}
			if want := []sdk.ResetEvent{{Topic: "t", From: 10, To: 15, Position: c.event}}; !reflect.DeepEqual(b.counts.resets, want) {
				t.Errorf("policy %d: reported %+v, want %+v", c.policy, b.counts.resets, want)
			}
		})
	}
}

func TestBR17_BelowTheLogStartIsAnErrorByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := belowStart(t, sdk.From(sdk.AtOffset(10)))
		defer r.Close()
		var outside *sdk.RangeError
		if _, err := firstOffset(t, r); !errors.As(err, &outside) || *outside != (sdk.RangeError{Topic: "t", Offset: 10, Start: 15, End: 31, Err: sdk.ErrExpired}) {
			t.Fatal(err)
		}
		if _, err := firstOffset(t, r); err != sdk.ErrHalted {
			t.Errorf("reported once, then: %v", err)
		}
		check(t, r.Seek(0, outside.Start))
		if got, err := firstOffset(t, r); got != 15 || err != nil {
			t.Errorf("after the seek: %d, %v", got, err)
		}
		if want := []sdk.ResetEvent{{Topic: "t", From: 10, To: 15, Position: 10}}; !reflect.DeepEqual(b.counts.resets, want) {
			t.Errorf("reported %+v, want %+v", b.counts.resets, want)
		}
	})
}

func TestBR17_PastTheEndIsAnErrorUnderEveryPolicy(t *testing.T) {
	for _, policy := range []sdk.ResetPolicy{sdk.ResetFail, sdk.ResetEarliest, sdk.ResetLatest} {
		synctest.Test(t, func(t *testing.T) {
			_, r := belowStart(t, sdk.From(sdk.AtOffset(40)), sdk.OnExpired(policy))
			defer r.Close()
			got, err := firstOffset(t, r)
			var outside *sdk.RangeError
			if !errors.As(err, &outside) || *outside != (sdk.RangeError{Topic: "t", Offset: 40, Start: 15, End: 31, Err: sdk.ErrOutOfRange}) {
				t.Errorf("policy %d: %d, %v", policy, got, err)
			}
		})
	}
}

func TestBR17_ALiveReaderIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := belowStart(t, sdk.From(sdk.AtOffset(15)), sdk.OnExpired(sdk.ResetEarliest), sdk.WithPollBytes(1), sdk.WithReadBuffer(1), sdk.WithPrefetch(1))
		defer r.Close()
		if got, err := firstOffset(t, r); got != 15 || err != nil {
			t.Fatalf("%d, %v", got, err)
		}
		_, err := b.log.Admin().DeleteRecords(b.ctx, "t", 0, 28)
		check(t, err)
		page, err := b.raw.List(b.ctx, "", "", 0)
		check(t, err)
		for _, o := range page.Objects[:28] { // by name, which is by age here
			check(t, b.raw.Delete(b.ctx, o.Name))
		}
		lost := int64(0)
		for at := int64(15); at < 30; {
			got, err := firstOffset(t, r)
			check(t, err)
			if lost += got - at - 1; got > at+1 && got != 28 {
				t.Fatalf("after %d comes %d", at, got)
			}
			at = got
		}
		if n := len(b.counts.resets); n != 1 || b.counts.resets[0].To-b.counts.resets[0].From != lost || lost < 10 {
			t.Errorf("%d records lost, reported %+v", lost, b.counts.resets)
		}
	})
}

func TestBR19_RecordLargerThanTheFetchLimit(t *testing.T) {
	sizes := []int{1 << 10, 2 << 20, 1 << 10}
	records := func() (rs []segment.Record) {
		for _, n := range sizes {
			rs = append(rs, segment.Record{Value: make([]byte, n)})
		}
		return rs
	}()
	for name, write := range map[string]func(*bench){
		"one batch":     func(b *bench) { b.write("t", one(0, records)) },
		"three batches": func(b *bench) { b.write("t", map[int][][]segment.Record{0: {records[:1], records[1:2], records[2:]}}) },
		"three segments": func(b *bench) {
			b.write("t", one(0, records[:1]))
			b.write("t", one(0, records[1:2]))
			b.write("t", one(0, records[2:]))
		},
	} {
		for _, limit := range []int{1, 1 << 20} {
			t.Run(fmt.Sprint(name, ", limit ", limit), func(t *testing.T) {
				b := newBench(t)
				b.create("t", 1, 64)
				write(b)
				r := b.reader("t", sdk.WithPollBytes(limit), sdk.WithReadBuffer(limit))
				b.counts.take()
				got := 0
				for range 3 {
					fetches, err := r.Poll(b.ctx)
					check(t, err)
					if len(fetches) != 1 || len(fetches[0].Records) != 1 || len(fetches[0].Records[0].Value) != sizes[got] {
						t.Fatalf("poll %d: %d fetches", got, len(fetches))
					}
					got++
				}
				if _, gets := b.counts.take(); gets > 3 {
					t.Errorf("%d range requests for 3 records", gets)
				}
			})
		}
	}
}

// longPoll runs in virtual time with a log of 4 partitions in two lanes.
func longPoll(t *testing.T, run func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 4, 2)
		run(t, b)
	})
}

func timedPoll(ctx context.Context, r *sdk.Reader) (took time.Duration, fetches []sdk.Fetch, err error) {
	start := time.Now()
	fetches, err = r.Poll(ctx)
	return time.Since(start), fetches, err
}

func TestBR20_AnEmptyPartitionAnswersAfterTheWait(t *testing.T) {
	longPoll(t, func(t *testing.T, b *bench) {
		r := b.reader("t", sdk.ReadPartitions(0), sdk.WithWait(5*time.Second))
		defer r.Close()
		b.counts.take()
		if took, fetches, err := timedPoll(b.ctx, r); took != 5*time.Second || fetches != nil || err != nil {
			t.Errorf("after %v: %v, %v", took, fetches, err)
		}
		ops, _ := b.counts.take()
		t.Logf("5 s on an empty partition: %v", ops)
		if ops["Head"] < 3 || ops["Head"] > 14 || total(ops) > ops["Head"]+1 {
			t.Errorf("requests %v", ops)
		}
		time.Sleep(time.Minute)
		b.counts.take()
		timedPoll(b.ctx, r)
		if ops, _ := b.counts.take(); ops["Head"] > 5 {
			t.Errorf("idle for a minute: %v in 5 s", ops)
		}
	})
}

func TestBR20_WhatIsAppendedComesAtTheNextCheck(t *testing.T) {
	longPoll(t, func(t *testing.T, b *bench) {
		r := b.reader("t", sdk.ReadPartitions(0), sdk.WithWait(5*time.Second))
		defer r.Close()
		time.AfterFunc(2*time.Second, func() { b.write("t", one(0, numbers(7, 1))) })
		if took, fetches, err := timedPoll(b.ctx, r); took < 2*time.Second || took > 4*time.Second || len(fetches) != 1 || err != nil {
			t.Errorf("after %v: %v, %v", took, fetches, err)
		}
	})
}

func TestBR20_ACancelledWaitIsAnErrorAtOnce(t *testing.T) {
	longPoll(t, func(t *testing.T, b *bench) {
		r := b.reader("t", sdk.ReadPartitions(0), sdk.WithWait(5*time.Second))
		ctx, cancel := context.WithCancel(b.ctx)
		time.AfterFunc(time.Second, cancel)
		if took, fetches, err := timedPoll(ctx, r); took != time.Second || fetches != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: after %v: %v, %v", took, fetches, err)
		}
		time.AfterFunc(time.Second, func() { r.Close() })
		if took, fetches, err := timedPoll(b.ctx, r); took != time.Second || fetches != nil || err != sdk.ErrClosed {
			t.Errorf("closed: after %v: %v, %v", took, fetches, err)
		}
	})
}

func TestBR20_NoPartitionWaitsForAnotherAndAnyWakes(t *testing.T) {
	longPoll(t, func(t *testing.T, b *bench) {
		r := b.reader("t", sdk.WithWait(5*time.Second))
		defer r.Close()
		b.write("t", one(3, numbers(7, 1)))
		if took, fetches, err := timedPoll(b.ctx, r); took > 30*time.Millisecond || len(fetches) != 1 || err != nil {
			t.Errorf("records wait in one of four partitions: after %v: %v, %v", took, fetches, err)
		}
		for p := range 4 {
			time.AfterFunc(100*time.Millisecond, func() { b.write("t", one(p, numbers(7, 1))) })
			if took, fetches, err := timedPoll(b.ctx, r); took > time.Second || len(fetches) != 1 || fetches[0].Partition != p || err != nil {
				t.Errorf("partition %d: after %v: %v, %v", p, took, fetches, err)
			}
		}
	})
}

// BR-39 is the store adapter's; the reader must neither take a short body for a whole one nor give up the partition.
func TestBR39_ShortBodiesAreNotData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.write("t", one(0, numbers(0, 50)))
		var gets atomic.Int32
		b.faults(func(c fault.Call) fault.Fault {
			if c.Op == store.OpGet && gets.Add(1) <= 3 {
				return fault.Fault{Kind: fault.Short, Cut: 5}
			}
			return fault.Fault{}
		}, nil)
		r := b.reader("t", sdk.To(sdk.Latest))
		defer r.Close()
		failures, records := 0, 0
		for {
			fetches, err := r.Poll(b.ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				failures++
				if !errors.Is(err, sdk.ErrUnreachable) {
					t.Fatal(err)
				}
				continue
			}
			records += len(fetches[0].Records)
		}
		if failures != 3 || records != 50 {
			t.Errorf("%d failures, %d records", failures, records)
		}
	})
}

// swapped is a table in which, from an order on, heads name other segments: as if what they named had been rewritten and moved.
type swapped struct {
	metadata.Table
	from int64
	ids  map[segment.ID]segment.ID
}

func (s *swapped) Head(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	h, err := s.Table.Head(ctx, lane, c)
	if err != nil || h.Next < s.from {
		return h, err
	}
	for i := range h.Entries {
		if id, ok := s.ids[h.Entries[i].ID]; ok {
			h.Entries[i].ID = id
		}
	}
	return h, nil
}

type swappingDriver struct {
	sdk.Driver
	table *swapped
}

func (d swappingDriver) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	b, err := d.Driver.Open(ctx, u, o)
	d.table.Table, b.Table = b.Table, d.table
	return b, err
}

// The reader's part of BR-18: what it was about to read has moved to another segment and is gone from the first. It goes on from the exact offset.
func TestBR18_ObjectGoneInMidRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		table := &swapped{from: 5, ids: map[segment.ID]segment.ID{}}
		log, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(swappingDriver{b.memory, table}))
		check(t, err)
		var names []string
		for i := range 4 {
			names = append(names, b.write("t", map[int][][]segment.Record{0: {numbers(5*i, 5)}, 1: {numbers(3*i, 3)}}))
		}
		r, err := log.NewReader(b.ctx, "t", sdk.FromOffsets(map[int]int64{0: 7}), sdk.To(sdk.Latest))
		check(t, err)
		defer r.Close()
		for i, name := range names[1:3] { // the reader knows them by their old names
			old, err := segment.ParseName(name)
			check(t, err)
			id := segment.NewID(time.Now(), old.ID.Class(), segment.InBucket, uint64(1000+i), segment.ID{})
			body, err := b.raw.Get(b.ctx, name, 0, -1, nil)
			check(t, err)
			check(t, b.raw.Put(b.ctx, segment.IntakeName(id), body))
			check(t, b.raw.Delete(b.ctx, name))
			table.ids[old.ID] = id
		}
		b.write("t", one(0, numbers(20, 1)))
		got := b.values(r)
		if got[0] != "7 8 9 10 11 12 13 14 15 16 17 18 19" || got[1] != "0 1 2 3 4 5 6 7 8 9 10 11" {
			t.Errorf("got %v", got)
		}
	})
}
