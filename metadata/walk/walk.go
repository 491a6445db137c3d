// Package walk is the reader's side of the index: from (partition, offset) or (partition, time) to the extents that hold the records. It reads the
// table and nothing else.
//
// What it relies on: an entry, once in a head, keeps its order and its offsets for ever, first in the head, then in a chunk. Then the archive's rows take
// its offsets over, and whatever replaces a row covers the same offsets. So whatever a read SHOWS was true, however stale the read; only what it does NOT
// show may be wrong. Extents are therefore taken from eventual reads and from memory, and everything that says "there is none" (expired, past the end,
// gone, corrupt) is said after strong reads in the order in which an entry moves: head, state, row or chunk, state again. An entry that moves on meanwhile
// is then met at its next place. Chunks never change and are remembered; rows are replaced, and are not.
package walk

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Extent is what one segment holds of a partition: intake, by an entry, or archive, by a row.
type Extent struct {
	Topic      segment.TopicID
	ID         segment.ID // zero where nothing is left of the extent: Count is 0, and there is nothing to read
	Order      int64      // of its commit; 0 in the archive
	Base, End  int64      // offsets [Base, End)
	Count      int64      // records, End - Base unless some were removed
	MaxTime    int64      // largest index timestamp, ms
	Start      int64      // first byte of its batches in the segment
	Bytes      int64      // length of its batches
	LaneStart  int64      // first byte of all that the segment holds of the lane, in the archive of the partition
	LaneLength int64      // and its length
	First      time.Time  // append times of its first and its last record, those that were removed included
	Last       time.Time
}

// Archived tells whether the extent is in the archive, or was: the base offsets in its batches are absolute then.
func (e *Extent) Archived() bool { return e.Count == 0 || e.ID.Place() == segment.Archived }

// Cursor is a place in one partition that moves forward. Make one with At.
type Cursor struct {
	Topic     segment.TopicID
	Partition int
	Lane      metadata.LaneID
	Slot      metadata.Slot
	Offset    int64 // the next one wanted

	order   int64 // records from Offset on are in commits of this order or later
	run     int64 // chunks or rows read one after another: how many were asked for at once
	checked bool  // the state was read since the cursor was made, and Offset was not below the log start
	arrived bool  // Offset is behind what was read before it, or the first that is wanted
	through int64 // end of a cut that the cursor has come to from before it, when it was made already
}

// At is a cursor at the offset of a partition that the topic has.
func At(t *metadata.Topic, partition int, offset int64) Cursor {
	at := t.Place(partition)
	return Cursor{Topic: t.ID, Partition: partition, Lane: at.Lane, Slot: at.Slot, Offset: offset}
}

// To is a cursor at another offset of the partition. It knows nothing of where the cursor has been.
func (c Cursor) To(offset int64) Cursor {
	return Cursor{Topic: c.Topic, Partition: c.Partition, Lane: c.Lane, Slot: c.Slot, Offset: offset}
}

// Within is the cursor when its offset is known not to be below the log start, from Bounds for one: Next then need not ask.
func (c Cursor) Within() Cursor {
	c.checked = true
	return c
}

// Arrived is the cursor of who has all before its offset, or wants nothing of it: at the beginning of a cut it passes that, as one does that has come there by Next.
func (c Cursor) Arrived() Cursor {
	c.arrived = true
	return c
}

// Order is where the cursor stands in the lane: after a Next that found nothing, the order that the next commit will take, as far as Next knew.
func (c Cursor) Order() int64 { return c.order }

// Table is what a Walker reads.
type Table interface {
	metadata.LaneReader
	metadata.RowReader
}

// Walker finds extents. It remembers chunks and the last head and state of each lane. Safe for concurrent use.
type Walker struct {
	table  Table
	chunks chunkCache

	mu    sync.Mutex
	lanes map[metadata.LaneID]lane
}

// maxLanes is how many lanes a Walker remembers something of: up to 150 KB each, mostly far less.
const maxLanes = 256

