// Package lane is the writer's side of the commit protocol: it appends segments to one lane in the order in which
// they were accepted, settles what has an unknown outcome, and spills the head.
//
// What it guarantees to its owner: a segment is committed at most once, whatever is repeated, lost or late; a
// segment reported as failed is not in the log and never will be; one that may be is reported as ErrUnknown; and
// for each slot the batches that are in the log are in the order in which they were accepted, where nothing
// accepted before a failure follows it.
//
// The commit point is the conditional update of the head (Sequencer.Commit). Before it the segment's bytes are
// durable and nothing refers to them; a crash after it leaves everything of the lane in that segment in the log,
// though nobody was told.
package lane

import (
	"context"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Table is what a Writer needs of the table.
type Table interface {
	metadata.LaneReader
	metadata.Sequencer
	// ServiceTime is metadata.LogKeeper's.
	ServiceTime() (now time.Time, ok bool)
}

// DefaultSettleBudget is how long beyond a segment's deadline the settlement of its last attempt may take.
const DefaultSettleBudget = 30 * time.Second

// Config is everything a Writer is made from.
type Config struct {
	Lane   metadata.LaneID
	Table  Table
	Env    env.Env
	Writer int // fence epoch, see metadata.EpochOf

	// SettleBudget is how long after a segment's deadline its outcome may still be settled before it is
	// given up as ErrUnknown. 0 is DefaultSettleBudget.
	SettleBudget time.Duration

	// Remint mints an id above the given one, of the given class, puts the segment's bytes again under it, and when
	// that is durable sets s.ID, s.Minted and the MaxTimes of s.Slots, which depend on the id. It is called when the
	// segment has become too old, the floor has passed its id, or its class is no longer the lane's; nothing has
	// been committed under the old id, and nothing will be. An error fails the segment. ctx ends at the deadline.
	Remint func(ctx context.Context, s *Segment, above segment.ID, class segment.Class) error
	// Refresh is called when the head shows a config version above any that a segment or Refresh brought: it reads
	// the topic row strongly and returns the version read. An error that is not transient (the topic is gone) fails
	// the segment.
	Refresh func(ctx context.Context, seen int64) (version int64, err error)
	// Gone, if set, is why a slot is no partition any more by the row that Refresh has read last, or nil: the topic's growth can be forgotten by a table that was put back to an
	// earlier moment. What a segment of an earlier version has of such a slot is withdrawn.
	Gone func(slot metadata.Slot) error
	// OnImage, if set, is given every image of the head that the Writer sees, from several goroutines and not
	// always in order; it must not block or change it. Readers of the process learn of commits by it.
	OnImage func(*metadata.Head)
	Hooks   Hooks
}

// Segment is one segment's part in the lane.
type Segment struct {
	ID       segment.ID
	Start    int64                // byte offset in the segment of the first slot's batches
	Slots    []metadata.SlotEntry // as in metadata.Entry, counts above 0; for the slots that were reserved
	Minted   metadata.Stamp       // when ID was minted, by Config.Env (see Now)
	Version  int64                // config version of the topic row from which ID's class was taken
	Deadline time.Duration        // on Env's monotonic clock; no attempt is started after it
	Expect   []metadata.Expect    // with these or Tokens, the segment goes in an update of its own
	Tokens   []metadata.Token
	// Producers are the requests in it that may be repeated by anybody; each producer once, and Entry is not used. The head admits all of them, or the segment fails with
	// a *ProducersError.
	Producers []metadata.ProducerStep
	Owner     any // for the owner's use
}

// Now is this moment on both clocks.
func Now(e env.Env) metadata.Stamp { return metadata.Stamp{Wall: e.Now(), Mono: e.Mono()} }

// Result is what became of a segment. Err nil: it is in the log, except slots that have an error of their own.
type Result struct {
	ID       segment.ID // the last one it had
	Order    int64      // of its entry in the lane
	Slots    []SlotResult
	Attempts int
	Err      error
}

// SlotResult is what became of one slot's batches.
type SlotResult struct {
	Slot metadata.Slot
	Base int64 // offset of the first record
	Err  error // not nil: not appended, or for ErrUnknown perhaps
}
