package objects_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/mem"
)

// TestLogObjects: what the bucket says of the log itself, and what else may lie at its place. An object that is too large is never got.
func TestLogObjects(t *testing.T) {
	identity := metadata.Identity{Log: segment.LogID{1, 2}, Bucket: "b", Prefix: "p/"}
	era := metadata.Era{Number: 3, Back: time.UnixMilli(1_700_000_000_000).UTC(), Whole: time.UnixMilli(1_700_000_000_000).UTC(), Begun: time.UnixMilli(1_700_000_100_000).UTC(), Jump: metadata.EraStep}
	sound := func(b []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	eraName := segment.EraName(era.Number)
	for _, c := range []struct {
		name string
		body string
		read func(store.Getter) (any, error)
		want any
	}{
		{segment.IdentityName, sound(metadata.EncodeIdentity(identity)), func(g store.Getter) (any, error) { return objects.Identity(t.Context(), g) }, identity},
		{eraName, sound(metadata.EncodeEra(era)), func(g store.Getter) (any, error) { return objects.Era(t.Context(), g, eraName) }, era},
	} {
		s := &counted{Store: mem.New()}
		if _, err := c.read(s); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("no %s: %v", c.name, err)
		}
		if err := s.Put(t.Context(), c.name, []byte(c.body)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.read(s); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		for _, body := range []string{"", "{}", c.body[:len(c.body)-1], c.body + strings.Repeat(" ", 16<<10), strings.Replace(c.body, `"era":3`, `"era":2`, 1)} {
			if body == c.body {
				continue
			}
			s := &counted{Store: mem.New()}
			if err := s.Put(t.Context(), c.name, []byte(body)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.read(s); !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), c.name) || s.most > 16<<10 {
				t.Errorf("%s of %d bytes: %v; %d were got", c.name, len(body), err, s.most)
			}
		}
	}
}

// counted is a store that notes how much was got of it at once.
type counted struct {
	store.Store
	most int
}

func (c *counted) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	b, err := c.Store.Get(ctx, name, off, n, dst)
	c.most = max(c.most, len(b))
	return b, err
}
