package walk_test

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// A position in a cut is answered with the ranges that are valid, by every kind of read; who comes from before it passes.
func TestCut(t *testing.T) {
	for name, archived := range map[string]int64{"chunks": 0, "rows": 160} {
		h := even(4).all(t, 200).archive(2, archived, 20)
		state := h.states[len(h.states)-1]
		cut := metadata.Cut{Slot: 2, From: 400, To: 600}
		state.Cuts = []metadata.Cut{cut}
		h.states = append(h.states, state)
		for _, offset := range []int64{400, 555, 599} {
			want := walk.RangeError{Offset: offset, End: 2000, Err: walk.ErrRewritten, Cut: cut}
			var outside *walk.RangeError
			if _, _, err := walk.New(h).Next(t.Context(), atOffset(2, offset)); !errors.As(err, &outside) || *outside != want {
				t.Errorf("%s: %d: %v", name, offset, err)
			}
			if _, _, err := walk.New(h).Again(t.Context(), atOffset(2, offset)); !errors.As(err, &outside) || *outside != want {
				t.Errorf("%s: %d: %v", name, offset, err)
			}
		}
		for _, offset := range []int64{399, 600} {
			if _, _, err := walk.New(h).Next(t.Context(), atOffset(2, offset)); err != nil {
				t.Errorf("%s: %d: %v", name, offset, err)
			}
		}
		if _, _, err := walk.New(h).Next(t.Context(), atOffset(1, 555)); err != nil && archived == 0 {
			t.Errorf("%s: another slot: %v", name, err)
		}
		w, c, passed := walk.New(h), atOffset(2, 0), int64(0)
		for c.Offset < 2000 {
			extents, next, err := w.Next(t.Context(), c)
			if err != nil {
				t.Fatalf("%s: at %d: %v", name, c.Offset, err)
			}
			for _, e := range extents {
				if e.Base != passed {
					t.Fatalf("%s: %d after %d", name, e.Base, passed)
				}
				passed = e.End
			}
			c = next
		}
	}
}
