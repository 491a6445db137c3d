package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/fault"
)

var ctx = context.Background()

// slow gives every put and every call to the table a latency.
func (w *world) slow(put, call time.Duration) {
	w.onPut(func(fault.Call) fault.Fault { return fault.Fault{Delay: put} })
	w.onCall(func(context.Context, dynamodb.Call) dynamodb.Fault {
		time.Sleep(call)
		return dynamodb.Fault{}
	})
}

// A lone record is acknowledged after exactly the linger's floor, the put and the commit, at the price of one put and
// one request to the table.
func TestProduce_LoneRecordTakesLingerPlusPutPlusCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests := newWorld(t), &counter{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t"})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "warm")).Err())
		w.slow(80*ms, 7*ms)
		for i := range 5 {
			time.Sleep(time.Minute)
			requests.take()
			start := time.Now()
			r := rec("t", fmt.Sprint(i))
			w.must(p.ProduceSync(ctx, r).Err())
			if took := time.Since(start); took != 5*ms+80*ms+7*ms {
				t.Errorf("record %d took %v, not linger 5ms + put 80ms + commit 7ms", i, took)
			}
			if got := fmt.Sprint(requests.take()); got != "map[store put:1 table Commit:1]" {
				t.Errorf("record %d: requests %v", i, got)
			}
		}
		w.must(p.Close(ctx))
	})
}

// A caller that produces one record after another, each after the acknowledgement of the one before, keeps the floor
// however fast it is.
func TestProduce_ACallerThatWaitsIsNotMadeToLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t"})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "warm")).Err())
		start := time.Now()
		for i := range 100 {
			w.must(p.ProduceSync(ctx, rec("t", fmt.Sprint(i))).Err())
		}
		if took := time.Since(start); took != 100*5*ms {
			t.Errorf("100 records took %v, not 100 times the floor", took)
		}
		w.must(p.Close(ctx))
	})
}

// The linger grows where waiting gathers more: records come faster than acknowledgements, or faster than the linger.
func TestProduce_LingerFollowsTraffic(t *testing.T) {
	for _, c := range []struct {
		name          string
		apart, commit time.Duration
		low, high     int // puts in 20 s
	}{
		{"faster than acknowledgements", 20 * ms, 50 * ms, 75, 85},
		{"faster than the linger", ms, 0, 75, 85},
		{"slower than both", 400 * ms, 50 * ms, 50, 50},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, requests := newWorld(t), &counter{}
			log := w.open(sdk.WithHooks(requests))
			w.create(log, sdk.NewTopic{Name: "t"})
			p := w.producer(log)
			w.slow(0, c.commit)
			send := func(during time.Duration) {
				for range int(during / c.apart) {
					p.Produce(ctx, rec("t", "x"), nil)
					time.Sleep(c.apart)
				}
			}
			send(5 * time.Second)
			requests.take()
			send(20 * time.Second)
			if puts := requests.take()["store put"]; puts < c.low || puts > c.high {
				t.Errorf("%s: %d puts in 20 s, want %d to %d", c.name, puts, c.low, c.high)
			}
			w.must(p.Close(ctx))
		})
	}
}

// Many records come in steadily: the linger grows to its ceiling, and so few requests carry them.
func TestProduce_SteadyTrafficIsGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests, seen := newWorld(t), &counter{}, &acks{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t"})
		p := w.producer(log)
		w.slow(50*ms, 5*ms)
		send := func(n int) {
			for i := range n {
				p.Produce(ctx, rec("t", fmt.Sprint(i)), seen.promise)
				time.Sleep(2 * ms)
			}
		}
		send(1000)
		requests.take()
		send(5000) // 10 s
		if puts := requests.take()["store put"]; puts < 38 || puts > 41 {
			t.Errorf("%d puts in 10 s, want one each 250 ms", puts)
		}
		w.must(p.Close(ctx))
		if n := w.verify("t", seen.list()); n != 6000 {
			t.Errorf("%d acknowledged", n)
		}
	})
}

// A request budget spaces the flushes, a latency target takes what put and commit leave over.
func TestProduce_BudgetAndTarget(t *testing.T) {
	for _, c := range []struct {
		name      string
		option    sdk.ProducerOption
		low, high int // puts in 10 s
	}{
		{"2 commits a second", sdk.WithRequestBudget(2), 19, 21},
		{"ack within 150 ms", sdk.WithLatencyTarget(150 * ms), 100, 110}, // 95 ms of linger
	} {
		synctest.Test(t, func(t *testing.T) {
			w, requests := newWorld(t), &counter{}
			log := w.open(sdk.WithHooks(requests))
			w.create(log, sdk.NewTopic{Name: "t"})
			p := w.producer(log, c.option, sdk.WithMaxInFlight(64))
			w.slow(50*ms, 5*ms)
			send := func(n int) {
				for range n {
					p.Produce(ctx, rec("t", "x"), nil)
					time.Sleep(ms)
				}
			}
			send(2000)
			requests.take()
			send(10000)
			if puts := requests.take()["store put"]; puts < c.low || puts > c.high {
				t.Errorf("%s: %d puts in 10 s, want %d to %d", c.name, puts, c.low, c.high)
			}
			w.must(p.Close(ctx))
		})
	}
}

