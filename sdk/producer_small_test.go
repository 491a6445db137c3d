package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

const smallBytes = 4000 // the default on aws://

func small() sdk.ProducerOption { return sdk.WithSmallSegments(smallBytes) }

// noise is n bytes that no codec makes smaller.
func noise(n int) []byte {
	b := make([]byte, n)
	chance := rand.NewChaCha8([32]byte{byte(n)})
	chance.Read(b)
	return b
}

// isSmallPut tells whether a call to the table creates a small segment.
func isSmallPut(c dynamodb.Call) bool {
	return c.Op == "PutItem" && len(c.Keys) == 1 && len(c.Keys[0].Partition) > 2 && c.Keys[0].Partition[:2] == "D#"
}

// serving is how long the services take.
func (w *world) serving(put, item, update time.Duration) {
	w.onPut(func(fault.Call) fault.Fault { return fault.Fault{Delay: put} })
	w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		switch {
		case c.Op == "PutItem":
			time.Sleep(item)
		case c.Op == "UpdateItem":
			time.Sleep(update)
		}
		return dynamodb.Fault{}
	})
}

// places is in which place the topic's segments are, in the order of their commits.
func (w *world) places(topic string) (all []segment.Place) {
	row, err := w.view.Table.Topic(judge, topic)
	w.must(err)
	for _, lane := range row.Lanes {
		head, err := w.view.Table.Head(judge, lane, metadata.Strong)
		w.must(err)
		for _, e := range w.entries(head) {
			all = append(all, e.ID.Place())
		}
	}
	return all
}

// Two round trips to the table after the linger, and no request to the bucket; four write units for the segment at most.
func TestSmall_TwoRoundTripsAndNoPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests := newWorld(t), &counter{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 2})
		p := w.producer(log, small(), sdk.WithLinger(5*ms, 5*ms), sdk.WithCompression(segment.None), sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		w.must(p.ProduceSync(ctx, rec("t", "first")).Err())
		w.serving(time.Hour, 7*ms, 11*ms)
		for _, n := range []int{10, 1000, 3500} {
			requests.take()
			requests.takeUnits()
			start := time.Now()
			w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Value: noise(n)}).Err())
			took, counted := time.Since(start), requests.take()
			if took != 23*ms {
				t.Errorf("%d bytes: acknowledged after %v, want the linger's 5, 7 and 11 ms", n, took)
			}
			if fmt.Sprint(counted) != "map[table Commit:1 table PutSmall:1]" {
				t.Errorf("%d bytes: requests were %v", n, counted)
			}
			t.Logf("record of %d bytes: %v, %.0f write units", n, took, requests.takeUnits())
		}
		if got := w.places("t"); slices.ContainsFunc(got, func(p segment.Place) bool { return p != segment.InTable }) {
			t.Errorf("places are %v", got)
		}
		w.heal()
		w.must(p.Close(ctx))
	})
}

// unitsOf sums the write units of one operation of the table.
type unitsOf struct {
	op    string
	units float64
}

func (u *unitsOf) OnRequest(e sdk.RequestEvent) {
	if e.Op == u.op {
		u.units += e.WriteUnits
	}
}

// What a small segment costs: a unit for every started KiB, key and all. The largest that the default lets through takes four.
func TestSmall_WriteUnits(t *testing.T) {
	w, units := newWorld(t), &unitsOf{op: "PutSmall"}
	var puts puts
	log := w.open(sdk.WithHooks(units, &puts))
	w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
	p := w.producer(log, small(), sdk.WithCompression(segment.None))
	largest := 0
	for n := 100; n < 4200; n += 100 {
		units.units = 0
		w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Value: noise(n)}).Err())
		e := puts.last()
		want := float64((e.Bytes + 29 + 1023) / 1024) // keys and attribute names: pk and D#xx, sk and id, b
		if e.Bytes > smallBytes {
			want = 0
		} else {
			largest = e.Bytes
		}
		if units.units != want {
			t.Errorf("segment of %d bytes: %.0f write units, want %.0f", e.Bytes, units.units, want)
		}
		if _, err := objects.Parse(e.Object); err != nil {
			t.Errorf("the event names %q: %v", e.Object, err)
		}
	}
	if largest < 3900 || units.units != 0 {
		t.Errorf("the largest in the table has %d bytes", largest)
	}
	w.must(p.Close(ctx))
}

