package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// stalled holds every put until the returned function is called.
func (w *world) stalled() (release func()) {
	gate := make(chan struct{})
	w.onPut(func(fault.Call) fault.Fault { return fault.Fault{Stall: gate} })
	return sync.OnceFunc(func() { close(gate) })
}

// (a) Room for one record, the store stalled: B is in, A waits for room. In one instant B is released and A cancelled.
func TestBR01_CancelledSendNeverLocksUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t"})
		cancelled, accepted := 0, 0
		for seed := range uint64(500 / raceShare) {
			chance := rand.New(rand.NewPCG(seed, 1))
			p := w.producer(log, sdk.WithBufferBytes(1), sdk.WithLinger(0, 0))
			release := w.stalled()
			var b, a acks
			waiting, cancel := context.WithCancel(ctx)
			both := []func(){release, cancel}
			if seed%2 == 1 {
				both = both[:1] // B's promise cancels A: room has just been made for it
			}
			p.Produce(ctx, rec("t", "B"), func(r *sdk.Record, err error) {
				b.promise(r, err)
				if seed%2 == 1 {
					cancel()
				}
			})
			returned := make(chan struct{})
			go func() {
				p.Produce(waiting, rec("t", "A"), a.promise)
				close(returned)
			}()
			synctest.Wait()
			if n := len(a.list()); n != 0 {
				t.Fatalf("seed %d: A did not wait for room", seed)
			}
			chance.Shuffle(len(both), func(i, j int) { both[i], both[j] = both[j], both[i] })
			for _, f := range both {
				go f()
			}
			<-returned
			w.must(p.ProduceSync(ctx, rec("t", "later")).Err())
			w.must(p.Close(ctx))
			if got := b.list(); len(got) != 1 || got[0].err != nil {
				t.Fatalf("seed %d: B was told %v", seed, got)
			}
			switch got := a.list(); {
			case len(got) != 1 || got[0].err != nil && !errors.Is(got[0].err, context.Canceled):
				t.Fatalf("seed %d: A was told %v", seed, got)
			case got[0].err == nil:
				accepted++
			default:
				cancelled++
			}
		}
		if cancelled == 0 || accepted == 0 {
			t.Errorf("A was cancelled %d times and accepted %d times: one of them was never tried", cancelled, accepted)
		}
		t.Logf("A cancelled %d times, accepted %d times", cancelled, accepted)
	})
}

// (b) What Close is given to flush is there afterwards, and after it nothing is accepted.
func TestBR01_CloseFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithLinger(time.Hour, time.Hour))
		for i := range 100 {
			p.Produce(ctx, rec("t", fmt.Sprint(i)), nil)
		}
		w.must(p.Close(ctx))
		all := w.contents("t")[0]
		for i, r := range all {
			if string(r.Value) != fmt.Sprint(i) {
				t.Fatalf("offset %d is %q", i, r.Value)
			}
		}
		if len(all) != 100 {
			t.Errorf("%d of 100 records", len(all))
		}
		if err := p.ProduceSync(ctx, rec("t", "late")).Err(); !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		w.must(p.Close(ctx))
	})
}

func TestBR01_CloseCountsWhatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t"})
		w.stalled()
		p := w.producer(log)
		for i := range 100 {
			p.Produce(ctx, rec("t", fmt.Sprint(i)), seen.promise)
		}
		start := time.Now()
		within, cancel := context.WithTimeout(ctx, 100*ms)
		defer cancel()
		var unsent *sdk.UnsentError
		if err := p.Close(within); !errors.As(err, &unsent) || unsent.Records != 100 || !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(start); took != 100*ms {
			t.Errorf("Close took %v", took)
		}
		if got := seen.list(); len(got) != 100 || !errors.Is(got[0].err, sdk.ErrClosed) || sdk.OutcomeOf(got[99].err) != sdk.NotApplied {
			t.Errorf("%d promises, the first with %v", len(got), got[0].err)
		}
		w.must(p.Close(ctx))
		w.heal()
		for _, part := range w.contents("t") {
			if len(part) != 0 {
				t.Errorf("%d records in the log, which were said not to be", len(part))
			}
		}
	})
}

