package walk_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment"
)

const (
	laneID = metadata.LaneID("lane")
	k      = metadata.ChunkOrders
)

// topic is one lane wide: partition p is slot p.
var topic = &metadata.Topic{ID: "0123456789ab", LaneWidth: metadata.SlotsPerLane, Partitions: metadata.SlotsPerLane, Lanes: []metadata.LaneID{laneID}}

func atOffset(slot metadata.Slot, offset int64) walk.Cursor { return walk.At(topic, int(slot), offset) }

// history is a lane as its entries and the images that its items had: at any moment the table shows the last of each strongly, and an eventual read
// any of the last few.
type history struct {
	entry  func(order int64) metadata.Entry
	before func(order int64) (bases, maxima metadata.Offsets) // of all slots before the order

	mu      sync.Mutex
	heads   [][2]int64           // g, s
	states  []metadata.State     // as they were
	rows    []rows               // as they were lately
	ids     int                  // archive ids given out
	ever    map[walk.Extent]bool // what rows ever said
	removed map[record]bool
	chunks  map[int64]int   // first order -> number of heads when it was put
	gone    map[int64]bool  // chunks that were deleted
	stale   func(n int) int // how far back an eventual read looks, below n
	calls   map[string]int
	moving  func(call string) // before each call: the lane may go on
}

// record is one by its slot and offset.
type record struct {
	slot   metadata.Slot
	offset int64
}

// rows is archive rows by partition and then by base.
type rows []*metadata.Row

func rowOrder(a, b *metadata.Row) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Base, b.Base))
}

func newHistory(entry func(int64) metadata.Entry, before func(int64) (bases, maxima metadata.Offsets)) *history {
	return &history{entry: entry, before: before, heads: [][2]int64{{0, 0}}, states: []metadata.State{{Lane: laneID}}, rows: []rows{nil}, ever: map[walk.Extent]bool{}, removed: map[record]bool{}, chunks: map[int64]int{}, gone: map[int64]bool{},
		calls: map[string]int{}, stale: func(int) int { return 0 }}
}

// appendTo brings the lane to order g with its first s orders spilled. Chunks appear before the head that lacks their entries.
func (h *history) appendTo(g, s int64) {
	for f := h.heads[len(h.heads)-1][1]; f < s; f += k {
		h.chunks[f] = len(h.heads)
	}
	h.heads = append(h.heads, [2]int64{g, s})
}

func (h *history) last() (g, s int64) { x := h.heads[len(h.heads)-1]; return x[0], x[1] }

func (h *history) began(call string) {
	h.calls[call]++
	if h.moving != nil {
		h.moving(call)
	}
}

func (h *history) image(g, s int64) *metadata.Head {
	ends, _ := h.before(g)
	head := &metadata.Head{Lane: laneID, Next: g, First: s, K: k, Ends: ends}
	for o := s; o < g; o++ {
		head.Entries = append(head.Entries, h.entry(o))
	}
	return head
}

func (h *history) Head(_ context.Context, _ metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began("Head")
	at := len(h.heads) - 1
	if c == metadata.Eventual {
		at -= h.stale(len(h.heads))
	}
	if at < 0 { // before the lane was created
		return nil, &metadata.Error{Op: "Head", Err: metadata.ErrNoLane}
	}
	return h.image(h.heads[at][0], h.heads[at][1]), nil
}

func (h *history) State(_ context.Context, _ metadata.LaneID, c metadata.Consistency) (*metadata.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began("State")
	at := len(h.states) - 1
	if c == metadata.Eventual {
		at -= h.stale(len(h.states))
	}
	if at < 0 {
		return nil, &metadata.Error{Op: "State", Err: metadata.ErrNoState}
	}
	s := h.states[at]
	return &s, nil
}

func (h *history) make(first int64) *metadata.Chunk {
	c := &metadata.Chunk{Lane: laneID, First: first}
	c.Bases, _ = h.before(first)
	_, c.MaxTimes = h.before(first + k)
	for o := first; o < first+k; o++ {
		c.Entries = append(c.Entries, h.entry(o))
	}
	return c
}

// shows tells whether a read shows the chunk: one that was put lately may be missing from an eventual read.
func (h *history) shows(first int64, c metadata.Consistency) bool {
	put, ok := h.chunks[first]
	if !ok || h.gone[first] {
		return false
	}
	return c == metadata.Strong || len(h.heads)-1-h.stale(len(h.heads)) >= put
}

func (h *history) Chunk(_ context.Context, _ metadata.LaneID, first int64, c metadata.Consistency) (*metadata.Chunk, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began("Chunk")
	if !h.shows(first, c) {
		return nil, &metadata.Error{Op: "Chunk", Key: fmt.Sprint(first), Err: metadata.ErrNoChunk}
	}
	return h.make(first), nil
}

