package metadata

import (
	"context"

	"github.com/varvelog/varve/segment"
)

// RowReader reads archive rows.
type RowReader interface {
	// Row returns the last row with a base at or below the offset, or ErrNoRow. Whether the offset is in it its End tells.
	Row(ctx context.Context, topic segment.TopicID, partition int, offset int64, c Consistency) (*Row, error)
	// Rows returns the rows with bases in [from, to), ascending, at most limit, in one request; fewer than limit only when there are no more in the range or
	// the service's page was full (then more is true).
	Rows(ctx context.Context, topic segment.TopicID, partition int, from, to int64, limit int, c Consistency) (rows []*Row, more bool, err error)
}

// Publisher publishes archive segments.
type Publisher interface {
	// Publish applies the publication in one transaction. ErrChanged: refused, by the state (archived order, class) or by a row; *StaleError if it was the floor; ErrNoState when the
	// lane is gone. After ErrUnavailable, and after ErrChanged where an answer may have been lost, a strong read of a row tells whether it was applied. It may
	// be applied late, if the conditions hold then, and does no harm: what it points to is not deleted before the floor has refused it.
	Publish(ctx context.Context, p *Publication) error
}

// KeyCleaner keeps how far key compaction is.
type KeyCleaner interface {
	// SetCleaned sets what the lane's state says of the slot, if that is still as it was read: otherwise ErrChanged. ErrNoState when the lane is gone.
	SetCleaned(ctx context.Context, lane LaneID, slot Slot, was, now Cleaning) error
}

// Sweeper has the single steps of the sweep; their order is its business (package sweep). Only it may take the steps that remove.
type Sweeper interface {
	// RaiseFloor raises LOG|FLOOR, and RaiseHeadFloor and RaiseStateFloor those of a lane; lower or equal is left as it is. ErrNoLane and ErrNoState where there
	// is no such item (any more).
	RaiseFloor(ctx context.Context, floor segment.ID) error
	RaiseHeadFloor(ctx context.Context, lane LaneID, floor segment.ID) error
	RaiseStateFloor(ctx context.Context, lane LaneID, floor segment.ID) error

	// SweepMark is how far orphans have been looked for, zero before the first time. SetSweepMark replaces it, unless it is further on by now.
	SweepMark(ctx context.Context) (SweepMark, error)
	SetSweepMark(ctx context.Context, m SweepMark) error

	// Replaced returns entries of the work list with this hash (two hexadecimal digits) and ids in (after, before), ascending, at most limit, by a strong read.
	Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) (entries []*Replaced, more bool, err error)
	// DeleteReplaced removes an entry of the work list, when all that it names has been seen to.
	DeleteReplaced(ctx context.Context, id segment.ID) error

	// SetFirst raises the first order of the lane that is kept; lower or equal is left as it is. Returns the state after it.
	SetFirst(ctx context.Context, lane LaneID, first int64) (*State, error)
	// DeleteChunks removes the chunks with first orders in [from, to), a multiple of the orders in a chunk apart: to must not be above the state's First.
	DeleteChunks(ctx context.Context, lane LaneID, from, to int64) error
	// DeleteRows removes rows that are still as they were read; others stay.
	DeleteRows(ctx context.Context, rows []*Row) error
	// DeleteSmall removes small segments; those that are not there count as removed.
	DeleteSmall(ctx context.Context, ids []segment.ID) error
}

// SmallSegments keeps segments in the table.
type SmallSegments interface {
	// PutSmall creates the segment, of at most MaxSmallBytes. The same bytes there already are nil; others are ErrChanged.
	PutSmall(ctx context.Context, id segment.ID, body []byte) error
	// Small returns the segment by a strong read, or ErrNoSegment.
	Small(ctx context.Context, id segment.ID) ([]byte, error)
	// SmallIDs returns the ids with this hash in (after, before), ascending, at most limit, by a strong read.
	SmallIDs(ctx context.Context, hash string, after, before segment.ID, limit int) (ids []segment.ID, more bool, err error)
}

// MaxSmallBytes is the largest segment that an item can hold, with room for its key.
const MaxSmallBytes = 256 << 10

// ArchiveTable is all of it.
type ArchiveTable interface {
	RowReader
	Publisher
	KeyCleaner
	Sweeper
	SmallSegments
}
