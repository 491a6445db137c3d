package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// Each refusal of the log is told by its reason, and mended by preparing anew.
func TestOutboxSaysWhyNot(t *testing.T) {
	head := func(s *shop) *metadata.Head {
		h, err := s.backend.Table.Head(s.ctx, s.topics["events"].Lanes[0], metadata.Strong)
		check(t, err)
		return h
	}
	fill := func(s *shop) { // without spilling
		for h := head(s); h.Next-h.First < metadata.MaxHeadEntries; {
			s.minted++
			id := segment.NewID(time.Now(), 7, segment.InBucket, s.minted, h.Floor)
			var err error
			h, err = s.backend.Table.Commit(s.ctx, metadata.Commit{Lane: h.Lane, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, 1),
				Entries: []metadata.Entry{{ID: id, Slots: []metadata.SlotEntry{{Slot: 1, Count: 1, Bytes: 1}}}}})
			check(t, err)
		}
	}
	for reason, cause := range map[string]func(s *shop, p *sdk.Producer){
		"epoch": func(s *shop, p *sdk.Producer) {
			_, err := s.log.Admin().AlterTopic(s.ctx, "events", sdk.Alteration{Config: map[string]string{"retention.ms": "86400000"}})
			check(t, err)
		},
		"floor": func(s *shop, p *sdk.Producer) {
			floor := segment.NewID(time.Now().Add(time.Second), 7, segment.InBucket, 1, segment.ID{})
			_, err := s.client.UpdateItem(s.ctx, &dynamodb.UpdateItemInput{TableName: aws.String("varve"), UpdateExpression: aws.String("SET #f = :f"),
				Key:                      attributes{"pk": text1("L#" + string(s.topics["events"].Lanes[0])), "sk": text1("HEAD")},
				ExpressionAttributeNames: map[string]string{"#f": "floor"}, ExpressionAttributeValues: attributes{":f": text1(floor.String())}})
			check(t, err)
		},
		"full":    func(s *shop, p *sdk.Producer) { fill(s) },
		"spilled": func(s *shop, p *sdk.Producer) { s.many("events", 16) },
		"":        func(s *shop, p *sdk.Producer) { check(t, s.send(unlessThere(attributes{"id": text1("order")}))) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(t, 1)
			s.create("events", 4, 64)
			p, err := s.log.NewProducer()
			check(t, err)
			r := rec("events", "x")
			try := func(order string) (sent, told error) {
				prepared, err := p.Prepare(s.ctx, r)
				check(t, err)
				cause(s, p)
				sent = s.send(unlessThere(attributes{"id": text1(order)}), prepared)
				return sent, prepared.Done(s.ctx, sent)
			}
			sent, told := try("order")
			var not *sdk.NotAppliedError
			var theirs *types.TransactionCanceledException
			if !errors.As(told, &not) || not.Reason != reason || not.Err != sent || !errors.Is(told, sdk.ErrRefused) || !errors.As(told, &theirs) || sdk.OutcomeOf(told) != sdk.NotApplied {
				t.Errorf("%s: client %v, Done %v", reason, sent, told)
			}
			cause = func(*shop, *sdk.Producer) {}
			if sent, told = try("another"); sent != nil || told != nil || r.Offset < 0 {
				t.Errorf("%s: again: client %v, Done %v, offset %d", reason, sent, told, r.Offset)
			}
			fill(s)
			prepared, err := p.Prepare(s.ctx, r) // makes room itself
			check(t, err)
			check(t, s.send(unlessThere(attributes{"id": text1("third")}), prepared))
			check(t, p.Close(s.ctx))
			if h := head(s); h.Next-h.First >= metadata.MaxHeadEntries {
				t.Errorf("%s: head of %d entries was not spilled", reason, h.Next-h.First)
			}
		})
	}
}

// The application's items have no condition, so the log's alone keep a transaction from being applied twice: sent again at once, and when the first one's
// entry has left the head.
func TestOutboxSentTwice(t *testing.T) {
	for _, later := range []int{0, 16} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(t, 1)
			s.create("events", 1, 64)
			p, err := s.log.NewProducer()
			check(t, err)
			r := rec("events", "x")
			prepared, err := p.Prepare(s.ctx, r)
			check(t, err)
			check(t, s.send(plus("n", 1), prepared))
			s.many("events", later)
			err = s.send(plus("n", 1), prepared)
			if err == nil || s.number("n") != 1 {
				t.Errorf("after %d commits: %v, applied %d times", later, err, s.number("n"))
			}
			if err := prepared.Done(s.ctx, err); err != nil || r.Offset != 0 {
				t.Errorf("after %d commits: Done: %v, offset %d", later, err, r.Offset)
			}
			if err := prepared.Done(s.ctx, nil); err != nil {
				t.Errorf("Done again: %v", err)
			}
			if _, err := prepared.Items(); !errors.Is(err, sdk.ErrClosed) {
				t.Errorf("items after Done: %v", err)
			}
			check(t, p.Close(s.ctx))
		})
	}
}

