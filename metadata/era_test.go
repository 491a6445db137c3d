package metadata_test

import (
	"errors"
	"math"
	"reflect"
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
		{Number: 1, Back: time.UnixMilli(5).UTC(), Begun: time.UnixMilli(7).UTC(), Jump: metadata.EraStep},
		{Number: 3, Begun: time.UnixMilli(7).UTC(), Jump: 5 * metadata.EraStep},
	} {
		b, err := metadata.EncodeEra(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := metadata.DecodeEra(b); got != e || err != nil || got.Lost() != e.Back.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `{"era":1,"begun_ms":1,"jump":5}`, `{"era":0,"begun_ms":1,"jump":17592186044416}`, `{"era":1,"begun_ms":1,"jump":17592186044416,"restored_to_ms":-1}`} {
		if e, err := metadata.DecodeEra([]byte(bad)); !errors.Is(err, metadata.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", bad, e, err)
		}
	}
}

func TestCuts(t *testing.T) {
	s := &metadata.State{Starts: metadata.Offsets{1: 50}, Cuts: []metadata.Cut{{Slot: 1, From: 5, To: 50}, {Slot: 1, From: 60, To: 70, Order: 9}}}
	cuts := s.WithCuts(func(c metadata.Cut) bool { return c.From == 60 }, metadata.Cut{Slot: 2, To: 3}, metadata.Cut{Slot: 1, From: 55, To: 100, Order: 8})
	want := []metadata.Cut{{Slot: 1, From: 55, To: 100, Order: 8}, {Slot: 2, To: 3}}
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
