package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// A table that was put back to an earlier moment is sound by itself. What tells is the bucket: segments of a time of which the table has no commit at all, and the
// objects of repairs that the table knows nothing of.

const (
	// stretch is the time that segments are counted by, and stretches how many such times are looked at: the days to which a table can be put back.
	stretch   = 10 * time.Minute
	stretches = int(35 * 24 * time.Hour / stretch)
	// leastDark is how many segments must be of a time without commits: producers that die leave one or two.
	leastDark = 4
)

// madeAt counts the segments of the bucket by the time of their ids.
type madeAt struct {
	named   map[int64]bool  // some commit names one
	orphans map[int64]int64 // how many nothing names
}

func (t *madeAt) add(r *run, id segment.ID, orphan bool) {
	n := id.Time().UnixMilli() / stretch.Milliseconds()
	if id.Place() != segment.InBucket || n < r.start.UnixMilli()/stretch.Milliseconds()-int64(stretches) {
		return
	}
	if t.named == nil {
		t.named, t.orphans = map[int64]bool{}, map[int64]int64{}
	}
	if orphan {
		t.orphans[n]++
	} else {
		t.named[n] = true
	}
}

// eras reads what the table knows of repairs.
func (r *run) eras(ctx context.Context) (err error) {
	r.mark, err = r.table.EraMark(ctx)
	if unreadable(err) {
		r.find(Finding{Kind: EraUnreadable, Item: metadata.EraKey().String(), What: err.Error()})
		return nil
	}
	return err
}

// behind tells of a table that is older than its bucket.
func (r *run) behind(ctx context.Context) error {
	last, err := r.lastEra(ctx, r.mark.Done)
	if err != nil {
		return err
	}
	if last.Number > r.mark.Done {
		r.find(Finding{Kind: RepairUnfinished, Object: segment.EraName(last.Number),
			What: fmt.Sprintf("the bucket knows of %d repairs, the table of %d that were finished: one was cut off, or the table was put back to before it", last.Number, r.mark.Done)})
	}
	var dark, first, latest int64
	for n, orphans := range r.made.orphans {
		if r.made.named[n] || time.UnixMilli((n+1)*stretch.Milliseconds()).Before(last.Begun) { // or it has been repaired
			continue
		}
		if dark += orphans; first == 0 || n < first {
			first = n
		}
		latest = max(latest, n)
	}
	if dark >= leastDark {
		at := func(n int64) string { return stamp(n * stretch.Milliseconds()) }
		r.find(Finding{Kind: TableBehind, What: fmt.Sprintf("%d segments were put into the bucket between %s and %s, at times of which the table has no commit: as if it had been put back to before that", dark, at(first), at(latest+1))})
	}
	return nil
}

// lastEra is the last era that the bucket knows of, zero before the first. A repair reads them all: which records an earlier one has appended again follows from its era.
func (r *run) lastEra(ctx context.Context, done int64) (last metadata.Era, err error) {
	names := r.eraObjects
	for n := int64(1); n <= done; n++ { // those that were finished are known to have been there
		if name := segment.EraName(n); n > int64(len(names)) || names[n-1] != name {
			names = append(slices.Clone(names), name) // made since they were listed, or gone
			break
		}
	}
	for _, name := range names {
		e, err := objects.Era(ctx, r.bucket, name)
		switch {
		case errors.Is(err, metadata.ErrCorrupt):
			r.find(Finding{Kind: EraUnreadable, Object: name, What: err.Error()})
		case errors.Is(err, store.ErrNotExist):
			r.find(Finding{Kind: EraUnreadable, Object: name, What: fmt.Sprintf("it is missing, and the table knows of %d repairs that were finished", done)})
		case err != nil:
			return last, err
		case e.Number > last.Number:
			last = e
		}
	}
	return last, nil
}

// leap takes the offsets that the next item states for those that were counted, where a repair has let the slot jump there.
func (w *walk) leap(ctx context.Context, bases metadata.Offsets) error {
	for s := range bases {
		if bases[s] == w.ends[s] || w.blind || bases[s] < metadata.EraStep {
			continue
		}
		state := w.state.Load()
		if state.Cut(metadata.Slot(s), bases[s]-1) == nil { // made since it was read
			var err error
			if state, err = w.fresh(ctx, w.lane); err != nil {
				return err
			}
		}
		for _, c := range state.Cuts {
			if int(c.Slot) == s && c.To == bases[s] && w.ends[s] < c.To && w.next >= c.Order {
				w.ends[s] = c.To
			}
		}
	}
	return nil
}
