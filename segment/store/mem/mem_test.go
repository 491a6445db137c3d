package mem_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/mem"
	"github.com/varvelog/varve/segment/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return mem.New() })
}

func TestNameIsNeverUsedAgain(t *testing.T) {
	s := mem.New()
	if err := s.Put(t.Context(), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"1", "2"} {
		if err := s.Put(t.Context(), "a", []byte(body)); !errors.Is(err, store.ErrReused) {
			t.Errorf("put of a name that was deleted: %v", err)
		}
	}
	if _, err := s.Get(t.Context(), "a", 0, -1, nil); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("get after the refused put: %v", err)
	}
}

func TestLimit(t *testing.T) {
	s := mem.New(mem.Limit(10))
	if err := s.Put(t.Context(), "a", make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "b", make([]byte, 5)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("put over the limit: %v", err)
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "b", make([]byte, 10)); err != nil || s.Size() != 10 {
		t.Errorf("put up to the limit: %v, size %d", err, s.Size())
	}
}

func TestModifiedIsVirtualInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		time.Sleep(time.Hour)
		if err := s.Put(t.Context(), "a", nil); err != nil {
			t.Fatal(err)
		}
		if info, err := s.Stat(t.Context(), "a"); err != nil || !info.Modified.Equal(time.Now()) {
			t.Errorf("modified %v at %v, %v", info.Modified, time.Now(), err)
		}
	})
}