// One record over the limit fails alone, before anything is sent; key, value and headers count; how well it compresses
// does not.
func TestBR02_OversizeRecordFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		noise := make([]byte, limit+1)
		chance := rand.NewChaCha8([32]byte{1})
		chance.Read(noise)
		sized := func(b []byte, n int) map[string]*sdk.Record { // in each field that counts
			return map[string]*sdk.Record{
				"value":       {Topic: "t", Value: b[:n]},
				"key":         {Topic: "t", Key: b[:n]},
				"header":      {Topic: "t", Headers: []sdk.Header{{Key: "h", Value: b[:n-3]}}},
				"header name": {Topic: "t", Headers: []sdk.Header{{Key: string(b[:n-2])}}},
				"all":         {Topic: "t", Key: b[:100], Value: b[:n-200], Headers: []sdk.Header{{Key: "h", Value: b[:97]}}},
			}
		}
		puts := 0
		w.onPut(func(fault.Call) fault.Fault { puts++; return fault.Fault{} })
		p := w.producer(log)
		next := int64(0)
		for kind, b := range map[string][]byte{"zeros": make([]byte, limit+1), "noise": noise} {
			for field, big := range sized(b, limit+1) {
				fits := sized(b, limit)[field]
				got := p.ProduceSync(ctx, rec("t", "0123456789"), big, rec("t", "9876543210"), fits)
				var large *sdk.TooLargeError
				if !errors.As(got[1].Err, &large) || large.Size != limit+1 || large.Limit != limit || large.Topic != "t" || !errors.Is(got[1].Err, sdk.ErrTooLarge) {
					t.Errorf("%s in %s: %v", kind, field, got[1].Err)
				}
				for i, off := range map[int]int64{0: next, 2: next + 1, 3: next + 2} {
					if got[i].Err != nil || got[i].Record.Offset != off {
						t.Errorf("%s in %s: neighbour %d: offset %d, error %v", kind, field, i, got[i].Record.Offset, got[i].Err)
					}
				}
				next += 3
				before := puts
				if err := p.ProduceSync(ctx, big).Err(); !errors.Is(err, sdk.ErrTooLarge) || puts != before {
					t.Errorf("%s in %s alone: %v, %d puts", kind, field, err, puts-before)
				}
			}
		}
		w.must(p.Close(ctx))
	})
}

// Null, empty and bytes stay what they are, in keys, values and headers.
func TestBR05_NullAndEmptyStayApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for codec := segment.None; codec <= segment.Zstd; codec++ {
			w := newWorld(t)
			log := w.open()
			w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
			p := w.producer(log, sdk.WithCompression(codec))
			three := [][]byte{nil, {}, []byte("bytes")}
			var sent []*sdk.Record
			for _, key := range three {
				for _, value := range three {
					for _, header := range three {
						sent = append(sent, &sdk.Record{Topic: "t", Key: key, Value: value,
							Headers: []sdk.Header{{Key: "", Value: header}, {Key: "h", Value: header}, {Key: "h", Value: []byte("again")}}})
					}
				}
			}
			many := &sdk.Record{Topic: "t"}
			for i := range 1000 {
				many.Headers = append(many.Headers, sdk.Header{Key: fmt.Sprint(i % 7), Value: three[i%3]})
			}
			sent = append(sent, many, &sdk.Record{Topic: "t"})
			w.must(p.ProduceSync(ctx, sent...).Err())
			w.must(p.Close(ctx))
			same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
			for i, got := range w.contents("t")[0] {
				want := sent[i]
				equal := same(got.Key, want.Key) && same(got.Value, want.Value) && len(got.Headers) == len(want.Headers)
				for j := 0; equal && j < len(want.Headers); j++ {
					equal = got.Headers[j].Key == want.Headers[j].Key && same(got.Headers[j].Value, want.Headers[j].Value)
				}
				if !equal || got.Timestamp != want.Timestamp.UnixMilli() {
					t.Errorf("codec %v record %d: got %+v, sent %+v", codec, i, got, want)
				}
			}
		}
	})
}

