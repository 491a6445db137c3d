package metadata

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/varvelog/varve/segment"
)

// The packed form of a Chunk is the one attribute of its item besides the key, which carries lane and first order.
//
//	1        version, 1
//	uvarint  number of entries, 1 to MaxHeadEntries
//	1, n     length and slot set of the slots whose base is not 0, then for each: uvarint base
//	1, n     length and slot set of the slots whose running maximum time is not 0; if there are any: varint the
//	         latest of them, ms, then for each: uvarint latest - its own
//	then for each entry, by order:
//	20       segment id · uvarint length · the entry, packed
//
// It holds nothing of the writer or its clock, so whoever spills the same orders writes the same bytes.
const chunkVersion = 1

const idLen = 20 // of a printed segment id

// Validate reports ErrInvalid for a chunk that has no packed form.
func (c *Chunk) Validate() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: fmt.Sprintf("chunk %d of lane %s: %s", c.First, c.Lane, field), Value: fmt.Sprint(value), Valid: valid}
	}
	if c.First < 0 {
		return bad("first order", c.First, "not negative")
	}
	if n := len(c.Entries); n < 1 || n > MaxHeadEntries {
		return bad("entries", n, fmt.Sprintf("1 to %d", MaxHeadEntries))
	}
	for i := range c.Entries {
		if e := &c.Entries[i]; e.Order != c.First+int64(i) {
			return bad("order", e.Order, fmt.Sprintf("%d for entry %d", c.First+int64(i), i))
		} else if err := e.Validate(); err != nil {
			return err
		}
	}
	for s, base := range c.Bases {
		if base < 0 {
			return bad(fmt.Sprintf("base of slot %d", s), base, "not negative")
		}
	}
	return nil
}

// AppendChunk appends the packed form of a chunk that is valid.
func AppendChunk(dst []byte, c *Chunk) []byte {
	dst = append(dst, chunkVersion)
	dst = binary.AppendUvarint(dst, uint64(len(c.Entries)))
	dst = appendSet(dst, c.Bases.nonzero())
	for s := range eachSlot(c.Bases.nonzero()) {
		dst = binary.AppendUvarint(dst, uint64(c.Bases[s]))
	}
	timed := c.MaxTimes.nonzero()
	dst = appendSet(dst, timed)
	if timed != 0 {
		latest := int64(math.MinInt64)
		for s := range eachSlot(timed) {
			latest = max(latest, c.MaxTimes[s])
		}
		dst = binary.AppendVarint(dst, latest)
		for s := range eachSlot(timed) {
			dst = binary.AppendUvarint(dst, uint64(latest)-uint64(c.MaxTimes[s]))
		}
	}
	var packed []byte
	for i := range c.Entries {
		packed = AppendEntry(packed[:0], &c.Entries[i])
		dst = append(dst, c.Entries[i].ID.String()...)
		dst = binary.AppendUvarint(dst, uint64(len(packed)))
		dst = append(dst, packed...)
	}
	return dst
}

// DecodeChunk reads what AppendChunk wrote for the chunk at this place. ErrVersion if a newer build wrote it, ErrCorrupt if none did.
func DecodeChunk(lane LaneID, first int64, packed []byte) (*Chunk, error) {
	k := &Chunk{Lane: lane, First: first}
	c := &cursor{rest: packed}
	if v := c.byte("version"); v != chunkVersion {
		c.fail(ErrVersion, "version %d, known is %d", v, chunkVersion)
	}
	n := c.uvarint("number of entries", MaxHeadEntries)
	if n == 0 || first < 0 || first > math.MaxInt64-MaxHeadEntries {
		c.fail(ErrCorrupt, "%d entries", n)
	}
	for s := range eachSlot(c.set()) {
		if k.Bases[s] = int64(c.uvarint("base", math.MaxInt64)); k.Bases[s] == 0 {
			c.fail(ErrCorrupt, "base of slot %d is written though 0", s)
		}
	}
	c.maxTimes(&k.MaxTimes)
	for i := range int64(n) {
		if c.err != nil {
			break
		}
		k.Entries = append(k.Entries, c.entry(first+i))
	}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("chunk %d of lane %s: %w", first, lane, err)
	}
	return k, nil
}

func (c *cursor) maxTimes(times *Offsets) {
	set := c.set()
	if set == 0 {
		return
	}
	latest := c.varint("latest time")
	nearest := uint64(math.MaxUint64)
	for s := range eachSlot(set) {
		before := c.uvarint("time", uint64(latest)-uint64(1<<63))
		nearest = min(nearest, before)
		if times[s] = latest - int64(before); times[s] == 0 {
			c.fail(ErrCorrupt, "time of slot %d is written though 0", s)
		}
	}
	if nearest != 0 {
		c.fail(ErrCorrupt, "no slot has the latest time")
	}
}

func (c *cursor) entry(order int64) Entry {
	id, err := segment.ParseID(string(c.bytes("segment id", idLen)))
	if err != nil {
		c.fail(ErrCorrupt, "entry of order %d: %v", order, err)
	}
	packed := c.bytes("entry", c.uvarint("length of an entry", math.MaxInt32))
	e, err := DecodeEntry(id, packed)
	if err != nil && c.err == nil {
		c.err = err
	}
	e.Order = order
	return e
}

// set reads a slot set preceded by its length.
func (c *cursor) set() uint64 { return c.slots(int(c.byte("length of a slot set"))) }

func appendSet(dst []byte, set uint64) []byte {
	return appendSlots(append(dst, byte(slotBytes(set))), set)
}

// nonzero is the set of slots whose number is not 0.
func (o *Offsets) nonzero() (set uint64) {
	for s, n := range o {
		if n != 0 {
			set |= 1 << s
		}
	}
	return set
}
