package lane

import (
	"time"

	"github.com/varvelog/varve/metadata"
)

// Hooks observe a Writer. Each may be nil; they are called inline and must return at once.
type Hooks struct {
	Commit func(CommitEvent)
	Settle func(SettleEvent)
	Spill  func(SpillEvent)
	// Throttled is told the wait that begins because the table throttles: a reason to gather more per segment.
	Throttled func(wait time.Duration)
}

// CommitEvent is one answered attempt.
type CommitEvent struct {
	Lane     metadata.LaneID
	Segments int // in this update
	Attempt  int // 1 is the first of its first segment
	Duration time.Duration
	Err      error           // nil: applied
	Reason   metadata.Reason // when Err is a *metadata.RefusedError. ReasonEpoch: the fence of another writer that shares the epoch
}

// SettleEvent is the end of a settlement.
type SettleEvent struct {
	Lane     metadata.LaneID
	Branch   Branch
	Duration time.Duration
}

// Branch is how an unknown outcome was settled.
type Branch string

// Branches.
const (
	FoundInHead  Branch = "found in head"
	FoundInChunk Branch = "found in chunk"
	NotApplied   Branch = "committed again" // or failed, if its deadline has passed
	Unknown      Branch = "unknown"
)

// SpillEvent is the end of a spill.
type SpillEvent struct {
	Lane      metadata.LaneID
	Chunks    int
	ByAnother bool // another had spilled these orders
	Duration  time.Duration
	Err       error // the entries stay in the head
}

func (h *Hooks) commit(e CommitEvent) {
	if h.Commit != nil {
		h.Commit(e)
	}
}

func (h *Hooks) settle(e SettleEvent) {
	if h.Settle != nil {
		h.Settle(e)
	}
}

func (h *Hooks) spill(e SpillEvent) {
	if h.Spill != nil {
		h.Spill(e)
	}
}

func (h *Hooks) throttled(wait time.Duration) {
	if h.Throttled != nil {
		h.Throttled(wait)
	}
}
