package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/varvelog/varve/segment/store"
)

// BadNames are names that every adapter refuses, for tests of one adapter alone.
var BadNames = []string{
	"", ".", "..", "/", "/a", "a/", "a//b", "a/./b", "a/../b", "../a", "a/..", ".a", "a/.b", ".selftest/x", ".tmp/x",
	"%2e%2e", "a%2fb", "a b", "a\nb", "a\x00b", "a\x7fb", "a\\b", "A", "a/B", "a:b", "a*b", "a?b", "a\"b", "a+b", "a~",
	"caf\u00e9", "cafe\u0301", "a\u2028b", "\xff\xfe", strings.Repeat("a", 300), strings.Repeat("a/", 150) + "a",
}

// badNames wants each refused by each method. The context is done: a refusal that came after any request or
// file operation would be the context's error.
func badNames(t *testing.T, s store.Store) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range BadNames {
		for _, op := range ops {
			if op == store.OpList && store.CheckPrefix(name) == nil {
				continue // such as "a/": no name, but the beginning of some
			}
			for _, ctx := range []context.Context{t.Context(), done} {
				fails(t, call(ctx, s, op, name), op, name, store.ErrBadName)
			}
		}
		fails(t, s.Delete(done, "good", name), store.OpDelete, name, store.ErrBadName)
	}
	for _, name := range []string{"a", "0", "-", "_", "a..b", "a.", "x/-/_", strings.Repeat("a", store.MaxName), "varve.json"} {
		mustPut(t, s, name, []byte(name))
		holds(t, s, name, []byte(name))
	}
	if got := names(t, s, "", "", 0); len(got) != 9 {
		t.Errorf("9 good names were put, listed are %q", got)
	}
}
