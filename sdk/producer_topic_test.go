package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/fault"
)

// A topic that is deleted and created anew under a producer: what was on its way fails typed, what comes then goes to
// the new one.
func TestProduce_TopicDeletedUnderTheHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "old")).Err())
		w.must(log.Admin().DeleteTopic(ctx, "t"))
		if err := p.ProduceSync(ctx, rec("t", "lost")).Err(); !errors.Is(err, sdk.ErrTopicGone) || sdk.OutcomeOf(err) != sdk.NotApplied {
			t.Errorf("after the deletion: %v", err)
		}
		if err := p.ProduceSync(ctx, rec("t", "x")).Err(); !errors.Is(err, sdk.ErrUnknownTopic) {
			t.Errorf("while there is none: %v", err)
		}
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 2})
		r := rec("t", "new")
		w.must(p.ProduceSync(ctx, r).Err())
		w.must(log.Admin().DeleteTopic(ctx, "t"))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 3})
		if err := p.ProduceSync(ctx, rec("t", "lost")).Err(); !errors.Is(err, sdk.ErrTopicGone) {
			t.Errorf("after the second deletion: %v", err)
		}
		w.must(p.ProduceSync(ctx, rec("t", "newest")).Err())
		w.must(p.Close(ctx))
		n := 0
		for _, part := range w.contents("t") {
			n += len(part)
		}
		if n != 1 {
			t.Errorf("%d records in the newest topic", n)
		}
	})
}

// The same, seen in the moment when the row is that of the new topic and the old one's heads are still there.
func TestProduce_TopicReplacedBeforeItsHeadsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "old")).Err())
		table := w.view.Table
		row, err := table.Topic(judge, "t")
		w.must(err)
		w.must(table.SetHeadConfig(judge, row.Lanes[0], 2, row.Class()))
		w.must(table.DeleteTopic(judge, row, &metadata.GoneTopic{ID: row.ID, Name: row.Name, Lanes: row.Lanes, Width: row.LaneWidth, Classes: row.Classes, Deleted: time.Now()}))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		if err := p.ProduceSync(ctx, rec("t", "lost")).Err(); !errors.Is(err, sdk.ErrTopicGone) {
			t.Errorf("told %v", err)
		}
		w.must(p.ProduceSync(ctx, rec("t", "new")).Err())
		w.must(p.Close(ctx))
		if got := w.contents("t")[0]; len(got) != 1 || string(got[0].Value) != "new" {
			t.Errorf("%d records in the new topic", len(got))
		}
	})
}

// A topic that grows, and whose limit changes, is seen to have done so with the next commit.
func TestProduce_GrowthAndConfigAreLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests := newWorld(t), &counter{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 4, LaneWidth: 2})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		at := func(partition int) *sdk.Record {
			return &sdk.Record{Topic: "t", Partition: partition, Value: []byte("x")}
		}
		w.must(p.ProduceSync(ctx, at(1), at(3)).Err())
		if err := p.ProduceSync(ctx, at(4)).Err(); !errors.Is(err, sdk.ErrNoPartition) {
			t.Errorf("before: %v", err)
		}
		_, err := log.Admin().AlterTopic(ctx, "t", sdk.Alteration{Partitions: 7, Config: map[string]string{metadata.MaxMessageBytes: "100"}})
		w.must(err)
		requests.take()
		w.must(p.ProduceSync(ctx, at(0)).Err())
		w.must(p.ProduceSync(ctx, at(2)).Err())
		if got := requests.take(); got["table Topic"] != 1 || got["store put"] != 2 {
			t.Errorf("the change was learnt by %v, want one read of the topic for both lanes", got)
		}
		w.must(p.ProduceSync(ctx, at(6)).Err())
		if err := p.ProduceSync(ctx, rec("t", strings.Repeat("x", 101))).Err(); !errors.Is(err, sdk.ErrTooLarge) {
			t.Errorf("over the new limit: %v", err)
		}
		w.must(p.Close(ctx))
	})
}

// A new retention class: the segment under way is put again under it, so that its lifecycle rule is the right one.
func TestProduce_ClassChangePutsTheBytesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "0")).Err())
		_, err := log.Admin().AlterTopic(ctx, "t", sdk.Alteration{Config: map[string]string{metadata.RetentionMs: "-1"}})
		w.must(err)
		var names []string
		w.onPut(func(c fault.Call) fault.Fault { names = append(names, c.Name); return fault.Fault{} })
		seen := &acks{}
		for _, v := range []string{"1", "2"} {
			p.Produce(ctx, rec("t", v), seen.promise)
			w.must(p.Flush(ctx))
		}
		w.must(p.Close(ctx))
		if len(names) != 3 || !strings.HasPrefix(names[0], "r7d/") || !strings.HasPrefix(names[1], "keep/") || !strings.HasPrefix(names[2], "keep/") {
			t.Errorf("puts: %v", names)
		}
		if n := w.verify("t", seen.list()); n != 2 {
			t.Errorf("%d acknowledged", n)
		}
	})
}

