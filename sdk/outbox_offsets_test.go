package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

type commits = map[sdk.TopicPartition]sdk.CommitOffset

// sink is one process that adds up the records of "in" in an item of its own, together with the offsets; and if it is given a producer, appends the sums to
// "out" in the same transaction. It dies, without a word, between any two things.
func (s *shop) sink(ctx context.Context, forward bool, outcomes map[string]int) {
	c, err := s.log.NewConsumer(ctx, "g", []string{"in"}, sdk.WithInstanceID("sink"), sdk.ManualCommit(), sdk.WithSessionTimeout(10*time.Second))
	if err != nil {
		return
	}
	defer c.Close(context.Background())
	p, err := s.log.NewProducer(sdk.WithDeliveryDeadline(20 * time.Second))
	check(s.t, err)
	defer p.Close(context.Background())
	for ctx.Err() == nil {
		fetches, err := c.Poll(ctx)
		if errors.Is(err, sdk.ErrClosed) || errors.Is(err, sdk.ErrFenced) {
			return
		}
		for _, f := range fetches {
			for from := 0; from < len(f.Records); from += 4 {
				if s.maybe(0.03) {
					return
				}
				if !s.flow(ctx, c, p, forward, f, f.Records[from:min(from+4, len(f.Records))], outcomes) {
					break // what was read is to be dropped
				}
			}
		}
	}
}

// flow takes records in, with the offsets behind them, and says whether to go on.
func (s *shop) flow(ctx context.Context, c *sdk.Consumer, p *sdk.Producer, forward bool, f sdk.Fetch, records []sdk.Record, outcomes map[string]int) bool {
	sum := 0
	for _, r := range records {
		sum += int(r.Offset) + 1
	}
	behind := records[len(records)-1].Offset + 1
	for ctx.Err() == nil {
		offsets, err := c.PrepareCommit(commits{{Topic: f.Topic, Partition: f.Partition}: {Offset: behind}})
		if err != nil {
			return false
		}
		all := []*sdk.Prepared{offsets}
		if forward {
			result, err := p.Prepare(ctx, rec("out", fmt.Sprint(sum)))
			if err != nil {
				continue
			}
			all = append(all, result)
		}
		sent := s.send(plus("sum", sum), all...)
		if s.maybe(0.03) {
			return false
		}
		if s.maybe(0.1) {
			sent = s.send(plus("sum", sum), all...)
		}
		if s.maybe(0.03) {
			s.outage(s.upTo(time.Minute))
		}
		err = offsets.Done(ctx, sent)
		if forward {
			if also := all[1].Done(ctx, sent); err == nil && also != nil && !errors.Is(also, sdk.ErrUnknown) {
				s.t.Errorf("offsets were committed, and the result %v", also)
			}
		}
		switch {
		case err == nil:
			outcomes["applied"]++
			return true
		case !errors.Is(err, sdk.ErrRefused):
			outcomes["unknown"]++
			return false
		}
		outcomes["not applied"]++
	}
	return false
}

// The sum in the application's item, and that of the results, are the sum of all records, whatever is lost, late, repeated or dies.
func TestCommitWithStateIsExactlyOnce(t *testing.T) {
	seeds := uint64(20)
	if raced || testing.Short() {
		seeds = 2
	}
	outcomes := map[string]int{}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(t, seed)
			forward := seed%2 == 1
			s.create("in", 3, 2)
			s.create("out", 2, 1)
			s.fill("in", 3, 20)
			s.faults(nil, s.misfortune)
			const want = 3 * 20 * 21 / 2
			ctx, cancel := context.WithTimeout(s.ctx, 2*time.Hour)
			defer cancel()
			for ctx.Err() == nil && s.number("sum") < want {
				life, end := context.WithTimeout(ctx, 3*time.Minute)
				s.sink(life, forward, outcomes)
				end()
			}
			s.faults(nil, nil)
			time.Sleep(2 * time.Hour)
			if got := s.number("sum"); got != want {
				t.Errorf("seed %d: the sum is %d, want %d", seed, got, want)
			}
			results := 0
			for _, v := range s.readAll("out") {
				var n int
				fmt.Sscan(v, &n)
				results += n
			}
			if forward && results != want {
				t.Errorf("seed %d: the results' sum is %d, want %d", seed, results, want)
			}
		})
	}
	t.Logf("%d seeds: %v", seeds, outcomes)
}

// member makes a consumer that has read the three records of each partition of "t".
func (s *shop) member() *sdk.Consumer {
	s.create("t", 2, 64)
	s.fill("t", 2, 3)
	c, err := s.log.NewConsumer(s.ctx, "g", []string{"t"}, sdk.ManualCommit())
	check(s.t, err)
	for got := 0; got < 6; {
		fetches, err := c.Poll(s.ctx)
		check(s.t, err)
		for _, f := range fetches {
			got += len(f.Records)
		}
	}
	return c
}