// puts keeps the last segment put.
type puts struct{ e atomic.Pointer[sdk.PutEvent] }

func (p *puts) OnPut(e sdk.PutEvent) { p.e.Store(&e) }
func (p *puts) last() sdk.PutEvent   { return *p.e.Load() }

// Small ones go to the table, others to the bucket, by their size as stored; without the option all go to the bucket. Readers, of this process and of
// another, at the tail and from the beginning, do not see a difference.
func TestSmall_ReadersSeeNoDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 3})
		other := w.open()
		tail, err := other.NewReader(ctx, "t", sdk.From(sdk.Latest))
		w.must(err)
		all, plain := w.producer(log, small(), sdk.WithCompression(segment.None)), w.producer(log)
		var want []string
		for i, n := range []int{1, 5000, 300, 3000, 200_000, 2} {
			for _, p := range []*sdk.Producer{all, plain} {
				value := fmt.Sprintf("%d %x", i, noise(n/2))
				w.must(p.ProduceSync(ctx, rec("t", value)).Err())
				want = append(want, value)
			}
		}
		const b, d = segment.InBucket, segment.InTable
		if got := w.places("t"); !slices.Equal(got, []segment.Place{d, b, b, b, d, b, d, b, b, b, d, b}) {
			t.Errorf("places are %v", got)
		}
		fresh, err := other.NewReader(ctx, "t", sdk.To(sdk.Latest))
		w.must(err)
		slices.Sort(want)
		for name, r := range map[string]*sdk.Reader{"from the beginning": fresh, "the tail": tail} {
			var got []string
			for len(got) < len(want) {
				fetches, err := r.Poll(ctx)
				if errors.Is(err, io.EOF) {
					break
				}
				w.must(err)
				for _, f := range fetches {
					for _, record := range f.Records {
						got = append(got, string(record.Value))
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %d records, want %d", name, len(got), len(want))
			}
			w.must(r.Close())
		}
		for _, p := range []*sdk.Producer{all, plain} {
			w.must(p.Close(ctx))
		}
	})
}

// The put of a small segment is refused, lost before or after it was applied, or throttled: the record is acknowledged once, out of one item.
func TestSmall_LostAnswersAreSettled(t *testing.T) {
	for what, trouble := range map[string]dynamodb.Fault{
		"lost before": {Skip: true}, "lost after": {Reply: dynamodb.ErrConnectionLost}, "throttled": dynamodb.Throttle(),
		"500": {Reply: &dynamodb.Error{Code: "InternalServerError", Message: "on purpose", Status: 500}},
	} {
		for _, times := range []int64{1, 7} {
			synctest.Test(t, func(t *testing.T) {
				w, seen := newWorld(t), &acks{}
				log := w.open()
				w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
				p := w.producer(log, small())
				var hits atomic.Int64
				w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
					if isSmallPut(c) && hits.Add(1) <= times {
						return trouble
					}
					return dynamodb.Fault{}
				})
				r := rec("t", "once")
				seen.promise(r, p.ProduceSync(ctx, r).Err())
				if n := w.verify("t", seen.list()); n != 1 || len(w.contents("t")[0]) != 1 {
					t.Errorf("%s, %d times: %d acknowledged, %d records, %v", what, times, n, len(w.contents("t")[0]), seen.list()[0].err)
				}
				if n := len(w.smallIDs()); n != 1 {
					t.Errorf("%s, %d times: %d items", what, times, n)
				}
				w.must(p.Close(ctx))
			})
		}
	}
}

// smallIDs are the segments in the table.
func (w *world) smallIDs() (ids []segment.ID) {
	w.t.Helper()
	for hash := range 256 {
		some, _, err := w.view.Table.SmallIDs(judge, fmt.Sprintf("%02x", hash), segment.ID{}, segment.NewID(time.Now().Add(24*time.Hour), 0, segment.InTable, 0, segment.ID{}), 1000)
		w.must(err)
		ids = append(ids, some...)
	}
	return ids
}

// A table that takes no small segment fails the record at its deadline, as a bucket that takes no object does; what follows starts afresh.
func TestSmall_FailsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, small(), sdk.WithDeliveryDeadline(10*time.Second))
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if isSmallPut(c) {
				return dynamodb.Fault{Skip: true}
			}
			return dynamodb.Fault{}
		})
		if err := p.ProduceSync(ctx, rec("t", "lost")).Err(); !errors.Is(err, sdk.ErrTimedOut) || !errors.Is(err, sdk.ErrUnreachable) {
			t.Errorf("%v, want timed out, and why", err)
		}
		w.heal()
		w.must(p.ProduceSync(ctx, rec("t", "kept")).Err())
		if got := w.contents("t")[0]; len(got) != 1 || string(got[0].Value) != "kept" {
			t.Errorf("%d records", len(got))
		}
		w.must(p.Close(ctx))
	})
}

