package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

func TestAppendIf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, requests, seen := newWorld(t), &counter{}, &acks{}
		log := w.open(sdk.WithHooks(requests))
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 2})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(time.Hour, time.Hour))
		two := func(v string) []*sdk.Record { return []*sdk.Record{{Value: []byte(v + "a")}, {Value: []byte(v + "b")}} }
		w.must(p.AppendIf(ctx, "t", 1, two("0"), sdk.EndIs(0)))
		requests.take()
		first := two("2")
		w.must(p.AppendIf(ctx, "t", 1, first, sdk.EndIs(2)))
		if got := requests.take(); got["store put"] != 1 || got["table Commit"] != 1 || first[1].Offset != 3 || first[1].Partition != 1 {
			t.Errorf("requests %v, offset %d", got, first[1].Offset)
		}

		p.Produce(ctx, &sdk.Record{Topic: "t", Partition: 1, Value: []byte("4")}, seen.promise) // goes before what was asked after it
		w.must(p.AppendIf(ctx, "t", 1, two("5"), sdk.EndIs(5)))
		if n := len(seen.list()); n != 1 {
			t.Errorf("%d promises of what went before", n)
		}
		var refused *sdk.ConditionError
		if err := p.AppendIf(ctx, "t", 1, two("x"), sdk.EndIs(5)); !errors.As(err, &refused) || refused.End != 7 || refused.Partition != 1 {
			t.Errorf("wrong end: %v", err)
		}

		w.must(log.Admin().SetFence(ctx, "t", 1, 0, 3))
		w.must(p.AppendIf(ctx, "t", 1, two("7"), sdk.TokenIs(3)))
		w.must(p.AppendIf(ctx, "t", 1, two("9"), sdk.TokenIs(3), sdk.EndIs(9)))
		w.must(log.Admin().SetFence(ctx, "t", 1, 3, 4))
		if err := p.AppendIf(ctx, "t", 1, two("x"), sdk.TokenIs(3), sdk.EndIs(11)); !errors.As(err, &refused) || refused.Token != 4 || !errors.Is(err, sdk.ErrRefused) {
			t.Errorf("fenced: %v", err)
		}
		for name, err := range map[string]error{
			"no condition": p.AppendIf(ctx, "t", 1, two("x")),
			"no record":    p.AppendIf(ctx, "t", 1, nil, sdk.EndIs(1)),
			"nil record":   p.AppendIf(ctx, "t", 1, []*sdk.Record{nil}, sdk.EndIs(1)),
			"partition":    p.AppendIf(ctx, "t", 2, two("x"), sdk.EndIs(0)),
		} {
			if !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.must(p.Close(ctx))
		if got := w.contents("t"); len(got[1]) != 11 || string(got[1][4].Value) != "4" || len(got[0]) != 0 {
			t.Errorf("%d and %d records", len(got[0]), len(got[1]))
		}
	})
}

// Of two that expect the same end, exactly one gets it, whatever answers are lost.
func TestAppendIf_OneOfTwoWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, chance := newWorld(t), newDice(5)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			time.Sleep(time.Duration(chance.intN(10)) * ms)
			if x := chance.float(); isCommit(c) && x < 0.4 {
				return []dynamodb.Fault{dynamodb.AnswerLost(), dynamodb.Dropped(), dynamodb.Throttle(), conflict()}[int(x*10)]
			}
			return dynamodb.Fault{}
		})
		var both sync.WaitGroup
		won := [2]int{}
		for i := range 2 {
			both.Go(func() {
				p := w.producer(log)
				for end := int64(0); end < 60; {
					err := p.AppendIf(ctx, "t", 0, []*sdk.Record{rec("t", fmt.Sprint(i, " at ", end))}, sdk.EndIs(end))
					var refused *sdk.ConditionError
					switch {
					case err == nil:
						won[i]++
						end++
					case errors.As(err, &refused):
						end = refused.End
					default:
						t.Errorf("AppendIf: %v", err)
						return
					}
				}
				w.must(p.Close(ctx))
			})
		}
		both.Wait()
		all := w.contents("t")[0]
		if len(all) < 60 || won[0]+won[1] != len(all) || won[0] == 0 || won[1] == 0 {
			t.Errorf("%d records, won %v", len(all), won)
		}
		for i, r := range all {
			if want := fmt.Sprint(" at ", i); string(r.Value[1:]) != want {
				t.Errorf("offset %d is %q", i, r.Value)
			}
		}
	})
}

// Several lanes of several topics, all or none, whatever is lost.
func TestAppendAtomic_AllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, chance := newWorld(t), newDice(6)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "a", Partitions: 4, LaneWidth: 2})
		w.create(log, sdk.NewTopic{Name: "b", Partitions: 1})
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			time.Sleep(time.Duration(chance.intN(10)) * ms)
			if x := chance.float(); c.Op == "TransactWriteItems" && x < 0.4 {
				return []dynamodb.Fault{dynamodb.AnswerLost(), dynamodb.Dropped(), dynamodb.Throttle(), {Reply: dynamodb.InternalServerError()}}[int(x*10)]
			}
			return dynamodb.Fault{}
		})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithDeliveryDeadline(10*time.Second))
		told := map[string]error{}
		var seen []ack
		for i := range 60 {
			rs := []*sdk.Record{rec("a", fmt.Sprint(i)), rec("b", fmt.Sprint(i)), rec("a", fmt.Sprint(i)), rec("a", fmt.Sprint(i))}
			rs[2].Partition, rs[3].Partition = 1, 3
			err := p.AppendAtomic(ctx, rs...)
			told[fmt.Sprint(i)] = err
			for _, r := range rs {
				if r.Topic == "a" && r.Offset >= 0 {
					seen = append(seen, ack{r, err})
				}
			}
		}
		w.must(p.Close(ctx))
		w.heal()
		w.verify("a", seen)
		there := map[string]int{}
		for _, topic := range []string{"a", "b"} {
			for _, part := range w.contents(topic) {
				for _, r := range part {
					there[string(r.Value)]++
				}
			}
		}
		applied := 0
		for v, err := range told {
			n := there[v]
			if n != 0 && n != 4 || err == nil && n != 4 || sdk.OutcomeOf(err) == sdk.NotApplied && n != 0 {
				t.Errorf("append %s: %d of 4 records are there, told %v", v, n, err)
			}
			if n == 4 {
				applied++
			}
		}
		if applied < 55 {
			t.Errorf("only %d of 60 applied", applied)
		}
	})
}

