package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// stream produces records one after another until it is stopped, and keeps what became of each.
type stream struct {
	acks
	t        *testing.T
	producer *sdk.Producer
	good     atomic.Int64
	changed  chan struct{} // has a value after each promise that was not seen yet
	stop     context.CancelFunc
	stopped  sync.WaitGroup
	sent     int
}

const streamTopic = "stream"

// startStream makes a topic and begins.
func startStream(t *testing.T, log *sdk.Log) *stream {
	t.Helper()
	createTopic(t, log, sdk.NewTopic{Name: streamTopic, Partitions: 4, LaneWidth: 2})
	p, err := log.NewProducer(sdk.WithLinger(0, 10*time.Millisecond), sdk.WithBufferBytes(1<<20), sdk.WithSmallSegments(0))
	check(t, err)
	s := &stream{t: t, producer: p, changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	s.stopped.Go(func() {
		for ; ctx.Err() == nil; s.sent++ {
			r := &sdk.Record{Topic: streamTopic, Key: fmt.Append(nil, s.sent%17), Value: fmt.Appendf(nil, "%d %0500d", s.sent, s.sent)}
			p.Produce(t.Context(), r, s.promise)
		}
	})
	return s
}

func (s *stream) promise(r *sdk.Record, err error) {
	s.acks.promise(r, err)
	if err == nil {
		s.good.Add(1)
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// more waits until n more records are acknowledged.
func (s *stream) more(n int64) {
	s.t.Helper()
	for want := s.good.Load() + n; s.good.Load() < want; {
		select {
		case <-s.changed:
		case <-s.t.Context().Done():
			s.t.Fatal("the test's time is up")
		}
	}
}

// runFor lets it run for d.
func (s *stream) runFor(d time.Duration) { env.System().Sleep(s.t.Context(), d) }

// finish ends the stream. Every record must have been acknowledged, and the log must hold each of them once, where it was said to be, and
// nothing else. It returns how many there are.
func (s *stream) finish(log *sdk.Log) int {
	s.t.Helper()
	s.stop()
	s.stopped.Wait()
	check(s.t, s.producer.Close(s.t.Context()))
	found := s.readAll(log)
	seen := s.list()
	for _, a := range seen {
		if a.err != nil {
			s.t.Fatalf("record %.20q failed: %v", a.record.Value, a.err)
		}
		if got := found[string(a.record.Value)]; got.partition != a.record.Partition || got.offset != a.record.Offset {
			s.t.Fatalf("record %.20q was acknowledged at partition %d, offset %d and found at %v", a.record.Value, a.record.Partition, a.record.Offset, got)
		}
	}
	if len(seen) != s.sent || len(found) != s.sent {
		s.t.Fatalf("%d records sent, %d acknowledged, %d found", s.sent, len(seen), len(found))
	}
	return s.sent
}

// follower reads the stream as it grows, as another process would.
type follower struct {
	t           *testing.T
	done        chan struct{}
	want        atomic.Int64
	read        int64
	unreachable int
}

// follow begins to read. What is read must be dense.
func (s *stream) follow(url string) *follower {
	s.t.Helper()
	log, err := sdk.Open(s.t.Context(), url)
	check(s.t, err)
	r, err := log.NewReader(s.t.Context(), streamTopic, sdk.WithWait(100*time.Millisecond)) // to look whether it has read all
	check(s.t, err)
	f := &follower{t: s.t, done: make(chan struct{})}
	f.want.Store(math.MaxInt64)
	go func() {
		defer close(f.done)
		defer log.Close()
		defer r.Close()
		f.run(r)
	}()
	s.t.Cleanup(func() { <-f.done })
	return f
}

func (f *follower) run(r *sdk.Reader) {
	next := map[int]int64{}
	for f.read < f.want.Load() {
		fetches, err := r.Poll(f.t.Context())
		switch {
		case errors.Is(err, sdk.ErrUnreachable):
			f.unreachable++
			continue
		case err != nil:
			f.t.Errorf("following: %v", err)
			return
		}
		for _, x := range fetches {
			for _, record := range x.Records {
				if record.Offset != next[x.Partition] {
					f.t.Errorf("following: partition %d: offset %d follows %d", x.Partition, record.Offset, next[x.Partition]-1)
				}
				next[x.Partition] = record.Offset + 1
				f.read++
			}
		}
	}
}

// finish waits until so many records were read.
func (f *follower) finish(want int64) (read int64, unreachable int) {
	f.t.Helper()
	f.want.Store(want)
	<-f.done
	if f.read != want {
		f.t.Errorf("a reader that followed read %d of %d records", f.read, want)
	}
	return f.read, f.unreachable
}

type place struct {
	partition int
	offset    int64
}

// readAll returns where each value is. Offsets must be dense and no value there twice.
func (s *stream) readAll(log *sdk.Log) map[string]place {
	s.t.Helper()
	r, err := log.NewReader(s.t.Context(), streamTopic, sdk.To(sdk.Latest))
	check(s.t, err)
	defer r.Close()
	found, next := map[string]place{}, map[int]int64{}
	for {
		fetches, err := r.Poll(s.t.Context())
		if errors.Is(err, io.EOF) {
			return found
		}
		check(s.t, err)
		for _, f := range fetches {
			for _, x := range f.Records {
				at := place{f.Partition, x.Offset}
				if other, twice := found[string(x.Value)]; twice || x.Offset != next[f.Partition] {
					s.t.Fatalf("%.20q at %v, also at %v: %v; the offset should be %d", x.Value, at, other, twice, next[f.Partition])
				}
				found[string(x.Value)] = at
				next[f.Partition]++
			}
		}
	}
}
