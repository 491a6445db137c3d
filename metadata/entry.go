package metadata

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/varvelog/varve/segment"
)

// The packed form of an Entry is the value of attribute e<id>. It is billed with every commit until it is spilled, so
// it is small: times are counted down from the entry's latest, which itself is counted from the id's time.
//
//	1        version, 1
//	1        bits 0-3: length n of the slot set, 0 to 8; bit 4: empty; other bits 0
//	uvarint  byte offset in the segment of the first slot's batches
//	n        slot set, little-endian: bit i is slot i; its last byte is not 0
//	varint   latest: the largest MaxTime, minus the id's time, ms            (these two not in an empty entry)
//	then for each slot, ascending:
//	uvarint  records · uvarint  bytes · uvarint  latest - MaxTime
//
// Numbers are in their shortest form, and one slot has the latest time: an entry has exactly one encoding.
const (
	entryVersion = 1
	entryEmpty   = 1 << 4
	entrySlots   = 1<<4 - 1
)

// MaxEntryStart bounds Entry.Start; no store takes an object that large in one PUT.
const MaxEntryStart = 1 << 40

// Validate reports ErrInvalid for an entry that has no packed form.
func (e *Entry) Validate() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: fmt.Sprintf("entry %s: %s", e.ID, field), Value: fmt.Sprint(value), Valid: valid}
	}
	switch {
	case e.ID.IsZero():
		return bad("id", e.ID, "an id other than zero")
	case e.Start < 0 || e.Start > MaxEntryStart:
		return bad("start", e.Start, fmt.Sprintf("0 to %d", int64(MaxEntryStart)))
	case e.Empty && (e.Start != 0 || len(e.Slots) != 0):
		return bad("slots", len(e.Slots), "no slots and start 0 in an empty entry")
	case !e.Empty && len(e.Slots) == 0:
		return bad("slots", 0, "at least one, or an empty entry")
	}
	next := Slot(0)
	for _, s := range e.Slots {
		switch {
		case s.Slot < next || s.Slot >= SlotsPerLane:
			return bad("slot", s.Slot, fmt.Sprintf("ascending, each once, below %d", SlotsPerLane))
		case s.Count < 0 || s.Bytes < 0:
			return bad("count or bytes", fmt.Sprintf("%d, %d", s.Count, s.Bytes), "not negative")
		}
		next = s.Slot + 1
	}
	return nil
}

// AppendEntry appends the packed form of an entry that is valid. The id and the order are not in it: attribute names carry the id.
func AppendEntry(dst []byte, e *Entry) []byte {
	if e.Empty {
		return append(dst, entryVersion, entryEmpty, 0)
	}
	var set uint64
	latest := int64(math.MinInt64)
	for _, s := range e.Slots {
		set |= 1 << s.Slot
		latest = max(latest, s.MaxTime)
	}
	dst = append(dst, entryVersion, byte(slotBytes(set)))
	dst = binary.AppendUvarint(dst, uint64(e.Start))
	dst = appendSlots(dst, set)
	dst = binary.AppendVarint(dst, latest-e.ID.Time().UnixMilli())
	for _, s := range e.Slots {
		dst = binary.AppendUvarint(dst, uint64(s.Count))
		dst = binary.AppendUvarint(dst, uint64(s.Bytes))
		dst = binary.AppendUvarint(dst, uint64(latest)-uint64(s.MaxTime))
	}
	return dst
}

// DecodeEntry reads what AppendEntry wrote for the entry of the given id; Order is left 0. ErrVersion if a newer build
// wrote it, ErrCorrupt if none did.
func DecodeEntry(id segment.ID, packed []byte) (Entry, error) {
	e := Entry{ID: id}
	c := &cursor{rest: packed}
	if v := c.byte("version"); v != entryVersion {
		c.fail(ErrVersion, "version %d, known is %d", v, entryVersion)
	}
	flags := c.byte("flags")
	if flags&^(entryEmpty|entrySlots) != 0 {
		c.fail(ErrVersion, "flags %#x, known are %#x", flags, entryEmpty|entrySlots)
	}
	e.Empty = flags&entryEmpty != 0
	e.Start = int64(c.uvarint("start", MaxEntryStart))
	set := c.slots(int(flags & entrySlots))
	switch {
	case e.Empty && (set != 0 || e.Start != 0):
		c.fail(ErrCorrupt, "empty, but with slots or a start")
	case !e.Empty && set == 0:
		c.fail(ErrCorrupt, "no slots")
	case !e.Empty:
		e.Slots = c.slotEntries(set, id.Time().UnixMilli())
	}
	if err := c.end(); err != nil {
		return Entry{}, fmt.Errorf("entry of segment %s: %w", id, err)
	}
	return e, nil
}

func (c *cursor) slotEntries(set uint64, origin int64) []SlotEntry {
	latest := origin + c.varint("latest time")
	nearest := uint64(math.MaxUint64)
	slots := make([]SlotEntry, 0, countSlots(set))
	for s := range eachSlot(set) {
		count := c.uvarint("count", math.MaxInt32)
		bytes := c.uvarint("bytes", math.MaxInt32)
		before := c.uvarint("time", uint64(latest)-uint64(1<<63)) // down to the smallest int64
		nearest = min(nearest, before)
		slots = append(slots, SlotEntry{Slot: s, Count: int32(count), Bytes: int32(bytes), MaxTime: latest - int64(before)})
	}
	if nearest != 0 {
		c.fail(ErrCorrupt, "no slot has the latest time")
	}
	return slots
}
