package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

func ranges(t *testing.T, s store.Store) {
	const size = 100
	body := data(3, size)
	mustPut(t, s, "a", body)
	for _, r := range []struct {
		off, n int64
		want   int // bytes, or -1 for ErrShort
	}{
		{0, size, size}, {0, 1, 1}, {0, 0, 0}, {0, -1, size}, {0, size + 1, -1},
		{1, 1, 1}, {1, size - 1, size - 1}, {1, size, -1}, {1, -1, size - 1},
		{size - 1, 1, 1}, {size - 1, -1, 1}, {size - 1, 0, 0}, {size - 1, 2, -1},
		{size, 0, 0}, {size, -1, 0}, {size, 1, -1},
		{size + 1, 0, -1}, {size + 1, -1, -1}, {size + 1, 1, -1},
		{50, math.MaxInt64, -1}, {math.MaxInt64, math.MaxInt64, -1}, {-1, 10, -1}, {-1, -1, -1}, {math.MinInt64, 1, -1},
	} {
		t.Run(fmt.Sprintf("%d,%d", r.off, r.n), func(t *testing.T) {
			got, err := s.Get(t.Context(), "a", r.off, r.n, nil)
			if r.want < 0 {
				fails(t, err, store.OpGet, "a", store.ErrShort)
				return
			}
			if err != nil || !bytes.Equal(got, body[r.off:r.off+int64(r.want)]) {
				t.Errorf("%d bytes %x, %v; want %d bytes", len(got), got, err, r.want)
			}
		})
	}
}

func getReusesDst(t *testing.T, s store.Store) {
	mustPut(t, s, "a", data(1, 100))
	dst := make([]byte, 7, 64)
	got, err := s.Get(t.Context(), "a", 10, 50, dst)
	if err != nil || !bytes.Equal(got, data(1, 100)[10:60]) {
		t.Fatalf("%x, %v", got, err)
	}
	if &got[0] != &dst[0] {
		t.Error("dst has room, but the bytes are elsewhere")
	}
	if got, err = s.Get(t.Context(), "a", 0, 100, dst); err != nil || !bytes.Equal(got, data(1, 100)) {
		t.Errorf("dst too small: %x, %v", got, err)
	}
}

// getStream: what is seen grows up to the whole range, by steps of which none is too large, and stays what it is.
func getStream(t *testing.T, s store.Store) {
	const size = 3*store.StreamBytes + 1000
	body := data(5, size)
	mustPut(t, s, "a", body)
	for _, r := range []struct{ off, n int64 }{{0, size}, {0, -1}, {17, size - 100}, {size - 10, -1}, {5, 1}, {100, store.StreamBytes}} {
		want := body[r.off:]
		if r.n >= 0 {
			want = want[:r.n]
		}
		for _, dst := range [][]byte{nil, make([]byte, 3, 10), make([]byte, 0, size)} {
			var shown []int
			got, err := store.GetStream(t.Context(), s, "a", r.off, r.n, dst, func(b []byte) {
				if len(b) > len(want) || !bytes.Equal(b, want[:len(b)]) {
					t.Errorf("%+v: shown are %d bytes that are not those of the range", r, len(b))
				}
				shown = append(shown, len(b))
			})
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%+v: %d bytes, %v; want %d", r, len(got), err, len(want))
			}
			before := 0
			for _, n := range shown {
				if n <= before || n-before > store.StreamBytes {
					t.Errorf("%+v: shown are first bytes of lengths %v", r, shown)
				}
				before = n
			}
			if before != len(want) {
				t.Errorf("%+v: shown are %d of %d bytes", r, before, len(want))
			}
		}
	}
}

// getStreamOfNothing: a range that is not there, and an object, fail as they do with Get, and nothing is shown of them.
func getStreamOfNothing(t *testing.T, s store.Store) {
	mustPut(t, s, "a", data(1, 10))
	seen := func(b []byte) {
		if len(b) > 0 {
			t.Errorf("shown are %d bytes", len(b))
		}
	}
	_, err := store.GetStream(t.Context(), s, "a", 5, 6, nil, seen)
	fails(t, err, store.OpGet, "a", store.ErrShort)
	_, err = store.GetStream(t.Context(), s, "b", 0, 5, nil, seen)
	fails(t, err, store.OpGet, "b", store.ErrNotExist)
	if got, err := store.GetStream(t.Context(), s, "a", 10, -1, nil, seen); err != nil || len(got) > 0 {
		t.Errorf("no bytes: %d, %v", len(got), err)
	}
}

func notThere(t *testing.T, s store.Store) {
	mustPut(t, s, "a/b", data(1, 10))
	for _, name := range []string{"b", "a", "a/c", "a/b/c", "a/bc", "c/d/e"} {
		for _, n := range []int64{-1, 0, 5} {
			_, err := s.Get(t.Context(), name, 0, n, nil)
			fails(t, err, store.OpGet, name, store.ErrNotExist)
		}
		_, err := s.Get(t.Context(), name, 3, 5, nil)
		fails(t, err, store.OpGet, name, store.ErrNotExist)
		_, err = s.Stat(t.Context(), name)
		fails(t, err, store.OpStat, name, store.ErrNotExist)
	}
}

func contextDone(t *testing.T, s store.Store) {
	mustPut(t, s, "there", data(1, 10))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	overdue, cancel := env.System().WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-overdue.Done()
	for _, op := range ops {
		for ctx, want := range map[context.Context]error{cancelled: context.Canceled, overdue: context.DeadlineExceeded} {
			name := "there"
			if op == store.OpPut {
				name = "new"
			}
			fails(t, call(ctx, s, op, name), op, name, want)
		}
	}
	holds(t, s, "there", data(1, 10))
}
