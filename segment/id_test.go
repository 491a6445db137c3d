package segment

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIDRoundTripAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mint := func(label string) ID {
			return NewID(time.UnixMilli(rapid.Int64Range(0, maxMillis).Draw(t, label)), Class(rapid.IntRange(0, MaxClassDays).Draw(t, "class")),
				Place(rapid.IntRange(0, 2).Draw(t, "place")), rapid.Uint64().Draw(t, "random"), ID{})
		}
		a, b := mint("a"), mint("b")
		got, err := ParseID(a.String())
		if err != nil || got != a {
			t.Fatalf("ParseID(%q) = %v, %v", a.String(), got, err)
		}
		if a.Less(b) != (a.String() < b.String()) {
			t.Fatalf("order of %v and %v differs from that of their strings", a, b)
		}
		for _, name := range []string{IntakeName(a), ArchiveName("0123456789av", a)} {
			if p, err := ParseName(name); err != nil || p.ID != a {
				t.Fatalf("ParseName(%q) = %+v, %v", name, p, err)
			}
		}
		if next := NewID(a.Time(), a.Class(), a.Place(), b.low(), a); !a.Less(next) && a.millis() < maxMillis {
			t.Fatalf("%v minted over floor %v is not above it", next, a)
		}
	})
}

func TestIDFields(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	id := NewID(at, 7, InTable, 0x12_3456_789a, ID{})
	if !id.Time().Equal(at) || id.Class() != 7 || id.Place() != InTable || id.Hash() != "9a" {
		t.Fatalf("got %v %v %v %v", id.Time(), id.Class(), id.Place(), id.Hash())
	}
}

func TestIDAndNameRefusals(t *testing.T) {
	good := NewID(time.UnixMilli(1), 7, InBucket, 1, ID{})
	for _, s := range []string{"", "0", good.String() + "0", "zzzzzzzzzzzzzzzzzzzz", "00000000000000000 00", good.String()[:19] + "\x00"} {
		if _, err := ParseID(s); !errors.Is(err, ErrBadID) {
			t.Errorf("ParseID(%q): %v", s, err)
		}
	}
	for _, s := range []string{"", "r7d", "r7d/intake/" + good.String(), "r8d/intake/" + good.Hash() + "/" + good.String(), "r7d/intake/zz/" + good.String(),
		"r7d/archive/../" + good.String(), "r07d/intake/" + good.Hash() + "/" + good.String(), "/" + IntakeName(good)} {
		if _, err := ParseName(s); !errors.Is(err, ErrBadName) {
			t.Errorf("ParseName(%q): %v", s, err)
		}
	}
}

func TestClassFor(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{0: "r1d", 1: "r1d", day: "r1d", day + 1: "r2d", 7 * day: "r7d", -1: "keep", 16001 * day: "keep"} {
		if got := ClassFor(d).String(); got != want {
			t.Errorf("ClassFor(%v) = %s, want %s", d, got, want)
		}
		if c, err := ParseClass(want); err != nil || c.String() != want {
			t.Errorf("ParseClass(%q) = %v, %v", want, c, err)
		}
	}
}
