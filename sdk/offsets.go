package sdk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// PartitionOffsets is a partition's log start and end: valid offsets are [Start, End).
type PartitionOffsets struct {
	Partition int   `json:"partition"`
	Start     int64 `json:"start"`
	End       int64 `json:"end"`
	// Cuts are the ranges, ascending, that repairs of the log have cut out: offsets in them were given and stand for no record any more.
	Cuts []OffsetRange `json:"cuts,omitempty"`
	// Removed tells, of a topic whose keys are compacted, which tombstones are no longer there, if any were removed.
	Removed *RemovedTombstones `json:"removed_tombstones,omitempty"`
}

// RemovedTombstones: of tombstones below an offset some were removed, the last of them at a time. Who had read by then, but not beyond that offset, may have missed some.
type RemovedTombstones struct {
	Below int64     `json:"below"`
	Until time.Time `json:"until"`
}

// OffsetRange is the offsets [From, To).
type OffsetRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// bounds is a partition's offsets, its cuts, and which tombstones were removed.
type bounds struct {
	Partition  int
	Start, End int64
	cuts       metadata.Cuts
	cleaned    metadata.Cleaning
}

// laneBounds calls do for the partitions of a lane.
func laneBounds(t *metadata.Topic, state *metadata.State, head *metadata.Head, do func(bounds)) {
	for slot := range metadata.Slot(metadata.SlotsPerLane) {
		if p, ok := t.Partition(metadata.Place{Lane: state.Lane, Slot: slot}); ok {
			do(bounds{p, state.Starts[slot], head.Ends[slot], state.SlotCuts(slot), state.Cleaned[slot]})
		}
	}
}

// missed is how far tombstones were removed since an offset was reached at some time, if who goes on there may have missed some; otherwise 0.
func (b *bounds) missed(offset int64, at time.Time) int64 {
	if offset > b.Start && b.cleaned.Missed(offset, at) {
		return b.cleaned.Purged
	}
	return 0
}

// public is the bounds as users see them.
func (b *bounds) public() PartitionOffsets {
	o := PartitionOffsets{Partition: b.Partition, Start: b.Start, End: b.End}
	for _, c := range b.cuts {
		o.Cuts = append(o.Cuts, OffsetRange{c.From, c.To})
	}
	if b.cleaned.Purged > 0 {
		o.Removed = &RemovedTombstones{b.cleaned.Purged, b.cleaned.Until}
	}
	return o
}

// parallelReads is how many lanes or partitions are asked about at once where many are.
const parallelReads = 8

// offsets returns start, end and cuts of all partitions of the topic, in order, as strong reads show them: one of the state and one of the head per lane.
func (l *Log) offsets(ctx context.Context, t *metadata.Topic) ([]bounds, error) {
	if l.remote != nil {
		return l.remote.offsets(ctx, t)
	}
	offsets := make([]bounds, t.Partitions)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for _, lane := range t.Lanes {
		g.Go(func() error {
			state, head, err := l.walker.Bounds(ctx, lane)
			if err != nil {
				return err
			}
			laneBounds(t, state, head, func(b bounds) { offsets[b.Partition] = b })
			return nil
		})
	}
	return offsets, g.Wait()
}

// recordAt is the extent of the record at the offset, or of the next that is left; in the archive it may begin below the offset. Nil when there is none.
func (l *Log) recordAt(ctx context.Context, t *metadata.Topic, partition int, offset int64) (*walk.Extent, error) {
	for c := walk.At(t, partition, offset).Arrived(); ; {
		extents, next, err := l.walker.Next(ctx, c)
		var outside *walk.RangeError
		switch {
		case errors.As(err, &outside), err == nil && len(extents) == 0: // retention was faster, or an eventual read does not show it yet
			return nil, nil
		case err != nil:
			return nil, l.readError(ctx, t, partition, walk.Extent{}, err)
		}
		for i := range extents {
			if extents[i].Count > 0 {
				return &extents[i], nil
			}
		}
		c = next
	}
}

// offsetForTime returns the first offset of the partition whose index timestamp is at or after at, or ErrNoOffset. See AtTime.
func (l *Log) offsetForTime(ctx context.Context, t *metadata.Topic, partition int, at time.Time) (int64, error) {
	ms := at.Add(time.Millisecond - 1).UnixMilli() // records have whole milliseconds
	from := int64(0)
	for {
		e, first, err := l.walker.FindTime(ctx, walk.At(t, partition, from), ms)
		if errors.Is(err, walk.ErrNone) {
			return 0, fmt.Errorf("topic %q partition %d: %w: %v", t.Name, partition, ErrNoOffset, at)
		}
		if err != nil {
			return 0, l.readError(ctx, t, partition, e, err)
		}
		offset, found, err := l.firstAtTime(ctx, t, partition, e, first, ms)
		var outside *RangeError
		switch {
		case errors.As(err, &outside) && outside.Err == ErrExpired:
			from = outside.Start // its object went before the log start had moved
		case found || err != nil:
			return offset, err
		default:
			from = e.End
		}
	}
}

// firstAtTime looks for the time among an extent's records from offset first on. If its object is gone it looks at what the extent's offsets are in now.
func (l *Log) firstAtTime(ctx context.Context, t *metadata.Topic, partition int, e walk.Extent, first, ms int64) (offset int64, found bool, err error) {
	for end := e.End; ; {
		offset, found, err = l.searchExtent(ctx, t, partition, e, first, ms)
		var extents []walk.Extent
		switch {
		case errors.Is(err, store.ErrNotExist):
			extents, _, err = l.refetch(ctx, t, walk.At(t, partition, first), e, err)
		case err != nil, found, e.End >= end:
			return offset, found, err
		default:
			first = e.End
			extents, _, err = l.walker.Next(ctx, walk.At(t, partition, first))
		}
		if err != nil {
			return 0, false, l.readError(ctx, t, partition, e, err)
		}
		if len(extents) == 0 {
			return 0, false, nil
		}
		e = extents[0]
	}
}

// searchExtent is firstAtTime in one extent. store.ErrNotExist comes as it is.
func (l *Log) searchExtent(ctx context.Context, t *metadata.Topic, partition int, e walk.Extent, first, ms int64) (offset int64, found bool, err error) {
	damaged := func(err error) error {
		return &DataError{Topic: t.Name, Partition: partition, From: e.Base, To: e.End, Object: objectOf(e).Name(), Err: err}
	}
	var decoder segment.Decoder
	var records []segment.Record
	split := newSplitter(e)
	for read := int64(0); read < e.Bytes; {
		r := wanted(e, read, maxRange)
		got, _, err := l.fetcher.read(ctx, r, 1, nil)
		if errors.Is(err, store.ErrNotExist) {
			return 0, false, err
		} else if err != nil {
			return 0, false, l.readError(ctx, t, partition, e, err)
		}
		b := got.bytes[e.Start+read-r.off:]
		if !e.Archived() {
			b = b[:e.Bytes]
			if err := checkExtent(b, e); err != nil {
				return 0, false, damaged(err)
			}
		}
		split.add(b)
		for read += int64(len(b)); !split.done(); {
			batch, _, _, err := split.cut()
			if err == nil && batch == nil {
				break
			}
			if err == nil && split.next > first {
				records, err = decoder.Decode(batch, decodeBase(e), records[:0])
			}
			if err != nil {
				return 0, false, damaged(err)
			}
			for _, r := range records {
				if r.Offset >= first && indexTime(&e, r.Timestamp) >= ms {
					return r.Offset, true, nil
				}
			}
			records = records[:0]
		}
	}
	return 0, false, nil
}
