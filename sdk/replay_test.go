package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/fault"
)

// filled is a topic t whose partitions have so many records each, in commits of ten; a record's value is its offset.
func filled(b *bench, partitions, records int) {
	b.create("t", partitions, 4)
	for from := 0; from < records; from += 10 {
		appendTen(b, partitions, from)
	}
}

func appendTen(b *bench, partitions, from int) {
	parts := map[int][][]segment.Record{}
	for p := range partitions {
		parts[p] = one(p, numbers(from, 10))[p]
	}
	b.write("t", parts)
}

// replayed is what handlers were given, by partition. It fails on what is not in order.
type replayed struct {
	t     testing.TB
	mu    sync.Mutex
	next  map[int]int64
	count int
	busy  map[int]bool
	peak  int // partitions handled at once
}

func newReplayed(t testing.TB) *replayed {
	return &replayed{t: t, next: map[int]int64{}, busy: map[int]bool{}}
}

func (y *replayed) handle(_ context.Context, f sdk.Fetch) error {
	y.mu.Lock()
	if y.busy[f.Partition] {
		y.t.Errorf("partition %d is handled twice at once", f.Partition)
	}
	y.busy[f.Partition] = true
	y.peak = max(y.peak, len(y.busy))
	y.mu.Unlock()
	defer func() {
		y.mu.Lock()
		delete(y.busy, f.Partition)
		y.mu.Unlock()
	}()
	for _, r := range f.Records {
		y.take(f.Partition, r)
	}
	return nil
}

func (y *replayed) take(partition int, r sdk.Record) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if r.Offset != y.next[partition] || string(r.Value) != fmt.Sprint(r.Offset) {
		y.t.Errorf("partition %d: offset %d with %q where %d should be", partition, r.Offset, r.Value, y.next[partition])
	}
	y.next[partition] = r.Offset + 1
	y.count++
}

// All that is there when the replay is made, once and in order in each partition, and nothing of what is appended while it runs; then a reader goes on from there.
func TestReplayStopsAtTheBarrierAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 500 / raceHalf
		b := newBench(t)
		filled(b, 8, records)
		r, err := reach(t, b.log, nil).NewReplay(b.ctx, "t", sdk.ReplayParallel(3))
		check(t, err)
		y := newReplayed(t)
		var appending sync.Mutex
		from := records
		err = r.Run(b.ctx, func(ctx context.Context, f sdk.Fetch) error {
			appending.Lock()
			appendTen(b, 8, from)
			from += 10
			appending.Unlock()
			return y.handle(ctx, f)
		})
		check(t, err)
		if y.count != 8*records {
			t.Fatalf("%d records, want %d", y.count, 8*records)
		}
		if g := r.Progress(); g.Done != 8*records || g.Offsets != g.Done || g.Records != 8*records || g.Left != 0 {
			t.Errorf("%+v", g)
		}
		follower, err := r.Follow(b.ctx)
		check(t, err)
		defer follower.Close()
		appendTen(b, 8, from)
		for y.count < 8*(from+10) {
			fetches, err := follower.Poll(b.ctx)
			check(t, err)
			for _, f := range fetches {
				check(t, y.handle(b.ctx, f))
			}
		}
		t.Logf("%d records, %d of them handed over to the reader", y.count, y.count-8*records)
	})
}

// A handler fails again and again; each time another process takes the checkpoint up. Every record is handled, none before the checkpoint again, and the barrier
// stays where it was.
func TestReplayResumes(t *testing.T) {
	for seed := range uint64(1 + 2/raceShare) {
		b := newBench(t)
		filled(b, 5, 200)
		chance := rand.New(rand.NewPCG(seed, 1))
		stop := errors.New("enough")
		var mu sync.Mutex
		next := map[int]int64{}
		repeated, runs := 0, 0
		opts := []sdk.ReplayOption{sdk.ReplayParallel(2), sdk.ReplayBuffer(2000)}
		for done := false; !done; runs++ {
			r, err := reach(t, b.open(), nil).NewReplay(b.ctx, "t", opts...)
			check(t, err)
			start := r.Checkpoint()
			left := 1 + chance.IntN(12)
			err = r.Run(b.ctx, func(_ context.Context, f sdk.Fetch) error {
				mu.Lock()
				defer mu.Unlock()
				for _, record := range f.Records {
					if record.Offset < start.Positions[f.Partition].Next || record.Offset > next[f.Partition] {
						t.Errorf("partition %d offset %d after %d, from the checkpoint %+v", f.Partition, record.Offset, next[f.Partition], start.Positions[f.Partition])
					}
					if record.Offset < next[f.Partition] {
						repeated++
					}
					next[f.Partition] = max(next[f.Partition], record.Offset+1)
				}
				if left--; left < 0 {
					return stop
				}
				return nil
			})
			if done = err == nil; !done && !errors.Is(err, stop) {
				t.Fatal(err)
			}
			saved, err := json.Marshal(r.Checkpoint())
			check(t, err)
			var c sdk.ReplayCheckpoint
			check(t, json.Unmarshal(saved, &c))
			opts = append(opts[:2:2], sdk.ReplayResume(c))
			appendTen(b, 5, 200+10*runs)
		}
		for p := range 5 {
			if next[p] != 200 {
				t.Errorf("seed %d: partition %d ended at %d", seed, p, next[p])
			}
		}
		if seed == 0 {
			t.Logf("%d runs, %d records handled twice", runs, repeated)
		}
	}
}

