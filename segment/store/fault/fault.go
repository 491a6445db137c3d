// Package fault wraps a store so that single calls go wrong as they do with a bucket: refused, applied with
// the answer lost, applied long after the caller was told of a failure, slow, stalled, cut short, throttled.
// Time comes from an env.Clock, so it works in a testing/synctest bubble.
package fault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

// Kind is what becomes of a call.
type Kind uint8

const (
	None       Kind = iota
	LostBefore      // not applied; the caller sees a failure
	LostAfter       // applied; the caller sees a failure
	Late            // the caller sees a failure, then a put or a delete is applied; a read is LostBefore
	Short           // a get breaks off after Cut bytes, as seen by a caller whose adapter could not resume; anything else is LostBefore
	Throttled       // not applied; store.ErrThrottled
	kinds
)

func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return [kinds]string{"none", "lost before", "lost after", "late", "short", "throttled"}[k]
}

// Steps of PutParts, as a Hook is asked about them, in this order: OpBegin once, OpPart for each part, OpComplete once. Where one of the first two
// fails there is no object; OpComplete fails as a put does.
const (
	OpBegin    store.Op = "begin"
	OpPart     store.Op = "part"
	OpComplete store.Op = "complete"
)

// Fault is what happens to one call. The zero value lets it through.
type Fault struct {
	Delay time.Duration   // waited first; ended by the caller's context
	Stall <-chan struct{} // then waited for, unless nil; ended by the caller's context
	Kind  Kind
	Err   error // what the caller sees, wrapped in a *store.Error; nil: store.ErrUnavailable, or store.ErrThrottled for Throttled

	Cut       int64           // Short: bytes that arrive
	LateAfter time.Duration   // Late: applied after this time,
	LateOn    <-chan struct{} // or, if not nil, when this is closed
}

// Call is what a Hook decides on. N counts the calls of this operation on this name, from 1.
type Call struct {
	Op    store.Op
	Name  string // of the object; the prefix of a list, the first name of a delete
	N     int
	Bytes int // of the body of a put, or of the part
}

// Hook decides what happens to a call. It may be called concurrently.
type Hook func(Call) Fault

// Stats counts what went through the wrapper.
type Stats struct {
	Calls map[store.Op]int
	Kinds map[Kind]int // faults of each kind
	Put   int64        // bytes of bodies put, applied or not
	Got   int64        // bytes that gets returned
}

// Store implements store.Store.
type Store struct {
	inner store.Store
	env   env.Env
	hook  Hook

	mu    sync.Mutex
	nth   map[store.Op]map[string]int
	stats Stats

	late     sync.WaitGroup
	ctx      context.Context // ends what is late
	stopLate context.CancelFunc
}

// New wraps inner. A nil hook injects nothing. Close must be called.
func New(inner store.Store, e env.Env, hook Hook) *Store {
	if hook == nil {
		hook = func(Call) Fault { return Fault{} }
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Store{
		inner: inner, env: e, hook: hook, ctx: ctx, stopLate: cancel, nth: map[store.Op]map[string]int{},
		stats: Stats{Calls: map[store.Op]int{}, Kinds: map[Kind]int{}},
	}
}

// Close drops what is late and not applied yet, and waits until nothing is being applied.
func (s *Store) Close() {
	s.stopLate()
	s.late.Wait()
}

// Stats is a copy of the counts so far.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.stats
	c.Calls, c.Kinds = map[store.Op]int{}, map[Kind]int{}
	for op, n := range s.stats.Calls {
		c.Calls[op] = n
	}
	for k, n := range s.stats.Kinds {
		c.Kinds[k] = n
	}
	return c
}

func (s *Store) Put(ctx context.Context, name string, body []byte) error {
	return s.do(ctx, Call{Op: store.OpPut, Name: name, Bytes: len(body)}, func() func(context.Context) error {
		kept := bytes.Clone(body) // the caller may use body again once it has its error
		return func(ctx context.Context) error { return s.inner.Put(ctx, name, kept) }
	}, func(Fault) error { return s.inner.Put(ctx, name, body) })
}

// PutParts keeps the parts until it is done, because they may be applied late.
func (s *Store) PutParts(ctx context.Context, name string, next func() ([]byte, error)) (size int64, err error) {
	if err := store.Begin(ctx, store.OpPut, name); err != nil {
		return 0, err
	}
	one := func(op store.Op, n int) error {
		return s.do(ctx, Call{Op: op, Name: name, Bytes: n}, nil, func(Fault) error { return nil })
	}
	if err := one(OpBegin, 0); err != nil {
		return 0, err
	}
	parts := store.NewParts(name, next)
	var kept [][]byte
	for {
		part, err := parts.Next(ctx)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = one(OpPart, len(part))
		}
		if err != nil {
			return 0, err
		}
		kept = append(kept, part)
	}
	put := func(ctx context.Context) error {
		_, err := s.inner.PutParts(ctx, name, each(kept))
		return err
	}
	err = s.do(ctx, Call{Op: OpComplete, Name: name}, func() func(context.Context) error { return put }, func(Fault) error { return put(ctx) })
	if err != nil {
		return 0, err
	}
	return parts.Size, nil
}

