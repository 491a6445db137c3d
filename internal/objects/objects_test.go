package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/mem"
)

// table is segments in a table; an error is what it always answers.
type table struct {
	bodies map[segment.ID][]byte
	err    error
	reads  int
}

func (t *table) Small(_ context.Context, id segment.ID) ([]byte, error) {
	t.reads++
	if t.err != nil {
		return nil, t.err
	}
	b, ok := t.bodies[id]
	if !ok {
		return nil, fmt.Errorf("%w: %s", metadata.ErrNoSegment, id)
	}
	return bytes.Clone(b), nil
}

const topic = segment.TopicID("0123456789ab")

// segmentIn is a segment of a place.
func segmentIn(place segment.Place) objects.Segment {
	return objects.Of(topic, segment.NewID(time.UnixMilli(1_700_000_000_000), segment.ClassFor(7*24*time.Hour), place, 0x123456789a, segment.ID{}))
}

var places = []segment.Place{segment.InBucket, segment.Archived, segment.InTable}

// open is a reader of a log that has body as a segment in each place.
func open(t *testing.T, body []byte) (*objects.Reader, *table) {
	t.Helper()
	bucket, items := mem.New(), &table{bodies: map[segment.ID][]byte{}}
	for _, place := range places {
		s := segmentIn(place)
		if place == segment.InTable {
			items.bodies[s.ID] = body
		} else if err := bucket.Put(t.Context(), s.Name(), body); err != nil {
			t.Fatal(err)
		}
	}
	return objects.NewReader(bucket, items), items
}

func TestNames(t *testing.T) {
	for place, want := range map[segment.Place]string{
		segment.InBucket: "r7d/intake/9a/" + segmentIn(segment.InBucket).ID.String(),
		segment.Archived: "r7d/archive/" + string(topic) + "/" + segmentIn(segment.Archived).ID.String(),
		segment.InTable:  "D#9a|" + segmentIn(segment.InTable).ID.String(),
	} {
		s := segmentIn(place)
		if got := s.Name(); got != want {
			t.Errorf("place %d: name %q, want %q", place, got, want)
		}
		if got, err := objects.Parse(want); err != nil || got != s {
			t.Errorf("%q: %+v, %v", want, got, err)
		}
		if place != segment.Archived && s != objects.Of("another topic", s.ID) {
			t.Errorf("place %d: not the same segment for another topic", place)
		}
	}
	inTable, inBucket := segmentIn(segment.InTable).ID, segmentIn(segment.InBucket).ID
	for _, name := range []string{"", "|", "a|b", "D#9a|", "D#9b|" + inTable.String(), "X#9a|" + inTable.String(), "D#9a|" + inBucket.String(), segment.IntakeName(inTable), "varve.json", inTable.String()} {
		if s, err := objects.Parse(name); !errors.Is(err, segment.ErrBadName) {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
	}
}

// TestRanges: the same ranges of the same bytes, wherever they are.
func TestRanges(t *testing.T) {
	body := []byte("0123456789abcdef")
	r, _ := open(t, body)
	for _, place := range places {
		s := segmentIn(place)
		if n, err := r.Size(t.Context(), s); err != nil || n != int64(len(body)) {
			t.Errorf("place %d: size %d, %v", place, n, err)
		}
		for off := int64(-1); off < 18; off++ {
			for n := int64(-1); n < 18; n++ {
				got, err := r.Get(t.Context(), s, off, n, nil)
				end, want := store.Range(off, n, int64(len(body)))
				if want != nil {
					if !errors.Is(err, store.ErrShort) {
						t.Fatalf("place %d, [%d, +%d): %q, %v", place, off, n, got, err)
					}
				} else if err != nil || string(got) != string(body[off:end]) {
					t.Fatalf("place %d, [%d, +%d): %q, %v", place, off, n, got, err)
				}
			}
		}
		dst := make([]byte, 0, 8)
		if got, err := r.Get(t.Context(), s, 3, 5, dst); err != nil || string(got) != "34567" || &got[0] != &dst[:1][0] {
			t.Errorf("place %d: %q, %v: not in the memory given", place, got, err)
		}
		if got, err := r.Get(t.Context(), s, 0, 9, dst); err != nil || string(got) != "012345678" {
			t.Errorf("place %d, memory too small: %q, %v", place, got, err)
		}
	}
}

// TestMissing: what is not there is ErrNotExist; a table that does not answer is not.
func TestMissing(t *testing.T) {
	items := &table{}
	r := objects.NewReader(mem.New(), items)
	for _, place := range places {
		s := segmentIn(place)
		var e *store.Error
		if _, err := r.Get(t.Context(), s, 0, 1, nil); !errors.Is(err, store.ErrNotExist) || !errors.As(err, &e) || e.Name != s.Name() || e.Op != store.OpGet {
			t.Errorf("place %d: %v", place, err)
		}
		if _, err := r.Size(t.Context(), s); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("place %d: size: %v", place, err)
		}
	}
	items.err = metadata.ErrThrottled
	if _, err := r.Get(t.Context(), segmentIn(segment.InTable), 0, 1, nil); !errors.Is(err, metadata.ErrThrottled) || errors.Is(err, store.ErrNotExist) {
		t.Errorf("throttled: %v", err)
	}
	if items.reads != 3 {
		t.Errorf("the table was read %d times, want 3: two for its segment, one throttled", items.reads)
	}
}