func TestReplayFilter(t *testing.T) {
	b := newBench(t)
	filled(b, 2, 100)
	r, err := reach(t, b.log, nil).NewReplay(b.ctx, "t", sdk.ReplayFilter(func(r *sdk.Record) bool { return string(r.Value) == "42" }), sdk.ReplayRecycle())
	check(t, err)
	var mu sync.Mutex
	var got []string
	check(t, r.Run(b.ctx, func(_ context.Context, f sdk.Fetch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, record := range f.Records {
			got = append(got, fmt.Sprint(f.Partition, record.Offset))
		}
		return nil
	}))
	if len(got) != 2 {
		t.Fatal(got)
	}
	if g := r.Progress(); g.Records != 2 || g.Done != 200 {
		t.Errorf("%+v", g)
	}
	check(t, r.Run(b.ctx, func(context.Context, sdk.Fetch) error { t.Error("again"); return nil })) // all is done
}

func TestReplayRefuses(t *testing.T) {
	b := newBench(t)
	filled(b, 2, 20)
	log := reach(t, b.log, nil)
	good, err := log.NewReplay(b.ctx, "t")
	check(t, err)
	c := func(change func(*sdk.ReplayCheckpoint)) sdk.ReplayOption {
		c := good.Checkpoint()
		change(&c)
		return sdk.ReplayResume(c)
	}
	for name, x := range map[string]struct {
		topic string
		opt   sdk.ReplayOption
		want  error
	}{
		"unknown topic":      {"u", sdk.ReplayParallel(1), sdk.ErrUnknownTopic},
		"no such name":       {"../t", sdk.ReplayParallel(1), sdk.ErrInvalid},
		"parallel":           {"t", sdk.ReplayParallel(0), sdk.ErrInvalid},
		"buffer":             {"t", sdk.ReplayBuffer(0), sdk.ErrInvalid},
		"another topic":      {"t", c(func(c *sdk.ReplayCheckpoint) { c.TopicID = "000000000000" }), sdk.ErrTopicGone},
		"partition":          {"t", c(func(c *sdk.ReplayCheckpoint) { c.Positions[1].Partition = 2 }), sdk.ErrInvalid},
		"no positions":       {"t", c(func(c *sdk.ReplayCheckpoint) { c.Positions = nil }), sdk.ErrInvalid},
		"one left out":       {"t", c(func(c *sdk.ReplayCheckpoint) { c.Positions = c.Positions[1:] }), sdk.ErrInvalid},
		"partition twice":    {"t", c(func(c *sdk.ReplayCheckpoint) { c.Positions[1].Partition = 0 }), sdk.ErrInvalid},
		"past the end":       {"t", c(func(c *sdk.ReplayCheckpoint) { c.Positions[1].End = 21 }), sdk.ErrInvalid},
		"next after the end": {"t", c(func(c *sdk.ReplayCheckpoint) { c.Positions[1].Next = 21 }), sdk.ErrInvalid},
		"next before start":  {"t", c(func(c *sdk.ReplayCheckpoint) { c.Positions[1].Next = -1 }), sdk.ErrInvalid},
	} {
		if _, err := log.NewReplay(b.ctx, x.topic, x.opt); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, log.Close())
	if err := good.Run(b.ctx, func(context.Context, sdk.Fetch) error { return nil }); !errors.Is(err, sdk.ErrClosed) {
		t.Errorf("of a closed log: %v", err)
	}
}

