package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/varvelog/varve/segment/store"
)

// cut is what PutParts is given: body in parts of this size, each in memory of its own that is written over only when the store is done with it.
func cut(body []byte, size int) func() ([]byte, error) {
	return func() ([]byte, error) {
		if len(body) == 0 {
			return nil, io.EOF
		}
		n := min(size, len(body))
		part := slices.Clone(body[:n])
		body = body[n:]
		return part, nil
	}
}

// partSizes are objects of no part, of one, and of several, with and without a remainder.
func partSizes(t *testing.T, s store.Store) {
	const part = store.MinPartBytes
	for i, c := range []struct{ size, part int }{{0, part}, {1, part}, {part, part}, {part + 77, part + 5}, {2 * part, part}} {
		name := fmt.Sprint("parts/", i)
		body := data(uint64(i), c.size)
		size, err := s.PutParts(t.Context(), name, cut(body, c.part))
		if err != nil || size != int64(c.size) {
			t.Fatalf("%d bytes: %d, %v", c.size, size, err)
		}
		holds(t, s, name, body)
		if info, err := s.Stat(t.Context(), name); err != nil || info.Size != size {
			t.Errorf("stat: %+v, %v", info, err)
		}
		if c.size > 9 {
			got, err := s.Get(t.Context(), name, int64(c.size-9), 9, nil)
			if err != nil || string(got) != string(body[c.size-9:]) {
				t.Errorf("the last 9 bytes of %d: %x, %v", c.size, got, err)
			}
		}
	}
}

// emptyParts are passed over, wherever they are.
func emptyParts(t *testing.T, s store.Store) {
	body := data(1, store.MinPartBytes+10)
	parts := [][]byte{nil, body[:store.MinPartBytes], {}, body[store.MinPartBytes:], nil}
	size, err := s.PutParts(t.Context(), "a", func() ([]byte, error) {
		if len(parts) == 0 {
			return nil, io.EOF
		}
		part := parts[0]
		parts = parts[1:]
		return part, nil
	})
	if err != nil || size != int64(len(body)) {
		t.Fatalf("%d, %v", size, err)
	}
	holds(t, s, "a", body)
}

func partsOfAnExistingName(t *testing.T, s store.Store) {
	mustPut(t, s, "a", data(1, 100))
	for _, n := range []int{0, 99, 100, 2 * store.MinPartBytes} {
		_, err := s.PutParts(t.Context(), "a", cut(data(2, n), store.MinPartBytes))
		fails(t, err, store.OpPut, "a", store.ErrExists)
		holds(t, s, "a", data(1, 100))
	}
	if _, err := s.PutParts(t.Context(), "b", cut(data(3, store.MinPartBytes+1), store.MinPartBytes)); err != nil {
		t.Fatal(err)
	}
	fails(t, s.Put(t.Context(), "b", data(4, 10)), store.OpPut, "b", store.ErrExists)
	holds(t, s, "b", data(3, store.MinPartBytes+1))
}

var errNext = errors.New("next has no more")

// partsThatFail ends before each part in turn: by an error of next, by one that wraps io.EOF, by a context that is cancelled, by parts too small.
func partsThatFail(t *testing.T, s store.Store) {
	body := data(1, 2*store.MinPartBytes)
	for at := range 3 {
		for what, want := range map[string]error{"error": errNext, "broken off": io.EOF, "cancelled": context.Canceled, "small": store.ErrParts} {
			ctx, cancel := context.WithCancel(t.Context())
			next, calls := cut(body, store.MinPartBytes), 0
			if what == "small" && at == 2 {
				cancel()
				continue // the last one may be small
			}
			_, err := s.PutParts(ctx, "a", func() ([]byte, error) {
				calls++
				if calls <= at {
					return next()
				}
				switch what {
				case "error":
					return nil, errNext
				case "broken off":
					return nil, fmt.Errorf("what the parts are made of: %w", io.EOF)
				case "cancelled":
					cancel()
				case "small":
					if calls == at+1 {
						return []byte("small"), nil
					}
				}
				return next()
			})
			cancel()
			fails(t, err, store.OpPut, "a", want)
			if _, err := s.Stat(t.Context(), "a"); !errors.Is(err, store.ErrNotExist) {
				t.Fatalf("%s before part %d left something: %v", what, at+1, err)
			}
		}
	}
	page, err := s.List(t.Context(), "", "", 0)
	if err != nil || len(page.Objects) != 0 {
		t.Errorf("left: %+v, %v", page, err)
	}
}

// concurrentParts: of several uploads to one name at once, one creates the object.
func concurrentParts(t *testing.T, s store.Store) {
	const n = 3
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, errs[i] = s.PutParts(t.Context(), "race", cut(data(uint64(i), store.MinPartBytes+100), store.MinPartBytes))
		})
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("%d and %d both succeeded", winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, store.ErrExists):
			t.Errorf("%d: %v", i, err)
		}
	}
	if winner < 0 {
		t.Fatal("none succeeded")
	}
	holds(t, s, "race", data(uint64(winner), store.MinPartBytes+100))
}

func partsOfBadNames(t *testing.T, s store.Store) {
	for _, name := range []string{"", "/a", "a/", ".tmp/x", "A"} {
		_, err := s.PutParts(t.Context(), name, func() ([]byte, error) {
			t.Errorf("%q: next was called", name)
			return nil, io.EOF
		})
		fails(t, err, store.OpPut, name, store.ErrBadName)
	}
	mustPut(t, s, "a/b", []byte("x"))
	_, err := s.PutParts(t.Context(), "a/b", cut([]byte("y"), 1))
	fails(t, err, store.OpPut, "a/b", store.ErrExists)
}
