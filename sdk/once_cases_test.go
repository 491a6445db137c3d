package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/fault"
)

// onceWorld is a topic of three partitions, and two processes that append to it.
type onceWorld struct {
	*world
	ctx  context.Context
	logs []*sdk.Log
	p    []*sdk.Producer
	id   sdk.ProducerID

	extra []int64 // records that others have brought to partition 2
}

func newOnceWorld(t testing.TB, opts ...sdk.ProducerOption) *onceWorld {
	w := &onceWorld{world: newWorld(t), ctx: context.Background()}
	for range 2 {
		log := w.open()
		if len(w.logs) == 0 {
			w.create(log, sdk.NewTopic{Name: "orders", Partitions: 3, Config: map[string]string{"retention.ms": "172800000"}})
		}
		w.logs, w.p = append(w.logs, log), append(w.p, w.producer(log, append([]sdk.ProducerOption{atOnce}, opts...)...))
	}
	w.id = w.p[0].NewProducerID()
	return w
}

func (w *onceWorld) close() {
	w.heal()
	for i, p := range w.p {
		p.Close(w.ctx)
		w.must(w.logs[i].Close())
	}
}

// strangers lets a plain producer append n records to partition 2, each by itself.
func (w *onceWorld) strangers(n int) {
	p := w.producer(w.logs[1], atOnce, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	defer p.Close(w.ctx)
	for range n {
		w.must(p.ProduceSync(w.ctx, request(2, "stranger")...).Err())
	}
	w.extra = append(w.extra, int64(n))
}

// more lets the producer go on with the next n-1 sequences.
func (w *onceWorld) more(from, to int64) {
	for n := from; n <= to; n++ {
		_, err := w.p[1].AppendOnce(w.ctx, w.id, n, request(2, fmt.Sprint(n))...)
		w.must(err)
	}
	w.extra = append(w.extra, to-from+1)
}

func (w *onceWorld) compact() {
	b := w.logs[1].Backend()
	_, err := compact.Run(w.ctx, b.Table, b.Store, compact.Options{All: true, Env: env.System()})
	w.must(err)
}

func (w *onceWorld) sweep() {
	b := w.logs[1].Backend()
	_, err := sweep.Run(w.ctx, b.Table, b.Store, sweep.Options{Full: true, Force: true, Env: env.System()})
	w.must(err)
}

// intake are the names of all intake objects.
func (w *onceWorld) intake() (names []string) {
	page, err := w.view.Store.List(judge, "", "", 0)
	w.must(err)
	for _, o := range page.Objects {
		if name, err := segment.ParseName(o.Name); err == nil && name.ID.Place() == segment.InBucket {
			names = append(names, o.Name)
		}
	}
	return names
}

// values counts the values of a partition.
func (w *onceWorld) values(partition int) map[string]int {
	n := map[string]int{}
	for _, r := range w.contents("orders")[partition] {
		n[string(r.Value)]++
	}
	return n
}

// BR-04: the reply is lost, and the same sequence is sent again by another process, which knows nothing: the first offset, one copy. In between (i) retention has removed
// the segment, (ii) compaction has moved it, (iii) the sequence has left the window: "applied, offsets no longer known". And the producer was forgotten: a typed refusal.
func TestBR04_LostReplyThenRetry(t *testing.T) {
	table := func(w *onceWorld) metadata.Table { return w.logs[1].Backend().Table }
	for _, c := range []struct {
		name    string
		between func(w *onceWorld)
		known   bool
		err     error
	}{
		{name: "nothing", known: true},
		{name: "(i) retention", between: func(w *onceWorld) {
			time.Sleep(80 * time.Hour)
			_, err := retain.Run(w.ctx, table(w), retain.Options{Env: env.System()})
			w.must(err)
			w.sweep()
			w.objects.Delete(w.ctx, w.intake()...) // the bucket's rule
		}},
		{name: "(ii) compaction, the old objects still there", known: true, between: func(w *onceWorld) { w.compact() }},
		{name: "(ii) compaction", between: func(w *onceWorld) {
			w.compact()
			time.Sleep(30 * time.Hour)
			w.sweep()
		}},
		{name: "(iii) at the edge of the window", known: true, between: func(w *onceWorld) { w.more(2, metadata.ProducerWindow) }},
		{name: "(iii) out of the window", between: func(w *onceWorld) { w.more(2, metadata.ProducerWindow+1) }},
		{name: "spilled", known: true, between: func(w *onceWorld) { w.strangers(3 * metadata.ChunkOrders) }},
		{name: "forgotten", err: sdk.ErrProducerEvicted, between: func(w *onceWorld) {
			time.Sleep(time.Hour)
			for range metadata.MaxProducers {
				_, err := w.p[1].AppendOnce(w.ctx, w.p[1].NewProducerID(), 1, request(0, "other")...)
				w.must(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOnceWorld(t)
				defer w.close()
				w.strangers(2)
				lose := true
				w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
					if isCommit(c) && lose {
						lose = false
						return dynamodb.Fault{Reply: dynamodb.ErrNoAnswer}
					}
					return dynamodb.Fault{}
				})
				within, cancel := context.WithTimeout(w.ctx, time.Second)
				defer cancel()
				if _, err := w.p[0].AppendOnce(within, w.id, 1, request(2, "seven")...); !errors.Is(err, sdk.ErrUnknown) {
					t.Fatal(err)
				}
				if c.between != nil {
					c.between(w)
				}
				again, err := w.p[1].AppendOnce(w.ctx, w.id, 1, request(2, "seven")...)
				if !errors.Is(err, c.err) {
					t.Fatalf("%+v, %v", again, err)
				}
				w.p[0].Flush(w.ctx)
				if err == nil {
					at := again.Results[0].Record.Offset
					if !again.Repeated || again.OffsetsKnown != c.known || at != map[bool]int64{true: 2, false: -1}[c.known] {
						t.Fatalf("%+v at %d", again, at)
					}
				}
				head, err := w.view.Table.Head(judge, w.lane(), metadata.Strong)
				w.must(err)
				want := int64(1) // nothing came a second time
				for _, r := range w.extra {
					want += r
				}
				if head.Ends[2] != want {
					t.Errorf("the partition ends at %d, want %d", head.Ends[2], want)
				}
			})
		})
	}
}