// A client that says that it succeeded is not believed when the log does not show it, and is when the log cannot be read.
func TestOutboxSucceededWithoutTheItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 1)
		s.create("events", 4, 2)
		p, err := s.log.NewProducer()
		check(t, err)
		prepared, err := p.Prepare(s.ctx, rec("events", "x"))
		check(t, err)
		var not *sdk.NotAppliedError
		if err := prepared.Done(s.ctx, s.send(plus("n", 1))); !errors.As(err, &not) || not.Err != nil || !contains(err, "did not have the items") {
			t.Errorf("%v", err)
		}
		r := rec("events", "x")
		if prepared, err = p.Prepare(s.ctx, r); err != nil {
			t.Fatal(err)
		}
		check(t, s.send(plus("n", 1), prepared))
		s.faults(nil, func(context.Context, engine.Call) engine.Fault { return engine.Dropped() })
		if err := prepared.Done(s.ctx, nil); err != nil || r.Offset != -1 {
			t.Errorf("table not to be reached: %v, offset %d", err, r.Offset)
		}
		s.faults(nil, nil)
		if prepared, err = p.Prepare(s.ctx, r); err != nil {
			t.Fatal(err)
		}
		s.faults(nil, func(context.Context, engine.Call) engine.Fault { return engine.Dropped() })
		err = prepared.Done(s.ctx, errors.New("lost"))
		if !errors.Is(err, sdk.ErrUnknown) || sdk.OutcomeOf(err) != sdk.Unknown || !contains(err, "lost") {
			t.Errorf("table not to be reached: %v", err)
		}
		s.faults(nil, nil)
		if err := prepared.Done(s.ctx, errors.New("lost")); !errors.Is(err, sdk.ErrRefused) {
			t.Errorf("Done again: %v", err)
		}
		check(t, p.Close(s.ctx))
	})
}

// Items that are sent late name no object that is gone: what a sweep may delete is below a floor, which refuses them.
func TestOutboxSentLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 1)
		s.create("events", 1, 64)
		p, err := s.log.NewProducer()
		check(t, err)
		prepared, err := p.Prepare(s.ctx, rec("events", "x"))
		check(t, err)
		time.Sleep(metadata.MaxSegmentAge - time.Second)
		items, err := prepared.Items()
		check(t, err)
		time.Sleep(time.Second)
		if _, err := prepared.Items(); !errors.Is(err, sdk.ErrTimedOut) {
			t.Errorf("items of a segment that is too old: %v", err)
		}
		// A frozen process sends what it has taken in time, before any floor has passed it: all or none, and what it names is there.
		_, err = s.client.TransactWriteItems(s.ctx, &dynamodb.TransactWriteItemsInput{TransactItems: append(items, plus("n", 1))})
		check(t, prepared.Done(s.ctx, err))
		if got := s.readAll("events"); len(got) != 1 || s.number("n") != 1 {
			t.Errorf("%v, %d", got, s.number("n"))
		}
		check(t, p.Close(s.ctx))
	})
}

func TestOutboxRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 1)
		s.create("events", 4, 2)
		p, err := s.log.NewProducer(sdk.WithBufferBytes(30 << 10))
		check(t, err)
		large := func() *sdk.Record { return rec("events", strings.Repeat("x", 10<<10)) }
		full := func() bool {
			ctx, cancel := context.WithTimeout(s.ctx, time.Second)
			defer cancel()
			prepared, err := p.Prepare(ctx, large())
			if err == nil {
				prepared.Abandon()
			}
			return errors.Is(err, context.DeadlineExceeded)
		}
		for _, end := range []func(*sdk.Prepared){
			func(p *sdk.Prepared) { p.Abandon(); p.Abandon() },
			func(p *sdk.Prepared) { check(t, p.Done(s.ctx, s.send(plus("n", 1), p))); p.Abandon() },
			func(p *sdk.Prepared) { p.Done(s.ctx, errors.New("refused")); p.Done(s.ctx, nil) },
		} {
			prepared, err := p.Prepare(s.ctx, large())
			check(t, err)
			if !full() {
				t.Error("what is prepared takes no room")
			}
			if end(prepared); full() {
				t.Error("room was not given back")
			}
		}
		// What was abandoned is closed; Done needs no producer.
		prepared, err := p.Prepare(s.ctx, large())
		check(t, err)
		check(t, p.Close(s.ctx))
		check(t, prepared.Done(s.ctx, s.send(plus("n", 1), prepared)))
		if _, err := p.Prepare(s.ctx, large()); !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if n := s.number("n"); n != 2 || len(s.readAll("events")) != 2 {
			t.Errorf("%d, %d", n, len(s.readAll("events")))
		}
	})
}

