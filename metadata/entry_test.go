package metadata

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
	"pgregory.net/rapid"
)

func anyID(t *rapid.T) segment.ID {
	at := time.UnixMilli(rapid.Int64Range(0, 1<<43-1).Draw(t, "ms"))
	return segment.NewID(at, segment.Class(rapid.IntRange(0, segment.MaxClassDays).Draw(t, "class")), segment.InBucket, rapid.Uint64Range(1, 1<<40-1).Draw(t, "random"), segment.ID{})
}

func anyEntry(t *rapid.T) Entry {
	e := Entry{ID: anyID(t)}
	if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
		e.Empty = true
		return e
	}
	e.Start = rapid.Int64Range(0, MaxEntryStart).Draw(t, "start")
	set := rapid.Uint64Range(1, math.MaxUint64).Draw(t, "slots")
	near := rapid.Bool().Draw(t, "times near the id's")
	for s := range eachSlot(set) {
		at := rapid.Int64().Draw(t, "time")
		if near {
			at = e.ID.Time().UnixMilli() - at&0xff
		}
		e.Slots = append(e.Slots, SlotEntry{Slot: s, Count: int32(rapid.IntRange(0, math.MaxInt32).Draw(t, "count")),
			Bytes: int32(rapid.IntRange(0, math.MaxInt32).Draw(t, "bytes")), MaxTime: at})
	}
	return e
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEntry(t)
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		packed := AppendEntry(nil, &e)
		got, err := DecodeEntry(e.ID, packed)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, e)
		}
		cut := rapid.IntRange(0, len(packed)-1).Draw(t, "cut")
		if _, err := DecodeEntry(e.ID, packed[:cut]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d of %d: %v", cut, len(packed), err)
		}
		if _, err := DecodeEntry(e.ID, append(packed, 0)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a byte too many: %v", err)
		}
	})
}

// typical is an entry as a flush of a few milliseconds leaves it: 100 records of 1 KiB a slot, compressed to a third, timestamps of the
// last 200 ms.
func typical(slots int) Entry {
	at := time.UnixMilli(1_790_000_000_000)
	e := Entry{ID: segment.NewID(at, 7, segment.InBucket, 0x12345678, segment.ID{}), Start: 64}
	for s := range slots {
		e.Slots = append(e.Slots, SlotEntry{Slot: Slot(s), Count: 100, Bytes: 34_000, MaxTime: at.UnixMilli() - int64(s*3%200)})
	}
	return e
}

// What a commit adds to the head is billed with every commit until it is spilled: 2 × 21 of names and 4 of order, and not much over 5.5 a slot.
func TestEntrySize(t *testing.T) {
	for _, touched := range []int{1, 14, 64} {
		e := typical(touched)
		names := len(EntryAttr(e.ID)) + len(OrderAttr(e.ID))
		order := 4 // of six digits: a byte for two, and one
		got := names + order + len(AppendEntry(nil, &e))
		if limit := 52 + 5.5*float64(touched); float64(got) > limit {
			t.Errorf("%d slots: %d bytes in the head, want at most %.0f", touched, got, limit)
		} else {
			t.Logf("%d slots: %d bytes in the head, of them %d names and order", touched, got, names+order)
		}
	}
}

func TestEntryRefuses(t *testing.T) {
	id := typical(1).ID
	for name, c := range map[string]struct {
		packed []byte
		want   error
	}{
		"nothing":                  {nil, ErrCorrupt},
		"a later version":          {[]byte{2, 1, 0, 1, 0, 1, 1, 0}, ErrVersion},
		"an unknown flag":          {[]byte{1, 0x21, 0, 1, 0, 1, 1, 0}, ErrVersion},
		"no slots":                 {[]byte{1, 0, 0}, ErrCorrupt},
		"empty with a slot":        {[]byte{1, 0x11, 0, 1}, ErrCorrupt},
		"empty with a start":       {[]byte{1, 0x10, 5}, ErrCorrupt},
		"slot set over 8 bytes":    {[]byte{1, 9, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0}, ErrCorrupt},
		"slot set too long":        {[]byte{1, 2, 0, 1, 0, 0, 1, 1, 0}, ErrCorrupt},
		"start over the limit":     {append(append([]byte{1, 1}, bytes.Repeat([]byte{0xff}, 6)...), 1, 1, 0, 1, 1, 0), ErrCorrupt},
		"a count over 31 bits":     {[]byte{1, 1, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 0}, ErrCorrupt},
		"a number over 64 bits":    {append(append([]byte{1, 1}, bytes.Repeat([]byte{0xff}, 11)...), 1), ErrCorrupt},
		"a number padded":          {[]byte{1, 1, 0, 1, 0, 0x81, 0x00, 1, 0}, ErrCorrupt},
		"no slot with the latest":  {[]byte{1, 1, 0, 1, 0, 1, 1, 5}, ErrCorrupt},
		"a time below the int64s":  {[]byte{1, 1, 0, 1, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, ErrCorrupt},
		"fewer slots than the set": {[]byte{1, 1, 0, 3, 0, 1, 1, 0}, ErrCorrupt},
	} {
		if e, err := DecodeEntry(id, c.packed); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", name, e, err, c.want)
		}
	}
	good := []byte{1, 1, 0, 1, 0, 1, 1, 0}
	if _, err := DecodeEntry(id, good); err != nil {
		t.Errorf("what they are variations of: %v", err)
	}
}

func TestEntryValidate(t *testing.T) {
	ok := typical(3)
	for name, spoil := range map[string]func(*Entry){
		"no id":             func(e *Entry) { e.ID = segment.ID{} },
		"negative start":    func(e *Entry) { e.Start = -1 },
		"start too large":   func(e *Entry) { e.Start = MaxEntryStart + 1 },
		"no slots":          func(e *Entry) { e.Slots = nil },
		"slots in an empty": func(e *Entry) { e.Empty = true; e.Start = 0 },
		"start in an empty": func(e *Entry) { e.Empty = true; e.Slots = nil },
		"slot twice":        func(e *Entry) { e.Slots[1].Slot = 0 },
		"slots descending":  func(e *Entry) { e.Slots[0].Slot = 2 },
		"slot out of range": func(e *Entry) { e.Slots[2].Slot = SlotsPerLane },
		"negative count":    func(e *Entry) { e.Slots[0].Count = -1 },
		"negative bytes":    func(e *Entry) { e.Slots[0].Bytes = -1 },
	} {
		e := ok
		e.Slots = append([]SlotEntry(nil), ok.Slots...)
		spoil(&e)
		if err := e.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, n := range []int{1, 14, 64} {
		e := typical(n)
		f.Add(AppendEntry(nil, &e))
	}
	f.Add(AppendEntry(nil, &Entry{Empty: true}))
	id := typical(1).ID
	f.Fuzz(func(t *testing.T, packed []byte) {
		e, err := DecodeEntry(id, packed)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("decoded what is not valid: %v", err)
		}
		if again := AppendEntry(nil, &e); !bytes.Equal(again, packed) {
			t.Fatalf("two encodings of one entry:\n%x\n%x", packed, again)
		}
	})
}