// lane is what was read last of a lane.
type lane struct {
	head  *view
	state *metadata.State
}

// New returns a Walker over a table. Where many cursors share a lane its eventual Head should be answered from memory: every Next asks for it.
func New(table Table) *Walker {
	return &Walker{table: table, lanes: make(map[metadata.LaneID]lane)}
}

// Next returns extents of the cursor's partition: the one that holds its offset, and those after it that are at hand, without gaps; and the cursor after
// them. None and no error: there is nothing from the offset on, as far as an eventual read shows. Then wait for the head to change.
//
// A reader that comes to a cut from before it passes it: what was to follow comes behind it. One that begins at an offset of a cut, or is in it when it is made, is told
// so, as that offset stood for a record once.
//
// Errors are *RangeError (ErrExpired, ErrPastEnd, ErrRewritten), metadata.ErrNoLane (the topic was deleted), metadata.ErrCorrupt, and what the table returns.
func (w *Walker) Next(ctx context.Context, c Cursor) ([]Extent, Cursor, error) {
	return w.locate(ctx, c, metadata.Eventual)
}

// Again is Next by strong reads and without what the cursor knows: for when what Next said turned out not to be there.
func (w *Walker) Again(ctx context.Context, c Cursor) ([]Extent, Cursor, error) {
	anew := c.To(c.Offset)
	anew.arrived, anew.through = c.arrived, c.through
	return w.locate(ctx, anew, metadata.Strong)
}

// maxRounds bounds how often one call starts over because the log moved on under it. Each start means that a spill, a publication or a deletion
// fell between two of its reads.
const maxRounds = 8

// errMoved is a round that found neither the offset nor a reason: what it looked for has moved between its reads, or it read too little strongly.
var errMoved = errors.New("moved")

// locate is the order of conclusions. The first round may be eventual; those after it are strong.
func (w *Walker) locate(ctx context.Context, c Cursor, consistency metadata.Consistency) ([]Extent, Cursor, error) {
	var last error
	for range maxRounds {
		extents, next, err := w.round(ctx, c, consistency)
		if !errors.Is(err, errMoved) {
			return extents, next, err
		}
		if consistency == metadata.Strong {
			w.chunks.forget(c.Lane)
		}
		last, consistency = err, metadata.Strong
	}
	return nil, c, corrupt(c, "no entry holds the offset: %v", last)
}

func (w *Walker) round(ctx context.Context, c Cursor, consistency metadata.Consistency) ([]Extent, Cursor, error) {
	h, err := w.head(ctx, c.Lane, consistency)
	if err != nil {
		return nil, c, err
	}
	end := h.Ends[c.Slot]
	if c.Offset > end {
		// The read may be stale: only a strong one says that there is no such offset.
		if consistency == metadata.Eventual {
			return nil, c, errMoved
		}
		return nil, c, w.pastEnd(ctx, c, end)
	}
	inHead := c.Offset >= h.start(c.Slot)
	if c.checked && inHead {
		return h.from(c)
	}
	state, err := w.state(ctx, c.Lane, consistency, c.checked)
	if err != nil {
		return nil, c, err
	}
	if cut := state.Cut(c.Slot, c.Offset); cut != nil && c.through != cut.To && !(c.arrived && c.Offset == cut.From) {
		if consistency == metadata.Eventual {
			return nil, c, errMoved // the range to report needs a fresh end
		}
		return nil, c, &RangeError{Offset: c.Offset, Start: state.Starts[c.Slot], End: end, Err: ErrRewritten, Cut: *cut}
	}
	switch start := state.Starts[c.Slot]; {
	case c.Offset < start && consistency == metadata.Eventual:
		return nil, c, errMoved // a log start only rises, but the range to report needs a fresh end
	case c.Offset < start:
		return nil, c, &RangeError{Offset: c.Offset, Start: start, End: end, Err: ErrExpired}
	}
	c.checked = true
	extents, next, err := w.below(ctx, c, h, inHead, state, consistency)
	if cut := state.Cut(c.Slot, next.Offset); err == nil && cut != nil && c.Offset <= cut.From {
		next.through = cut.To
	}
	return extents, next, err
}

