package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// dead is a table that answers nothing but these operations.
func dead(but ...string) dynamodb.Hook {
	return func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if slices.Contains(but, c.Op) {
			return dynamodb.Fault{}
		}
		return dynamodb.Dropped()
	}
}

// An outage is told once, by a typed error, whether heartbeats fail or only what they look at; nothing is delivered in it, and everything after it.
func TestOutageIsToldOnce(t *testing.T) {
	for what, hook := range map[string]dynamodb.Hook{"nothing is answered": dead(), "only writes are answered": dead("UpdateItem")} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 1, 64)
			b.fill("t", 1, 5)
			e := eat(t, b.log, "g", []string{"t"})
			time.Sleep(10 * time.Second)
			b.faults(nil, hook)
			for outage := range 2 {
				time.Sleep(10 * time.Second)
				if n := len(heartbeats(e)); n != outage {
					t.Errorf("%s: told %d times before half the time-out was over", what, n)
				}
				time.Sleep(4 * time.Minute / raceHalf)
				if told := heartbeats(e); len(told) != outage+1 || !errors.Is(told[outage], sdk.ErrUnreachable) {
					t.Errorf("%s, outage %d: told %v", what, outage, told)
				}
				b.faults(nil, nil)
				time.Sleep(time.Minute)
				b.fill("t", 1, 5)
				time.Sleep(time.Minute)
				if got := span(t, e.offsets()[tp("t", 0)]); got != [2]int64{0, int64(9 + 5*outage)} {
					t.Errorf("%s, after outage %d: read %v", what, outage, got)
				}
				b.faults(nil, hook)
			}
			b.faults(nil, nil)
			time.Sleep(time.Minute)
			e.setErrors(nil)
			e.close(t)
		})
	}
}

// heartbeats is the errors of a member's polls that speak of heartbeats; readers have their own for partitions.
func heartbeats(e *eater) []error {
	return slices.DeleteFunc(e.errors(), func(err error) bool { return !strings.Contains(err.Error(), "heartbeats") })
}

// errors is what polls have failed with.
func (e *eater) errors() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.errs)
}

func (e *eater) setErrors(errs []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = slices.Clone(errs)
}

// BR-53, letter by letter: committed is 40, the end 100, the policy Latest; the first read of what is committed is throttled three times, times out, or the plan
// that it finds is written by another meanwhile. Right: 40, after a typed error if it takes long; never 100.
func TestBR53_LetterByLetter(t *testing.T) {
	for what, fault := range map[string]func(n int, c dynamodb.Call) dynamodb.Fault{
		"throttled 3 times": func(n int, c dynamodb.Call) dynamodb.Fault {
			if c.Op == "Query" && n <= 3 {
				return dynamodb.Throttle()
			}
			return dynamodb.Fault{}
		},
		"times out": func(n int, c dynamodb.Call) dynamodb.Fault {
			if c.Op == "Query" && n <= 3 {
				return dynamodb.Fault{Skip: true, Reply: dynamodb.ErrNoAnswer}
			}
			return dynamodb.Fault{}
		},
		"a stale generation": func(n int, c dynamodb.Call) dynamodb.Fault {
			if c.Op == "UpdateItem" && c.Keys[0].Sort == "PLAN" && n <= 3 {
				return dynamodb.Fault{Skip: true, Reply: &dynamodb.Error{Code: "ConditionalCheckFailedException", Status: 400}}
			}
			return dynamodb.Fault{}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 1, 64)
			b.fill("t", 1, 40)
			once(t, b.log, "g", []string{"t"})
			b.fill("t", 1, 60)
			n := map[string]int{}
			b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
				b.mu.Lock()
				defer b.mu.Unlock()
				key := c.Op
				if len(c.Keys) > 0 {
					key += c.Keys[0].Sort
				}
				n[key]++
				return fault(n[key], c)
			})
			e := eat(t, b.log, "g", []string{"t"}, sdk.StartAt(sdk.Latest))
			time.Sleep(2 * time.Minute)
			if got := span(t, e.offsets()[tp("t", 0)]); got != [2]int64{40, 99} {
				t.Errorf("%s: read %v, want 40 to 99", what, got)
			}
			for _, err := range e.errors() {
				if !errors.Is(err, sdk.ErrUnreachable) {
					t.Errorf("%s: %v", what, err)
				}
			}
			e.setErrors(nil)
			e.close(t)
		})
	}
}

// Close returns within its ctx, and nothing of the consumer stays behind, when the table answers nothing.
func TestCloseWithoutATable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 5)
		c := b.joins()
		b.takes(c)
		b.faults(nil, dead())
		ctx, cancel := context.WithTimeout(b.ctx, 3*time.Second)
		defer cancel()
		began := time.Now()
		err := c.Close(ctx)
		if took := time.Since(began); err == nil || took > 3100*time.Millisecond {
			t.Errorf("took %v: %v", took, err)
		}
		if _, err := c.Poll(b.ctx); !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("a poll afterwards: %v", err)
		}
		check(t, c.Close(b.ctx))
		b.faults(nil, nil)
	})
}

