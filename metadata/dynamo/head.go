package dynamo

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Attributes of a head, besides those of package metadata's key.go.
const (
	attrNext       = "g"
	attrFirst      = "s"
	attrFloor      = "floor"
	attrConfig     = "cv"
	attrClass      = "class"
	attrK          = "k"
	attrMinVersion = "minv"
	attrProducers  = "wn" // how many there are: a condition can compare a number, and count nothing
	attrIDFloor    = "wfloor"
)

// Attributes of a lane's state and of a chunk.
const (
	attrArchived   = "archived"
	attrKept       = "first"
	attrStateFloor = "afloor"
	attrOldest     = "oldest" // ms since 1970
	attrCuts       = "cuts"
	attrPacked     = "c"
)

// newHead is the item of a lane that has no commits.
func newHead(lane metadata.LaneID, version int64, class segment.Class, floor segment.ID) item {
	it := keyOf(metadata.HeadKey(lane))
	it[attrNext], it[attrFirst] = number(0), number(0)
	it[attrK], it[attrMinVersion] = number(metadata.ChunkOrders), number(metadata.FormatVersion)
	it[attrConfig], it[attrClass] = number(version), text(class.String())
	for x := range metadata.Epochs {
		it[metadata.EpochAttr(x)] = number(0)
	}
	if !floor.IsZero() {
		it[attrFloor] = text(floor.String())
	}
	return it
}

// newState is the state of a lane of which nothing is archived.
func newState(lane metadata.LaneID, floor segment.ID) item {
	it := keyOf(metadata.StateKey(lane))
	it[attrArchived], it[attrKept] = number(0), number(0)
	if !floor.IsZero() {
		it[attrStateFloor] = text(floor.String())
	}
	return it
}

// decodeHead reads a head. ErrVersion if its minimum version is above this build's; ErrCorrupt, naming key and attribute, if
// something that must be there is absent or of a wrong type, if its entries are not exactly the orders [First, Next), or if they hold more
// records than a slot's end allows. Attributes it does
// not know it passes over: what must not be is announced by the minimum version.
func decodeHead(lane metadata.LaneID, it item) (*metadata.Head, error) {
	f := &fields{key: metadata.HeadKey(lane), item: it}
	h := &metadata.Head{Lane: lane, MinVersion: int(f.number(attrMinVersion, 1, 1<<31))}
	if h.MinVersion > metadata.FormatVersion {
		f.bad(attrMinVersion, metadata.ErrVersion, "needs format %d, this build has %d", h.MinVersion, metadata.FormatVersion)
	}
	if f.err != nil {
		return nil, f.err
	}
	h.Next = f.number(attrNext, 0, maxNumber)
	h.First = f.number(attrFirst, 0, h.Next)
	h.K = f.number(attrK, 1, metadata.MaxHeadEntries)
	h.ConfigVersion = f.number(attrConfig, 0, maxNumber)
	h.Class = f.class(attrClass, f.text(attrClass))
	h.Floor = f.id(attrFloor)
	for x := range h.Epochs {
		h.Epochs[x] = f.number(metadata.EpochAttr(x), 0, maxNumber)
	}
	if n := h.Next - h.First; n > metadata.MaxHeadEntries {
		f.bad(attrFirst, metadata.ErrCorrupt, "leaves %d entries, over %d", n, metadata.MaxHeadEntries)
	}
	if f.err != nil {
		return nil, f.err
	}
	h.Entries = make([]metadata.Entry, h.Next-h.First)
	f.headAttributes(h)
	for i := range h.Entries {
		if h.Entries[i].ID.IsZero() {
			f.bad(attrNext, metadata.ErrCorrupt, "is %d, but no entry has order %d", h.Next, h.First+int64(i))
		}
	}
	if f.err == nil {
		f.endsHoldEntries(h)
	}
	f.producers(h)
	if f.err != nil {
		return nil, f.err
	}
	return h, nil
}

