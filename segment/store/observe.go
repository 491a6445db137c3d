package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// Call is one finished call of a Store.
type Call struct {
	Op       Op
	Name     string // of the object; the prefix of a list, the first name of a delete
	Bytes    int    // of the body put or got
	Requests int    // sent, retries included; what S3 would have been sent without failures where the adapter sends none
	Duration time.Duration
	Err      error
}

// Observe is s with f told of every call when it has ended. f runs in the caller's goroutine, may be called
// concurrently, and must not block.
func Observe(s Store, clock env.Clock, f func(Call)) Store {
	return &observed{s: s, clock: clock, f: f}
}

// CountRequest is called by an adapter for each request that it sends, with the context of the call that it
// serves.
func CountRequest(ctx context.Context) {
	if n, ok := ctx.Value(requestsKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
}

type requestsKey struct{}

type observed struct {
	s     Store
	clock env.Clock
	f     func(Call)
}

// watch runs one call and reports it. do fills in what only it knows.
func (o *observed) watch(ctx context.Context, c Call, do func(context.Context, *Call) error) error {
	var sent atomic.Int64
	start := o.clock.Mono()
	c.Err = do(context.WithValue(ctx, requestsKey{}, &sent), &c)
	c.Duration = o.clock.Mono() - start
	if n := int(sent.Load()); n > 0 || errors.Is(c.Err, ErrBadName) {
		c.Requests = n
	}
	o.f(c)
	return c.Err
}

func (o *observed) Put(ctx context.Context, name string, body []byte) error {
	return o.PutPieces(ctx, name, [][]byte{body})
}

func (o *observed) PutPieces(ctx context.Context, name string, pieces [][]byte) error {
	return o.watch(ctx, Call{Op: OpPut, Name: name, Bytes: SizeOf(pieces), Requests: 1}, func(ctx context.Context, _ *Call) error {
		return PutPieces(ctx, o.s, name, pieces)
	})
}

func (o *observed) PutParts(ctx context.Context, name string, next func() ([]byte, error)) (size int64, err error) {
	err = o.watch(ctx, Call{Op: OpPut, Name: name}, func(ctx context.Context, c *Call) (err error) {
		parts := NewParts(name, next)
		size, err = o.s.PutParts(ctx, name, func() ([]byte, error) { return parts.Next(ctx) })
		c.Bytes, c.Requests = int(parts.Size), 1
		if parts.Count > 1 {
			c.Requests = parts.Count + 2
		}
		return err
	})
	return size, err
}

func (o *observed) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	return o.GetStream(ctx, name, off, n, dst, nil)
}

func (o *observed) GetStream(ctx context.Context, name string, off, n int64, dst []byte, seen func([]byte)) (got []byte, err error) {
	err = o.watch(ctx, Call{Op: OpGet, Name: name, Requests: 1}, func(ctx context.Context, c *Call) (err error) {
		got, err = GetStream(ctx, o.s, name, off, n, dst, seen)
		c.Bytes = len(got)
		return err
	})
	return got, err
}

func (o *observed) Stat(ctx context.Context, name string) (info Info, err error) {
	err = o.watch(ctx, Call{Op: OpStat, Name: name, Requests: 1}, func(ctx context.Context, _ *Call) (err error) {
		info, err = o.s.Stat(ctx, name)
		return err
	})
	return info, err
}

func (o *observed) List(ctx context.Context, prefix, after string, max int) (page Page, err error) {
	err = o.watch(ctx, Call{Op: OpList, Name: prefix, Requests: 1}, func(ctx context.Context, _ *Call) (err error) {
		page, err = o.s.List(ctx, prefix, after, max)
		return err
	})
	return page, err
}

func (o *observed) Delete(ctx context.Context, names ...string) error {
	c := Call{Op: OpDelete, Requests: (len(names) + MaxPage - 1) / MaxPage}
	if len(names) > 0 {
		c.Name = names[0]
	}
	return o.watch(ctx, c, func(ctx context.Context, _ *Call) error { return o.s.Delete(ctx, names...) })
}