// One transaction has 100 actions, and one of them is the application's.
func TestOutboxLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 1)
		var records []*sdk.Record
		for i := range 3 {
			topic := fmt.Sprint("events", i)
			s.create(topic, 40, 1)
			for p := range 40 {
				records = append(records, &sdk.Record{Topic: topic, Partition: p})
			}
		}
		p, err := s.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		check(t, err)
		if _, err := p.Prepare(s.ctx, records[:100]...); !errors.Is(err, sdk.ErrInvalid) || !contains(err, "1 to 99") {
			t.Errorf("100 lanes: %v", err)
		}
		prepared, err := p.Prepare(s.ctx, records[:99]...)
		check(t, err)
		check(t, prepared.Done(s.ctx, s.send(plus("n", 1), prepared)))
		for _, bad := range []struct {
			err     error
			records []*sdk.Record
		}{{sdk.ErrInvalid, nil}, {sdk.ErrUnknownTopic, []*sdk.Record{rec("nowhere", "x")}}} {
			if _, err := p.Prepare(s.ctx, bad.records...); !errors.Is(err, bad.err) {
				t.Errorf("%v, want %v", err, bad.err)
			}
		}
		// A head that is gone says nothing.
		prepared, err = p.Prepare(s.ctx, records[0])
		check(t, err)
		check(t, s.log.Admin().DeleteTopic(s.ctx, "events0"))
		if err := prepared.Done(s.ctx, s.send(plus("n", 1), prepared)); !errors.Is(err, sdk.ErrUnknown) {
			t.Errorf("topic deleted: %v", err)
		}
		check(t, p.Close(s.ctx))
	})
}

// elsewhere opens a log whose table can only be used through varve.
type elsewhere struct{ sdk.Driver }

func (e elsewhere) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	b, err := e.Driver.Open(ctx, u, o)
	b.Table = struct{ metadata.Table }{b.Table}
	return b, err
}

func TestOutboxNeedsDynamoDB(t *testing.T) {
	s := newShop(t, 1)
	s.create("events", 1, 1)
	log, err := sdk.Open(s.ctx, "mem://", sdk.WithDriver(elsewhere{s.memory}))
	check(t, err)
	p, err := log.NewProducer()
	check(t, err)
	if _, err := p.Prepare(s.ctx, rec("events", "x")); !errors.Is(err, sdk.ErrNotSupported) {
		t.Errorf("Prepare: %v", err)
	}
	c, err := log.NewConsumer(s.ctx, "g", []string{"events"})
	check(t, err)
	if _, err := c.PrepareCommit(map[sdk.TopicPartition]sdk.CommitOffset{{Topic: "events"}: {Offset: 1}}); !errors.Is(err, sdk.ErrNotSupported) {
		t.Errorf("PrepareCommit: %v", err)
	}
	check(t, c.Close(s.ctx))
	check(t, p.Close(s.ctx))
}

// What varve's part costs besides the transaction: the object, and reads of the heads; a fence only where the transaction was not applied.
func TestOutboxRequests(t *testing.T) {
	s := newShop(t, 1)
	s.create("events", 2, 1) // two lanes
	p, err := s.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	check(t, err)
	prepare := func() *sdk.Prepared {
		prepared, err := p.Prepare(s.ctx, &sdk.Record{Topic: "events"}, &sdk.Record{Topic: "events", Partition: 1})
		check(t, err)
		return prepared
	}
	prepare().Abandon() // reads the topic
	for _, step := range []struct {
		what string
		do   func(*sdk.Prepared)
		want map[string]int
	}{
		{"abandoned", func(p *sdk.Prepared) { p.Abandon() }, map[string]int{"Head": 2}},
		{"applied", func(p *sdk.Prepared) { check(t, p.Done(s.ctx, s.send(plus("n", 1), p))) }, map[string]int{"Head": 4}},
		{"not applied", func(p *sdk.Prepared) { p.Done(s.ctx, errors.New("refused")) }, map[string]int{"Head": 2 + 2 + 2 + 1, "RaiseEpoch": 1}},
	} {
		s.counts.take()
		step.do(prepare())
		if ops, _ := s.counts.take(); !maps.Equal(ops, step.want) {
			t.Errorf("%s: %v, want %v", step.what, ops, step.want)
		}
	}
	check(t, p.Close(s.ctx))
}
