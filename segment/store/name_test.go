package store_test

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/storetest"
)

func TestBR46_Names(t *testing.T) {
	for _, name := range storetest.BadNames {
		err := store.CheckName(store.OpPut, name)
		var e *store.Error
		if !errors.Is(err, store.ErrBadName) || !errors.As(err, &e) || e.Op != store.OpPut || e.Name != name {
			t.Errorf("%q: %v", name, err)
		}
	}
	id := segment.NewID(time.Unix(1800000000, 0), segment.ClassFor(-1), segment.InBucket, 12345, segment.ID{})
	for _, name := range []string{segment.IdentityName, segment.IntakeName(id), segment.ArchiveName("0123456789av", id)} {
		if err := store.CheckName(store.OpPut, name); err != nil {
			t.Errorf("what package segment makes: %v", err)
		}
	}
}

func TestCheckPrefix(t *testing.T) {
	for _, prefix := range []string{"", "a", "a/", "a/b", "r7d/intake/0", "a.", "a-", strings.Repeat("a", store.MaxName)} {
		if err := store.CheckPrefix(prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{"/", "//", "a//", ".", "a/.", "a/..", "../", "A", "a b", "*", strings.Repeat("a", store.MaxName-1) + "/", strings.Repeat("a", store.MaxName+1)} {
		if err := store.CheckPrefix(prefix); !errors.Is(err, store.ErrBadName) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// FuzzCheckName: a name that is accepted means the same as a path, a URL path and a file name.
func FuzzCheckName(f *testing.F) {
	for _, name := range storetest.BadNames {
		f.Add(name)
	}
	f.Add("r7d/intake/0a/0123456789abcdefghij")
	f.Fuzz(func(t *testing.T, name string) {
		err := store.CheckName(store.OpPut, name)
		if err != nil {
			if !errors.Is(err, store.ErrBadName) || len(err.Error()) > 4*store.MaxName+200 {
				t.Fatalf("%d bytes of error: %v", len(err.Error()), err)
			}
			return
		}
		if path.Clean(name) != name || !filepath.IsLocal(name) || strings.ToLower(name) != name || len(name) > store.MaxName || strings.Contains("/"+name, "/.") {
			t.Fatalf("%q is accepted", name)
		}
		for i := range len(name) + 1 {
			if err := store.CheckPrefix(name[:i]); err != nil {
				t.Fatalf("%q is accepted, its beginning is not: %v", name, err)
			}
		}
	})
}