// (a) The commit was applied and its answer lost, (b) the put was. Both are recognized as our own; one copy, the right offset.
func TestBR07_OwnWriteIsRecognized(t *testing.T) {
	once := func(f dynamodb.Fault) func(context.Context, dynamodb.Call) dynamodb.Fault {
		var done sync.Once
		return func(_ context.Context, c dynamodb.Call) (out dynamodb.Fault) {
			if isCommit(c) {
				done.Do(func() { out = f })
			}
			return out
		}
	}
	for _, c := range []struct {
		name string
		call dynamodb.Fault
		put  fault.Fault
	}{
		{name: "answer of the commit lost", call: dynamodb.AnswerLost()},
		{name: "commit answered 500 and applied", call: dynamodb.Fault{Reply: dynamodb.InternalServerError()}},
		{name: "commit lost", call: dynamodb.Dropped()},
		{name: "commit applied late", call: dynamodb.AppliedLate(func(context.Context) { time.Sleep(10 * time.Second) })},
		{name: "answer of the put lost", put: fault.Fault{Kind: fault.LostAfter}},
		{name: "put lost", put: fault.Fault{Kind: fault.LostBefore}},
		{name: "put applied late", put: fault.Fault{Kind: fault.Late, LateAfter: 3 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				log := w.open()
				w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
				p, rival := w.producer(log), w.producer(log)
				w.must(p.ProduceSync(ctx, rec("t", "0")).Err())
				w.must(rival.ProduceSync(ctx, rec("t", "1")).Err())
				w.onCall(once(c.call))
				var first sync.Once
				w.onPut(func(fault.Call) (f fault.Fault) {
					first.Do(func() { f = c.put })
					return f
				})
				seen := &acks{}
				for i := 2; i < 5; i++ {
					p.Produce(ctx, rec("t", fmt.Sprint(i)), seen.promise)
					w.must(p.Flush(ctx))
				}
				w.must(p.Close(ctx))
				w.must(rival.Close(ctx))
				time.Sleep(time.Minute)
				if n := w.verify("t", seen.list()); n != 3 {
					t.Errorf("%d of 3 acknowledged: %v", n, seen.list())
				}
				for i, r := range w.contents("t")[0] {
					if string(r.Value) != fmt.Sprint(i) {
						t.Errorf("offset %d is %q", i, r.Value)
					}
				}
			})
		})
	}
}

// A real competitor is a refusal, not one of our own.
func TestBR07_ACompetitorIsNotOurselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p, rival := w.producer(log), w.producer(log)
		w.must(rival.ProduceSync(ctx, rec("t", "rival's")).Err())
		err := p.AppendIf(ctx, "t", 0, []*sdk.Record{rec("t", "x")}, sdk.EndIs(0))
		var refused *sdk.ConditionError
		if !errors.As(err, &refused) || refused.End != 1 || !errors.Is(err, sdk.ErrRefused) {
			t.Errorf("AppendIf behind a rival: %v", err)
		}
		w.must(p.Close(ctx))
		w.must(rival.Close(ctx))
		if n := len(w.contents("t")[0]); n != 1 {
			t.Errorf("%d records", n)
		}
	})
}

// Three segments of one partition are under way; the second fails for good. The end stays behind the first until that
// is settled, the third fails with it, and what is accepted afterwards starts afresh.
// A batch behind a failed one is not settled before those ahead of it in the lane. What is accepted meanwhile, after the failure was told, starts
// afresh and must not go with it.
func TestBR11_WhatIsAcceptedAfterAFailureStartsAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 2})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		var puts []chan fault.Fault
		w.onPut(func(fault.Call) fault.Fault {
			verdict := make(chan fault.Fault)
			puts = append(puts, verdict)
			return <-verdict
		})
		send := func(partition int, value string) {
			p.Produce(ctx, &sdk.Record{Topic: "t", Partition: partition, Value: []byte(value)}, seen.promise)
			time.Sleep(10 * ms)
			synctest.Wait()
		}
		send(0, "fails")
		send(1, "is slow")
		send(0, "behind")
		puts[0] <- fault.Fault{Kind: fault.LostBefore, Err: store.ErrDenied}
		synctest.Wait()
		if told := seen.list(); len(told) != 1 || !errors.Is(told[0].err, store.ErrDenied) {
			t.Fatalf("told %v, want the first alone", told)
		}
		w.heal()
		p.Produce(ctx, &sdk.Record{Topic: "t", Partition: 0, Value: []byte("afresh")}, seen.promise)
		puts[1] <- fault.Fault{}
		puts[2] <- fault.Fault{}
		synctest.Wait()
		w.must(p.Close(ctx))
		for _, a := range seen.list() {
			want := map[string]error{"fails": store.ErrDenied, "behind": sdk.ErrPriorFailed}[string(a.record.Value)]
			if !errors.Is(a.err, want) {
				t.Errorf("%q: %v, want %v", a.record.Value, a.err, want)
			}
		}
		if n := w.verify("t", seen.list()); n != 2 {
			t.Errorf("%d acknowledged, want 2", n)
		}
	})
}

