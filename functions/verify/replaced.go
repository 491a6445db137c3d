package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// replacedPage is how many entries of the work list are asked for at once.
const replacedPage = 100

// replaced goes through the work list of the sweep, after the rows: what was published since those were read is in it, and so are the archive segments that
// others have taken the place of and that wait for the sweep. One that a row still names stays named.
func (r *run) replaced(ctx context.Context) error {
	if r.named == nil {
		return nil
	}
	for hash := range 256 {
		if err := r.replacedOf(ctx, fmt.Sprintf("%02x", hash)); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) replacedOf(ctx context.Context, hash string) error {
	for after, more := (segment.ID{}), true; more; {
		var page []*metadata.Replaced
		var err error
		page, more, err = r.table.Replaced(ctx, hash, after, last, replacedPage)
		if unreadable(err) {
			page, more, err = r.table.Replaced(ctx, hash, after, last, 1)
		}
		if unreadable(err) {
			var known bool
			if after, known = r.unreadableEntry(hash, after, err); !known {
				return nil
			}
			more = true
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range page {
			after = e.ID
			r.name(e.ID, true)
			for _, id := range e.Left {
				r.name(id, true)
			}
		}
		more = more && len(page) > 0
	}
	return nil
}

// unreadableEntry tells of an entry that cannot be read, and which it is, if that is known.
func (r *run) unreadableEntry(hash string, after segment.ID, err error) (id segment.ID, known bool) {
	key := metadata.ReplacedCollection(hash)
	var e *metadata.Error
	if errors.As(err, &e) {
		pk, sk, _ := strings.Cut(e.Key, "|")
		key = metadata.Key{PK: pk, SK: sk}
		found, bad := metadata.ParseSegmentKey(key)
		id, known = found, bad == nil && after.Less(found)
	}
	r.find(Finding{Kind: ReplacedUnreadable, Item: key.String(), What: "an entry of the sweep's work list cannot be read: " + err.Error()})
	r.unclear()
	return id, known
}
