package fault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
	"github.com/varvelog/varve/segment/store/storetest"
)

func TestConformanceWithoutFaults(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s := fault.New(mem.New(), env.System(), nil)
		t.Cleanup(s.Close)
		return s
	})
}

// once injects f into the first call of that operation on that name.
func once(op store.Op, name string, f fault.Fault) fault.Hook {
	return func(c fault.Call) fault.Fault {
		if c.Op == op && c.Name == name && c.N == 1 {
			return f
		}
		return fault.Fault{}
	}
}

// exists looks past the faults.
func exists(t *testing.T, s store.Store, name string) bool {
	t.Helper()
	_, err := s.Stat(t.Context(), name)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestKinds(t *testing.T) {
	own := errors.New("own error")
	for _, c := range []struct {
		f       fault.Fault
		want    error
		applied bool
	}{
		{fault.Fault{}, nil, true},
		{fault.Fault{Kind: fault.LostBefore}, store.ErrUnavailable, false},
		{fault.Fault{Kind: fault.LostBefore, Err: own}, own, false},
		{fault.Fault{Kind: fault.LostAfter}, store.ErrUnavailable, true},
		{fault.Fault{Kind: fault.Throttled}, store.ErrThrottled, false},
		{fault.Fault{Kind: fault.Short}, store.ErrUnavailable, false},
	} {
		t.Run(c.f.Kind.String(), func(t *testing.T) {
			inner := mem.New()
			s := fault.New(inner, env.System(), once(store.OpPut, "a", c.f))
			defer s.Close()
			err := s.Put(t.Context(), "a", []byte("x"))
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			var e *store.Error
			if err != nil && (!errors.As(err, &e) || e.Op != store.OpPut || e.Name != "a") {
				t.Errorf("%v does not say put a", err)
			}
			if exists(t, inner, "a") != c.applied {
				t.Errorf("applied: %v, want %v", !c.applied, c.applied)
			}
			if err := s.Put(t.Context(), "a", []byte("x")); err != nil {
				t.Errorf("the second put: %v", err)
			}
		})
	}
}

// twoParts is an object of two parts.
func twoParts() func() ([]byte, error) {
	n := 0
	return func() ([]byte, error) {
		if n++; n > 2 {
			return nil, io.EOF
		}
		return bytes.Repeat([]byte{byte(n)}, store.MinPartBytes), nil
	}
}

// TestPartsFail: each step of PutParts fails in each way; there is an object only where the completion was applied.
func TestPartsFail(t *testing.T) {
	for _, step := range []struct {
		op store.Op
		n  int
	}{{fault.OpBegin, 1}, {fault.OpPart, 1}, {fault.OpPart, 2}, {fault.OpComplete, 1}} {
		for kind := fault.LostBefore; kind <= fault.Throttled; kind++ {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.New()
				var asked []store.Op
				s := fault.New(inner, env.System(), func(c fault.Call) fault.Fault {
					asked = append(asked, c.Op)
					if c.Op == step.op && c.N == step.n {
						return fault.Fault{Kind: kind, LateAfter: time.Minute}
					}
					return fault.Fault{}
				})
				defer s.Close()
				size, err := s.PutParts(t.Context(), "a", twoParts())
				if size != 0 || !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrThrottled) {
					t.Errorf("%s %d, %v: %d, %v", step.op, step.n, kind, size, err)
				}
				applied := step.op == fault.OpComplete && kind == fault.LostAfter
				if exists(t, inner, "a") != applied {
					t.Errorf("%s %d, %v: applied: %v, want %v", step.op, step.n, kind, !applied, applied)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if late := step.op == fault.OpComplete && kind == fault.Late; exists(t, inner, "a") != (applied || late) {
					t.Errorf("%s %d, %v, a minute later: wrong", step.op, step.n, kind)
				}
				if want := []store.Op{fault.OpBegin, fault.OpPart, fault.OpPart, fault.OpComplete}; !slices.Equal(asked, want[:len(asked)]) || len(asked) < step.n {
					t.Errorf("%s %d: asked for %v", step.op, step.n, asked)
				}
			})
		}
	}
}

// TestLate: the caller is told of a failure and changes its buffer; the put is applied afterwards all the same.
func TestLate(t *testing.T) {
	release := make(chan struct{})
	for _, f := range []fault.Fault{{Kind: fault.Late, LateAfter: time.Minute}, {Kind: fault.Late, LateOn: release}} {
		synctest.Test(t, func(t *testing.T) {
			inner := mem.New()
			if f.LateOn != nil {
				release = make(chan struct{})
				f.LateOn = release
			}
			s := fault.New(inner, env.System(), once(store.OpPut, "a", f))
			defer s.Close()
			body := []byte("body")
			if err := s.Put(t.Context(), "a", body); !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			clear(body)
			time.Sleep(time.Minute - 1)
			if exists(t, inner, "a") {
				t.Error("applied before its time")
			}
			time.Sleep(time.Nanosecond)
			if f.LateOn != nil {
				close(release)
			}
			synctest.Wait()
			if got, err := inner.Get(t.Context(), "a", 0, -1, nil); err != nil || string(got) != "body" {
				t.Errorf("applied late: %q, %v", got, err)
			}
		})
	}
}

func TestCloseDropsWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New()
		s := fault.New(inner, env.System(), func(fault.Call) fault.Fault { return fault.Fault{Kind: fault.Late, LateAfter: time.Hour} })
		s.Put(t.Context(), "a", nil)
		s.Close()
		time.Sleep(2 * time.Hour)
		if exists(t, inner, "a") {
			t.Error("applied after Close")
		}
	})
}

func TestDelayAndStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := fault.New(mem.New(), env.System(), func(c fault.Call) fault.Fault {
			return fault.Fault{Delay: 3 * time.Second, Stall: map[string]chan struct{}{"stalled": release}[c.Name]}
		})
		defer s.Close()
		start := time.Now()
		if err := s.Put(t.Context(), "a", nil); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.Put(ctx, "stalled", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled: %v", err)
		}
		time.AfterFunc(time.Hour, func() { close(release) })
		start = time.Now()
		if err := s.Put(t.Context(), "stalled", nil); err != nil || time.Since(start) != time.Hour {
			t.Errorf("released: %v after %v", err, time.Since(start))
		}
	})
}

func TestShort(t *testing.T) {
	inner := mem.New()
	if err := inner.Put(t.Context(), "a", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	s := fault.New(inner, env.System(), once(store.OpGet, "a", fault.Fault{Kind: fault.Short, Cut: 4}))
	defer s.Close()
	var seen string
	got, err := s.GetStream(t.Context(), "a", 0, -1, nil, func(b []byte) { seen = string(b) })
	if got != nil || !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, store.ErrShort) || seen != "0123" {
		t.Errorf("cut: %q, seen %q, %v", got, seen, err)
	}
	if got, err = s.Get(t.Context(), "a", 0, -1, nil); err != nil || string(got) != "0123456789" {
		t.Errorf("whole: %q, %v", got, err)
	}
}

func TestReadsAndDeletesFail(t *testing.T) {
	inner := mem.New()
	for _, name := range []string{"a", "b"} {
		if err := inner.Put(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []fault.Kind{fault.LostBefore, fault.LostAfter, fault.Late, fault.Throttled} {
		s := fault.New(inner, env.System(), func(fault.Call) fault.Fault { return fault.Fault{Kind: kind, LateAfter: time.Hour} })
		_, err := s.Stat(t.Context(), "a")
		_, err2 := s.Get(t.Context(), "a", 0, -1, nil)
		page, err3 := s.List(t.Context(), "", "", 0)
		err4 := s.Delete(t.Context(), "b")
		for i, err := range []error{err, err2, err3, err4} {
			if err == nil {
				t.Errorf("%v, call %d: no error", kind, i)
			}
		}
		if len(page.Objects) > 0 {
			t.Errorf("%v: an error with a page of %d", kind, len(page.Objects))
		}
		if exists(t, inner, "b") != (kind == fault.LostBefore) && kind < fault.Late {
			t.Errorf("%v: delete applied or not, wrongly", kind)
		}
		s.Close()
	}
}

// TestSeeded: one seed gives the same faults, in whatever order calls of other names come between.
func TestSeeded(t *testing.T) {
	rates := fault.Rates{LostBefore: 0.1, LostAfter: 0.1, Late: 0.1, Short: 0.1, Throttled: 0.1, DelayUpTo: time.Second, LateUpTo: time.Minute}
	counts := map[fault.Kind]int{}
	differ := 0
	one, again, other := fault.Seeded(1, rates), fault.Seeded(1, rates), fault.Seeded(2, rates)
	for i := range 10000 {
		c := fault.Call{Op: store.OpPut, Name: fmt.Sprint(i / 3), N: i % 3}
		f := one(c)
		counts[f.Kind]++
		if again(c) != f {
			t.Fatalf("%+v: %+v, then %+v", c, f, again(c))
		}
		if other(c) != f {
			differ++
		}
		if f.Delay < 0 || f.Delay > time.Second || f.LateAfter < 0 || f.LateAfter > time.Minute {
			t.Fatalf("%+v", f)
		}
	}
	for kind := fault.LostBefore; kind <= fault.Throttled; kind++ {
		if n := counts[kind]; n < 800 || n > 1200 {
			t.Errorf("%v came up %d times in 10,000 at a rate of 0.1", kind, n)
		}
	}
	if differ < 9000 {
		t.Errorf("another seed differs %d times of 10,000", differ)
	}
}

func TestStats(t *testing.T) {
	s := fault.New(mem.New(), env.System(), once(store.OpPut, "a", fault.Fault{Kind: fault.LostAfter}))
	defer s.Close()
	s.Put(t.Context(), "a", []byte("12345"))
	s.Put(t.Context(), "a", []byte("12345"))
	s.Get(t.Context(), "a", 1, 3, nil)
	st := s.Stats()
	if st.Calls[store.OpPut] != 2 || st.Calls[store.OpGet] != 1 || st.Kinds[fault.LostAfter] != 1 || len(st.Kinds) != 1 || st.Put != 10 || st.Got != 3 {
		t.Errorf("%+v", st)
	}
	st.Calls[store.OpPut] = 99
	if s.Stats().Calls[store.OpPut] != 2 {
		t.Error("Stats is not a copy")
	}
}
