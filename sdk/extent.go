package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// objectOf is where an extent's bytes are.
func objectOf(e walk.Extent) objects.Segment { return objects.Of(e.Topic, e.ID) }

// indexTime is the timestamp by which the index knows a record of the extent. In the archive, where a record's own append time is not known, it is that of
// the extent's last: it may be later than the index once said, by as much as the extent's append times are apart.
func indexTime(e *walk.Extent, timestamp int64) int64 { return metadata.IndexTimeAt(timestamp, e.Last) }

// wanted is the range to read for the bytes of an extent from byte at of it on. Of intake it is the whole extent, or all of its lane's bytes if those are
// few, so that whoever reads another partition shares them. An archive extent may be large: it is read in as few ranges as there can be of at most atMost bytes, or
// an eighth more, all about as large, so that no request is for little.
func wanted(e walk.Extent, at, atMost int64) byteRange {
	switch {
	case e.Archived():
		left := e.Bytes - at
		limit := atMost + atMost/8 // extents that compaction ends at 8 MiB are a little larger
		ranges := max((left+limit-1)/limit, 1)
		return byteRange{objectOf(e), e.Start + at, (left + ranges - 1) / ranges}
	case e.LaneLength <= wholeBytes:
		return byteRange{objectOf(e), e.LaneStart, e.LaneLength}
	}
	return byteRange{objectOf(e), e.Start, e.Bytes}
}

// decodeBase is what offsets in the extent's batches count from.
func decodeBase(e walk.Extent) int64 {
	if e.Archived() {
		return 0
	}
	return e.Base
}

// An archive extent is read in ranges of up to half of the reader's buffer, within these bounds. Each request costs a store as much as half a MiB of it, or more; and while one
// half is handed out, the other comes.
const (
	minRange = 64 << 10
	maxRange = 8 << 20
)

// errHole is an object that the index names twice, the second time by strong reads, and that is not there.
var errHole = errors.New("the object is missing")

// refetch looks an extent up again, strongly, after its object was not found: a log start or the archive may have overtaken it. If the same segment is named
// again, the error is hole's. There is at least one extent without an error.
func (l *Log) refetch(ctx context.Context, t *metadata.Topic, c walk.Cursor, e walk.Extent, missing error) ([]walk.Extent, walk.Cursor, error) {
	extents, next, err := l.walker.Again(ctx, c)
	switch {
	case err != nil:
		return nil, c, err
	case len(extents) == 0:
		return nil, c, fmt.Errorf("%w: offset %d was in a commit and is at the end now", metadata.ErrCorrupt, c.Offset)
	case extents[0].ID == e.ID:
		return nil, c, l.hole(ctx, t, c, extents, next, missing)
	}
	return extents, next, nil
}

// hole says what it means that an object is missing which strong reads name. If all of its records have expired, nothing is damaged: the lifecycle rule of its
// class was faster than whoever moves log starts. The error is then a *walk.RangeError whose start is the first extent that has not expired. Anything else is
// errHole. extents are those from the cursor on, and next is the cursor after them.
func (l *Log) hole(ctx context.Context, t *metadata.Topic, c walk.Cursor, extents []walk.Extent, next walk.Cursor, missing error) error {
	row, err := l.table.Topic(ctx, t.Name) // its retention may be another since the reader began
	switch {
	case errors.Is(err, metadata.ErrUnknownTopic), err == nil && row.ID != t.ID:
		return metadata.ErrNoLane
	case err != nil:
		return err
	}
	now, ok := l.table.ServiceTime()
	expired := func(e walk.Extent) bool { return ok && metadata.Expired(e.Last, now, row.KeepFor(e.ID)) }
	if !expired(extents[0]) {
		return fmt.Errorf("%w: %w", errHole, missing)
	}
	_, head, err := l.walker.Bounds(ctx, c.Lane)
	for err == nil && len(extents) > 0 {
		if stays := slices.IndexFunc(extents, func(e walk.Extent) bool { return !expired(e) }); stays >= 0 {
			return &walk.RangeError{Offset: c.Offset, Start: extents[stays].Base, End: head.Ends[c.Slot], Err: walk.ErrExpired}
		}
		extents, next, err = l.walker.Next(ctx, next)
	}
	if err != nil {
		return err
	}
	return &walk.RangeError{Offset: c.Offset, Start: next.Offset, End: max(next.Offset, head.Ends[c.Slot]), Err: walk.ErrExpired}
}
