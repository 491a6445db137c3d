package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
	"github.com/varvelog/varve/segment/store/storetest"
)

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := env.System()
		slow := fault.New(mem.New(), e, func(fault.Call) fault.Fault { return fault.Fault{Delay: 30 * time.Millisecond} })
		defer slow.Close()
		var calls []string
		s := store.Observe(slow, e, func(c store.Call) {
			calls = append(calls, fmt.Sprintf("%s %q %d bytes, %d requests, %v, %v", c.Op, c.Name, c.Bytes, c.Requests, c.Duration, c.Err))
		})
		ctx := t.Context()
		names := make([]string, 2001)
		for i := range names {
			names[i] = fmt.Sprintf("d/%04d", i)
		}
		s.Put(ctx, "d/a", []byte("hello"))
		s.Get(ctx, "d/a", 1, 3, nil)
		s.Stat(ctx, "d/a")
		s.List(ctx, "d/", "", 0)
		s.Delete(ctx, names...)
		s.Get(ctx, "d/b", 0, -1, nil)
		s.Put(ctx, "B", []byte("x"))
		want := []string{
			`put "d/a" 5 bytes, 1 requests, 30ms, <nil>`,
			`get "d/a" 3 bytes, 1 requests, 30ms, <nil>`,
			`stat "d/a" 0 bytes, 1 requests, 30ms, <nil>`,
			`list "d/" 0 bytes, 1 requests, 30ms, <nil>`,
			`delete "d/0000" 0 bytes, 3 requests, 30ms, <nil>`,
			`get "d/b" 0 bytes, 1 requests, 30ms, store: get "d/b": no such object`,
			`put "B" 1 bytes, 0 requests, 30ms, store: put "B": malformed object name: it has byte 0x42 at 0, valid are a-z 0-9 - _ . /`,
		}
		if got := strings.Join(calls, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	})
}

func TestObserveChangesNothing(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.Observe(mem.New(), env.System(), func(store.Call) {}) })
}

func TestErrorSaysWhatAndWhere(t *testing.T) {
	err := error(&store.Error{Op: store.OpPut, Name: "a/b", Code: "SlowDown", Err: fmt.Errorf("%w: five attempts", store.ErrThrottled)})
	if got := err.Error(); got != `store: put "a/b" [SlowDown]: store is throttling: five attempts` {
		t.Error(got)
	}
	if store.Fail(store.OpGet, "x", err) != err || store.Fail(store.OpGet, "x", nil) != nil {
		t.Error("Fail must keep an *Error as it is, and nil")
	}
	if !errors.Is(store.Fail(store.OpGet, "x", store.ErrShort), store.ErrShort) {
		t.Error("Fail must wrap")
	}
}