// Close returns within its ctx though a callback hangs; the Poll that is in it clears up when it comes back.
func TestCloseWhileACallbackHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		hang := make(chan struct{})
		c := b.joins(sdk.OnAssigned(func(context.Context, []sdk.TopicPartition) map[sdk.TopicPartition]int64 { <-hang; return nil }))
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := c.Poll(b.ctx); err != nil {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(b.ctx, 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(hang)
		if err := <-ended; !errors.Is(err, sdk.ErrClosed) {
			t.Error(err)
		}
	})
}

// A second process under the same instance id takes over; the first is told what it has lost, and then that it is fenced, for good.
func TestFencedIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 5)
		var lost []sdk.TopicPartition
		first := b.joins(sdk.WithInstanceID("x"), sdk.OnLost(func(_ context.Context, all []sdk.TopicPartition) { lost = append(lost, all...) }))
		b.takes(first)
		second := eat(t, b.open(), "g", []string{"t"}, sdk.WithInstanceID("x"))
		time.Sleep(20 * time.Second)
		for range 3 {
			if _, err := first.Poll(b.ctx); !errors.Is(err, sdk.ErrFenced) {
				t.Errorf("poll: %v", err)
			}
		}
		if len(lost) != 2 {
			t.Errorf("told to have lost %v", lost)
		}
		if err := first.CommitOffsets(b.ctx, upTo(0, 5)); !errors.Is(err, sdk.ErrNotHeld) {
			t.Errorf("commit: %v", err)
		}
		if n := len(second.Assignment()); n != 2 {
			t.Errorf("the second has %d partitions", n)
		}
		check(t, first.Close(b.ctx))
		if d := b.describe("g", sdk.Earliest); len(d.Members) != 1 || len(second.Assignment()) != 2 {
			t.Errorf("the first one's Close has taken from the second: %+v", d.Members)
		}
		second.close(t)
	})
}

// An OnRevoked that hangs, and a Poll that is not called, keep a partition from its new owner for the revoke time-out and no longer; what was taken away is
// reported lost, and nothing of it delivered before it is assigned again.
func TestRevokeTimeout(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 2, 64)
			b.fill("t", 2, 5)
			hang := make(chan struct{})
			var events []string
			note := func(what string, all []sdk.TopicPartition) { events = append(events, fmt.Sprint(what, all)) }
			a := b.joins(sdk.WithRevokeTimeout(20*time.Second),
				sdk.OnAssigned(func(_ context.Context, all []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
					note("+", all)
					return nil
				}),
				sdk.OnRevoked(func(_ context.Context, all []sdk.TopicPartition) {
					note("-", all)
					if hangs && len(events) == 2 {
						<-hang
					}
				}),
				sdk.OnLost(func(_ context.Context, all []sdk.TopicPartition) { note("!", all) }))
			b.takes(a)
			ended := make(chan struct{})
			poll := func() {
				defer close(ended)
				for len(events) < 3 {
					a.Poll(b.ctx)
				}
			}
			if hangs {
				go poll()
			}
			other := eat(t, b.open(), "g", []string{"t"})
			began := time.Now()
			for len(other.Assignment()) == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			took := time.Since(began)
			t.Logf("hanging %v: the other had its partition after %v, the revoke time-out is 20 s", hangs, took)
			if took < 20*time.Second || took > 30*time.Second {
				t.Error("too early or too late")
			}
			other.close(t) // what was taken away comes back, while the callback still hangs
			time.Sleep(time.Minute)
			b.fill("t", 2, 1)
			close(hang)
			if hangs {
				<-ended
			}
			time.Sleep(10 * time.Second)
			b.takes(a)
			if n := len(a.Assignment()); n != 2 {
				t.Errorf("it has %d partitions in the end", n)
			}
			want := []string{"+[t/0 t/1]", "-[t/1]", "![t/1]", "+[t/1]"}
			if !hangs {
				want = slices.Delete(want, 1, 2)
			}
			if !slices.Equal(events, want) {
				t.Errorf("hanging %v: %v, want %v", hangs, events, want)
			}
			if p := b.describe("g", sdk.Earliest).Partitions; p[0].Owner == "" || p[1].Owner == "" {
				t.Errorf("owners %q and %q", p[0].Owner, p[1].Owner)
			}
			check(t, a.Close(b.ctx))
		})
	}
}

