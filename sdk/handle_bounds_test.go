package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// What waits for blocked handlers is bounded for all partitions together, and goes on in order when they are not blocked any more (BR-30).
func TestHandleBoundsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, each, size = 3, 52, 512 << 10
		const bound = 64<<20 + 1<<20 + 2*4<<20 // of Handle, what one poll brings, and the reader's buffer, raw and decoded
		b := newBench(t)
		b.create("t", partitions, 64)
		value := make([]byte, size)
		random := rand.NewChaCha8([32]byte{})
		random.Read(value)
		batch := b.encode([]segment.Record{{Timestamp: 1, Value: value}})
		for range each {
			for p := range partitions {
				b.writeBatches("t", map[int][][]byte{p: {batch}})
			}
		}
		b.counts.take()
		var seen handled
		blocked := make(chan struct{})
		stop := handle(b, func(ctx context.Context, r *sdk.Record) error {
			select {
			case <-blocked:
			case <-ctx.Done():
				return ctx.Err()
			}
			seen.note(r)
			return nil
		}, sdk.Consuming(sdk.Reading(sdk.WithReadBuffer(4<<20), sdk.WithPollBytes(1<<20))))
		time.Sleep(10 * time.Minute)
		_, gets := b.counts.take()
		t.Logf("blocked for 10 min: %d of %d objects of 512 KiB were read, the bound allows %d", gets, partitions*each, bound/size)
		if gets > bound/size || gets < 100 {
			t.Error("more than may wait, or next to nothing")
		}
		close(blocked)
		time.Sleep(5 * time.Minute)
		next := map[int]int{}
		for _, s := range seen.list() {
			var at sdk.TopicPartition
			offset := parse(t, s, &at)
			if offset != next[at.Partition] {
				t.Fatalf("%s, but %d is next", s, next[at.Partition])
			}
			next[at.Partition]++
		}
		if len(next) != partitions || next[0] != each || next[1] != each || next[2] != each {
			t.Errorf("handled %v", next)
		}
		stop()
	})
}

// A Handle that another process has fenced returns when its handlers have ended.
func TestHandleFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 5)
		var running atomic.Int32
		ended := make(chan error, 1)
		go func() {
			err := b.log.Handle(b.ctx, "g", []string{"t"}, func(ctx context.Context, _ *sdk.Record) error {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				time.Sleep(5 * time.Second) // it needs a while to stop
				return ctx.Err()
			}, sdk.Consuming(sdk.WithInstanceID("x")))
			if n := running.Load(); n > 0 {
				t.Errorf("%d handlers run on", n)
			}
			ended <- err
		}()
		time.Sleep(10 * time.Second)
		second := eat(t, b.open(), "g", []string{"t"}, sdk.WithInstanceID("x"))
		if err := <-ended; !errors.Is(err, sdk.ErrFenced) {
			t.Error(err)
		}
		second.close(t)
	})
}

// A handler that does not listen when its partition is lost stalls the others for the revoke time-out, and no longer.
func TestHandlerThatDoesNotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.fill("t", 2, 5)
		var seen handled
		deaf := make(chan struct{})
		var once atomic.Bool
		stop := handle(b, func(_ context.Context, r *sdk.Record) error {
			if r.Partition == 0 && once.CompareAndSwap(false, true) {
				<-deaf
			}
			seen.note(r)
			return nil
		}, sdk.Consuming(sdk.WithRevokeTimeout(20*time.Second)))
		time.Sleep(10 * time.Second)
		_, err := b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", Partitions: []int{0}, Force: true, To: sdk.ResetTo{Position: sdk.AtOffset(2)}})
		check(t, err)
		b.fill("t", 2, 5)
		time.Sleep(40 * time.Second)
		n := map[int]int{}
		for _, s := range seen.list() {
			var at sdk.TopicPartition
			parse(t, s, &at)
			n[at.Partition]++
		}
		if n[0] != 8 || n[1] != 10 {
			t.Errorf("handled %v of the partitions, want 8 from the reset on, and 10", n)
		}
		close(deaf)
		stop()
	})
}

// parse reads what handled has noted.
func parse(t *testing.T, s string, at *sdk.TopicPartition) (offset int) {
	t.Helper()
	if _, err := fmt.Sscanf(s, "t/%d@%d", &at.Partition, &offset); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return offset
}
