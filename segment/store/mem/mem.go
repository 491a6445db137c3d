// Package mem is a store in memory. It polices the contract: other bytes under an existing name are refused,
// and so is a name that was ever deleted, which a bucket would accept. It is for tests, mem:// logs and as
// the thing that package fault wraps; no goroutine, no wait, so it works in a testing/synctest bubble.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

// Store implements store.Store. It keeps the names of deleted objects for as long as it lives.
type Store struct {
	clock env.Clock
	limit int64

	mu      sync.RWMutex
	objects map[string]object
	names   []string // of objects, sorted
	gone    map[string]struct{}
	size    int64
}

type object struct {
	body []byte // never changed
	info store.Info
}

// Option changes a default of New.
type Option func(*Store)

// Limit makes a Put that would bring the bodies to more than n bytes fail with store.ErrUnavailable, as a
// full disk does. The default is no limit.
func Limit(n int64) Option { return func(s *Store) { s.limit = n } }

// Clock is where Modified comes from. The default is the system's.
func Clock(c env.Clock) Option { return func(s *Store) { s.clock = c } }

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{clock: env.System(), objects: map[string]object{}, gone: map[string]struct{}{}}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Size is how many bytes the bodies have together.
func (s *Store) Size() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size
}

func (s *Store) Put(ctx context.Context, name string, body []byte) error {
	if err := store.Begin(ctx, store.OpPut, name); err != nil {
		return err
	}
	return store.Fail(store.OpPut, name, s.put(name, body, bytes.Clone))
}

// PutParts joins the parts, so that it needs as much memory again while it does.
func (s *Store) PutParts(ctx context.Context, name string, next func() ([]byte, error)) (int64, error) {
	if err := store.Begin(ctx, store.OpPut, name); err != nil {
		return 0, err
	}
	parts := store.NewParts(name, next)
	var all [][]byte
	for {
		part, err := parts.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		all = append(all, part)
	}
	mine := func(b []byte) []byte { return b }
	if err := s.put(name, slices.Concat(all...), mine); err != nil {
		return 0, store.Fail(store.OpPut, name, err)
	}
	return parts.Size, nil
}

// put creates the object of a body of which keep makes what may be kept.
func (s *Store) put(name string, body []byte, keep func([]byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[name]; ok {
		if !bytes.Equal(o.body, body) {
			return store.ErrExists
		}
		return nil
	}
	if _, ok := s.gone[name]; ok {
		return store.ErrReused
	}
	if s.limit > 0 && s.size+int64(len(body)) > s.limit {
		return fmt.Errorf("%w: %d bytes and %d more are over the limit of %d", store.ErrUnavailable, s.size, len(body), s.limit)
	}
	s.objects[name] = object{body: keep(body), info: store.Info{Name: name, Size: int64(len(body)), Modified: s.clock.Now()}}
	s.size += int64(len(body))
	i, _ := slices.BinarySearch(s.names, name)
	s.names = slices.Insert(s.names, i, name)
	return nil
}

func (s *Store) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	o, err := s.object(ctx, store.OpGet, name)
	if err != nil {
		return nil, err
	}
	end, err := store.Range(off, n, o.info.Size)
	if err != nil {
		return nil, store.Fail(store.OpGet, name, err)
	}
	return append(dst[:0], o.body[off:end]...), nil
}

func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	o, err := s.object(ctx, store.OpStat, name)
	return o.info, err
}

func (s *Store) object(ctx context.Context, op store.Op, name string) (object, error) {
	if err := store.Begin(ctx, op, name); err != nil {
		return object{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[name]
	if !ok {
		return object{}, store.Fail(op, name, store.ErrNotExist)
	}
	return o, nil
}

func (s *Store) List(ctx context.Context, prefix, after string, max int) (store.Page, error) {
	if err := store.BeginList(ctx, prefix); err != nil {
		return store.Page{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	max = store.PageSize(max)
	page := store.Page{Last: after}
	i, found := slices.BinarySearch(s.names, after)
	if found {
		i++
	}
	if from, _ := slices.BinarySearch(s.names, prefix); from > i {
		i = from
	}
	for ; i < len(s.names) && strings.HasPrefix(s.names[i], prefix); i++ {
		if len(page.Objects) == max {
			page.More = true
			break
		}
		page.Objects = append(page.Objects, s.objects[s.names[i]].info)
		page.Last = s.names[i]
	}
	return page, nil
}

func (s *Store) Delete(ctx context.Context, names ...string) error {
	if err := store.Begin(ctx, store.OpDelete, names...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		o, ok := s.objects[name]
		if !ok {
			continue
		}
		delete(s.objects, name)
		s.gone[name] = struct{}{}
		s.size -= o.info.Size
		i, _ := slices.BinarySearch(s.names, name)
		s.names = slices.Delete(s.names, i, i+1)
	}
	return nil
}
