package metadata

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
	"pgregory.net/rapid"
)

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lane := LaneID(rapid.StringMatching(`[0-9a-v]{12}-[0-9]{1,3}`).Draw(t, "lane"))
		topic := segment.TopicID(rapid.StringMatching(`[0-9a-v]{12}`).Draw(t, "topic"))
		number := rapid.Int64Range(0, 1<<62).Draw(t, "number")
		partition := rapid.IntRange(0, 1<<20).Draw(t, "partition")
		id := segment.NewID(time.UnixMilli(number%(1<<42)), 7, segment.InBucket, rapid.Uint64().Draw(t, "random"), segment.ID{})
		slot := Slot(rapid.IntRange(0, SlotsPerLane-1).Draw(t, "slot"))

		if l, n, err := ParseChunkKey(ChunkKey(lane, number)); l != lane || n != number || err != nil {
			t.Fatal(l, n, err)
		}
		for _, k := range []Key{HeadKey(lane), StateKey(lane)} {
			if l, err := ParseLaneKey(k); l != lane || err != nil {
				t.Fatal(k, l, err)
			}
		}
		if i, p, b, err := ParseRowKey(RowKey(topic, partition, number)); i != topic || p != partition || b != number || err != nil {
			t.Fatal(i, p, b, err)
		}
		for _, k := range []Key{ReplacedKey(id), SmallKey(id)} {
			if i, err := ParseSegmentKey(k); i != id || err != nil {
				t.Fatal(k, i, err)
			}
		}
		if i, ok := ParseIDAttr('e', EntryAttr(id)); i != id || !ok {
			t.Fatal(i)
		}
		if i, ok := ParseIDAttr('o', OrderAttr(id)); i != id || !ok {
			t.Fatal(i)
		}
		producer := ProducerID(rapid.Int64Range(1, 1<<63-1).Draw(t, "producer"))
		if i, first, ok := ParseProducerAttr(ProducerAttr(producer)); i != producer || first || !ok {
			t.Fatal(i, first, ok)
		}
		if i, first, ok := ParseProducerAttr(ProducerFirstAttr(producer)); i != producer || !first || !ok {
			t.Fatal(i, first, ok)
		}
		if i, err := ParseProducerID(producer.String()); i != producer || err != nil {
			t.Fatal(i, err)
		}
		group := rapid.StringMatching(`[a-zA-Z0-9_-]{1,249}`).Draw(t, "group")
		member := rapid.StringMatching(`[a-zA-Z0-9_-]{1,249}`).Draw(t, "member")
		if g, m, l, err := ParseGroupKey(PlanKey(group)); g != group || m != "" || l != "" || err != nil {
			t.Fatal(g, m, l, err)
		}
		if g, m, l, err := ParseGroupKey(MemberKey(group, member)); g != group || m != member || l != "" || err != nil {
			t.Fatal(g, m, l, err)
		}
		if g, m, l, err := ParseGroupKey(OffsetsKey(group, lane)); g != group || m != "" || l != lane || err != nil {
			t.Fatal(g, m, l, err)
		}
		lease := Lease{Epoch: rapid.Int64Range(1, 1<<62).Draw(t, "epoch"), Session: SessionID(rapid.StringMatching(`([0-9a-v]{16})?`).Draw(t, "session"))}
		if l, err := ParseLease(lease.String()); l != lease || err != nil {
			t.Fatal(lease, l, err)
		}
		for kind, name := range map[byte]string{'p': EndAttr(slot), 'f': TokenAttr(slot), 'l': StartAttr(slot), 'a': ArchivedAttr(slot),
			'c': CommittedAttr(slot), 't': CommitTimeAttr(slot), 'm': CommitNoteAttr(slot)} {
			if s, ok := ParseSlotAttr(kind, name); s != slot || !ok {
				t.Fatal(name, s, ok)
			}
		}
	})
}

func TestKeysRefuse(t *testing.T) {
	for _, k := range []Key{{}, {"C#", digits(1)}, {"C#x", "1"}, {"C#x", "-0000000000000000001"}, {"C#x", "+0000000000000000001"}, {"L#x", digits(1)}} {
		if _, _, err := ParseChunkKey(k); !errors.Is(err, ErrCorrupt) {
			t.Errorf("ParseChunkKey(%v): %v", k, err)
		}
	}
	for _, k := range []Key{{"P#0123456789av", digits(1)}, {"P#0123456789av#01", digits(1)}, {"P#../#1", digits(1)}} {
		if _, _, _, err := ParseRowKey(k); !errors.Is(err, ErrCorrupt) {
			t.Errorf("ParseRowKey(%v): %v", k, err)
		}
	}
	for _, k := range []Key{{}, {"G#", "PLAN"}, {"G#g", "M#"}, {"G#g", "O#"}, {"G#g", "X"}, {"G#a/b", "PLAN"}, {"G#g", "M#a/b"}, {"GROUP", "g"}} {
		if _, _, _, err := ParseGroupKey(k); !errors.Is(err, ErrCorrupt) {
			t.Errorf("ParseGroupKey(%v): %v", k, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "01", "1.", "1.x", ".0123456789abcdef", "1.0123456789abcdef.", "+1"} {
		if _, err := ParseLease(s); !errors.Is(err, ErrCorrupt) {
			t.Errorf("ParseLease took %q", s)
		}
	}
	for _, name := range []string{"", "p", "p64", "p01", "p-1", "p1x", "q1"} {
		if _, ok := ParseSlotAttr('p', name); ok {
			t.Errorf("ParseSlotAttr took %q", name)
		}
	}
}

func TestProducerIDsRefuse(t *testing.T) {
	for _, name := range []string{"", "ws", "wo", "ws1", "ws0000000000000", "ws-000000000001", "ws+000000000001", "wsg000000000000", "ws00000000000001", "wx0000000000001", "wsvvvvvvvvvvvvv"} {
		if id, _, ok := ParseProducerAttr(name); ok {
			t.Errorf("ParseProducerAttr took %q as %d", name, id)
		}
	}
	for _, s := range []string{"", "0", "-1", "01", "+1", "1.0", "9223372036854775808", "x"} {
		var field *FieldError
		if _, err := ParseProducerID(s); !errors.As(err, &field) {
			t.Errorf("ParseProducerID took %q: %v", s, err)
		}
	}
}

// BR-46: the set of accepted names is stated, and whatever is accepted is used as it is.
func TestBR46_Names(t *testing.T) {
	for _, name := range []string{"a", "orders", "orders-archive", "orders2", "HEAD", "STATE", "TOPIC", "...", "a.b_c-d", strings.Repeat("x", MaxNameBytes)} {
		if err := ValidateName("topic", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "/a", "a/", "%2e%2e", "a b", "a\n", "a\x00", "é", "é", "a#b", strings.Repeat("x", MaxNameBytes+1)} {
		var field *FieldError
		if err := ValidateName("topic", name); !errors.As(err, &field) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