// A repeat with other records than the first is no repeat.
func TestOnce_Mistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnceWorld(t)
		defer w.close()
		_, err := w.p[0].AppendOnce(w.ctx, w.id, 1, request(0, "a")...)
		w.must(err)
		w.create(w.logs[0], sdk.NewTopic{Name: "wide", Partitions: 3, LaneWidth: 1})
		lanes := []*sdk.Record{{Topic: "wide", Partition: 0}, {Topic: "wide", Partition: 2}}
		for name, c := range map[string]struct {
			id       sdk.ProducerID
			sequence int64
			records  []*sdk.Record
			field    string
		}{
			"no producer":           {0, 1, request(0, "x"), "producer id"},
			"a negative producer":   {-1, 1, request(0, "x"), "producer id"},
			"of next year":          {metadata.NewProducerID(time.Now().Add(365*24*time.Hour), 1), 1, request(0, "x"), "producer id"},
			"the largest number":    {1<<63 - 1, 1, request(0, "x"), "producer id"},
			"no sequence":           {w.id, 0, request(0, "x"), "producer sequence"},
			"too far":               {w.id, 1 << 53, request(0, "x"), "producer sequence"},
			"no records":            {w.id, 2, nil, "records"},
			"nil":                   {w.id, 2, []*sdk.Record{nil}, "record"},
			"two lanes":             {w.id, 1, lanes, "lane"},
			"no such partition":     {w.id, 2, request(3, "x"), "partition"},
			"repeat with more":      {w.id, 1, append(request(0, "a"), request(0, "b")...), "records"},
			"repeat for another":    {w.id, 1, request(1, "a"), "records"},
			"repeat with one more":  {w.id, 1, append(request(0, "a"), request(1, "b")...), "records"},
			"two topics, two lanes": {w.id, 2, append(request(0, "x"), &sdk.Record{Topic: "wide"}), "lane"},
		} {
			var field *sdk.FieldError
			if got, err := w.p[1].AppendOnce(w.ctx, c.id, c.sequence, c.records...); !errors.As(err, &field) || field.Field != c.field || !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		if _, err := w.p[0].AppendOnce(w.ctx, w.id, 2, &sdk.Record{Topic: "none"}); !errors.Is(err, sdk.ErrUnknownTopic) {
			t.Error(err)
		}
		if all := w.contents("orders"); len(all[0]) != 1 || len(all[1]) != 0 {
			t.Error(all)
		}
		w.must(w.logs[0].Admin().DeleteTopic(w.ctx, "orders"))
		for _, p := range w.p {
			if _, err := p.AppendOnce(w.ctx, w.id, 2, request(0, "x")...); !errors.Is(err, sdk.ErrTopicGone) && !errors.Is(err, sdk.ErrUnknownTopic) {
				t.Error(err)
			}
		}
		w.p[0].Close(w.ctx)
		if _, err := w.p[0].AppendOnce(w.ctx, w.id, 1, request(0, "x")...); !errors.Is(err, sdk.ErrClosed) {
			t.Error(err)
		}
	})
}