// each returns one after another.
func each(parts [][]byte) func() ([]byte, error) {
	return func() ([]byte, error) {
		if len(parts) == 0 {
			return nil, io.EOF
		}
		part := parts[0]
		parts = parts[1:]
		return part, nil
	}
}

func (s *Store) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	return s.GetStream(ctx, name, off, n, dst, nil)
}

// GetStream shows what the inner store shows, of a get that breaks off only what arrives.
func (s *Store) GetStream(ctx context.Context, name string, off, n int64, dst []byte, seen func([]byte)) (got []byte, err error) {
	err = s.do(ctx, Call{Op: store.OpGet, Name: name}, nil, func(f Fault) (err error) {
		arrives := seen
		if seen != nil && f.Kind == Short {
			arrives = func(b []byte) { seen(b[:min(int64(len(b)), f.Cut)]) }
		}
		got, err = store.GetStream(ctx, s.inner, name, off, n, dst, arrives)
		if err == nil && f.Kind == Short && f.Cut < int64(len(got)) {
			return store.Fail(store.OpGet, name, fmt.Errorf("%w: %d of %d bytes came: %w", store.ErrUnavailable, f.Cut, len(got), io.ErrUnexpectedEOF))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.count(func(st *Stats) { st.Got += int64(len(got)) })
	return got, nil
}

func (s *Store) Stat(ctx context.Context, name string) (info store.Info, err error) {
	err = s.do(ctx, Call{Op: store.OpStat, Name: name}, nil, func(Fault) (err error) {
		info, err = s.inner.Stat(ctx, name)
		return err
	})
	return info, err
}

func (s *Store) List(ctx context.Context, prefix, after string, max int) (page store.Page, err error) {
	err = s.do(ctx, Call{Op: store.OpList, Name: prefix}, nil, func(Fault) (err error) {
		page, err = s.inner.List(ctx, prefix, after, max)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

func (s *Store) Delete(ctx context.Context, names ...string) error {
	c := Call{Op: store.OpDelete}
	if len(names) > 0 {
		c.Name = names[0]
	}
	return s.do(ctx, c, func() func(context.Context) error {
		kept := slices.Clone(names)
		return func(ctx context.Context) error { return s.inner.Delete(ctx, kept...) }
	}, func(Fault) error { return s.inner.Delete(ctx, names...) })
}

// do runs one call: asks the hook, waits, then applies or not. later, if not nil, prepares what Late applies.
func (s *Store) do(ctx context.Context, c Call, later func() func(context.Context) error, apply func(Fault) error) error {
	f := s.decide(&c)
	if err := s.wait(ctx, f); err != nil {
		return store.Fail(c.Op, c.Name, err)
	}
	switch {
	case f.Kind == None || f.Kind == Short && c.Op == store.OpGet:
		return apply(f)
	case f.Kind == LostAfter:
		if err := apply(f); err != nil {
			return err
		}
	case f.Kind == Late && later != nil:
		s.applyLate(f, later())
	}
	return f.failure(c)
}

func (s *Store) decide(c *Call) Fault {
	s.count(func(st *Stats) {
		st.Calls[c.Op]++
		st.Put += int64(c.Bytes)
		if s.nth[c.Op] == nil {
			s.nth[c.Op] = map[string]int{}
		}
		s.nth[c.Op][c.Name]++
		c.N = s.nth[c.Op][c.Name]
	})
	f := s.hook(*c)
	if f.Kind != None {
		s.count(func(st *Stats) { st.Kinds[f.Kind]++ })
	}
	return f
}

func (s *Store) wait(ctx context.Context, f Fault) error {
	if f.Delay > 0 {
		if err := s.env.Sleep(ctx, f.Delay); err != nil {
			return err
		}
	}
	if f.Stall != nil {
		select {
		case <-f.Stall:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Store) applyLate(f Fault, apply func(context.Context) error) {
	s.late.Go(func() {
		if f.LateOn != nil {
			select {
			case <-f.LateOn:
			case <-s.ctx.Done():
				return
			}
		} else if s.env.Sleep(s.ctx, f.LateAfter) != nil {
			return
		}
		apply(s.ctx) // nobody is left who could be told of its outcome
	})
}

func (s *Store) count(f func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

func (f Fault) failure(c Call) error {
	e := &store.Error{Op: c.Op, Name: c.Name, Err: f.Err}
	if f.Kind == Throttled {
		e.Code = "SlowDown"
	}
	if e.Err == nil {
		e.Err = fmt.Errorf("%w: injected, %s", store.ErrUnavailable, f.Kind)
		if f.Kind == Throttled {
			e.Err = store.ErrThrottled
		}
	}
	return e
}