// A process that was frozen after its upload for longer than a segment may be committed puts the bytes again under a new id.
func TestProduce_FrozenAfterUploadMintsANewID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := env.System()
		var points []env.Point
		var mu sync.Mutex
		freeze := false
		e.Pause = func(p env.Point) {
			mu.Lock()
			points = append(points, p)
			now := freeze && p == env.AfterUpload
			freeze = freeze && !now
			mu.Unlock()
			if now {
				time.Sleep(metadata.MaxSegmentAge + time.Minute)
			}
		}
		log := w.open(sdk.WithEnv(e))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithDeliveryDeadline(time.Hour))
		w.must(p.ProduceSync(ctx, rec("t", "0")).Err())
		var names []string
		w.onPut(func(c fault.Call) fault.Fault { names = append(names, c.Name); return fault.Fault{} })
		points, freeze = nil, true
		r := rec("t", "1")
		w.must(p.ProduceSync(ctx, r).Err())
		w.must(p.Close(ctx))
		w.verify("t", []ack{{r, nil}})
		if len(names) != 2 {
			t.Fatalf("puts: %v", names)
		}
		first, err1 := segment.ParseName(names[0])
		second, err2 := segment.ParseName(names[1])
		if err1 != nil || err2 != nil || second.ID.Time().Sub(first.ID.Time()) < metadata.MaxSegmentAge {
			t.Errorf("ids %v and %v", first.ID, second.ID)
		}
		if got := fmt.Sprint(points); got != "[before-upload after-upload before-upload after-upload before-commit after-commit]" {
			t.Errorf("pause points %v", got)
		}
	})
}

// The topic is marked before its first keyed record, once, by whoever comes first; a mark that fails keeps the record out.
func TestProduce_MarksTheTopicBeforeTheFirstKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests := newWorld(t), &counter{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithDeliveryDeadline(10*time.Second))
		w.must(p.ProduceSync(ctx, rec("t", "no key")).Err())
		keyed := func() *sdk.Record { return &sdk.Record{Topic: "t", Key: []byte{}} }
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if len(c.Keys) > 0 && c.Keys[0].Partition == "TOPIC" {
				return dynamodb.Throttle()
			}
			return dynamodb.Fault{}
		})
		if err := p.ProduceSync(ctx, keyed()).Err(); !errors.Is(err, sdk.ErrTimedOut) || !errors.Is(err, sdk.ErrThrottled) {
			t.Errorf("the mark fails: %v", err)
		}
		if n := len(w.contents("t")[0]); n != 1 {
			t.Errorf("%d records", n)
		}
		w.heal()
		requests.take()
		w.must(p.ProduceSync(ctx, keyed()).Err())
		w.must(p.ProduceSync(ctx, keyed()).Err())
		if got := requests.take(); got["table MarkKeyed"] != 1 {
			t.Errorf("two keyed records: %v", got)
		}
		w.must(p.Close(ctx))
		p = w.producer(log)
		w.must(p.ProduceSync(ctx, keyed()).Err())
		if got := requests.take(); got["table MarkKeyed"] != 0 {
			t.Errorf("another producer marked it again: %v", got)
		}
		w.must(p.Close(ctx))
	})
}

// With log append time, records come back with the time that readers see.
func TestProduce_LogAppendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1, Config: map[string]string{metadata.TimestampType: "LogAppendTime"}})
		p := w.producer(log)
		r := &sdk.Record{Topic: "t", Timestamp: time.UnixMilli(1234)}
		w.must(p.ProduceSync(ctx, r).Err())
		w.must(p.Close(ctx))
		if got := w.contents("t")[0][0].Timestamp; got != r.Timestamp.UnixMilli() || time.Since(r.Timestamp).Abs() > 2*time.Second {
			t.Errorf("reader sees %d, producer was told %v", got, r.Timestamp)
		}
	})
}