// endsHoldEntries refuses a slot that has ended before the records of its entries would: a commit on top of it would be acknowledged with an
// offset that was given before.
func (f *fields) endsHoldEntries(h *metadata.Head) {
	for _, base := range metadata.Bases(h.Entries, h.Ends)[:min(1, len(h.Entries))] {
		for s, n := range base {
			if n < 0 {
				end := metadata.EndAttr(metadata.Slot(s))
				f.bad(end, metadata.ErrCorrupt, "is %d, but the entries hold %d records", h.Ends[s], h.Ends[s]-n)
			}
		}
	}
}

// headAttributes reads what a head has per slot and per entry.
func (f *fields) headAttributes(h *metadata.Head) {
	for attr := range f.item {
		switch {
		case numbered('p', attr):
			f.slot('p', attr, &h.Ends)
		case numbered('f', attr):
			if s, ok := metadata.ParseSlotAttr('f', attr); !ok {
				f.bad(attr, metadata.ErrCorrupt, "names no slot below %d", metadata.SlotsPerLane)
			} else {
				if h.Tokens == nil {
					h.Tokens = map[metadata.Slot]int64{}
				}
				h.Tokens[s] = f.number(attr, 1, maxNumber)
			}
		case identified('e', attr):
			f.entry(attr, h)
		case identified('o', attr):
			if id, ok := metadata.ParseIDAttr('o', attr); !ok || !f.has(metadata.EntryAttr(id)) {
				f.bad(attr, metadata.ErrCorrupt, "is the order of no entry")
			}
		}
	}
}

// producers reads what a head has of the producers that repeat their requests.
func (f *fields) producers(h *metadata.Head) {
	for attr := range f.item {
		id, first, ok := metadata.ParseProducerAttr(attr)
		switch {
		case !strings.HasPrefix(attr, "ws") && !strings.HasPrefix(attr, "wo"):
		case !ok:
			f.bad(attr, metadata.ErrCorrupt, "names no producer")
		case first && !f.has(metadata.ProducerAttr(id)):
			f.bad(attr, metadata.ErrCorrupt, "is the order of no producer")
		case !first:
			if h.Producers == nil {
				h.Producers = map[metadata.ProducerID]metadata.ProducerState{}
			}
			h.Producers[id] = f.producer(id, h.Next)
		}
	}
	if f.has(attrIDFloor) {
		h.ProducerFloor = metadata.ProducerID(f.number(attrIDFloor, 0, math.MaxInt64))
	}
	count := int64(0)
	if f.has(attrProducers) {
		count = f.number(attrProducers, 0, metadata.MaxProducers)
	}
	if n := int64(len(h.Producers)); n != count {
		f.bad(attrProducers, metadata.ErrCorrupt, "is %d, but there are %d producers", count, n)
	}
}

// producer is the list of sequence and orders. The order of the first sequence is an attribute of its own while there is no second: what an update computes from
// the item, as an order is, can be put into a list that is there, but not into one that it makes.
func (f *fields) producer(id metadata.ProducerID, next int64) (s metadata.ProducerState) {
	attr := metadata.ProducerAttr(id)
	list := f.list(attr, 1+metadata.ProducerWindow)
	read := func(i int, low, high int64) int64 {
		name := fmt.Sprintf("%s[%d]", attr, i)
		element := &fields{key: f.key, item: item{}, err: f.err}
		if i < len(list) {
			element.item[name] = list[i]
		}
		n := element.number(name, low, high)
		f.err = element.err
		return n
	}
	s.Sequence = read(0, 1, metadata.MaxSequence)
	if s.Sequence == 1 {
		s.Orders[0] = f.number(metadata.ProducerFirstAttr(id), 0, next-1)
		return s
	}
	for i := range min(s.Sequence, metadata.ProducerWindow) {
		s.Orders[i] = read(int(i)+1, 0, next-1)
	}
	return s
}