// Any one request to table or store fails, fails though it was applied, or is applied late; the caller waits three seconds and then sends again, to the other process,
// until there is an answer. Each request is in the log once, where its answer says.
func TestOnce_FaultsAtEachRequest(t *testing.T) {
	const requests, cadence = 10, raceShare // one in so many under the race detector
	kinds := []string{"failed", "applied", "late"}
	faults := 0
	for n := 1; ; n += cadence {
		hit := false
		for _, kind := range kinds {
			synctest.Test(t, func(t *testing.T) {
				w := newOnceWorld(t)
				defer w.close()
				var mu sync.Mutex
				seen := 0
				due := func() bool {
					mu.Lock()
					defer mu.Unlock()
					seen++
					hit = hit || seen == n
					return seen == n
				}
				w.onPut(func(fault.Call) fault.Fault {
					if !due() {
						return fault.Fault{}
					}
					return map[string]fault.Fault{"failed": {Kind: fault.LostBefore, Delay: 4 * time.Second}, "applied": {Kind: fault.LostAfter, Delay: 4 * time.Second}, "late": {Kind: fault.Late, LateAfter: 10 * time.Second}}[kind]
				})
				w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
					if !due() {
						return dynamodb.Fault{}
					}
					late := func(ctx context.Context) { env.System().Sleep(ctx, 10*time.Second) }
					return map[string]dynamodb.Fault{"failed": {Skip: true, Reply: dynamodb.ErrNoAnswer}, "applied": {Reply: dynamodb.ErrNoAnswer}, "late": {Late: late, Reply: dynamodb.ErrConnectionLost}}[kind]
				})
				var told []ack
				for sequence := int64(1); sequence <= requests; sequence++ {
					for try := 0; ; try++ {
						within, cancel := context.WithTimeout(w.ctx, 3*time.Second)
						records := append(request(int(sequence%3), fmt.Sprint(sequence)), request(2, fmt.Sprint(sequence, "b"))...)
						once, err := w.p[(int(sequence)+try)%2].AppendOnce(within, w.id, sequence, records...)
						cancel()
						if err == nil && once.OffsetsKnown {
							for _, r := range once.Results {
								told = append(told, ack{record: r.Record})
							}
							break
						}
						if err == nil || try > 20 || errors.Is(err, sdk.ErrSequenceGap) || errors.Is(err, sdk.ErrProducerEvicted) || errors.Is(err, sdk.ErrInvalid) {
							t.Fatalf("%s at request %d, sequence %d: %+v, %v", kind, n, sequence, once, err)
						}
					}
				}
				time.Sleep(time.Minute) // what is late has arrived
				if got := w.verify("orders", told); got != 2*requests {
					t.Fatalf("%s at request %d: %d acknowledged", kind, n, got)
				}
				for p := range 3 {
					for v, times := range w.values(p) {
						if times != 1 {
							t.Fatalf("%s at request %d: %q is there %d times", kind, n, v, times)
						}
					}
				}
			})
			if t.Failed() {
				return
			}
		}
		if !hit {
			t.Logf("%d faults, at each of %d requests", faults, n-1)
			return
		}
		faults += len(kinds)
	}
}

