package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// An offset or a note that nobody can commit is refused by name, and keeps nothing else from being committed; all or none stays so.
func TestCommitsThatMakeNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 10)
		c := b.joins(sdk.ManualCommit())
		b.takes(c)
		next := int64(1)
		for what, o := range map[string]sdk.CommitOffset{
			"-1":             {Offset: -1},
			"-7":             {Offset: -7},
			"a long note":    {Offset: 5, Metadata: strings.Repeat("x", 257)},
			"a note of junk": {Offset: 5, Metadata: "\xff"},
		} {
			offsets := map[sdk.TopicPartition]sdk.CommitOffset{tp("t", 0): o, tp("t", 1): {Offset: next}}
			for how, err := range map[string]error{"at once": c.CommitAtomic(b.ctx, offsets), "one by one": c.CommitOffsets(b.ctx, offsets)} {
				var bad *sdk.FieldError
				if !errors.As(err, &bad) || bad.Topic != "t" || bad.Partition != 0 {
					t.Errorf("%s, %s: %v", what, how, err)
				}
			}
			if p := b.describe("g", sdk.Earliest).Partitions; p[0].Committed != 0 || p[0].Metadata != "" || p[1].Committed != next {
				t.Errorf("%s: committed %d %q and %d, want 0 and %d", what, p[0].Committed, p[0].Metadata, p[1].Committed, next)
			}
			next++
		}
		check(t, c.Close(b.ctx))
	})
}

// An error that halts a partition is told once, also where that is all that is held of its topic: other topics are read, without it coming up again, and the
// partition from where a Seek says.
func TestHaltedIsToldOnce(t *testing.T) {
	for what, halt := range map[string]func(b *bench) error{
		"a commit past the end": func(b *bench) error {
			c := b.joins(sdk.ManualCommit())
			b.takes(c)
			check(b.t, c.CommitOffsets(b.ctx, upTo(0, 1000)))
			check(b.t, c.Close(b.ctx))
			return sdk.ErrOutOfRange
		},
		"a hole": func(b *bench) error {
			name := b.write("t", map[int][][]segment.Record{0: {numbers(10, 5)}})
			b.remove([]string{name})
			return sdk.ErrCorrupt
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			for _, topic := range []string{"t", "u"} {
				b.create(topic, 1, 64)
				b.fill(topic, 1, 10)
			}
			want := halt(b)
			c, err := reach(t, b.log, nil).NewConsumer(b.ctx, "g", []string{"t", "u"}, sdk.ManualCommit(), sdk.Reading(sdk.WithWait(time.Second)))
			check(t, err)
			var told []error
			read := map[string]int{}
			polls := func() {
				for range 10 {
					fetches, err := c.Poll(b.ctx)
					if err != nil {
						told = append(told, err)
					}
					for _, f := range fetches {
						read[f.Topic] += len(f.Records)
					}
				}
			}
			began := time.Now()
			polls()
			if len(told) != 1 || !errors.Is(told[0], want) || read["u"] != 10 {
				t.Errorf("%s: told %v, read %v", what, told, read)
			}
			if time.Since(began) < 5*time.Second {
				t.Errorf("%s: polls have not waited for records", what)
			}
			b.fill("u", 1, 10)
			check(t, c.Seek(tp("t", 0), 8))
			before := read["t"]
			polls()
			if read["u"] != 20 || read["t"] == before {
				t.Errorf("%s: after a seek: told %v, read %v", what, told, read)
			}
			check(t, c.Close(b.ctx))
		})
	}
}

// What OnAssigned is told of is the member's already: it can be paused and sought before a record of it comes, and its epoch is known.
func TestOnAssignedMayPauseAndSeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 3, 64)
		b.fill("t", 3, 10)
		var c *sdk.Consumer
		c = b.joins(sdk.ManualCommit(), sdk.OnAssigned(func(_ context.Context, all []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
			check(t, c.Pause(tp("t", 0)))
			check(t, c.Seek(tp("t", 1), 5))
			if epoch, err := c.Epoch(tp("t", 2)); err != nil || epoch < 1 {
				t.Errorf("epoch %d, %v", epoch, err)
			}
			if held := c.Assignment(); !slices.Equal(held, all) || len(all) != 3 {
				t.Errorf("told of %v, holds %v", all, held)
			}
			return nil
		}))
		first := map[int]int64{}
		polls := func() string {
			for range 5 {
				fetches, err := c.Poll(b.ctx)
				check(t, err)
				for _, f := range fetches {
					if _, known := first[f.Partition]; !known {
						first[f.Partition] = f.Records[0].Offset
					}
				}
			}
			return fmt.Sprint(first)
		}
		if got := polls(); got != "map[1:5 2:0]" {
			t.Errorf("first offsets by partition: %v", got)
		}
		check(t, c.Resume(tp("t", 0)))
		if got := polls(); got != "map[0:0 1:5 2:0]" {
			t.Errorf("resumed: %v", got)
		}
		check(t, c.Close(b.ctx))
	})
}

// A start below 0, which some stores hold where there is none, is an error once, and no start: the partition waits for a Seek.
func TestOnAssignedReturnsNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 10)
		c := b.joins(sdk.ManualCommit(), sdk.OnAssigned(func(context.Context, []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
			return map[sdk.TopicPartition]int64{tp("t", 0): -1, tp("t", 1): 3}
		}))
		_, err := c.Poll(b.ctx)
		var bad *sdk.FieldError
		if !errors.As(err, &bad) || bad.Topic != "t" || bad.Partition != 0 || bad.Value != "-1" {
			t.Errorf("told %v", err)
		}
		if got := b.takes(c); len(got) != 0 {
			t.Errorf("read %v", got)
		}
		check(t, c.Seek(tp("t", 0), 4))
		if got := span(t, b.takes(c)); got != [2]int64{4, 9} {
			t.Errorf("sought, read %v", got)
		}
		check(t, c.Close(b.ctx))
	})
}

