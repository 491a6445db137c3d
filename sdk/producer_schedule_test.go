package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store/fault"
)

// A seeded schedule of produce, poll, crash, stalled coordinator and dropped replies over 3 partitions.
func TestBR13_SeededSchedule(t *testing.T) {
	var unknown, crashed int
	for seed := range uint64(12 / raceShare) {
		synctest.Test(t, func(t *testing.T) {
			s := newSchedule(t, seed)
			for range 200 {
				s.step()
			}
			s.finish()
			unknown += s.count(sdk.ErrUnknown)
			crashed += s.crashes
		})
	}
	t.Logf("%d crashes, %d records with unknown outcome", crashed, unknown)
	if crashed == 0 {
		t.Error("no seed had a crash")
	}
}

type schedule struct {
	*world
	seed      uint64
	chance    *dice
	log       *sdk.Log
	producers []*sdk.Producer
	seen      acks
	sent      int
	crashes   int
	polled    [3]int
	stalled   atomic.Bool
	drop      atomic.Int64 // commits whose answers are still to be lost
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	s := &schedule{world: newWorld(t), seed: seed, chance: newDice(seed)}
	s.log = s.open()
	s.create(s.log, sdk.NewTopic{Name: "t", Partitions: 3})
	s.onCall(func(ctx context.Context, c dynamodb.Call) dynamodb.Fault {
		time.Sleep(time.Duration(1+s.chance.intN(10)) * ms)
		for s.stalled.Load() && ctx.Err() == nil {
			time.Sleep(100 * ms)
		}
		if isCommit(c) && s.drop.Add(-1) >= 0 {
			if s.chance.float() < 0.5 {
				return dynamodb.AnswerLost()
			}
			return dynamodb.Dropped()
		}
		return dynamodb.Fault{}
	})
	s.onPut(func(fault.Call) fault.Fault {
		f := fault.Fault{Delay: time.Duration(10+s.chance.intN(80)) * ms}
		if s.chance.float() < 0.1 {
			f.Kind = fault.Kind(1 + s.chance.intN(3))
			f.LateAfter = time.Second
		}
		return f
	})
	for range 3 {
		s.producers = append(s.producers, s.start())
	}
	return s
}

func (s *schedule) start() *sdk.Producer {
	return s.producer(s.log, sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithDeliveryDeadline(20*time.Second))
}

func (s *schedule) step() {
	switch x := s.chance.float(); {
	case x < 0.70:
		p := s.producers[s.chance.intN(len(s.producers))]
		for range 1 + s.chance.intN(5) {
			r := &sdk.Record{Topic: "t", Partition: s.chance.intN(3), Value: fmt.Append(nil, s.sent)}
			s.sent++
			p.Produce(ctx, r, s.seen.promise)
		}
	case x < 0.80:
		s.poll()
	case x < 0.85: // gone without a word: what it had sent may still arrive
		i := s.chance.intN(len(s.producers))
		now, cancel := context.WithCancel(ctx)
		cancel()
		s.producers[i].Close(now)
		s.producers[i] = s.start()
		s.crashes++
	case x < 0.90:
		s.stalled.Store(true)
		time.AfterFunc(time.Duration(s.chance.intN(8000))*ms, func() { s.stalled.Store(false) })
	case x < 0.95:
		s.drop.Store(int64(1 + s.chance.intN(3)))
	default:
	}
	time.Sleep(time.Duration(s.chance.intN(60)) * ms)
}

// poll: what is visible only grows.
func (s *schedule) poll() {
	for i, part := range s.contents("t") {
		if len(part) < s.polled[i] {
			s.t.Fatalf("seed %d: partition %d has %d records, and had %d", s.seed, i, len(part), s.polled[i])
		}
		s.polled[i] = len(part)
	}
}

func (s *schedule) count(condition error) (n int) {
	for _, a := range s.seen.list() {
		if errors.Is(a.err, condition) {
			n++
		}
	}
	return n
}

// finish: once faults stop, every producer advances within one flush, and the log holds what was promised.
func (s *schedule) finish() {
	s.stalled.Store(false)
	s.heal()
	for i, p := range s.producers {
		s.must(p.Flush(ctx))
		for partition := range 3 {
			r := &sdk.Record{Topic: "t", Partition: partition, Value: fmt.Append(nil, "last of ", i, " in ", partition)}
			start := time.Now()
			err := p.ProduceSync(ctx, r).Err()
			if took := time.Since(start); err != nil || took > time.Second {
				s.t.Errorf("seed %d: after the faults producer %d needs %v for a record: %v", s.seed, i, took, err)
			}
			s.seen.promise(r, err)
		}
		s.must(p.Close(ctx))
	}
	seen := s.seen.list()
	if len(seen) != s.sent+9 {
		s.t.Fatalf("seed %d: %d promises for %d records", s.seed, len(seen), s.sent+9)
	}
	s.verify("t", seen)
	told := map[string]error{}
	for _, a := range seen {
		told[string(a.record.Value)] = a.err
	}
	there := map[string]bool{}
	for _, part := range s.contents("t") {
		for _, r := range part {
			v := string(r.Value)
			if there[v] {
				s.t.Errorf("seed %d: record %s twice", s.seed, v)
			}
			there[v] = true
			if err := told[v]; sdk.OutcomeOf(err) == sdk.NotApplied {
				s.t.Errorf("seed %d: record %s is in the log and was told %v", s.seed, v, err)
			}
		}
	}
}