// The same request from two processes, and from two callers of one, at once.
func TestOnce_DuplicatesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnceWorld(t)
		defer w.close()
		for sequence := int64(1); sequence <= 20; sequence++ {
			var mu sync.Mutex
			var told []sdk.Once
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					once, err := w.p[i%2].AppendOnce(w.ctx, w.id, sequence, request(1, fmt.Sprint(sequence))...)
					mu.Lock()
					defer mu.Unlock()
					if err != nil || once.Results[0].Record.Offset != sequence-1 {
						t.Errorf("sequence %d: %+v, %v", sequence, once, err)
					}
					told = append(told, once)
				})
			}
			all.Wait()
			if n := slices.IndexFunc(told, func(o sdk.Once) bool { return !o.Repeated }); n < 0 || len(slices.DeleteFunc(told, func(o sdk.Once) bool { return o.Repeated })) != 1 {
				t.Errorf("sequence %d: %+v", sequence, told)
			}
		}
		if n := len(w.contents("orders")[1]); n != 20 {
			t.Errorf("%d records", n)
		}
	})
}

// Sixteen producers, then a seventeenth; one that was forgotten, and comes back.
func TestOnce_SixteenAndOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnceWorld(t)
		defer w.close()
		ids := []sdk.ProducerID{}
		for range metadata.MaxProducers {
			id := w.p[0].NewProducerID()
			ids = append(ids, id)
			_, err := w.p[len(ids)%2].AppendOnce(w.ctx, id, 1, request(0, id.String())...)
			w.must(err)
			time.Sleep(time.Second)
		}
		more := w.p[0].NewProducerID()
		puts := 0
		w.onPut(func(fault.Call) fault.Fault { puts++; return fault.Fault{} })
		var crowded *sdk.TooManyProducersError
		for _, p := range w.p {
			if _, err := p.AppendOnce(w.ctx, more, 1, request(0, "more")...); !errors.As(err, &crowded) || !errors.Is(err, sdk.ErrTooManyProducers) || crowded.RetryAfter < metadata.ProducerIdle || puts > 0 {
				t.Fatalf("%+v, %d puts", err, puts)
			}
		}
		time.Sleep(crowded.RetryAfter)
		once, err := w.p[1].AppendOnce(w.ctx, more, 1, request(0, "more")...)
		if err != nil || once.Results[0].Record.Offset != metadata.MaxProducers {
			t.Fatalf("%+v, %v", once, err)
		}
		for sequence := range int64(3) { // its first, which was appended; its next; a gap: none of it can be told
			var evicted *sdk.ProducerEvictedError
			if _, err := w.p[0].AppendOnce(w.ctx, ids[0], 1+sequence, request(0, ids[0].String())...); !errors.As(err, &evicted) || evicted.Producer != ids[0] {
				t.Fatal(err)
			}
		}
		if got := w.values(0)[ids[0].String()]; got != 1 {
			t.Fatalf("%d times", got)
		}
		_, err = w.p[0].AppendOnce(w.ctx, ids[1], 2, request(0, "second")...) // the next idlest is still known
		w.must(err)
	})
}