// What is in the log, though nobody could say where, has the offset -1: every record of it.
func TestAppendAtomic_OffsetsNotReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "a", Partitions: 2, LaneWidth: 1})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		var applied atomic.Bool
		w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Op == "TransactWriteItems" {
				applied.Store(true)
			} else if applied.Load() {
				return dynamodb.Dropped()
			}
			return dynamodb.Fault{}
		})
		records := []*sdk.Record{rec("a", "x"), rec("a", "y"), rec("a", "z")}
		records[2].Partition = 1
		w.must(p.AppendAtomic(ctx, records...))
		w.heal()
		w.must(p.Close(ctx))
		for i, r := range records {
			if r.Offset != -1 {
				t.Errorf("record %d is told offset %d", i, r.Offset)
			}
		}
		if got := w.contents("a"); len(got[0]) != 2 || len(got[1]) != 1 {
			t.Errorf("%d and %d records", len(got[0]), len(got[1]))
		}
	})
}

// A producer that appends only like this learns of growth by what its appends read.
func TestAppendAtomic_LearnsOfGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "a", Partitions: 2, LaneWidth: 2})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		w.must(p.AppendAtomic(ctx, rec("a", "x")))
		_, err := log.Admin().AlterTopic(ctx, "a", sdk.Alteration{Partitions: 4})
		w.must(err)
		w.must(p.AppendAtomic(ctx, rec("a", "y")))
		last := rec("a", "z")
		last.Partition = 3
		w.must(p.AppendAtomic(ctx, last))
		w.must(p.Close(ctx))
	})
}

func TestAppendAtomic_OneClassOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "a", Partitions: 1})
		w.create(log, sdk.NewTopic{Name: "b", Partitions: 1, Config: map[string]string{metadata.RetentionMs: "-1"}})
		p := w.producer(log)
		var field *sdk.FieldError
		if err := p.AppendAtomic(ctx, rec("a", "x"), rec("b", "x")); !errors.As(err, &field) || field.Topic != "b" {
			t.Errorf("two classes: %v", err)
		}
		if err := p.AppendAtomic(ctx, rec("a", "x"), rec("missing", "x")); !errors.Is(err, sdk.ErrUnknownTopic) {
			t.Errorf("unknown topic: %v", err)
		}
		// The class of both changes under the producer: it learns and puts the bytes again.
		_, err := log.Admin().AlterTopic(ctx, "a", sdk.Alteration{Config: map[string]string{metadata.RetentionMs: "86400000"}})
		w.must(err)
		w.must(p.AppendAtomic(ctx, rec("a", "y")))
		w.must(p.Close(ctx))
		if got := w.contents("a")[0]; len(got) != 1 || string(got[0].Value) != "y" {
			t.Errorf("%d records", len(got))
		}
	})
}

// A store that does not come back: typed at the deadline, and the room is free again.
func TestAppendAtomic_StalledStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "a", Partitions: 1})
		w.stalled()
		p := w.producer(log, sdk.WithBufferBytes(1))
		if err := p.AppendAtomic(ctx, rec("a", "x")); !errors.Is(err, sdk.ErrTimedOut) {
			t.Errorf("stalled: %v", err)
		}
		now, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var unsent *sdk.UnsentError
		go p.AppendAtomic(ctx, rec("a", "y"))
		synctest.Wait()
		if err := p.Close(now); !errors.As(err, &unsent) || unsent.Records != 1 {
			t.Errorf("Close: %v", err)
		}
	})
}

// A topic that was deleted and created anew is told once, by its name, and the next append goes to the new one.
func TestAppendAtomic_TopicCreatedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "a", Partitions: 2})
		w.create(log, sdk.NewTopic{Name: "b", Partitions: 1})
		p := w.producer(log)
		w.must(p.AppendAtomic(ctx, rec("a", "x"), rec("b", "x")))
		w.must(log.Admin().DeleteTopic(ctx, "b"))
		w.create(log, sdk.NewTopic{Name: "b", Partitions: 1})
		var delivery *sdk.DeliveryError
		err := p.AppendAtomic(ctx, rec("a", "y"), rec("b", "y"))
		if !errors.Is(err, sdk.ErrTopicGone) || !errors.As(err, &delivery) || delivery.Topic != "b" || sdk.OutcomeOf(err) != sdk.NotApplied {
			t.Errorf("created anew: %v", err)
		}
		w.must(p.AppendAtomic(ctx, rec("a", "z"), rec("b", "z")))
		w.must(p.Close(ctx))
		if got := w.contents("b")[0]; len(got) != 1 || string(got[0].Value) != "z" {
			t.Errorf("%d records", len(got))
		}
	})
}
