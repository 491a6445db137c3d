package storetest

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

func putThenRead(t *testing.T, s store.Store) {
	body := data(1, 3000)
	started := env.System().Now()
	mustPut(t, s, "r7d/intake/0a/first", body)
	holds(t, s, "r7d/intake/0a/first", body)
	info, err := s.Stat(t.Context(), "r7d/intake/0a/first")
	if err != nil || info.Name != "r7d/intake/0a/first" || info.Size != 3000 {
		t.Errorf("stat: %+v, %v", info, err)
	}
	if info.Modified.Sub(started).Abs() > time.Minute {
		t.Errorf("modified %v, put at %v", info.Modified, started)
	}
	page, err := s.List(t.Context(), "", "", 0)
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Name != info.Name || page.Objects[0].Size != 3000 {
		t.Errorf("list: %+v, %v", page, err)
	}
}

func putKeepsItsOwnCopy(t *testing.T, s store.Store) {
	body := data(1, 100)
	mustPut(t, s, "a", body)
	clear(body)
	holds(t, s, "a", data(1, 100))
	got, err := s.Get(t.Context(), "a", 0, -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(got)
	holds(t, s, "a", data(1, 100))
}

func putAgain(t *testing.T, s store.Store) {
	mustPut(t, s, "a", data(1, 100))
	mustPut(t, s, "a", data(1, 100))
	for _, other := range [][]byte{data(2, 100), data(1, 99), data(1, 101), {}} {
		fails(t, s.Put(t.Context(), "a", other), store.OpPut, "a", store.ErrExists)
		holds(t, s, "a", data(1, 100))
	}
	mustPut(t, s, "a", data(1, 100))
}

// pieces are the same object however it is cut.
func pieces(t *testing.T, s store.Store) {
	body := data(1, 100_000)
	cuts := [][][]byte{{body[:16], body[16:70_000], {}, body[70_000:]}, {body}, {nil, body[:99_999], body[99_999:]}}
	for _, cut := range cuts {
		if err := store.PutPieces(t.Context(), s, "a", cut); err != nil {
			t.Fatal(err)
		}
		holds(t, s, "a", body)
	}
	for _, other := range [][][]byte{{body[:50_000], body[:50_000]}, {body[:50_000]}, {body, body[:1]}, nil} {
		fails(t, store.PutPieces(t.Context(), s, "a", other), store.OpPut, "a", store.ErrExists)
	}
	holds(t, s, "a", body)
	if err := store.PutPieces(t.Context(), s, "e", nil); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "e", nil)
}

func emptyObject(t *testing.T, s store.Store) {
	mustPut(t, s, "e", nil)
	mustPut(t, s, "e", []byte{})
	holds(t, s, "e", nil)
	if info, err := s.Stat(t.Context(), "e"); err != nil || info.Size != 0 {
		t.Errorf("stat: %+v, %v", info, err)
	}
	if _, err := s.Get(t.Context(), "e", 0, 0, nil); err != nil {
		t.Errorf("no bytes of an empty object: %v", err)
	}
	_, err := s.Get(t.Context(), "e", 0, 1, nil)
	fails(t, err, store.OpGet, "e", store.ErrShort)
	fails(t, s.Put(t.Context(), "e", []byte("x")), store.OpPut, "e", store.ErrExists)
}

func largeObject(t *testing.T, s store.Store) {
	body := data(7, 18<<20)
	mustPut(t, s, "large", body)
	holds(t, s, "large", body)
	got, err := s.Get(t.Context(), "large", 10<<20, 1<<20, nil)
	if err != nil || !bytes.Equal(got, body[10<<20:11<<20]) {
		t.Errorf("range of a large object: %d bytes, %v", len(got), err)
	}
	body[17<<20]++
	fails(t, s.Put(t.Context(), "large", body), store.OpPut, "large", store.ErrExists)
}

func concurrentPutsOfOtherBytes(t *testing.T, s store.Store) {
	const n = 16
	for round := range 5 {
		name := "race-" + string(rune('a'+round))
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { errs[i] = s.Put(t.Context(), name, data(uint64(i), 5000)) })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("%s: puts %d and %d of other bytes both succeeded", name, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, store.ErrExists):
				t.Fatalf("%s: put %d: %v", name, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("%s: no put succeeded", name)
		}
		holds(t, s, name, data(uint64(winner), 5000))
	}
}

func concurrentPutsOfSameBytes(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := s.Put(t.Context(), "same", data(1, 5000)); err != nil {
				t.Errorf("put: %v", err)
			}
		})
	}
	wg.Wait()
	holds(t, s, "same", data(1, 5000))
}

// getWhilePut reads an object while it comes into being: it must be absent or whole.
func getWhilePut(t *testing.T, s store.Store) {
	body := data(1, 1<<20)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				got, err := s.Get(t.Context(), "a/b", 0, -1, nil)
				if err == nil && !bytes.Equal(got, body) {
					t.Errorf("got %d bytes that are not the object", len(got))
				}
				if err != nil && !errors.Is(err, store.ErrNotExist) {
					t.Errorf("get: %v", err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	mustPut(t, s, "a/b", body)
	close(done)
	wg.Wait()
}
