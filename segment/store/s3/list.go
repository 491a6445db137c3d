package s3

import (
	"context"
	"fmt"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/segment/store"
)

func (s *Store) List(ctx context.Context, prefix, after string, max int) (store.Page, error) {
	if err := store.BeginList(ctx, prefix); err != nil {
		return store.Page{}, err
	}
	var page store.Page
	err := s.do(ctx, call{op: store.OpList, name: prefix, try: func(ctx context.Context, c *client) (err error) {
		page, err = s.list(ctx, c, prefix, after, store.PageSize(max))
		return err
	}})
	return page, err
}

// list reads one page. Keys that are no names of ours are counted, so that a page ends, but left out.
func (s *Store) list(ctx context.Context, c *client, prefix, after string, max int) (store.Page, error) {
	opts := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true, MaxKeys: max, FetchOwner: new(false)}
	if after != "" {
		opts.StartAfter = s.prefix + after
	}
	page := store.Page{Last: after}
	seen := 0
	for o := range c.ListObjectsIter(ctx, s.cfg.Bucket, opts) {
		if o.Err != nil {
			return store.Page{}, o.Err
		}
		name, ours := strings.CutPrefix(o.Key, s.prefix)
		if !ours || !strings.HasPrefix(name, prefix) || name <= page.Last {
			return store.Page{}, fmt.Errorf("%w: asked for the keys with prefix %q after %q, it lists %q", store.ErrConfig, opts.Prefix, s.prefix+page.Last, o.Key)
		}
		page.Last = name
		if store.Begin(ctx, store.OpList, name) == nil {
			page.Objects = append(page.Objects, store.Info{Name: name, Size: o.Size, Modified: o.LastModified})
		}
		if seen++; seen == max {
			page.More = true
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return store.Page{}, err // the iterator just ends then, and what it gave looks like all there is
	}
	return page, nil
}
