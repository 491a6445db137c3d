package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/sdk"
)

// attempt is one transaction of an order's: its two events, and what Done said of it.
type attempt struct {
	name    string
	records []*sdk.Record
	told    bool // Done has said something certain
	err     error
}

// own is the application's part of an attempt: the order, of which there is one, or something that has no condition of its own.
func (s *shop) own(order string, a *attempt) types.TransactWriteItem {
	if s.careless {
		return plus(a.name, 1)
	}
	return unlessThere(attributes{"id": text1(order), "attempt": text1(a.name)})
}

// times is how often an attempt's own item was written.
func (s *shop) times(order string, a *attempt) int {
	if s.careless {
		return s.number(a.name)
	}
	if placed, _ := s.row(order)["attempt"].(*types.AttributeValueMemberS); placed != nil && placed.Value == a.name {
		return 1
	}
	return 0
}

// life is one process that wants the order placed. It ends when the order is placed, or dies between any two things.
func (s *shop) life(order string, attempts *[]*attempt) (placed bool) {
	p, err := s.log.NewProducer(sdk.WithDeliveryDeadline(time.Minute))
	check(s.t, err)
	defer p.Close(s.ctx)
	for s.row(order) == nil {
		a := &attempt{name: fmt.Sprintf("%s/%d", order, len(*attempts))}
		for i := range 2 {
			a.records = append(a.records, &sdk.Record{Topic: "events", Key: fmt.Append(nil, a.name, "/", i), Value: fmt.Append(nil, a.name, "+", i)})
		}
		prepared, err := p.Prepare(s.ctx, a.records...)
		if err != nil {
			continue
		}
		*attempts = append(*attempts, a)
		if s.maybe(0.05) {
			return false // the segment is an orphan
		}
		if s.maybe(0.3) {
			time.Sleep(s.upTo(5 * time.Second))
		}
		err = s.send(s.own(order, a), prepared)
		if s.maybe(0.1) {
			return false // whatever became of it
		}
		if s.maybe(0.1) || err != nil && s.maybe(0.3) {
			time.Sleep(s.upTo(time.Minute))
			err = s.send(s.own(order, a), prepared)
		}
		if s.maybe(0.1) {
			s.outage(s.upTo(5 * time.Minute))
		}
		a.err = prepared.Done(s.ctx, err)
		for n := 0; errors.Is(a.err, sdk.ErrUnknown) && n < 3; n++ {
			a.err = prepared.Done(s.ctx, err)
		}
		a.told = !errors.Is(a.err, sdk.ErrUnknown)
		if s.maybe(0.1) {
			return false
		}
		if s.careless && a.told && a.err == nil {
			return true
		}
	}
	return true
}

// others append to the lanes meanwhile, so that heads are spilled, and change the topic, so that epochs are raised.
func (s *shop) others(ctx context.Context) {
	p, err := s.log.NewProducer(sdk.WithLinger(0, 0), sdk.WithDeliveryDeadline(time.Minute))
	check(s.t, err)
	defer p.Close(context.Background())
	for ctx.Err() == nil {
		p.ProduceSync(ctx, &sdk.Record{Topic: "events", Key: fmt.Append(nil, s.upTo(time.Second)), Value: []byte("other")})
		if s.maybe(0.02) {
			days := fmt.Sprint(86_400_000 * (1 + s.upTo(3)))
			_, _ = s.log.Admin().AlterTopic(ctx, "events", sdk.Alteration{Config: map[string]string{"retention.ms": days}})
		}
		time.Sleep(s.upTo(2 * time.Second))
	}
}

// An order is there exactly when its events are in the log, exactly once, whatever is lost, late, repeated or dies; and what Done says is true. In every
// second world the application's items have no condition, so that nothing but varve's keeps them from being written twice.
func TestOutboxIsAllOrNone(t *testing.T) {
	seeds := uint64(200)
	if raced || testing.Short() {
		seeds = 4
	}
	told := map[string]int{}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(t, seed)
			s.careless = seed%2 == 1
			s.create("events", 4, 2)
			ctx, cancel := context.WithCancel(s.ctx)
			done := make(chan struct{})
			go func() { defer close(done); s.others(ctx) }()
			s.faults(nil, s.misfortune)
			orders := map[string][]*attempt{}
			for i := range 4 {
				order := fmt.Sprintf("order-%d", i)
				var attempts []*attempt
				for lives := 0; lives < 5 && !s.life(order, &attempts); lives++ {
				}
				orders[order] = attempts
			}
			cancel()
			<-done
			s.faults(nil, nil)
			time.Sleep(2 * time.Hour)
			where := s.where("events")
			for order, attempts := range orders {
				for _, a := range attempts {
					told[s.judge(order, a, where)]++
				}
			}
		})
	}
	t.Logf("%d seeds: %v", seeds, told)
}

// judge compares an attempt's own item, its events in the log, and what Done has said of it, which is returned.
func (s *shop) judge(order string, a *attempt, where map[string]string) (told string) {
	s.t.Helper()
	events := 0
	for _, v := range where {
		if strings.HasPrefix(v, a.name+"+") {
			events++
		}
	}
	times := s.times(order, a)
	if events != 2*times || times > 1 {
		s.t.Errorf("seed %d: %s was written %d times, and %d of its 2 events are in the log", s.seed, a.name, times, events)
	}
	switch {
	case !a.told && a.err == nil:
		return "died"
	case !a.told:
		return "unknown"
	case (a.err == nil) != (times == 1) || a.err != nil && !errors.Is(a.err, sdk.ErrRefused):
		s.t.Errorf("seed %d: %s was written %d times, and Done said %v", s.seed, a.name, times, a.err)
	}
	if a.err != nil {
		return "not applied"
	}
	for _, r := range a.records {
		if at := fmt.Sprintf("%d/%d", r.Partition, r.Offset); r.Offset >= 0 && where[at] != string(r.Value) {
			s.t.Errorf("seed %d: %s was told to be at %s, where %q is", s.seed, r.Value, at, where[at])
		}
	}
	return "applied"
}