// A producer of another log cannot take part in a step: that is said, and the partition stays.
func TestStepWantsOneLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.create("out", 1, 64)
		b.fill("t", 1, 10)
		c := b.joins(sdk.ManualCommit())
		b.takes(c)
		other, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(embedded.Driver()))
		check(t, err)
		_, err = other.Admin().CreateTopic(b.ctx, sdk.NewTopic{Name: "out"})
		check(t, err)
		for _, log := range []*sdk.Log{other, b.open()} {
			p, err := log.NewProducer()
			check(t, err)
			err = c.Step(b.ctx, p, upTo(0, 5), &sdk.Record{Topic: "out"})
			if log == other && !errors.Is(err, sdk.ErrInvalid) || log != other && err != nil || len(c.Assignment()) != 1 {
				t.Errorf("another log's %v: %v; it holds %v", log == other, err, c.Assignment())
			}
			check(t, p.Close(b.ctx))
		}
		check(t, c.Close(b.ctx))
		check(t, other.Close())
	})
}

// When something was committed is told by the service's time, whatever the member's clock says: by it is told who may have missed tombstones.
func TestCommitTimeIsTheServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 10)
		for _, skew := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
			log := b.openAt(skew)
			c, err := reach(t, log, nil).NewConsumer(b.ctx, fmt.Sprint("g", skew), []string{"t"}, sdk.ManualCommit(), sdk.Reading(sdk.WithWait(time.Second)))
			check(t, err)
			b.takes(c)
			check(t, c.CommitOffsets(b.ctx, upTo(0, 5)))
			check(t, c.CommitAtomic(b.ctx, upTo(1, 5)))
			check(t, c.Close(b.ctx))
			at := func() (all []time.Time) {
				d := b.describe(fmt.Sprint("g", skew), sdk.Earliest)
				return []time.Time{d.Created, d.Partitions[0].CommittedAt, d.Partitions[1].CommittedAt}
			}
			all := at()
			_, err = log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: fmt.Sprint("g", skew), To: sdk.ResetTo{Position: sdk.Earliest}})
			check(t, err)
			for _, at := range append(all, at()[1:]...) {
				if off := time.Since(at).Abs(); off > time.Minute {
					t.Errorf("a clock that is %v off: %v is off by %v", skew, at, off)
				}
			}
		}
	})
}

// What is refused leaves no group behind.
func TestRefusedMemberMakesNoGroup(t *testing.T) {
	b := newBench(t)
	for what, opts := range map[string][]sdk.ConsumerOption{
		"instance": {sdk.WithInstanceID("a/b")},
		"pattern":  {sdk.SubscribePattern("a)|(b")},
		"client":   {sdk.WithClientName("\xff")},
		"nothing":  nil,
	} {
		if _, err := reach(t, b.log, nil).NewConsumer(b.ctx, "g", nil, opts...); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := b.log.Admin().ListGroups(b.ctx); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// All methods but Poll may be called beside it, and beside a Close: what comes of it is one of their errors, and nothing is committed that is not there.
func TestConsumerUsedByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 4, 2)
		b.fill("t", 4, 50)
		for life := range 4 {
			c := b.joins(sdk.AutoCommit(time.Second), sdk.WithSessionTimeout(2*time.Second))
			other := eat(t, b.open(), "g", []string{"t"}, sdk.WithSessionTimeout(2*time.Second))
			var all sync.WaitGroup
			ended := make(chan struct{})
			use := func(do func(at sdk.TopicPartition) error) {
				all.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-ended:
							return
						default:
						}
						err := do(tp("t", n%4))
						if err != nil && !errors.Is(err, sdk.ErrNotHeld) && !errors.Is(err, sdk.ErrBehind) && !errors.Is(err, sdk.ErrClosed) {
							t.Error(err)
						}
						time.Sleep(17 * time.Millisecond)
					}
				})
			}
			use(func(sdk.TopicPartition) error { _, err := c.Poll(b.ctx); return err })
			use(func(sdk.TopicPartition) error { return c.Commit(b.ctx) })
			use(func(at sdk.TopicPartition) error {
				return c.CommitOffsets(b.ctx, map[sdk.TopicPartition]sdk.CommitOffset{at: {Offset: 20}})
			})
			use(func(at sdk.TopicPartition) error { return c.Pause(at) })
			use(func(at sdk.TopicPartition) error { return c.Resume(at) })
			use(func(at sdk.TopicPartition) error { return c.Seek(at, 10) })
			use(func(at sdk.TopicPartition) error { _, err := c.Epoch(at); c.Assignment(); return err })
			time.Sleep(time.Duration(life+1) * 2 * time.Second / raceHalf)
			check(t, c.Close(b.ctx))
			time.Sleep(time.Second)
			close(ended)
			all.Wait()
			other.close(t)
		}
		for _, p := range b.describe("g", sdk.Earliest).Partitions {
			if p.Committed < 20 || p.Committed > 50 || p.Owner != "" {
				t.Errorf("%+v", p)
			}
		}
	})
}