// A checkpoint of any content is refused with a typed error, or it is where the replay then is.
func FuzzReplayCheckpoint(f *testing.F) {
	b := newBench(f)
	filled(b, 2, 20)
	fresh, err := b.log.NewReplay(b.ctx, "t")
	check(f, err)
	good, err := json.Marshal(fresh.Checkpoint())
	check(f, err)
	id := fresh.Checkpoint().TopicID
	f.Add(good, false)
	for _, s := range []string{"", "null", "[]", "{}", `{"at":"9999-12-31T23:59:59.999999999-23:59","positions":[null]}`, `{"positions":[{"partition":0,"end":20},{"partition":1,"start":3,"next":7,"end":20}]}`,
		`{"positions":[{"partition":-1,"start":-9223372036854775808,"next":9223372036854775807,"end":1}]}`, `{"at":1,"positions":{}}`} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, named bool) {
		var c, again sdk.ReplayCheckpoint
		if json.Unmarshal(body, &c) != nil {
			return
		}
		written, err := json.Marshal(c)
		check(t, err)
		check(t, json.Unmarshal(written, &again))
		if !again.At.Equal(c.At) || again.Topic != c.Topic || again.TopicID != c.TopicID || !slices.Equal(again.Positions, c.Positions) {
			t.Fatalf("%+v is %+v after it was written", c, again)
		}
		if named { // so that what lies behind the names is reached
			c.Topic, c.TopicID = "t", id
		}
		r, err := b.log.NewReplay(b.ctx, "t", sdk.ReplayResume(c))
		if err != nil {
			if !errors.Is(err, sdk.ErrInvalid) && !errors.Is(err, sdk.ErrTopicGone) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if at := r.Checkpoint(); !slices.Equal(at.Positions[:len(c.Positions)], c.Positions) {
			t.Fatalf("resumed %+v at %+v", c, at)
		}
	})
}

// While a replay's handlers stand, readers and producers of the same process go on, and what the replay has fetched stays in its bounds.
func TestReplaySlowsNobodyDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		filled(b, 8, 2000)
		live := b.reader("t", sdk.From(sdk.Latest))
		r, err := b.log.NewReplay(b.ctx, "t", sdk.ReplayBuffer(100_000))
		check(t, err)
		b.counts.take()
		release := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- r.Run(b.ctx, func(context.Context, sdk.Fetch) error { <-release; return nil })
		}()
		synctest.Wait()
		_, gets := b.counts.take()
		if gets == 0 || gets > 100 {
			t.Errorf("%d segments of 200 fetched behind handlers that stand", gets)
		}
		start := time.Now()
		producer, err := b.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))
		check(t, err)
		check(t, producer.ProduceSync(b.ctx, &sdk.Record{Topic: "t", Partition: 3, Value: []byte("2000")}).Err())
		fetches, err := live.Poll(b.ctx)
		check(t, err)
		if took := time.Since(start); len(fetches) != 1 || took > 0 {
			t.Errorf("%v after %v", fetches, took)
		}
		close(release)
		check(t, <-done)
		check(t, producer.Close(b.ctx))
	})
}

// The store or the table fail every third time, for a while not at all; a replay goes on.
func TestReplayThroughTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		filled(b, 4, 300)
		var mu sync.Mutex
		n := 0
		b.faults(func(fault.Call) fault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%3 == 0 {
				return fault.Fault{Kind: fault.LostBefore}
			}
			return fault.Fault{}
		}, nil)
		r, err := reach(t, b.log, nil).NewReplay(b.ctx, "t")
		check(t, err)
		y := newReplayed(t)
		check(t, r.Run(b.ctx, y.handle))
		if y.count != 1200 || n < 10 {
			t.Errorf("%d records, %d requests", y.count, n)
		}
	})
}

// What cannot be read ends a replay with the typed error, and where it was is known.
func TestReplayOfDamage(t *testing.T) {
	b := newBench(t)
	filled(b, 1, 50)
	name := b.write("t", one(0, numbers(50, 10)))
	check(t, b.raw.Delete(b.ctx, name))
	r, err := reach(t, b.log, nil).NewReplay(b.ctx, "t")
	check(t, err)
	y := newReplayed(t)
	err = r.Run(b.ctx, y.handle)
	var damage *sdk.DataError
	if !errors.As(err, &damage) || damage.From != 50 || y.count != 50 || r.Checkpoint().Positions[0].Next != 50 {
		t.Errorf("%v, %d records, %+v", err, y.count, r.Checkpoint())
	}
	_, err = b.backend.Table.SetStart(b.ctx, b.topics["t"].Place(0).Lane, metadata.Slot(0), 60)
	check(t, err)
	check(t, r.Run(b.ctx, y.handle)) // retention has overtaken it
}

// When one of a replay's readers gives up because nobody answers, the others stop as well, however long they would have been patient themselves.
func TestReplayGivesUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		filled(b, 4, 300)
		r, err := reach(t, b.log, nil).NewReplay(b.ctx, "t")
		check(t, err)
		broken := fmt.Errorf("the sink: %w", sdk.ErrUnreachable)
		start := time.Now()
		err = r.Run(b.ctx, func(ctx context.Context, f sdk.Fetch) error {
			if f.Partition == 0 {
				return broken
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, broken) || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
