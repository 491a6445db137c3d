package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/segment/store"
)

func (s *Store) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	return s.GetStream(ctx, name, off, n, dst, nil)
}

// GetStream is Get, by reads of at most StreamBytes from the connection.
func (s *Store) GetStream(ctx context.Context, name string, off, n int64, dst []byte, seen func([]byte)) ([]byte, error) {
	if err := store.Begin(ctx, store.OpGet, name); err != nil {
		return nil, err
	}
	if _, err := store.Range(off, n, math.MaxInt64); err != nil {
		return nil, store.Fail(store.OpGet, name, err)
	}
	g := &get{s: s, name: name, off: off, n: n, got: dst[:0], seen: seen}
	if err := s.do(ctx, call{op: store.OpGet, name: name, size: max(n, unknownSize), try: g.once}); err != nil {
		return nil, err
	}
	return g.got, nil
}

func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	if err := store.Begin(ctx, store.OpStat, name); err != nil {
		return store.Info{}, err
	}
	var info store.Info
	err := s.do(ctx, call{op: store.OpStat, name: name, try: func(ctx context.Context, c *client) (err error) {
		info, err = s.stat(ctx, c, name)
		return err
	}})
	return info, err
}

func (s *Store) stat(ctx context.Context, c *client, name string) (store.Info, error) {
	o, err := c.StatObject(ctx, s.cfg.Bucket, s.prefix+name, minio.StatObjectOptions{})
	if err != nil {
		return store.Info{}, err
	}
	if o.Size < 0 {
		return store.Info{}, fmt.Errorf("%w: no length", errBroken)
	}
	return store.Info{Name: name, Size: o.Size, Modified: o.LastModified}, nil
}

const (
	unknownSize = 16 << 20 // what an attempt is given time for at least; one that is cut off is resumed
	growth      = 16 << 20 // how far a length that the service claims is believed before its bytes have come
)

// get reads one range, by as many attempts as it takes: each goes on where the one before broke off.
type get struct {
	s      *Store
	name   string
	off, n int64
	got    []byte
	seen   func([]byte) // nil: nobody looks at what has come before all has
}

// once makes one attempt. The range that the answer claims to be, its total, and the bytes that really come are
// all checked: any of them may be wrong in an answer that looks like a success.
func (g *get) once(ctx context.Context, c *client) error {
	if g.n == 0 {
		info, err := g.s.stat(ctx, c, g.name) // no request can ask for no bytes
		if err == nil {
			_, err = store.Range(g.off, 0, info.Size)
		}
		return err
	}
	from := g.off + int64(len(g.got))
	var opts minio.GetObjectOptions
	ranged := g.n > 0 || from > 0
	if g.n > 0 {
		opts.SetRange(from, g.off+g.n-1)
	} else if ranged {
		opts.SetRange(from, 0) // to the end
	}
	body, info, header, err := c.GetObject(ctx, g.s.cfg.Bucket, g.s.prefix+g.name, opts)
	if status(err) == http.StatusRequestedRangeNotSatisfiable {
		return g.beyond(ctx, c)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	end, err := g.end(ranged, from, header.Get("Content-Range"), info.Size)
	if err != nil {
		return err
	}
	return g.read(body, end)
}

// beyond settles an answer that the range starts after the last byte, which is right for the rest of an object
// that has no rest.
func (g *get) beyond(ctx context.Context, c *client) error {
	info, err := g.s.stat(ctx, c, g.name)
	if err != nil {
		return err
	}
	if _, err := store.Range(g.off, g.n, info.Size); err != nil {
		return err
	}
	if from := g.off + int64(len(g.got)); g.n < 0 && from == info.Size {
		return nil
	}
	return fmt.Errorf("%w: the range was refused, but the object has %d bytes", errBroken, info.Size)
}

// end is the offset after the last byte wanted, -1 for as many as come. length is that of the body, or -1.
func (g *get) end(ranged bool, from int64, contentRange string, length int64) (int64, error) {
	if contentRange == "" {
		if from > 0 {
			return 0, fmt.Errorf("%w: the service does not honour ranges", store.ErrConfig)
		}
		if length < 0 {
			if ranged {
				return g.n, nil
			}
			return -1, nil
		}
		return store.Range(g.off, g.n, length)
	}
	r, err := parseContentRange(contentRange)
	if err != nil {
		return 0, err
	}
	if !ranged || r.first != from {
		return 0, fmt.Errorf("%w: it is the range %q, asked for was byte %d on", errBroken, contentRange, from)
	}
	if r.total < 0 {
		return g.off + g.n, nil
	}
	return store.Range(g.off, g.n, r.total)
}

// read appends body to got until it holds everything before the object's byte end.
func (g *get) read(body io.Reader, end int64) error {
	want := int64(math.MaxInt64)
	if end >= 0 {
		want = end - g.off
	}
	for int64(len(g.got)) < want {
		if len(g.got) == cap(g.got) {
			g.got = slices.Grow(g.got, int(min(want-int64(len(g.got)), growth)))
		}
		room := g.got[len(g.got):min(int64(cap(g.got)), want)]
		if g.seen != nil {
			room = room[:min(len(room), store.StreamBytes)]
		}
		n, err := body.Read(room)
		g.got = g.got[:len(g.got)+n]
		if g.seen != nil && n > 0 {
			g.seen(g.got)
		}
		if errors.Is(err, io.EOF) && end < 0 {
			return nil
		}
		if err != nil && int64(len(g.got)) < want {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("%w: the body broke off after %d bytes of %d: %w", errBroken, len(g.got), want, err)
		}
	}
	return nil
}