// One flush that touches any number of a lane's partitions costs one put and one commit.
func TestProduce_AnyNumberOfPartitionsIsOnePutAndOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests := newWorld(t), &counter{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 64})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		w.must(p.ProduceSync(ctx, rec("t", "warm")).Err())
		for n := 1; n <= 64; n++ {
			requests.take()
			var records []*sdk.Record
			for i := range n {
				r := rec("t", fmt.Sprint(n, " ", i))
				r.Partition = (n + i) % 64
				records = append(records, r)
			}
			w.must(p.ProduceSync(ctx, records...).Err())
			got := requests.take()
			if got["store put"] != 1 || got["table Commit"] != 1 {
				t.Fatalf("%d partitions: requests %v", n, got)
			}
			delete(got, "store put")
			delete(got, "table Commit")
			synctest.Wait() // a spill that is due runs beside
			if n%8 != 7 && len(got) != 0 {
				t.Errorf("%d partitions: %v besides put and commit", n, got)
			}
		}
		w.must(p.Close(ctx))
	})
}

// Several topics in several lanes and retention classes: one segment for each class, one commit for each lane.
func TestProduce_OneSegmentForEachClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests, seen := newWorld(t), &counter{}, &acks{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "a", Partitions: 6, LaneWidth: 2})
		w.create(log, sdk.NewTopic{Name: "b"})
		w.create(log, sdk.NewTopic{Name: "c", Config: map[string]string{metadata.RetentionMs: "-1"}})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		for round := range 3 {
			requests.take()
			for i := range 6 {
				for _, topic := range []string{"a", "b", "c"} {
					r := rec(topic, fmt.Sprint(topic, round, i))
					r.Partition = i
					p.Produce(ctx, r, seen.promise)
				}
			}
			w.must(p.Flush(ctx))
			got := requests.take()
			if got["store put"] != 2 || got["table Commit"] != 5 {
				t.Errorf("round %d: requests %v, want 2 puts and 5 commits", round, got)
			}
		}
		w.must(p.Close(ctx))
		for _, topic := range []string{"a", "b", "c"} {
			var of []ack
			for _, a := range seen.list() {
				if a.record.Topic == topic {
					of = append(of, a)
				}
			}
			if n := w.verify(topic, of); n != 18 {
				t.Errorf("topic %s: %d acknowledged", topic, n)
			}
		}
	})
}

// A large flush of one partition is several record batches, so that who seeks one record need not decompress them all.
func TestProduce_LargeFlushIsSeveralBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithLinger(time.Hour, time.Hour))
		for i := range 50 {
			p.Produce(ctx, rec("t", fmt.Sprintf("%0100000d", i)), seen.promise)
		}
		w.must(p.Close(ctx))
		if n := w.verify("t", seen.list()); n != 50 {
			t.Errorf("%d acknowledged", n)
		}
		if w.largest > 11 || w.largest < 10 {
			t.Errorf("the largest batch has %d records of 100 kB, 1 MiB is to be one batch", w.largest)
		}
	})
}

func TestProduce_UnknownTopicAndBadInputAreTyped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests := newWorld(t), &counter{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 3})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		for _, c := range []struct {
			name   string
			record *sdk.Record
			want   error
			text   string
		}{
			{"nil", nil, sdk.ErrInvalid, "record"},
			{"unknown", rec("missing", "x"), sdk.ErrUnknownTopic, `topic "missing"`},
			{"name", rec("../t", "x"), sdk.ErrInvalid, "topic name"},
			{"partition", &sdk.Record{Topic: "t", Partition: 3}, sdk.ErrNoPartition, "0 to 2"},
			{"negative", &sdk.Record{Topic: "t", Partition: -1}, sdk.ErrNoPartition, "0 to 2"},
			{"time", &sdk.Record{Topic: "t", Timestamp: time.Unix(-1, 0)}, sdk.ErrInvalid, "timestamp"},
			{"headers", &sdk.Record{Topic: "t", Headers: make([]sdk.Header, 1<<20+1)}, sdk.ErrInvalid, "headers"},
		} {
			err := p.ProduceSync(ctx, c.record).Err()
			if !errors.Is(err, c.want) || !contains(err, c.text) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if n := requests.take(); n["store put"] != 1 { // the identity's, at Open
			t.Errorf("bad records led to requests %v", n)
		}
		w.must(p.Close(ctx))
	})
}

// What nobody asked for: zstd at its fastest.
func TestProduce_CompressesWithZstdByDefault(t *testing.T) {
	w := newWorld(t)
	log := w.open()
	w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
	p := w.producer(log)
	w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Value: make([]byte, 10_000)}).Err())
	w.must(p.Close(ctx))
	page, err := w.view.Store.List(judge, "r7d/", "", 0)
	w.must(err)
	body, err := w.view.Store.Get(judge, page.Objects[0].Name, 0, -1, nil)
	w.must(err)
	footer, err := segment.ParseSegment(body)
	w.must(err)
	h, err := segment.ParseBatchHeader(body[footer.Extents[0].Offset:][:footer.Extents[0].Length])
	if err != nil || h.Codec() != segment.Zstd || len(body) > 1000 {
		t.Errorf("%v, %v, %d bytes", h.Codec(), err, len(body))
	}
}
