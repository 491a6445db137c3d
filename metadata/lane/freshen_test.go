package lane_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// minted checks how many new ids were asked for.
func (b *bench) mintedAnew(n int) {
	b.t.Helper()
	if len(b.reminted) != n {
		b.t.Errorf("new ids for %v, want %d", b.reminted, n)
	}
}

func TestFloorPassesTheID(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(1)
		s := b.segment(1)
		floor := segment.NewID(s.ID.Time().Add(time.Minute), class, segment.InBucket, 1, segment.ID{})
		b.setFloor(floor)
		old := s.ID
		r := <-b.send(s)
		b.check(r, nil)
		if r.ID == old || !floor.Less(r.ID) || r.Attempts != 2 {
			t.Errorf("%+v over floor %s", r, floor)
		}
		b.mintedAnew(1)
		if next := b.commit(1); next.Attempts != 1 {
			t.Errorf("%+v: the floor was known", next)
		}
	})
}

// A change of the topic: each writer is refused once, the owner reads the row, and what is of another class is
// put again.
func TestConfigChange(t *testing.T) {
	for _, c := range []struct {
		class segment.Class
		anew  int
	}{{class, 0}, {30, 1}} {
		on(t, func(b *bench) {
			refreshed := int64(0)
			b.config.Refresh = func(_ context.Context, seen int64) (int64, error) { refreshed = seen; return seen, nil }
			b.writer = lane.New(b.config)
			b.commit(1)
			b.setConfig(2, c.class)
			r := b.commit(1)
			b.check(r, nil)
			b.mintedAnew(c.anew)
			if refreshed != 2 || r.ID.Class() != c.class || r.Attempts != 2 {
				t.Errorf("owner read version %d, %+v", refreshed, r)
			}
		})
	}
}

func TestConfigChangeSeenAtStart(t *testing.T) {
	on(t, func(b *bench) {
		b.setConfig(2, 30)
		r := b.commit(1)
		b.check(r, nil)
		b.mintedAnew(1)
		if r.Attempts != 1 || r.ID.Class() != 30 {
			t.Errorf("%+v", r)
		}
	})
}

func TestRefreshFails(t *testing.T) {
	on(t, func(b *bench) {
		calls := 0
		b.config.Refresh = func(context.Context, int64) (int64, error) {
			if calls++; calls < 3 {
				return 0, metadata.ErrUnavailable
			}
			return 0, metadata.ErrTopicGone
		}
		b.writer = lane.New(b.config)
		b.setConfig(2, 30)
		b.check(b.commit(1), metadata.ErrTopicGone)
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
	})
}

// skewed is a clock whose wall may be set, and whose monotonic part stands still while frozen.
type skewed struct {
	env.Clock
	wall, frozen atomic.Int64
}

func (c *skewed) Now() time.Time      { return c.Clock.Now().Add(time.Duration(c.wall.Load())) }
func (c *skewed) Mono() time.Duration { return c.Clock.Mono() - time.Duration(c.frozen.Load()) }

// A segment that is too old by either clock is never sent under its id.
func TestAge(t *testing.T) {
	for name, grow := range map[string]func(*skewed){
		"waited":                func(*skewed) { time.Sleep(metadata.MaxSegmentAge) },
		"frozen":                func(c *skewed) { c.frozen.Store(int64(metadata.MaxSegmentAge)); time.Sleep(metadata.MaxSegmentAge) },
		"wall clock set back":   func(c *skewed) { c.wall.Store(-int64(time.Hour)); time.Sleep(metadata.MaxSegmentAge) },
		"wall clock set onward": func(c *skewed) { c.wall.Store(int64(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				clock := &skewed{Clock: b.env.Clock}
				b.env.Clock, b.config.Env.Clock = clock, clock
				b.table.Table = b.db.open(t, b.env, nil)
				b.writer = lane.New(b.config)
				b.commit(1)
				s := b.segment(1)
				s.Deadline += time.Hour
				grow(clock)
				r := <-b.send(s)
				b.check(r, nil)
				b.mintedAnew(1)
				if r.Attempts != 1 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// The age is looked at before every attempt, not only the first.
func TestAgesWhileThrottled(t *testing.T) {
	on(t, func(b *bench) {
		b.commit(1)
		s := b.segment(1)
		s.Deadline += time.Hour
		until := time.Now().Add(11 * time.Minute)
		b.table.fault = func(op string, n int) *fault {
			if time.Now().Before(until) {
				return throttled
			}
			return nil
		}
		b.check(<-b.send(s), nil)
		b.mintedAnew(1)
	})
}

// The store hangs while the bytes are to be put again: it is the deadline that ends the segment, by its name.
func TestRemintHangs(t *testing.T) {
	on(t, func(b *bench) {
		b.config.Remint = func(ctx context.Context, _ *lane.Segment, _ segment.ID, _ segment.Class) error {
			<-ctx.Done()
			return ctx.Err()
		}
		b.writer = lane.New(b.config)
		b.setConfig(2, 30)
		start := time.Now()
		b.check(b.commit(1), lane.ErrDeadline)
		if took := time.Since(start); took != 2*time.Minute {
			t.Errorf("told after %v", took)
		}
	})
}

// A segment whose bytes cannot be put again fails alone.
func TestRemintFails(t *testing.T) {
	broken := errors.New("store is down")
	for name, remint := range map[string]func(context.Context, *lane.Segment, segment.ID, segment.Class) error{
		"the put fails":       func(context.Context, *lane.Segment, segment.ID, segment.Class) error { return broken },
		"not above the floor": func(context.Context, *lane.Segment, segment.ID, segment.Class) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				b.config.Remint = remint
				b.writer = lane.New(b.config)
				b.commit(1)
				b.table.fault = plan{"Commit": {nil, {delay: 11 * time.Minute}}}.decide
				slow := b.segment(1)
				slow.Minted.Wall, slow.Minted.Mono = slow.Minted.Wall.Add(5*time.Minute), slow.Minted.Mono+5*time.Minute // so that it is not too old when it is sent at last
				slow.ID = segment.NewID(slow.Minted.Wall, class, segment.InBucket, 1000, segment.ID{})
				first := b.send(slow)
				synctest.Wait()
				old, young := b.segment(1, 2), b.segment(1, 3)
				old.Deadline, young.Deadline = old.Deadline+time.Hour, young.Deadline+time.Hour
				stale := b.send(old)
				time.Sleep(5 * time.Minute)
				young.ID, young.Minted = b.mint(segment.ID{}, class), lane.Now(b.env)
				fresh := b.send(young)
				b.check(<-first, nil)
				r := <-stale
				b.check(r, r.Err)
				if r.Err == nil || name == "the put fails" && !errors.Is(r.Err, broken) {
					t.Errorf("%v", r.Err)
				}
				r = <-fresh
				b.check(r, nil)
				if !errors.Is(r.Slots[0].Err, lane.ErrPriorFailed) || r.Slots[1].Err != nil {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// A new id that is not to be had in time is a matter of the deadline, and of Close when that gives up: not of whatever the put was told.
func TestBR13_RemintCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		want error
		end  func(b *bench)
	}{
		"by the deadline": {lane.ErrDeadline, func(*bench) {}},
		"by Close": {lane.ErrClosed, func(b *bench) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			b.writer.Close(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				b.config.Remint = func(ctx context.Context, _ *lane.Segment, _ segment.ID, _ segment.Class) error {
					<-ctx.Done()
					return ctx.Err()
				}
				b.writer = lane.New(b.config)
				b.setConfig(2, 30)
				result := b.send(b.segment(1))
				c.end(b)
				b.check(<-result, c.want)
			})
		})
	}
}