func TestBR11_NothingFollowsAFailedUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := newWorld(t), &acks{}
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 2})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		var puts []chan fault.Fault
		w.onPut(func(fault.Call) fault.Fault {
			verdict := make(chan fault.Fault)
			puts = append(puts, verdict)
			return <-verdict
		})
		send := func(partition int, value string) {
			p.Produce(ctx, &sdk.Record{Topic: "t", Partition: partition, Value: []byte(value)}, seen.promise)
		}
		for _, s := range []string{"1", "2", "3"} {
			send(0, s)
			if s == "3" {
				send(1, "neighbour")
			}
			time.Sleep(10 * ms)
			synctest.Wait()
		}
		send(0, "4, not yet cut")
		if len(puts) != 3 {
			t.Fatalf("%d uploads under way", len(puts))
		}
		puts[0] <- fault.Fault{}
		puts[2] <- fault.Fault{}
		synctest.Wait()
		if got := w.contents("t"); len(got[0]) != 1 || len(got[1]) != 0 {
			t.Errorf("while the second is unsettled: %d and %d records visible, want the first alone", len(got[0]), len(got[1]))
		}
		puts[1] <- fault.Fault{Kind: fault.LostBefore, Err: store.ErrDenied}
		synctest.Wait()
		w.heal()
		send(0, "5")
		w.must(p.Flush(ctx))
		w.must(p.Close(ctx))
		want := []struct {
			value string
			err   error
		}{{"1", nil}, {"2", store.ErrDenied}, {"3", sdk.ErrPriorFailed}, {"4, not yet cut", sdk.ErrPriorFailed}, {"5", nil}}
		var got []ack
		for _, a := range seen.list() {
			if a.record.Partition == 0 {
				got = append(got, a)
			}
		}
		for i, a := range got {
			if string(a.record.Value) != want[i].value || !errors.Is(a.err, want[i].err) || (a.err == nil) != (want[i].err == nil) {
				t.Errorf("promise %d: %q %v, want %q %v", i, a.record.Value, a.err, want[i].value, want[i].err)
			}
		}
		if n := w.verify("t", seen.list()); n != 3 || len(got) != 5 {
			t.Errorf("%d acknowledged and %d promises of the partition, want 3 and 5", n, len(got))
		}
	})
}

// A partition's failure waits to be told, because a promise of another partition takes its time. What is accepted meanwhile was accepted before
// the failure was told: it fails too. What comes after that is appended.
func TestBR13_NothingAcceptedBeforeAFailureIsToldFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 2})
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		var seen acks
		slow := make(chan struct{})
		p.Produce(ctx, &sdk.Record{Topic: "t", Partition: 1, Value: []byte("slow")}, func(*sdk.Record, error) { <-slow })
		time.Sleep(time.Second)
		w.onPut(func(fault.Call) fault.Fault { return fault.Fault{Kind: fault.LostBefore, Err: store.ErrDenied} })
		p.Produce(ctx, rec("t", "failed"), seen.promise)
		time.Sleep(time.Second)
		w.heal()
		p.Produce(ctx, rec("t", "before it is told"), seen.promise)
		appended := make(chan error, 1)
		go func() { appended <- p.AppendIf(ctx, "t", 0, []*sdk.Record{rec("t", "on a condition")}, sdk.EndIs(0)) }()
		time.Sleep(time.Second)
		if n := len(seen.list()); n != 0 {
			t.Fatalf("%d records were told of while a promise was not done", n)
		}
		close(slow)
		w.must(p.Flush(ctx))
		if err := <-appended; !errors.Is(err, sdk.ErrPriorFailed) {
			t.Errorf("the conditional append was told %v", err)
		}
		p.Produce(ctx, rec("t", "after it was told"), seen.promise)
		w.must(p.Close(ctx))
		for i, want := range []error{store.ErrDenied, sdk.ErrPriorFailed, nil} {
			if a := seen.list()[i]; !errors.Is(a.err, want) {
				t.Errorf("%q was told %v, want %v", a.record.Value, a.err, want)
			}
		}
		if got := w.contents("t")[0]; len(got) != 1 || string(got[0].Value) != "after it was told" {
			t.Errorf("%d records in the partition: %v", len(got), got)
		}
	})
}
