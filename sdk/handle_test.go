package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// handled is what a handler has been given.
type handled struct {
	mu  sync.Mutex
	all []string // topic/partition@offset, in order of the calls
}

func (h *handled) note(r *sdk.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset))
}

func (h *handled) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// handle runs Handle until stop is called, which returns its error.
func handle(b *bench, f sdk.Handler, opts ...sdk.HandleOption) (stop func() error) {
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.log.Handle(ctx, "g", []string{"t"}, f, opts...) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestHandleGoesOnWhereItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 20)
		var seen handled
		for range 2 {
			stop := handle(b, func(_ context.Context, r *sdk.Record) error { seen.note(r); return nil })
			time.Sleep(20 * time.Second)
			if err := stop(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			b.fill("t", 2, 20)
		}
		all := seen.list()
		if n := len(all); n != 80 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 80 {
			t.Errorf("%d calls for 80 records: %v", n, all)
		}
	})
}

// A record that fails keeps what is behind it waiting, and only that: the other partition goes on (BR-30), and what is committed is the unbroken run.
func TestHandleBlocksItsPartitionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 10)
		var seen handled
		var broken atomic.Bool
		broken.Store(true)
		stop := handle(b, func(_ context.Context, r *sdk.Record) error {
			if broken.Load() && r.Partition == 0 && r.Offset == 3 {
				return errors.New("not now")
			}
			seen.note(r)
			return nil
		})
		time.Sleep(5 * time.Minute)
		if all := seen.list(); len(all) != 13 || slices.Contains(all, "t/0@4") {
			t.Errorf("handled %v", all)
		}
		d := b.describe("g", sdk.Earliest)
		if d.Partitions[0].Committed != 3 || d.Partitions[1].Committed != 10 || d.Generation > 2 {
			t.Errorf("committed %d and %d, generation %d", d.Partitions[0].Committed, d.Partitions[1].Committed, d.Generation)
		}
		broken.Store(false)
		time.Sleep(time.Minute)
		if all := seen.list(); len(all) != 20 || !slices.IsSorted(slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, "t/0") })) {
			t.Errorf("handled %v", all)
		}
		stop()
	})
}

// A record whose attempts fail waits in the retry topics, is tried again when it is due, and ends among the dead letters with where it came from.
func TestHandleParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.create("dead", 1, 64)
		records := numbers(0, 5)
		records[2].Key, records[2].Headers = []byte("k"), []segment.Header{{Key: "mine", Value: []byte("x")}}
		b.write("t", one(0, records))
		p, err := b.log.NewProducer()
		check(t, err)
		var seen handled
		var times []time.Duration
		began := time.Now()
		stop := handle(b, func(_ context.Context, r *sdk.Record) error {
			seen.note(r)
			if string(r.Key) == "k" {
				times = append(times, time.Since(began))
				return fmt.Errorf("attempt %d: %s", len(times), strings.Repeat("long ", 1000))
			}
			return nil
		}, sdk.Attempts(2, 100*time.Millisecond, time.Second), sdk.RetryAfter(p, 30*time.Second, 3*time.Minute), sdk.DeadLetters(p, "dead"))
		time.Sleep(5 * time.Minute)
		stop()
		if len(times) != 6 || times[2]-times[1] < 30*time.Second || times[2]-times[1] > 40*time.Second || times[4]-times[3] < 3*time.Minute || times[4]-times[3] > 4*time.Minute {
			t.Errorf("attempts at %v", times)
		}
		if all := seen.list(); len(all) != 10 || !slices.Contains(all[:6], "t/0@4") {
			t.Errorf("handled %v", all)
		}
		r, err := b.log.NewReader(b.ctx, "dead", sdk.To(sdk.Latest))
		check(t, err)
		fetches, err := r.Poll(b.ctx)
		check(t, err)
		dead := fetches[0].Records[0]
		got := map[string]string{}
		for _, h := range dead.Headers {
			if _, twice := got[h.Key]; twice {
				t.Errorf("header %s twice", h.Key)
			}
			got[h.Key] = string(h.Value)
		}
		if string(dead.Key) != "k" || got["mine"] != "x" || got[sdk.HeaderOriginTopic] != "t" || got[sdk.HeaderOriginPartition] != "0" || got[sdk.HeaderOriginOffset] != "2" ||
			got[sdk.HeaderAttempts] != "6" || !strings.HasPrefix(got[sdk.HeaderError], "attempt 6") || len(got[sdk.HeaderError]) > 1<<10 || got[sdk.HeaderNotBefore] != "" {
			t.Errorf("dead letter %q with %v", dead.Key, got)
		}
		check(t, r.Close())
		check(t, p.Close(b.ctx))
	})
}