// Refused by a floor, and by a changed retention: the same bytes get a new id, in the table again.
func TestSmall_MintedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1, Config: map[string]string{"retention.ms": fmt.Sprint(int64(7 * 24 * time.Hour / ms))}})
		p := w.producer(log, small())
		send := func(value string) {
			r := rec("t", value)
			seen.promise(r, p.ProduceSync(ctx, r).Err())
		}
		send("before")
		row, err := w.view.Table.Topic(judge, "t")
		w.must(err)
		floor := segment.NewID(time.Now().Add(time.Second), 7, segment.InTable, 1, segment.ID{})
		w.must(w.view.Table.RaiseHeadFloor(judge, row.Lanes[0], floor))
		send("above the floor")
		_, err = w.open().Admin().AlterTopic(ctx, "t", sdk.Alteration{Config: map[string]string{"retention.ms": fmt.Sprint(int64(30 * 24 * time.Hour / ms))}})
		w.must(err)
		send("in another class")
		if n := w.verify("t", seen.list()); n != 3 {
			t.Fatalf("%d acknowledged: %v", n, seen.list())
		}
		head, err := w.view.Table.Head(judge, row.Lanes[0], metadata.Strong)
		w.must(err)
		var classes []segment.Class
		for i, e := range w.entries(head) {
			classes = append(classes, e.ID.Class())
			if e.ID.Place() != segment.InTable || i > 0 && !floor.Less(e.ID) {
				t.Errorf("segment %d is %s, place %d", i, e.ID, e.ID.Place())
			}
		}
		if !slices.Equal(classes, []segment.Class{7, 7, 30}) || len(w.smallIDs()) != 5 {
			t.Errorf("classes %v, %d items; want 7, 7, 30 and two left over", classes, len(w.smallIDs()))
		}
		w.must(p.Close(ctx))
	})
}

// Appends to several lanes at once, and the log's part of an application's transaction, use the same way.
func TestSmall_AtomicAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests, seen := newWorld(t), &counter{}, &acks{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 4, LaneWidth: 2})
		p := w.producer(log, small(), sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		records := []*sdk.Record{{Topic: "t", Partition: 0, Value: []byte("a")}, {Topic: "t", Partition: 3, Value: []byte("b")}}
		requests.take()
		err := p.AppendAtomic(ctx, records...)
		for _, r := range records {
			seen.promise(r, err)
		}
		if counted := requests.take(); counted["store put"] != 0 || counted["table PutSmall"] != 1 || counted["table CommitAll"] != 1 {
			t.Errorf("requests were %v", counted)
		}
		if n := w.verify("t", seen.list()); n != 2 || len(w.smallIDs()) != 1 {
			t.Errorf("%d acknowledged, %d items, %v", n, len(w.smallIDs()), err)
		}
		w.must(p.Close(ctx))
	})
}

// An item that is gone while the index names it is corruption, with its key; one whose bytes were changed too. Its bytes can be read by that key.
func TestSmall_Damage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, small())
		w.must(p.ProduceSync(ctx, rec("t", "value")).Err())
		w.must(p.Close(ctx))
		id := w.smallIDs()[0]
		name := metadata.SmallKey(id).String()
		body, err := log.Admin().ReadSegment(ctx, name)
		w.must(err)
		var d segment.Decoder
		if footer, err := d.Verify(body); err != nil || footer.Kind != segment.Intake || len(footer.Extents) != 1 {
			t.Errorf("%+v, %v", footer, err)
		}
		if _, err := log.Admin().ReadSegment(ctx, "D#"+id.Hash()); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("no name: %v", err)
		}
		damaged := func() *sdk.DataError {
			t.Helper()
			r, err := w.open().NewReader(ctx, "t")
			w.must(err)
			defer r.Close()
			_, err = r.Poll(ctx)
			var data *sdk.DataError
			if !errors.As(err, &data) || !errors.Is(err, sdk.ErrCorrupt) || data.Object != name {
				t.Errorf("%v, want damage of %s", err, name)
			}
			return data
		}
		w.must(w.view.Table.DeleteSmall(judge, []segment.ID{id}))
		if e := damaged(); e != nil && !errors.Is(e, store.ErrNotExist) {
			t.Errorf("gone: %v", e)
		}
		if _, err := log.Admin().ReadSegment(ctx, name); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("read of what is gone: %v", err)
		}
		body = bytes.Clone(body)
		body[40]++
		w.must(w.view.Table.PutSmall(judge, id, body))
		damaged()
	})
}

