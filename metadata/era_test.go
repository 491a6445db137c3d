package metadata_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/metadata"
)

func TestJumpIsFarAboveAllThatWasGiven(t *testing.T) {
	const step = metadata.EraStep
	for _, c := range []struct{ end, last, want int64 }{
		{0, 0, step}, {100, 0, step}, {step / 2, 0, step}, {step/2 + 1, 0, 2 * step}, {step - 1, 0, 2 * step}, {step + 5, step, 2 * step}, {0, step, 2 * step}, {7 * step, step, 8 * step},
	} {
		if got, err := metadata.JumpFrom(c.end, c.last); got != c.want || err != nil {
			t.Errorf("from %d, after %d: %d, %v", c.end, c.last, got, err)
		}
	}
	if got, err := metadata.JumpFrom(math.MaxInt64-step, 0); !errors.Is(err, metadata.ErrInvalid) {
		t.Errorf("%d, %v", got, err)
	}
}

func TestEraObject(t *testing.T) {
	for _, e := range []metadata.Era{
		{Number: 1, Back: time.UnixMilli(5).UTC(), Whole: time.UnixMilli(5).UTC(), Begun: time.UnixMilli(7).UTC(), Jump: metadata.EraStep},
		{Number: 2, Back: time.UnixMilli(5).UTC(), Whole: time.UnixMilli(4).UTC(), Begun: time.UnixMilli(7).UTC(), Jump: metadata.EraStep},
		{Number: 2, Back: time.UnixMilli(5).UTC(), Begun: time.UnixMilli(7).UTC(), Jump: metadata.EraStep},
		{Number: 3, Begun: time.UnixMilli(7).UTC(), Jump: 5 * metadata.EraStep},
	} {
		b, err := metadata.EncodeEra(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := metadata.DecodeEra(b); got != e || err != nil || got.Lost() != e.Whole.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `{"era":1,"begun_ms":1,"jump":5}`, `{"era":0,"begun_ms":1,"jump":17592186044416}`, `{"era":1,"begun_ms":1,"jump":17592186044416,"restored_to_ms":-1}`,
		`{"era":1,"begun_ms":1,"jump":17592186044416,"restored_to_ms":5,"whole_ms":6}`, `{"era":1,"begun_ms":1,"jump":17592186044416,"restored_to_ms":5,"whole_ms":-1}`,
		`{"era":9223372036854775807,"begun_ms":1,"jump":17592186044416}`} {
		if e, err := metadata.DecodeEra([]byte(bad)); !errors.Is(err, metadata.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", bad, e, err)
		}
	}
}

// What is read is as it was written again, and has a version of its own; all else is ErrCorrupt.
func FuzzDecodeEra(f *testing.F) {
	for _, s := range []string{"", "null", "{}", "[]", `{"era":1,"restored_to_ms":5,"begun_ms":7,"jump":17592186044416}`, `{"era":3,"restored_to_ms":0,"begun_ms":7,"jump":87960930222080}`,
		`{"era":3,"restored_to_ms":5,"whole_ms":0,"begun_ms":7,"jump":87960930222080}`, `{"era":8796093022207,"begun_ms":9223372036854775807,"jump":17592186044416}`, `{"era":1e1,"begun_ms":7,"jump":17592186044416}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := metadata.DecodeEra(b)
		if err != nil {
			if !errors.Is(err, metadata.ErrCorrupt) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if e.Version() < metadata.VersionStep {
			t.Fatalf("the versions of %+v begin at %d", e, e.Version())
		}
		written, err := metadata.EncodeEra(e)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := metadata.DecodeEra(written); err != nil || again != e {
			t.Fatalf("%+v is %+v, %v after it was written", e, again, err)
		}
	})
}

func TestCuts(t *testing.T) {
	s := &metadata.State{First: 7, Starts: metadata.Offsets{1: 50}, Cuts: []metadata.Cut{
		{Slot: 1, From: 5, To: 20, Order: 6},  // nobody needs it any more
		{Slot: 1, From: 20, To: 30, Order: 7}, // the chunk of order 7 is still there, and its bases are explained by it
		{Slot: 1, From: 40, To: 50, Order: 6}, // the log begins where it ends
		{Slot: 1, From: 60, To: 70, Order: 9},
	}}
	cuts := s.WithCuts(func(c metadata.Cut) bool { return c.From == 60 }, metadata.Cut{Slot: 2, To: 3}, metadata.Cut{Slot: 1, From: 55, To: 100, Order: 8})
	want := []metadata.Cut{{Slot: 1, From: 20, To: 30, Order: 7}, {Slot: 1, From: 40, To: 50, Order: 6}, {Slot: 1, From: 55, To: 100, Order: 8}, {Slot: 2, To: 3}}
	if !reflect.DeepEqual(cuts, want) {
		t.Fatalf("%+v", cuts)
	}
	packed := metadata.AppendCuts(nil, cuts)
	if got, err := metadata.DecodeCuts(packed); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range packed {
		if _, err := metadata.DecodeCuts(packed[:n]); err == nil {
			t.Errorf("%d of %d bytes are cuts", n, len(packed))
		}
	}
	for _, bad := range [][]metadata.Cut{{{Slot: 64, To: 1}}, {{Slot: 1, From: 3, To: 3}}, {{Slot: 2, To: 1}, {Slot: 1, To: 1}}, {{From: 5, To: 6}, {From: 4, To: 5}}} {
		if got, err := metadata.DecodeCuts(metadata.AppendCuts(nil, bad)); !errors.Is(err, metadata.ErrCorrupt) {
			t.Errorf("%+v: %+v, %v", bad, got, err)
		}
	}
	if _, err := metadata.DecodeCuts(append([]byte{2}, packed[1:]...)); !errors.Is(err, metadata.ErrVersion) {
		t.Error(err)
	}
}

func FuzzCuts(f *testing.F) {
	f.Add(metadata.AppendCuts(nil, []metadata.Cut{{Slot: 1, From: 60, To: 70, Order: 9}}))
	f.Fuzz(func(t *testing.T, packed []byte) {
		cuts, err := metadata.DecodeCuts(packed)
		if err == nil && string(metadata.AppendCuts(nil, cuts)) != string(packed) {
			t.Errorf("%x is %+v", packed, cuts)
		}
	})
}

// Counting and shifting against a look at each offset.
func TestCutsAgainstAScan(t *testing.T) {
	const step = metadata.EraStep
	s := metadata.State{Cuts: []metadata.Cut{{Slot: 1, From: 0, To: step}, {Slot: 2, From: step - 27, To: step - 24}, {Slot: 2, From: step - 25, To: step - 21},
		{Slot: 2, From: step - 10, To: step - 8}, {Slot: 2, From: step - 8, To: step}, {Slot: 3, From: 1, To: step}}}
	cuts := s.SlotCuts(2)
	if len(cuts) != 3 {
		t.Fatalf("%+v", cuts)
	}
	const low, end = step - 30, step + 10
	var valid []int64 // offsets in no cut
	for o := low; o < end; o++ {
		in := s.Cut(2, o) != nil
		cut, on := cuts.At(o), cuts.GoOn(o)
		if (cut != nil) != in || (!in || cut.From == o) && on != o || in && cut.From < o && on != cut.To {
			t.Errorf("%d: %+v, goes on at %d", o, cut, on)
		}
		if !in {
			valid = append(valid, o)
		}
	}
	for from := low; from < end; from++ {
		for to := low; to < end; to++ {
			count, n := int64(0), int64(0)
			for o := from; o < to; o++ {
				if c := s.Cut(2, o); c == nil || c.To != step { // a record, or one of two
					count++
				}
				if slices.Contains(valid, o) {
					n++
				}
			}
			if got := cuts.Count(from, to); got != count {
				t.Errorf("[%d, %d): %d, want %d", from, to, got, count)
			}
			if s.Cut(2, to) != nil || n == 0 {
				continue
			}
			if got := cuts.Shift(from, n); got != to {
				t.Errorf("%d on from %d: %d, want %d", n, from, got, to)
			}
			if got := cuts.Shift(to, -n); s.Cut(2, from) == nil && got != from {
				t.Errorf("%d back from %d: %d, want %d", n, to, got, from)
			}
		}
	}
}
