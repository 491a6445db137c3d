package walk

import (
	"fmt"

	"github.com/varvelog/varve/metadata"
)

// view is entries with the offsets of all slots before each of them.
type view struct {
	lane    metadata.LaneID
	first   int64 // order of the first entry
	next    int64 // order after the last one
	k       int64
	entries []metadata.Entry
	bases   []metadata.Offsets
	Ends    metadata.Offsets

	head     *metadata.Head   // of a head
	maxTimes metadata.Offsets // of a chunk: running maxima up to its end
}

func newView(h *metadata.Head) (*view, error) {
	if h.K < 1 || h.First%h.K != 0 {
		return nil, fmt.Errorf("%w: head of lane %s begins at order %d, with %d orders a chunk", metadata.ErrCorrupt, h.Lane, h.First, h.K)
	}
	v := &view{lane: h.Lane, first: h.First, next: h.Next, k: h.K, entries: h.Entries, Ends: h.Ends, head: h}
	return v, v.fill()
}

func newChunkView(c *metadata.Chunk) (*view, error) {
	n := int64(len(c.Entries))
	v := &view{lane: c.Lane, first: c.First, next: c.First + n, k: n, entries: c.Entries, Ends: c.Ends(), maxTimes: c.MaxTimes}
	return v, v.fill()
}

// fill works the bases out and refuses what cannot be: fewer or more entries than orders, or an offset below 0.
func (v *view) fill() error {
	if v.next-v.first != int64(len(v.entries)) {
		return fmt.Errorf("%w: lane %s has %d entries for orders [%d, %d)", metadata.ErrCorrupt, v.lane, len(v.entries), v.first, v.next)
	}
	v.bases = metadata.Bases(v.entries, v.Ends)
	for slot := range metadata.Slot(metadata.SlotsPerLane) {
		if v.start(slot) < 0 {
			return fmt.Errorf("%w: lane %s slot %d: the entries from order %d on hold more records than its end, %d", metadata.ErrCorrupt, v.lane, slot, v.first, v.Ends[slot])
		}
	}
	return nil
}

// start is the slot's offset before the first entry.
func (v *view) start(slot metadata.Slot) int64 {
	if len(v.bases) == 0 {
		return v.Ends[slot]
	}
	return v.bases[0][slot]
}

// from is the extents of the cursor's partition from its offset on, which must not be below start, and the cursor after them.
func (v *view) from(c Cursor) ([]Extent, Cursor, error) {
	var extents []Extent
	for i := range v.entries {
		e := &v.entries[i]
		at := e.Start
		for _, s := range e.Slots {
			if s.Slot == c.Slot && s.Count > 0 {
				base := v.bases[i][s.Slot]
				if end := base + int64(s.Count); end > c.Offset {
					extents = append(extents, Extent{Topic: c.Topic, ID: e.ID, Order: e.Order, Base: base, End: end, Count: int64(s.Count), MaxTime: s.MaxTime,
						Start: at, Bytes: int64(s.Bytes), LaneStart: e.Start, LaneLength: laneLength(e), First: e.ID.Time(), Last: e.ID.Time()})
				}
			}
			at += int64(s.Bytes)
		}
	}
	if n := len(extents); n > 0 {
		c.Offset, c.arrived = extents[n-1].End, true
	}
	c.order = v.next
	return extents, c, nil
}

func laneLength(e *metadata.Entry) (n int64) {
	for _, s := range e.Slots {
		n += int64(s.Bytes)
	}
	return n
}
