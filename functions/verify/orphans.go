package verify

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// maxPublish is how long after its id was minted an archive segment is published at most: no compaction runs longer, and the sweep's floor follows at that
// distance.
const maxPublish = time.Hour

// orphans lists the bucket, and the small segments of the table, for what no commit and no row names. Those that were too old to be committed or published when
// the check began cannot have been since; of younger ones nothing can be said.
func (r *run) orphans(ctx context.Context) error {
	if r.named == nil {
		return nil
	}
	if r.holes {
		r.find(Finding{Kind: OrphansUnknown, What: "objects that nothing names were not looked for, because not all that commits and rows name could be read"})
		return nil
	}
	alien, aliens := "", int64(0)
	for after, more := "", true; more; {
		page, err := r.bucket.List(ctx, "", after, 0)
		if err != nil {
			return err
		}
		var found heaps
		for _, o := range page.Objects {
			name, err := segment.ParseName(o.Name)
			switch {
			case segment.IsRecord(o.Name):
				if strings.HasPrefix(o.Name, segment.EraPrefix) {
					r.eraObjects = append(r.eraObjects, o.Name)
				}
			case err != nil:
				aliens, alien = aliens+1, o.Name
			default:
				r.sort(name.ID, o.Size, &found)
			}
		}
		r.progress(func(p *Progress) {
			p.Listed += int64(len(page.Objects))
			found.join(p)
		})
		after, more = page.Last, page.More
	}
	if err := r.small(ctx); err != nil {
		return err
	}
	r.leftovers(alien, aliens)
	return r.behind(ctx)
}

// heaps are what was found of each sort.
type heaps struct{ superseded, orphans, recent Heap }

func (h *heaps) join(p *Progress) {
	p.Superseded.join(h.superseded)
	p.Orphans.join(h.orphans)
	p.Recent.join(h.recent)
}

// sort adds a segment to the heap that it belongs to; one that is named, to none.
func (r *run) sort(id segment.ID, bytes int64, h *heaps) {
	age := maxLate
	if id.Place() == segment.Archived {
		age = maxPublish
	}
	switch {
	case r.named.Has(id):
		r.made.add(r, id, false)
	case r.named.Has(mark(id)):
		h.superseded.add(bytes)
		r.made.add(r, id, false)
	case id.Time().Before(r.start.Add(-age)):
		h.orphans.add(bytes)
		r.made.add(r, id, true)
	default:
		h.recent.add(bytes)
	}
}

// mark is a superseded segment in run.named: in a place that there is not.
func mark(id segment.ID) segment.ID { return id.In(id.Place() + 4) }

// name notes that something names a segment, or that it is superseded.
func (r *run) name(id segment.ID, superseded bool) {
	switch {
	case r.named == nil:
	case superseded:
		r.named.Add(mark(id))
	default:
		r.named.Add(id)
	}
}

// last is above every id.
var last = segment.NewID(time.UnixMilli(math.MaxInt64), 0, segment.InTable, 0, segment.ID{})

// small goes through the small segments of the table. Their sizes are not known without reading them.
func (r *run) small(ctx context.Context) error {
	for hash := range 256 {
		for after, more := (segment.ID{}), true; more; {
			ids, again, err := r.table.SmallIDs(ctx, fmt.Sprintf("%02x", hash), after, last, store.MaxPage)
			if err != nil {
				return err
			}
			var found heaps
			for _, id := range ids {
				r.sort(id, 0, &found)
				after = id
			}
			r.progress(found.join)
			more = again
		}
	}
	return nil
}

func (h *Heap) add(bytes int64) { h.Objects, h.Bytes = h.Objects+1, h.Bytes+bytes }

func (h *Heap) join(o Heap) { h.Objects, h.Bytes = h.Objects+o.Objects, h.Bytes+o.Bytes }

// leftovers tells what the listing has found.
func (r *run) leftovers(alien string, aliens int64) {
	if o := r.at.Orphans; o.Objects > 0 {
		r.find(Finding{Kind: Orphans, What: fmt.Sprintf("%d objects of %d bytes are named by no commit and no row of the archive, and were made too long before this check for that to come (some %.1g %% of such objects are missed)",
			o.Objects, o.Bytes, 100*r.named.Missed())})
	}
	if aliens > 0 {
		r.find(Finding{Kind: NameUnknown, Object: alien, What: fmt.Sprintf("%d objects have names that varve does not give, this one among them", aliens)})
	}
}