// What is parked in a retry topic is handled in the order in which it was parked.
func TestHandleRetriesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.write("t", one(0, numbers(0, 6)))
		p, err := b.log.NewProducer()
		check(t, err)
		attempts := map[string]int{}
		var retried []string
		var mu sync.Mutex
		stop := handle(b, func(_ context.Context, r *sdk.Record) error {
			mu.Lock()
			defer mu.Unlock()
			v := string(r.Value)
			if attempts[v]++; attempts[v] == 1 && v != "0" {
				return errors.New("not yet")
			} else if attempts[v] > 1 {
				retried = append(retried, v)
			}
			return nil
		}, sdk.Attempts(1, time.Second, time.Second), sdk.RetryAfter(p, time.Minute))
		time.Sleep(5 * time.Minute)
		stop()
		if want := []string{"1", "2", "3", "4", "5"}; !slices.Equal(retried, want) {
			t.Errorf("retried %v, want %v", retried, want)
		}
		check(t, p.Close(b.ctx))
	})
}

// Different keys of one partition beside one another, one key in order; what is committed is the unbroken run.
func TestHandleKeysInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		var records []segment.Record
		for i := range 60 {
			records = append(records, segment.Record{Key: fmt.Appendf(nil, "key-%d", i%6), Value: []byte("v")})
		}
		b.write("t", one(0, records))
		var mu sync.Mutex
		last := map[string]int64{}
		busy, most := 0, 0
		release := make(chan struct{})
		stop := handle(b, func(ctx context.Context, r *sdk.Record) error {
			mu.Lock()
			if before, ok := last[string(r.Key)]; ok && before >= r.Offset {
				t.Errorf("key %s: %d after %d", r.Key, r.Offset, before)
			}
			last[string(r.Key)] = r.Offset
			busy++
			most = max(most, busy)
			mu.Unlock()
			if r.Offset == 7 {
				<-release
			}
			time.Sleep(time.Second)
			mu.Lock()
			busy--
			mu.Unlock()
			return nil
		}, sdk.Parallel(16))
		time.Sleep(5 * time.Minute)
		if got := b.describe("g", sdk.Earliest).Partitions[0].Committed; most < 3 || got != 7 {
			t.Errorf("at most %d at once, committed %d while 7 is not finished", most, got)
		}
		close(release)
		time.Sleep(5 * time.Minute)
		if got := b.describe("g", sdk.Earliest).Partitions[0].Committed; got != 60 {
			t.Errorf("committed %d", got)
		}
		stop()
	})
}

func TestHandleRefuses(t *testing.T) {
	b := newBench(t)
	p, err := b.log.NewProducer()
	check(t, err)
	for what, o := range map[string]sdk.HandleOption{
		"parallel":    sdk.Parallel(0),
		"attempts":    sdk.Attempts(0, time.Second, time.Second),
		"pauses":      sdk.Attempts(1, time.Second, time.Millisecond),
		"no producer": sdk.DeadLetters(nil, "dead"),
		"delay":       sdk.RetryAfter(p, time.Millisecond),
		"consumer":    sdk.Consuming(sdk.WithSessionTimeout(1)),
	} {
		if err := b.log.Handle(b.ctx, "g", []string{"t"}, func(context.Context, *sdk.Record) error { return nil }, o); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check(t, p.Close(b.ctx))
}

// What Handle has looked at before a partition was reset, and comes to commit when the member has claimed it anew, does not undo the reset.
func TestHandleDoesNotUndoAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		c := b.joins(sdk.ManualCommit())
		b.takes(c)
		before, after := sdk.HandledUpTo(c, sdk.TopicPartition{Topic: "t"}, 5), sdk.HandledUpTo(c, sdk.TopicPartition{Topic: "t"}, 10)
		before(b.ctx)
		_, err := b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", Force: true, To: sdk.ResetTo{Position: sdk.AtOffset(3)}})
		check(t, err)
		time.Sleep(time.Minute)
		if got := span(t, b.takes(c)); got != [2]int64{3, 9} {
			t.Errorf("after the reset it has read %v", got)
		}
		after(b.ctx)
		if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != 3 {
			t.Errorf("committed %d after a reset to 3", p.Committed)
		}
		sdk.HandledUpTo(c, sdk.TopicPartition{Topic: "t"}, 7)(b.ctx)
		if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != 7 {
			t.Errorf("committed %d by the new lease, want 7", p.Committed)
		}
		check(t, c.Close(b.ctx))
	})
}