// entry puts the entry of attribute e<id> where its order says.
func (f *fields) entry(attr string, h *metadata.Head) {
	id, ok := metadata.ParseIDAttr('e', attr)
	if !ok {
		f.bad(attr, metadata.ErrCorrupt, "names no segment")
		return
	}
	e, err := metadata.DecodeEntry(id, f.binary(attr))
	order := f.number(metadata.OrderAttr(id), h.First, h.Next-1)
	if f.err != nil {
		return
	}
	if err != nil {
		f.err = fmt.Errorf("%s, attribute %s: %w", f.key, attr, err)
		return
	}
	e.Order = order
	if at := &h.Entries[order-h.First]; at.ID.IsZero() {
		*at = e
	} else {
		f.bad(metadata.OrderAttr(id), metadata.ErrCorrupt, "is %d, which segment %s has too", order, at.ID)
	}
}

// decodeState reads a lane's archive state.
func decodeState(lane metadata.LaneID, it item) (*metadata.State, error) {
	f := &fields{key: metadata.StateKey(lane), item: it}
	s := &metadata.State{Lane: lane, Archived: f.number(attrArchived, 0, maxNumber), First: f.number(attrKept, 0, maxNumber), Floor: f.id(attrStateFloor)}
	for attr := range it {
		switch {
		case numbered('a', attr):
			f.slot('a', attr, &s.Ends)
		case numbered('l', attr):
			f.slot('l', attr, &s.Starts)
		case numbered('k', attr):
			f.cleaning(attr, s)
		}
	}
	if f.has(attrConfig) {
		s.Version, s.Class = f.number(attrConfig, 1, maxNumber), f.class(attrClass, f.text(attrClass))
	}
	if f.has(attrOldest) {
		s.Oldest = millis(f.number(attrOldest, 0, maxNumber))
	}
	if f.has(attrCuts) {
		var err error
		if s.Cuts, err = metadata.DecodeCuts(f.binary(attrCuts)); err != nil && f.err == nil {
			f.err = fmt.Errorf("%s: %w", f.key, err)
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	return s, nil
}

// cleaning is the value of k<slot>: five numbers, times in milliseconds.
func cleaning(c metadata.Cleaning) types.AttributeValue {
	ms := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	v := &types.AttributeValueMemberL{}
	for _, n := range []int64{c.To, c.Settled, ms(c.Since), c.Purged, ms(c.Until)} {
		v.Value = append(v.Value, number(n))
	}
	return v
}

func (f *fields) cleaning(attr string, s *metadata.State) {
	slot, ok := metadata.ParseSlotAttr('k', attr)
	list := f.list(attr, 5)
	if !ok || f.err == nil && len(list) != 5 {
		f.bad(attr, metadata.ErrCorrupt, "is not five numbers of a slot below %d", metadata.SlotsPerLane)
	}
	if f.err != nil {
		return
	}
	five := &fields{key: f.key, item: item{}}
	at := func(i int) int64 {
		name := fmt.Sprintf("%s[%d]", attr, i)
		five.item[name] = list[i]
		return five.number(name, 0, maxNumber)
	}
	ms := func(i int) (t time.Time) {
		if n := at(i); n > 0 {
			t = millis(n)
		}
		return t
	}
	s.Cleaned[slot] = metadata.Cleaning{To: at(0), Settled: at(1), Since: ms(2), Purged: at(3), Until: ms(4)}
	f.err = five.err
}

// chunkItem is the item of a valid chunk.
func chunkItem(c *metadata.Chunk) item {
	it := keyOf(metadata.ChunkKey(c.Lane, c.First))
	it[attrPacked] = binary(metadata.AppendChunk(nil, c))
	return it
}

func decodeChunk(key metadata.Key, it item) (*metadata.Chunk, error) {
	lane, first, err := metadata.ParseChunkKey(key)
	if err != nil {
		return nil, err
	}
	f := &fields{key: key, item: it}
	packed := f.binary(attrPacked)
	if f.err != nil {
		return nil, f.err
	}
	c, err := metadata.DecodeChunk(lane, first, packed)
	if err != nil {
		return nil, fmt.Errorf("%s, attribute %s: %w", key, attrPacked, err)
	}
	return c, nil
}