// A partition that was ErrNoCommit is held, told once, and read from where a Seek says.
func TestNoCommitIsSought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 10)
		c := b.joins(sdk.StartAt(sdk.StartFail))
		var told []error
		for range 10 {
			if fetches, err := c.Poll(b.ctx); err != nil {
				told = append(told, err)
			} else if len(fetches) > 0 {
				t.Fatalf("read %v", fetches)
			}
		}
		if len(told) != 1 || !errors.Is(told[0], sdk.ErrNoCommit) || len(c.Assignment()) != 2 {
			t.Errorf("told %v; it has %v", told, c.Assignment())
		}
		check(t, c.Resume(tp("t", 0))) // changes nothing
		if got := b.takes(c); len(got) != 0 {
			t.Errorf("read %v before a seek", got)
		}
		check(t, c.Seek(tp("t", 0), 4))
		if got := span(t, b.takes(c)); got != [2]int64{4, 9} {
			t.Errorf("read %v", got)
		}
		check(t, c.Close(b.ctx))
		if d := b.describe("g", sdk.Earliest); d.Partitions[0].Committed != 10 || d.Partitions[1].Committed != -1 {
			t.Errorf("committed %d and %d", d.Partitions[0].Committed, d.Partitions[1].Committed)
		}
	})
}

// Pauses and seeks hold for as long as the partition is held: it is read from what is committed, unpaused, when it comes again. Requests for what is not held are
// ErrNotHeld.
func TestPauseAndSeekAcrossReassignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		a := b.joins(sdk.WithInstanceID("a"), sdk.ManualCommit())
		b.takes(a)
		check(t, a.CommitOffsets(b.ctx, upTo(0, 5)))
		check(t, a.Pause(tp("t", 0)))
		b.fill("t", 1, 5)
		if got := b.takes(a); len(got) != 0 {
			t.Errorf("read %v of a paused partition", got)
		}
		check(t, a.Resume(tp("t", 0)))
		if got := span(t, b.takes(a)); got != [2]int64{10, 14} {
			t.Errorf("resumed: %v", got)
		}
		check(t, a.Seek(tp("t", 0), 2))
		if got := span(t, b.takes(a)); got != [2]int64{2, 14} {
			t.Errorf("sought: %v", got)
		}
		check(t, a.Pause(tp("t", 0)))
		b.takes(a)
		b.stall("a")
		time.Sleep(10 * time.Second)
		other := b.joins(sdk.ManualCommit())
		time.Sleep(time.Minute)
		b.takes(other)
		b.faults(nil, nil)
		time.Sleep(10 * time.Second)
		b.takes(a)
		for what, err := range map[string]error{"pause": a.Pause(tp("t", 0)), "resume": a.Resume(tp("t", 0)), "seek": a.Seek(tp("t", 0), 1)} {
			if !errors.Is(err, sdk.ErrNotHeld) {
				t.Errorf("%s of what is the other's: %v", what, err)
			}
		}
		if err := a.Seek(tp("t", 0), -1); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("seek to -1: %v", err)
		}
		check(t, other.Close(b.ctx))
		time.Sleep(10 * time.Second)
		if got := span(t, b.takes(a)); got != [2]int64{5, 14} {
			t.Errorf("back again: %v, want from what is committed on, unpaused", got)
		}
		check(t, a.Close(b.ctx))
	})
}

// Members with different subscriptions: each reads what it has subscribed to, and topics in common are shared.
func TestSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, topic := range []string{"orders-eu", "orders-us", "other"} {
			b.create(topic, 4, 64)
			b.fill(topic, 4, 3)
		}
		pattern := eat(t, b.open(), "g", nil, sdk.SubscribePattern("orders-.*"), sdk.WithTopicRefresh(10*time.Second))
		both := eat(t, b.open(), "g", []string{"orders-eu", "other"}, sdk.WithTopicRefresh(10*time.Second))
		time.Sleep(time.Minute)
		reads := func(e *eater) map[string]int {
			n := map[string]int{}
			for _, p := range e.Assignment() {
				n[p.Topic]++
			}
			return n
		}
		if p, o := reads(pattern), reads(both); p["orders-us"] != 4 || p["other"] != 0 || o["other"] != 4 || o["orders-us"] != 0 || p["orders-eu"]+o["orders-eu"] != 4 ||
			p["orders-eu"] != 2 {
			t.Errorf("the pattern reads %v, the names %v", p, o)
		}
		b.create("orders-asia", 4, 64)
		b.fill("orders-asia", 4, 3)
		time.Sleep(time.Minute)
		if p := reads(pattern); p["orders-asia"] != 4 {
			t.Errorf("the pattern reads %v", p)
		}
		for _, topic := range []string{"orders-eu", "orders-us", "orders-asia", "other"} {
			for p := range 4 {
				at := tp(topic, p)
				all := append(pattern.offsets()[at], both.offsets()[at]...)
				slices.Sort(all)
				if got := span(t, slices.Compact(all)); got != [2]int64{0, 2} {
					t.Errorf("%v: %v", at, got)
				}
			}
		}
		pattern.close(t)
		both.close(t)
	})
}