func (h *history) Chunks(_ context.Context, _ metadata.LaneID, from, to int64, limit int, c metadata.Consistency) (chunks []*metadata.Chunk, more bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began("Chunks")
	for f := (from + k - 1) / k * k; f < to; f += k {
		if len(chunks) == limit {
			return chunks, true, nil
		}
		if h.shows(f, c) {
			chunks = append(chunks, h.make(f))
		}
	}
	return chunks, false, nil
}

// shown is the rows as a read shows them: an eventual one each as it was some time lately.
func (h *history) shown(c metadata.Consistency) rows {
	last := h.rows[len(h.rows)-1]
	if c == metadata.Strong || len(h.rows) == 1 {
		return last
	}
	var keys, shown rows
	for _, r := range slices.Concat(h.rows...) {
		if i, found := slices.BinarySearchFunc(keys, r, rowOrder); !found {
			keys = slices.Insert(keys, i, r)
		}
	}
	for _, key := range keys {
		lately := len(h.rows) - 1 - h.stale(len(h.rows))
		if lately < 0 {
			continue
		}
		if i, found := slices.BinarySearchFunc(h.rows[lately], key, rowOrder); found {
			shown = append(shown, h.rows[lately][i])
		}
	}
	return shown
}

func (h *history) Row(_ context.Context, _ segment.TopicID, partition int, offset int64, c metadata.Consistency) (*metadata.Row, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began("Row")
	shown := h.shown(c)
	i, _ := slices.BinarySearchFunc(shown, &metadata.Row{Partition: partition, Base: offset + 1}, rowOrder)
	if i == 0 || shown[i-1].Partition != partition {
		return nil, &metadata.Error{Op: "Row", Err: metadata.ErrNoRow}
	}
	return shown[i-1], nil
}

func (h *history) Rows(_ context.Context, _ segment.TopicID, partition int, from, to int64, limit int, c metadata.Consistency) (found []*metadata.Row, more bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began("Rows")
	shown := h.shown(c)
	i, _ := slices.BinarySearchFunc(shown, &metadata.Row{Partition: partition, Base: from}, rowOrder)
	for _, r := range shown[i:] {
		if r.Partition != partition || r.Base >= to {
			break
		}
		if len(found) == limit {
			return found, true, nil
		}
		found = append(found, r)
	}
	return found, false, nil
}

// change changes the state, and rows with it, as one transaction.
func (h *history) change(state metadata.State, rs rows) {
	slices.SortFunc(rs, rowOrder)
	h.states, h.rows = append(h.states, state), append(h.rows[max(len(h.rows)-7, 0):], rs)
}

// archive has the orders below to of an even lane in the archive, in rows of so many orders for one slot, and the chunks deleted.
func (h *history) archive(slot metadata.Slot, to, orders int64) *history {
	state := h.states[0]
	state.Archived, state.First = to, to
	state.Ends, _ = h.before(to)
	var rs rows
	for from := int64(0); from < to; from += orders {
		next := min(from+orders, to)
		bases, _ := h.before(from)
		ends, maxima := h.before(next)
		n := ends[slot] - bases[slot]
		rs = append(rs, &metadata.Row{Topic: topic.ID, Partition: int(slot), Base: bases[slot], End: ends[slot], Count: n, Segment: archiveID(next), Start: 16, Bytes: 100 * n,
			MaxTime: maxima[slot], RunMax: maxima[slot], First: timeAt(from), Last: timeAt(next - 1)})
	}
	for f := range h.chunks {
		if f < to {
			h.gone[f] = true
		}
	}
	h.states, h.rows = []metadata.State{state}, []rows{rs}
	return h
}

// requests are all calls since the last time.
func (h *history) requests() (n int, calls map[string]int) {
	calls, h.calls = h.calls, map[string]int{}
	for _, c := range calls {
		n += c
	}
	return n, calls
}

// even is a lane in which every commit has 10 records in each of the first slots, with ascending times: order o has those of o seconds.
func even(slots int) *history {
	const each = 10
	offsets := func(n int64) (o metadata.Offsets) {
		for s := range slots {
			o[s] = n
		}
		return o
	}
	return newHistory(
		func(order int64) metadata.Entry {
			e := metadata.Entry{ID: idOf(order), Order: order, Start: 16}
			for s := range slots {
				e.Slots = append(e.Slots, metadata.SlotEntry{Slot: metadata.Slot(s), Count: each, Bytes: 1000, MaxTime: order * 1000})
			}
			return e
		},
		func(order int64) (bases, maxima metadata.Offsets) {
			return offsets(order * each), offsets(max(order-1, 0) * 1000)
		})
}

// all brings an even lane to n commits, spilled as far as whole chunks go.
func (h *history) all(t *testing.T, n int64) *history {
	t.Helper()
	h.appendTo(n, (n-1)/k*k)
	return h
}

func idOf(order int64) segment.ID {
	return segment.NewID(timeAt(order), 7, segment.InBucket, uint64(order), segment.ID{})
}

func archiveID(order int64) segment.ID {
	return segment.NewID(timeAt(order), 7, segment.Archived, uint64(order), segment.ID{})
}
