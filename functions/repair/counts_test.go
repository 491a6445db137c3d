package repair_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// committed makes the table say that the group has committed this offset for both partitions of t.
func (w *world) committed(group string, offset int64) {
	w.Helper()
	table := w.adapter(w.env)
	row, err := table.Topic(w.Context(), "t")
	check(w, err)
	check(w, table.PutGroup(w.Context(), &metadata.Group{Name: group, Created: w.env.Now()}))
	lane, err := table.GroupLane(w.Context(), group, row.Lanes[0])
	check(w, err)
	var resets []metadata.OffsetReset
	for slot := range metadata.Slot(2) {
		resets = append(resets, metadata.OffsetReset{Slot: slot, From: lane.Slots[slot], Offset: offset})
	}
	_, err = table.ResetOffsets(w.Context(), group, row.Lanes[0], w.env.Now(), resets)
	check(w, err)
}

// The offsets of a cut are no records: not in the lag of a group, not in what is retained, not in a replay's progress.
func TestACutIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := restored(t)
		w.mustRepair(o)
		const exact, again = 15, 5 // of each partition; offsets 12 and 13 were given twice
		if n := len(w.read("t")); n != 2*(exact+again) {
			t.Fatalf("%d records", n)
		}
		admin := w.log.Admin()
		end := metadata.EraStep + again
		for committed, want := range map[int64]int64{
			-1: exact + again, 0: exact + again, 4: exact + again - 4, exact - 1: again + 1,
			12: exact + again - 14, 13: exact + again - 14, exact: again, exact + 3: again, metadata.EraStep - 1: again, metadata.EraStep: again, metadata.EraStep + 2: again - 2, end: 0,
		} {
			w.committed("g", committed)
			d, err := admin.DescribeGroup(w.Context(), "g", sdk.Earliest)
			check(t, err)
			for _, p := range d.Partitions {
				if p.Lag != want || p.End != end || p.Oldest.IsZero() != (want == 0) {
					t.Errorf("committed %d: lag %d to %d, oldest %v, want %d", committed, p.Lag, p.End, p.Oldest, want)
				}
			}
		}
		d, err := admin.DescribeTopic(w.Context(), "t")
		check(t, err)
		for _, l := range d.Load {
			if l.Records != exact+again {
				t.Errorf("%+v", l)
			}
		}
		r, err := w.log.NewReplay(w.Context(), "t", sdk.ReplayParallel(1))
		check(t, err)
		var first sdk.ReplayProgress
		check(t, r.Run(w.Context(), func(ctx context.Context, f sdk.Fetch) error {
			if first.Offsets == 0 {
				time.Sleep(time.Second)
				first = r.Progress()
			}
			return nil
		}))
		if p := r.Progress(); p.Offsets != 2*(exact+again) || p.Done != p.Offsets || p.Records != p.Offsets || first.Offsets != p.Offsets || first.Done != 0 {
			t.Errorf("at first %+v, then %+v", first, p)
		}
		_, err = admin.DeleteRecords(w.Context(), "t", 0, metadata.EraStep+1)
		check(t, err)
		w.committed("g", 5)
		g, err := admin.DescribeGroup(w.Context(), "g", sdk.Earliest)
		check(t, err)
		if p := g.Partitions[0]; p.Lost != exact-5+1 || p.Lag != again-1 {
			t.Errorf("overtaken by retention: lost %d, lag %d", p.Lost, p.Lag)
		}
	})
}
