package metadata

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/varvelog/varve/segment"
	"pgregory.net/rapid"
)

func anyChunk(t *rapid.T) *Chunk {
	c := &Chunk{Lane: "lane-0", First: rapid.Int64Range(0, 1<<50).Draw(t, "first")}
	for i := range rapid.IntRange(1, ChunkOrders).Draw(t, "entries") {
		e := anyEntry(t)
		e.Order = c.First + int64(i)
		c.Entries = append(c.Entries, e)
	}
	for s := range eachSlot(rapid.Uint64().Draw(t, "with a base")) {
		c.Bases[s] = rapid.Int64Range(0, 1<<63-1).Draw(t, "base")
	}
	for s := range eachSlot(rapid.Uint64().Draw(t, "with a time")) {
		c.MaxTimes[s] = rapid.Int64().Draw(t, "max time")
	}
	return c
}

func TestChunkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyChunk(t)
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		packed := AppendChunk(nil, c)
		got, err := DecodeChunk(c.Lane, c.First, packed)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, c)
		}
		cut := rapid.IntRange(0, len(packed)-1).Draw(t, "cut")
		if _, err := DecodeChunk(c.Lane, c.First, packed[:cut]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d of %d: %v", cut, len(packed), err)
		}
	})
}

func typicalChunk(slots int) *Chunk {
	c := &Chunk{Lane: "lane-0", First: 123_456}
	for i := range ChunkOrders {
		e := typical(slots)
		e.ID = segment.NewID(e.ID.Time(), 7, segment.InBucket, uint64(i+1), segment.ID{})
		e.Order = c.First + int64(i)
		c.Entries = append(c.Entries, e)
	}
	for s := range slots {
		c.Bases[s] = 12_345_600 + int64(s)
	}
	c.MaxTimes = MaxTimes(Offsets{}, c.Entries)
	return c
}

func TestChunkRefuses(t *testing.T) {
	good := AppendChunk(nil, typicalChunk(2))
	for name, c := range map[string]struct {
		packed []byte
		want   error
	}{
		"nothing":               {nil, ErrCorrupt},
		"a later version":       {append([]byte{2}, good[1:]...), ErrVersion},
		"no entries":            {[]byte{1, 0, 0, 0}, ErrCorrupt},
		"too many entries":      {append([]byte{1, 65}, good[2:]...), ErrCorrupt},
		"a base that is 0":      {[]byte{1, 1, 1, 1, 0, 0}, ErrCorrupt},
		"a time that is 0":      {[]byte{1, 1, 0, 1, 1, 2, 1}, ErrCorrupt},
		"no slot is the latest": {[]byte{1, 1, 0, 1, 1, 8, 1}, ErrCorrupt},
		"an entry of 4 GB":      {append([]byte{1, 1, 0, 0}, append([]byte(typical(1).ID.String()), 0xff, 0xff, 0xff, 0xff, 0x0f)...), ErrCorrupt},
		"a bad id":              {append([]byte{1, 1, 0, 0}, bytes.Repeat([]byte{'z'}, 30)...), ErrCorrupt},
		"a later entry":         {append([]byte{1, 1, 0, 0}, append([]byte(typical(1).ID.String()), 3, 9, 0, 0)...), ErrVersion},
		"a byte too many":       {append(append([]byte(nil), good...), 0), ErrCorrupt},
	} {
		if k, err := DecodeChunk("lane-0", 0, c.packed); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", name, k, err, c.want)
		}
	}
	if _, err := DecodeChunk("lane-0", 0, good); err != nil {
		t.Errorf("what they are variations of: %v", err)
	}
}

func TestChunkValidate(t *testing.T) {
	for name, spoil := range map[string]func(*Chunk){
		"negative first":   func(c *Chunk) { c.First = -1 },
		"no entries":       func(c *Chunk) { c.Entries = nil },
		"too many entries": func(c *Chunk) { c.Entries = make([]Entry, MaxHeadEntries+1) },
		"orders apart":     func(c *Chunk) { c.Entries[3].Order++ },
		"a bad entry":      func(c *Chunk) { c.Entries[3].ID = segment.ID{} },
		"negative base":    func(c *Chunk) { c.Bases[9] = -1 },
	} {
		c := typicalChunk(2)
		spoil(c)
		if err := c.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := typicalChunk(64).Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeChunk(f *testing.F) {
	for _, n := range []int{1, 14, 64} {
		f.Add(AppendChunk(nil, typicalChunk(n)))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		c, err := DecodeChunk("lane-0", 8, packed)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("decoded what is not valid: %v", err)
		}
		if again := AppendChunk(nil, c); !bytes.Equal(again, packed) {
			t.Fatalf("two encodings of one chunk:\n%x\n%x", packed, again)
		}
	})
}