// A record from the far future counts in the index as an hour after its append, also when its bytes get a new id.
func TestProduce_FutureTimestampsAreClippedInTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log)
		future := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
		past := time.UnixMilli(5)
		w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Timestamp: future}).Err())
		w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Timestamp: past}).Err())
		_, err := log.Admin().AlterTopic(ctx, "t", sdk.Alteration{Config: map[string]string{metadata.RetentionMs: "-1"}})
		w.must(err)
		time.Sleep(time.Minute)
		w.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Timestamp: future}).Err()) // under a second id
		w.must(p.Close(ctx))
		row, err := w.view.Table.Topic(judge, "t")
		w.must(err)
		head, err := w.view.Table.Head(judge, row.Lanes[0], metadata.Strong)
		w.must(err)
		for i, e := range w.entries(head) {
			want := e.ID.Time().Add(time.Hour).UnixMilli()
			if i == 1 {
				want = past.UnixMilli()
			}
			if e.Slots[0].MaxTime != want {
				t.Errorf("entry %d: index time %d, want %d", i, e.Slots[0].MaxTime, want)
			}
		}
		for i, r := range w.contents("t")[0] {
			if i != 1 && r.Timestamp != future.UnixMilli() {
				t.Errorf("record %d: its own time has become %d", i, r.Timestamp)
			}
		}
	})
}

// Promises of a partition come in order, one at a time, and may produce.
func TestProduce_PromisesAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 3, LaneWidth: 1})
		chance := newDice(1)
		w.onPut(func(fault.Call) fault.Fault { return fault.Fault{Delay: time.Duration(chance.intN(200)) * ms} })
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))
		var next [3]int64
		var running, more atomic.Int64
		var promise func(*sdk.Record, error)
		promise = func(r *sdk.Record, err error) {
			if err != nil || running.Add(1) != 1 || r.Offset != next[r.Partition] {
				t.Errorf("partition %d: offset %d, expected %d; error %v", r.Partition, r.Offset, next[r.Partition], err)
			}
			next[r.Partition]++
			if more.Add(1) <= 100 {
				p.TryProduce(ctx, &sdk.Record{Topic: "t", Partition: r.Partition}, promise)
			}
			running.Add(-1)
		}
		for i := range 300 {
			p.Produce(ctx, &sdk.Record{Topic: "t", Partition: i % 3}, promise)
			time.Sleep(ms)
		}
		for more.Load() < 400 {
			w.must(p.Flush(ctx))
		}
		w.must(p.Close(ctx))
		if next[0]+next[1]+next[2] != 400 {
			t.Errorf("%v promises", next)
		}
	})
}

func TestTryProduce_DoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		release := w.stalled()
		p := w.producer(log, sdk.WithBufferBytes(1))
		p.TryProduce(ctx, rec("t", "in"), seen.promise)
		p.TryProduce(ctx, rec("t", "out"), seen.promise)
		if got := seen.list(); len(got) != 1 || !errors.Is(got[0].err, sdk.ErrBufferFull) {
			t.Errorf("told %v", got)
		}
		release()
		w.must(p.Close(ctx))
		if n := w.verify("t", seen.list()); n != 1 {
			t.Errorf("%d acknowledged", n)
		}
	})
}

// A caller that gives up waiting detaches: the record goes on.
func TestProduceSync_ACallerThatGivesUpDetaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		release := w.stalled()
		p := w.producer(log)
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := p.ProduceSync(within, rec("t", "x")).Err(); !errors.Is(err, sdk.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told %v", err)
		}
		var unsent *sdk.UnsentError
		if err := p.Flush(within); !errors.As(err, &unsent) || unsent.Records != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		release()
		w.must(p.Close(ctx))
		if n := len(w.contents("t")[0]); n != 1 {
			t.Errorf("%d records", n)
		}
	})
}

func TestNewProducer_RefusesSettingsThatMakeNoSense(t *testing.T) {
	w := newWorld(t)
	log := w.open()
	for name, o := range map[string]sdk.ProducerOption{
		"floor over ceiling": sdk.WithLinger(2*time.Second, time.Second), "negative linger": sdk.WithLinger(-1, 1), "no partitioner": sdk.WithPartitioner(nil),
		"tiny segments": sdk.WithSegmentBytes(1), "no buffer": sdk.WithBufferBytes(0), "nothing in flight": sdk.WithMaxInFlight(0),
		"no deadline": sdk.WithDeliveryDeadline(0), "codec": sdk.WithCompression(9), "budget": sdk.WithRequestBudget(-1), "target": sdk.WithLatencyTarget(-1),
	} {
		var field *sdk.FieldError
		if _, err := log.NewProducer(o); !errors.As(err, &field) || field.Valid == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := log.NewProducer(sdk.WithRequestBudget(1), sdk.WithLatencyTarget(time.Second)); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("budget and target: %v", err)
	}
}