// below reads where the offset is.
func (w *Walker) below(ctx context.Context, c Cursor, h *view, inHead bool, state *metadata.State, consistency metadata.Consistency) ([]Extent, Cursor, error) {
	switch {
	case inHead:
		return h.from(c)
	case c.Offset < state.Ends[c.Slot]:
		return w.inArchive(ctx, c, state, consistency)
	}
	return w.inChunks(ctx, c, h, state, consistency)
}

// look reads the state again, before a request for what comes next: so a reader that goes on and on learns of a log start that has overtaken it.
func (w *Walker) look(ctx context.Context, c Cursor, consistency metadata.Consistency) (*metadata.State, error) {
	state, err := w.state(ctx, c.Lane, consistency, false)
	if err == nil && c.Offset < state.Starts[c.Slot] {
		return nil, errMoved
	}
	return state, err
}

// pastEnd is the error for an offset beyond the end, with the valid range.
func (w *Walker) pastEnd(ctx context.Context, c Cursor, end int64) error {
	state, err := w.table.State(ctx, c.Lane, metadata.Strong)
	if err != nil {
		return err
	}
	return &RangeError{Offset: c.Offset, Start: state.Starts[c.Slot], End: end, Err: ErrPastEnd}
}

// head is the lane's head with its bases. An eventual read may not know a new lane yet.
func (w *Walker) head(ctx context.Context, id metadata.LaneID, consistency metadata.Consistency) (*view, error) {
	h, err := w.table.Head(ctx, id, consistency)
	if err != nil {
		return nil, unlessStale(err, metadata.ErrNoLane, consistency)
	}
	w.mu.Lock()
	v := w.lanes[id].head
	w.mu.Unlock()
	if v != nil && v.head == h {
		return v, nil
	}
	if v, err = newView(h); err == nil {
		w.remember(id, func(l *lane) { l.head = v })
	}
	return v, err
}

// state is the lane's state. A cursor that was checked may go by the last one that was read: the log start is looked at again whenever it has to ask for chunks.
func (w *Walker) state(ctx context.Context, id metadata.LaneID, consistency metadata.Consistency, remembered bool) (*metadata.State, error) {
	w.mu.Lock()
	last := w.lanes[id].state
	w.mu.Unlock()
	if remembered && consistency == metadata.Eventual && last != nil {
		return last, nil
	}
	s, err := w.table.State(ctx, id, consistency)
	if err != nil {
		return nil, unlessStale(err, metadata.ErrNoState, consistency)
	}
	if last != nil && len(last.Cuts) != len(s.Cuts) {
		w.chunks.forget(id)
	}
	w.remember(id, func(l *lane) { l.state = s })
	return s, nil
}

// Bounds returns the lane's state and then its head, read strongly: so that no log start is above its end.
func (w *Walker) Bounds(ctx context.Context, id metadata.LaneID) (*metadata.State, *metadata.Head, error) {
	s, err := w.state(ctx, id, metadata.Strong, false)
	if err != nil {
		return nil, nil, err
	}
	h, err := w.table.Head(ctx, id, metadata.Strong)
	return s, h, err
}

// remember changes what is remembered of a lane.
func (w *Walker) remember(id metadata.LaneID, change func(*lane)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, known := w.lanes[id]
	if !known && len(w.lanes) >= maxLanes {
		for other := range w.lanes { // any: it costs a read to know it again
			delete(w.lanes, other)
			break
		}
	}
	change(&l)
	w.lanes[id] = l
}

// unlessStale turns an absence that only an eventual read has shown into another round.
func unlessStale(err, absence error, consistency metadata.Consistency) error {
	if consistency == metadata.Eventual && errors.Is(err, absence) {
		return errMoved
	}
	return err
}