// Requests of several producers that wait together are one segment and one commit. Where the lane does not admit one, the others go again without it, and when it
// happens once more, each by itself.
func TestOnce_SharedFlush(t *testing.T) {
	for refused := range 4 {
		synctest.Test(t, func(t *testing.T) {
			w := newOnceWorld(t, sdk.WithLinger(5*ms, 5*ms))
			defer w.close()
			const producers = 6
			ids := make([]sdk.ProducerID, producers)
			together := func(sequence int64, each func(i int, once sdk.Once, err error)) {
				var all sync.WaitGroup
				for i, id := range ids {
					all.Go(func() {
						records := append(request(i%2, fmt.Sprint(i, sequence)), request(2, fmt.Sprint(i, sequence))...)
						once, err := w.p[0].AppendOnce(w.ctx, id, sequence, records...)
						each(i, once, err)
					})
				}
				all.Wait()
			}
			var mu sync.Mutex
			var told []ack
			repeated := 0
			each := func(i int, once sdk.Once, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil || !once.OffsetsKnown {
					t.Fatalf("producer %d: %+v, %v", i, once, err)
				}
				if once.Repeated {
					repeated++
				}
				for _, r := range once.Results {
					told = append(told, ack{record: r.Record})
				}
			}
			for i := range ids {
				ids[i] = w.p[0].NewProducerID()
			}
			together(1, each)
			puts, commits, behind := 0, 0, false
			w.onPut(func(fault.Call) fault.Fault {
				mu.Lock()
				defer mu.Unlock()
				if !behind {
					puts++
				}
				return fault.Fault{}
			})
			w.onCall(func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
				mu.Lock()
				if !isCommit(c) || behind {
					mu.Unlock()
					return dynamodb.Fault{}
				}
				commits++
				n := commits
				behind = n <= refused // another process is faster with one of the requests
				mu.Unlock()
				if n <= refused {
					records := append(request((n-1)%2, fmt.Sprint(n-1, 2)), request(2, fmt.Sprint(n-1, 2))...)
					if _, err := w.p[1].AppendOnce(w.ctx, ids[n-1], 2, records...); err != nil {
						t.Error(err)
					}
					mu.Lock()
					behind = false
					mu.Unlock()
				}
				return dynamodb.Fault{}
			})
			together(2, each)
			// One; one without the refused; and then one for each that is left.
			want := []int{1, 2, 2 + producers - 2, 2 + producers - 2}[refused]
			if puts != want || commits != want || repeated != refused {
				t.Errorf("%d refused: %d puts, %d commits, want %d; %d repeated", refused, puts, commits, want, repeated)
			}
			if n := w.verify("orders", told); n != 4*producers {
				t.Errorf("%d acknowledged", n)
			}
			for p := range 3 {
				for v, n := range w.values(p) {
					if n != 1 {
						t.Errorf("%q is there %d times", v, n)
					}
				}
			}
		})
	}
}

// More producers at once than an update takes, and than a lane remembers; large requests; requests of two lanes and two classes.
func TestOnce_Crowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnceWorld(t, sdk.WithLinger(5*ms, 5*ms), sdk.WithSegmentBytes(64<<10))
		defer w.close()
		w.create(w.logs[0], sdk.NewTopic{Name: "wide", Partitions: 4, LaneWidth: 2, Config: map[string]string{"retention.ms": "-1"}})
		var mu sync.Mutex
		var told []ack
		crowded := 0
		var all sync.WaitGroup
		for i := range 20 {
			id := w.p[0].NewProducerID()
			for _, r := range []*sdk.Record{{Topic: "orders", Partition: 1}, {Topic: "wide", Partition: i % 4}} {
				all.Go(func() {
					r.Value = []byte(fmt.Sprint(i, strings.Repeat("x", 20_000)))
					once, err := w.p[0].AppendOnce(w.ctx, id, 1, r)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, sdk.ErrTooManyProducers):
						crowded++
					case err != nil || once.Repeated:
						t.Errorf("%+v, %v", once, err)
					default:
						told = append(told, ack{record: r})
					}
				})
			}
		}
		all.Wait()
		if crowded != 20-metadata.MaxProducers {
			t.Errorf("%d too many", crowded)
		}
		n := 0
		for _, topic := range []string{"orders", "wide"} {
			mine := slices.DeleteFunc(slices.Clone(told), func(a ack) bool { return a.record.Topic != topic })
			n += w.verify(topic, mine)
		}
		if n != metadata.MaxProducers+20 {
			t.Errorf("%d acknowledged", n)
		}
	})
}

