package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/segment/store"
)

// maxDelete is the most keys of one request that deletes several.
const maxDelete = 1000

func (s *Store) Delete(ctx context.Context, names ...string) error {
	if err := store.Begin(ctx, store.OpDelete, names...); err != nil {
		return err
	}
	for batch := range slices.Chunk(names, maxDelete) {
		d := &deletion{s: s, left: slices.Clone(batch)}
		err := s.do(ctx, call{op: store.OpDelete, try: d.once})
		var e *store.Error
		if errors.As(err, &e) {
			e.Name = d.left[0]
			return err
		}
	}
	return nil
}

// deletion removes up to maxDelete objects, by as many attempts as it takes.
type deletion struct {
	s    *Store
	left []string
}

func (d *deletion) once(ctx context.Context, c *client) error {
	if len(d.left) == 1 {
		return c.RemoveObject(ctx, d.s.cfg.Bucket, d.s.prefix+d.left[0], minio.RemoveObjectOptions{})
	}
	return d.several(ctx, c)
}

// several takes as removed only what the answer says is: the client library passes over some failures.
func (d *deletion) several(ctx context.Context, c *client) error {
	keys := func(yield func(minio.ObjectInfo) bool) {
		for _, name := range d.left {
			if !yield(minio.ObjectInfo{Key: d.s.prefix + name}) {
				return
			}
		}
	}
	results, err := c.RemoveObjectsWithIter(ctx, d.s.cfg.Bucket, keys, minio.RemoveObjectsOptions{})
	if err != nil {
		return err
	}
	removed := make(map[string]bool, len(d.left))
	var first error
	for r := range results {
		if r.Err == nil || minio.ToErrorResponse(r.Err).Code == minio.NoSuchKey {
			removed[strings.TrimPrefix(r.ObjectName, d.s.prefix)] = true
		} else if first == nil {
			first = r.Err
		}
	}
	d.left = slices.DeleteFunc(d.left, func(name string) bool { return removed[name] })
	if first == nil && len(d.left) > 0 {
		first = fmt.Errorf("%w: %d of %d keys are not in it", errBroken, len(d.left), len(d.left)+len(removed))
	}
	return first
}
