// Package topics has the order of the steps by which topics are created, changed and deleted. Each step is one
// conditional write of metadata.TopicWriter; a process may die between any two, and another one finishes:
//
//   - create: one transaction. Nothing is left behind by a crash.
//   - change (configuration, growth): the topic's row with version n+1 first, then every head gets that version, which refuses each
//     writer once and so makes it read the row, and after it the lane's state, which refuses what a compactor wrote by the old row to another
//     class. A crash leaves lanes of the old version; the next change, or Finish, completes them.
//   - delete: one transaction takes the name row away and puts a GONE row; then the heads go, so that nothing more can be committed;
//     after a grace, the rest; and once more an hour later, for what a stalled process may have put meanwhile. Clean does the last
//     three, and goes on wherever another process stopped.
//
// The row comes before the heads, because a writer that is refused by a head reads the row: were the head first, it could read the
// old row and believe it was up to date. The name row goes before the heads, because a head that is gone means "the topic was
// deleted", which must then be true.
package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Table is what the steps need of the table.
type Table interface {
	metadata.HeadReader
	metadata.TopicReader
	metadata.TopicWriter
	Floor(ctx context.Context) (segment.ID, error)
	ServiceTime() (now time.Time, ok bool)
}

// Keeper takes the steps. It holds no state: any number, in any number of processes, may work on one table.
type Keeper struct {
	table Table
	env   env.Env
}

// New returns a keeper of the table's topics.
func New(t Table, e env.Env) *Keeper { return &Keeper{table: t, env: e} }

// Limits of a topic.
const (
	MaxLaneWidth  = metadata.SlotsPerLane
	MaxPartitions = metadata.MaxLanes * MaxLaneWidth
)

// settleFor bounds a step that is decided anew because its outcome was unknown or others changed what it depends on. The adapter has repeated each
// request for a while itself.
const settleFor = time.Minute

// again runs step until its outcome is definite, with jittered waits. step reads before it writes, so that it sees whether an earlier attempt of
// its own was applied.
func (k *Keeper) again(ctx context.Context, step func() error) error {
	start, wait := k.env.Mono(), 20*time.Millisecond
	for {
		err := step()
		if !open(err) || k.env.Mono()-start >= settleFor {
			return err
		}
		if e := k.env.Sleep(ctx, k.env.Jitter(wait)); e != nil {
			return fmt.Errorf("%w (gave up: %w)", err, e)
		}
		wait = min(2*wait, time.Second)
	}
}

// open tells whether a step that ended like this may have been applied, or may well succeed when decided anew.
func open(err error) bool {
	for _, condition := range []error{metadata.ErrOutcomeUnknown, metadata.ErrUnavailable, metadata.ErrChanged, metadata.ErrContended, metadata.ErrThrottled} {
		if errors.Is(err, condition) {
			return true
		}
	}
	return false
}

// newID is 12 random characters of 0-9a-v: 60 bits.
func (k *Keeper) newID() string {
	const alphabet = "0123456789abcdefghijklmnopqrstuv"
	var b [12]byte
	r := k.env.Uint64()
	for i := range b {
		b[i] = alphabet[r&31]
		r >>= 5
	}
	return string(b[:])
}

func (k *Keeper) newLanes(n int) []metadata.LaneID {
	lanes := make([]metadata.LaneID, n)
	for i := range lanes {
		lanes[i] = metadata.LaneID(k.newID())
	}
	return lanes
}

// addClass is classes with c, without repeats.
func addClass(classes []segment.Class, c segment.Class) []segment.Class {
	if slices.Contains(classes, c) {
		return classes
	}
	return append(slices.Clone(classes), c)
}