// A topic that grows: partitions that a request names stay, and a key's may be in another lane, where a repeat is not known.
func TestOnce_Growth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnceWorld(t)
		defer w.close()
		w.create(w.logs[0], sdk.NewTopic{Name: "t", Partitions: 2, LaneWidth: 2})
		keys := []string{}
		for i := range 40 {
			keys = append(keys, fmt.Sprint("key", i))
		}
		at := map[string]int{}
		for i, key := range keys {
			p, err := w.p[0].KeyPartitionOnce(w.ctx, "t", []byte(key))
			w.must(err)
			at[key] = p
			_, err = w.p[0].AppendOnce(w.ctx, w.id, int64(i+1), &sdk.Record{Topic: "t", Partition: p, Key: []byte(key)})
			w.must(err)
		}
		_, err := w.logs[1].Admin().AlterTopic(w.ctx, "t", sdk.Alteration{Partitions: 4, MoveKeys: true})
		w.must(err)
		refused := 0
		for i, key := range keys {
			p, err := w.p[1].KeyPartitionOnce(w.ctx, "t", []byte(key))
			var field *sdk.FieldError
			switch {
			case errors.As(err, &field):
				refused++
				continue
			case err != nil:
				t.Fatal(err)
			}
			if p != at[key] {
				t.Fatalf("%s was in partition %d and is in %d", key, at[key], p)
			}
			if i >= len(keys)-metadata.ProducerWindow {
				once, err := w.p[1].AppendOnce(w.ctx, w.id, int64(i+1), &sdk.Record{Topic: "t", Partition: p, Key: []byte(key)})
				if err != nil || !once.Repeated || !once.OffsetsKnown {
					t.Fatalf("%+v, %v", once, err)
				}
			}
		}
		if refused == 0 || refused == len(keys) {
			t.Errorf("%d of %d keys refused", refused, len(keys))
		}
		for i, p := range w.p { // another lane has a sequence of its own, and one of them does not know of it yet
			if once, err := p.AppendOnce(w.ctx, w.id, 1, &sdk.Record{Topic: "t", Partition: 3}); err != nil || once.Repeated != (i > 0) {
				t.Errorf("%+v, %v", once, err)
			}
		}
	})
}

// What a request costs: a put and a commit once its producer is known, a read before them when it is not; and a repeat no put at all.
func TestOnce_Requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnceWorld(t)
		defer w.close()
		c := &counter{}
		log := w.open(sdk.WithHooks(c))
		defer log.Close()
		p := w.producer(log, atOnce)
		defer p.Close(w.ctx)
		append1 := func(sequence int64, repeated bool, want map[string]int) {
			t.Helper()
			c.take()
			once, err := p.AppendOnce(w.ctx, w.id, sequence, request(0, fmt.Sprint(sequence))...)
			w.must(err)
			if got := c.take(); !maps.Equal(got, want) || once.Repeated != repeated {
				t.Errorf("sequence %d: %v, want %v; %+v", sequence, got, want, once)
			}
		}
		_, err := p.AppendOnce(w.ctx, p.NewProducerID(), 1, request(0, "other")...)
		w.must(err)
		append1(1, false, map[string]int{"table Head": 1, "store put": 1, "table Commit": 1})
		append1(2, false, map[string]int{"store put": 1, "table Commit": 1})
		append1(3, false, map[string]int{"store put": 1, "table Commit": 1})
		append1(3, true, map[string]int{"table Head": 1, "store stat": 1, "store get": 1})
	})
}

func (w *onceWorld) lane() metadata.LaneID {
	row, err := w.view.Table.Topic(judge, "orders")
	w.must(err)
	return row.Lanes[0]
}
