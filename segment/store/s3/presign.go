package s3

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/varvelog/varve/segment/store"
)

var _ store.Presigner = (*Store)(nil)

// PresignGet implements store.Presigner. The link has the rights of the credentials that the store has now, and ends with them if they are temporary.
func (s *Store) PresignGet(ctx context.Context, name string, off, n int64, lifetime time.Duration) (store.Link, error) {
	if err := store.Begin(ctx, store.OpPresign, name); err != nil {
		return store.Link{}, err
	}
	if off < 0 || n < 1 || lifetime < time.Second || lifetime > store.MaxLinkLifetime {
		return store.Link{}, store.Fail(store.OpPresign, name, fmt.Errorf("%w: range [%d, %d+%d) for %v; a link is for 1 byte or more, and lives 1s to %v",
			store.ErrShort, off, off, n, lifetime, store.MaxLinkLifetime))
	}
	link := store.Link{Range: fmt.Sprintf("bytes=%d-%d", off, off+n-1)}
	err := s.do(ctx, call{op: store.OpPresign, name: name, try: func(ctx context.Context, c *client) error {
		link.Expires = s.cfg.Env.Now().Add(lifetime).UTC()
		u, err := c.PresignHeader(ctx, http.MethodGet, s.cfg.Bucket, s.prefix+name, lifetime, nil, http.Header{"Range": {link.Range}})
		if err == nil {
			link.URL = u.String()
		}
		return err
	}})
	return link, err
}
