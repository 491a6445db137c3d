package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// For a table that was put back to an earlier moment, what was committed after that moment was never committed: nothing names it. Table and bucket are just as they
// would be if producers had put those segments and died before their commits, so no look at the two tells which of it was. There are two signs: an era that the
// table has not finished, or knows nothing of, which is certain; and a time in which segments were made, and none that was committed, which is not.

// UnrepairedError is a table whose repair is not finished, or that was put back to before one. Nothing was done.
type UnrepairedError struct {
	Era  string // the object of an era
	Done int64  // eras whose repair is finished, as far as the table knows
}

func (e *UnrepairedError) Error() string {
	return fmt.Sprintf("the bucket has %s, and the table knows of %d repairs that were finished: one was cut off, or the table was put back to before it; "+
		"finish it with 'varve repair', a sweep now would take what it is to bring back", e.Era, e.Done)
}

// unsettled is how old a segment is, at most, that a repair leaves to its producer: repair.Settled.
const unsettled = metadata.MaxSegmentAge * 3 / 2

// checkEra refuses a log whose repair is not finished, and notes which segments the last one has seen to.
func (r *run) checkEra(ctx context.Context) error {
	mark, err := r.table.EraMark(ctx)
	if err != nil {
		return unreadable(err)
	}
	for after, more := segment.EraName(mark.Done), true; more; {
		page, err := r.objects.List(ctx, segment.EraPrefix, after, 0)
		if err != nil {
			return err
		}
		if len(page.Objects) > 0 {
			return &UnrepairedError{page.Objects[0].Name, mark.Done}
		}
		after, more = page.Last, page.More
	}
	if mark.Done == 0 {
		return nil
	}
	last, err := objects.Era(ctx, r.objects, segment.EraName(mark.Done))
	if errors.Is(err, metadata.ErrCorrupt) {
		return references("%w", err)
	}
	if err != nil {
		return err
	}
	r.repaired = last.Begun.Add(-unsettled)
	return nil
}

// made is when segments were made that are named, of the restore window: of these all are. What is older may be archived, and named no more.
type made struct {
	since time.Time
	named map[int64]bool // by grains
}

// grain is what times are told apart by.
const grain = 10 * time.Second

func grainOf(id segment.ID) int64 { return id.Time().UnixMilli() / grain.Milliseconds() }

func madeSince(t time.Time) *made { return &made{t, map[int64]bool{}} }

func (m *made) note(id segment.ID) {
	if id.Time().After(m.since) {
		m.named[grainOf(id)] = true
	}
}

// inARow is how many of the orphans were made one after another, at most, while none was made that is named.
func (m *made) inARow(orphans []segment.ID) (most int64) {
	n, last := int64(0), int64(0)
	for _, id := range slices.SortedFunc(slices.Values(orphans), segment.ID.Compare) {
		if !id.Time().After(m.since) {
			continue
		}
		at := grainOf(id)
		for g := last; n > 0 && g < at; g++ {
			if m.named[g] {
				n = 0
			}
		}
		if n++; m.named[at] {
			n = 0
		}
		most, last = max(most, n), at
	}
	return most
}