// The option's bounds.
func TestSmall_Bounds(t *testing.T) {
	w := newWorld(t)
	log := w.open()
	for n, valid := range map[int]bool{-1: false, 0: true, 1: true, 256 << 10: true, 256<<10 + 1: false} {
		p, err := log.NewProducer(sdk.WithSmallSegments(n))
		var field *sdk.FieldError
		if valid != (err == nil) || !valid && !errors.As(err, &field) {
			t.Errorf("%d: %v", n, err)
		}
		if p != nil {
			w.must(p.Close(ctx))
		}
	}
	w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
	p := w.producer(log, sdk.WithSmallSegments(256<<10), sdk.WithCompression(segment.None))
	var want []segment.Place
	for _, c := range []struct {
		n  int
		in segment.Place
	}{{255 << 10, segment.InTable}, {256 << 10, segment.InBucket}} {
		w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Value: noise(c.n)}).Err())
		want = append(want, c.in)
	}
	if got := w.places("t"); !slices.Equal(got, want) {
		t.Errorf("places are %v, want %v", got, want)
	}
	w.contents("t")
	w.must(p.Close(ctx))
}

// How long an acknowledgement takes with segments in the table and in the bucket, on the engine with stated service times: PUT 30 ms, PutItem 5 ms,
// UpdateItem 5 ms. docs/performance.md has the figures. A lone record takes linger, put and commit, to the nanosecond.
func TestSmall_Latency(t *testing.T) {
	const records = 600 / raceShare
	for _, rate := range []struct {
		name  string
		pause time.Duration // between two records, on average
		lone  bool
	}{{"3 records/s", 300 * ms, true}, {"50 records/s", 20 * ms, false}, {"1,000 records/s", ms, false}} {
		var p50 [2]time.Duration
		for i, threshold := range []int{0, smallBytes} {
			synctest.Test(t, func(t *testing.T) {
				w, units := newWorld(t), &counter{}
				log := w.open(sdk.WithHooks(units))
				w.create(log, sdk.NewTopic{Name: "t", Partitions: 4})
				p := w.producer(log, sdk.WithSmallSegments(threshold))
				w.must(p.ProduceSync(ctx, rec("t", "warm")).Err())
				w.serving(30*ms, 5*ms, 5*ms)
				units.take()
				units.takeUnits()
				took := w.latencies(p, records, rate.pause)
				counted := units.take()
				flushes := counted["table Commit"]
				p50[i] = took[len(took)/2]
				t.Logf("%-16s threshold %4d: p50 %6v  p99 %6v; %3d flushes of %d records, %.1f write units and %.2f PUTs each", rate.name, threshold,
					took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond), flushes, records,
					units.takeUnits()/float64(flushes), float64(counted["store put"])/float64(flushes))
				w.heal()
				w.must(p.Close(ctx))
			})
		}
		if rate.lone && (p50[0] != 40*ms || p50[1] != 15*ms) {
			t.Errorf("%s: %v in the bucket and %v in the table, want 5 + 30 + 5 and 5 + 5 + 5 ms", rate.name, p50[0], p50[1])
		}
	}
}

// latencies produces records of 100 bytes and returns how long each took to be acknowledged, ascending.
func (w *world) latencies(p *sdk.Producer, n int, pause time.Duration) []time.Duration {
	var mu sync.Mutex
	var took []time.Duration
	chance := rand.New(rand.NewPCG(1, 2))
	for range n {
		start, value := time.Now(), make([]byte, 100)
		for i := range value {
			value[i] = byte(chance.Uint32())
		}
		p.Produce(ctx, &sdk.Record{Topic: "t", Value: value}, func(_ *sdk.Record, err error) {
			w.must(err)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(start))
		})
		time.Sleep(pause/2 + time.Duration(chance.Int64N(int64(pause))))
	}
	w.must(p.Flush(ctx))
	slices.Sort(took)
	return took
}
