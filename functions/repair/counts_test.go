package repair_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/local"
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
			12: exact + again - 12, 13: exact + again - 14, exact: again, exact + 3: again, metadata.EraStep - 1: again, metadata.EraStep: again, metadata.EraStep + 2: again - 2, end: 0,
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

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Over HTTP neither.
func TestACutIsNotCountedOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := restored(t)
		w.mustRepair(o)
		const exact, again = 15, 5
		service := local.New(w.log, local.Options{})
		log, err := sdk.Open(w.Context(), "http://localhost", sdk.WithTransport(transport(func(r *http.Request) (*http.Response, error) {
			answer := httptest.NewRecorder()
			service.ServeHTTP(answer, r)
			return answer.Result(), nil
		})))
		check(t, err)
		defer log.Close()
		d, err := log.Admin().DescribeTopic(w.Context(), "t")
		check(t, err)
		for _, l := range d.Load {
			if l.Records != exact+again {
				t.Errorf("%+v", l)
			}
		}
		r, err := log.NewReplay(w.Context(), "t")
		check(t, err)
		var records atomic.Int64
		check(t, r.Run(w.Context(), func(_ context.Context, f sdk.Fetch) error {
			records.Add(int64(len(f.Records)))
			return nil
		}))
		if p := r.Progress(); records.Load() != 2*(exact+again) || p.Offsets != 2*(exact+again) || p.Done != p.Offsets {
			t.Errorf("%d records, %+v", records.Load(), p)
		}
	})
}

// A group is never reset to where nobody can go on: an offset in a cut is refused, and shifts, times and ends pass it.
func TestResetPassesCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := restored(t)
		w.mustRepair(o)
		const exact, again = 15, 5 // of each partition
		const jump = metadata.EraStep
		admin := w.log.Admin()
		reset := func(to sdk.ResetTo) ([]sdk.OffsetChange, error) {
			return admin.ResetGroup(w.Context(), sdk.GroupReset{Group: "g", To: to})
		}
		w.committed("g", 7)
		before, err := admin.DescribeGroup(w.Context(), "g", sdk.Earliest)
		check(t, err)
		for offset, from := range map[int64]int64{13: 12, exact: exact, exact + 100: exact, jump - 1: exact} {
			var outside *sdk.RangeError
			want := sdk.RangeError{Topic: "t", Offset: offset, End: jump + again, CutFrom: from, CutTo: jump, Err: sdk.ErrRewritten}
			if offset == 13 {
				want.CutTo = 14
			}
			if _, err := reset(sdk.ResetTo{Position: sdk.AtOffset(offset)}); !errors.As(err, &outside) || *outside != want {
				t.Errorf("to %d: %v", offset, err)
			}
		}
		after, err := admin.DescribeGroup(w.Context(), "g", sdk.Earliest)
		check(t, err)
		for p := range after.Partitions {
			if after.Partitions[p].Committed != 7 {
				t.Errorf("refused resets changed %+v to %+v", before.Partitions, after.Partitions)
			}
		}
		between := w.env.Now().Add(-21*minute - 30*time.Second) // the last record is younger
		for _, x := range []struct {
			from int64
			to   sdk.ResetTo
			want int64
		}{
			{7, sdk.ResetTo{Position: sdk.AtOffset(exact - 1)}, exact - 1},
			{7, sdk.ResetTo{Position: sdk.AtOffset(jump)}, jump},
			{7, sdk.ResetTo{Position: sdk.Earliest}, 0},
			{7, sdk.ResetTo{Position: sdk.Latest}, jump + again},
			{7, sdk.ResetTo{Position: sdk.AtTime(between)}, jump + 4},
			{7, sdk.ResetTo{Shift: 4}, 11},
			{7, sdk.ResetTo{Shift: 5}, exact - 1}, // 12 and 13 were given twice
			{7, sdk.ResetTo{Shift: 6}, jump},
			{7, sdk.ResetTo{Shift: 8}, jump + 2},
			{7, sdk.ResetTo{Shift: 1 << 62}, jump + again},
			{7, sdk.ResetTo{Shift: -1 << 62}, 0},
			{jump + 2, sdk.ResetTo{Shift: -2}, jump},
			{jump + 2, sdk.ResetTo{Shift: -3}, exact - 1},
			{exact + 9, sdk.ResetTo{Shift: -2}, 11},
			{exact + 9, sdk.ResetTo{Shift: 2}, jump + 2},
		} {
			w.committed("g", x.from)
			changes, err := reset(x.to)
			check(t, err)
			for _, c := range changes {
				if c.To != x.want {
					t.Errorf("from %d by %+v to %d, want %d", x.from, x.to, c.To, x.want)
				}
			}
		}
		for start, want := range map[int64]int64{12: 12, exact + 3: jump} { // where a cut begins, from which it is passed with what it holds, and in one
			_, err = admin.DeleteRecords(w.Context(), "t", int(want/jump), start)
			check(t, err)
			changes, err := reset(sdk.ResetTo{Position: sdk.Earliest})
			check(t, err)
			if got := changes[want/jump].To; got != want {
				t.Errorf("to the log start, %d: %d, want %d", start, got, want)
			}
		}
	})
}

// The table was put back to before the first record. Where the archive has records of offsets that were given again, who reads from the beginning gets them, and who asks for one of
// those offsets is told.
func TestCutAtTheBeginning(t *testing.T) {
	for _, again := range []int{3, 12} { // fewer than were archived, and more
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.create("t", 2, 2)
			o, old := w.copied()
			a := w.writer()
			a.minutes("t", 9)
			w.compact("t")
			a.minutes("t", 1)
			w.putBack(old)
			a.minutes("t", again)
			time.Sleep(20 * minute)
			w.mustRepair(o)
			w.sound("t")
			w.all("t")
			w.whole()
			replay, err := w.log.NewReplay(w.Context(), "t", sdk.ReplayParallel(1))
			check(t, err)
			check(t, replay.Run(w.Context(), func(context.Context, sdk.Fetch) error { return nil }))
			if p := replay.Progress(); p.Records != int64(len(w.acks)) {
				t.Errorf("a replay: %+v, %d were acknowledged", p, len(w.acks))
			}
			c, err := w.log.NewConsumer(w.Context(), "g", []string{"t"}, sdk.StartAt(sdk.Earliest))
			check(t, err)
			defer c.Close(w.Context())
			for n := 0; n < len(w.acks); {
				fetches, err := c.Poll(w.Context())
				check(t, err)
				for _, f := range fetches {
					n += len(f.Records)
				}
			}
		})
	}
}