// committed is what the group has committed for partition 0.
func (s *shop) committed() int64 {
	l, err := s.backend.Table.GroupLane(s.ctx, "g", s.topics["t"].Lanes[0])
	check(s.t, err)
	return l.Slots[s.topics["t"].Place(0).Slot].Offset
}

// A member keeps its partitions whatever the transaction has met, as long as that can be found out; and what was refused is never applied later.
func TestCommitWithStateGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 1)
		c := s.member()
		lost := errors.New("lost")
		try := func(offset int64, sent func(*sdk.Prepared) error) error {
			prepared, err := c.PrepareCommit(upTo(0, offset))
			check(t, err)
			return prepared.Done(s.ctx, sent(prepared))
		}
		apply := func(p *sdk.Prepared) error { return s.send(plus("n", 1), p) }
		check(t, try(1, apply))
		check(t, try(2, func(p *sdk.Prepared) error { check(t, apply(p)); return lost }))
		var stale *sdk.Prepared
		if err := try(3, func(p *sdk.Prepared) error { stale = p; return lost }); !errors.Is(err, sdk.ErrRefused) || !errors.Is(err, lost) {
			t.Errorf("not sent: %v", err)
		}
		if _, err := stale.Items(); !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("items of what is over: %v", err)
		}
		time.Sleep(time.Minute) // heartbeats find the new lease to be their own
		if got := c.Assignment(); len(got) != 2 {
			t.Errorf("holds %v", got)
		}
		check(t, try(3, apply))
		if n := s.number("n"); n != 3 || s.committed() != 3 {
			t.Errorf("applied %d times, committed %d", n, s.committed())
		}
		check(t, c.Close(s.ctx))
	})
}

func TestCommitWithStateRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 1)
		c := s.member()
		check(t, c.CommitOffsets(s.ctx, upTo(1, 2)))
		for what, try := range map[string]struct {
			offsets commits
			err     error
		}{
			"none":           {nil, sdk.ErrInvalid},
			"not held":       {upTo(7, 1), sdk.ErrNotHeld},
			"backwards":      {upTo(1, 1), sdk.ErrBehind},
			"committed ones": {upTo(1, 2), sdk.ErrBehind}, // could be applied twice
		} {
			if _, err := c.PrepareCommit(try.offsets); !errors.Is(err, try.err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		byTheClock, err := s.log.NewConsumer(s.ctx, "h", []string{"t"})
		check(t, err)
		if _, err := byTheClock.PrepareCommit(upTo(0, 1)); !errors.Is(err, sdk.ErrInvalid) || !contains(err, "ManualCommit") {
			t.Errorf("automatic commits: %v", err)
		}
		check(t, byTheClock.Close(s.ctx))
		// One that could not be found out about is given up, and claimed again.
		prepared, err := c.PrepareCommit(upTo(0, 1))
		check(t, err)
		s.faults(nil, func(_ context.Context, c engine.Call) (f engine.Fault) {
			if c.Op == "TransactWriteItems" || c.Op == "UpdateItem" && strings.HasPrefix(c.Keys[0].Sort, "O#") {
				return engine.Dropped()
			}
			return f
		})
		sent := s.send(plus("n", 1), prepared)
		if err := prepared.Done(s.ctx, sent); !errors.Is(err, sdk.ErrUnknown) || !errors.Is(err, sdk.ErrUnreachable) {
			t.Errorf("table not to be reached: %v", err)
		}
		s.faults(nil, nil)
		if got := c.Assignment(); len(got) != 1 || got[0].Partition != 1 {
			t.Errorf("still holds %v", got)
		}
		for again := false; !again; { // from what is committed
			fetches, err := c.Poll(s.ctx)
			check(t, err)
			for _, f := range fetches {
				again = again || f.Partition == 0 && f.Records[0].Offset == 0
			}
		}
		// Of what another has taken over nothing is told, and nothing applied.
		prepared, err = c.PrepareCommit(upTo(0, 3))
		check(t, err)
		_, err = s.log.Admin().ResetGroup(s.ctx, sdk.GroupReset{Group: "g", To: sdk.ResetTo{Position: sdk.Latest}, Force: true})
		check(t, err)
		sent = s.send(plus("n", 1), prepared)
		if err := prepared.Done(s.ctx, sent); !errors.Is(err, sdk.ErrNotHeld) || sdk.OutcomeOf(err) != sdk.Unknown {
			t.Errorf("after a reset: %v", err)
		}
		if n := s.number("n"); sent == nil || n != 0 {
			t.Errorf("applied %d times", n)
		}
		check(t, c.Close(s.ctx))
	})
}
