package retain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
)

var errDied = errors.New("died")

// dying is a process that dies when it has changed half of the heads.
type dying struct {
	metadata.Table
	left int
}

func (d *dying) SetHeadConfig(ctx context.Context, lane metadata.LaneID, version int64, class segment.Class) error {
	if d.left == 0 {
		return errDied
	}
	d.left--
	return d.Table.SetHeadConfig(ctx, lane, version, class)
}

// halfAltered changes a topic by a process that dies half-way through the heads.
func (w *world) halfAltered(t *metadata.Topic, settings ...string) {
	w.t.Helper()
	_, err := topics.New(&dying{w.Table, len(t.Lanes) / 2}, w.env).Alter(w.ctx, t.Name, topics.Change{Set: config(settings)})
	if !errors.Is(err, errDied) {
		w.t.Fatal(err)
	}
}

// A change that has died half-way is completed: until then the heads that it had not reached took commits of the old class, and the old retention held.
func TestAChangeThatDiedIsFinished(t *testing.T) {
	w := newWorld(t)
	topic := w.create("t", 4, 1)
	w.halfAltered(topic, metadata.RetentionMs, ms(30*day))
	for _, lane := range topic.Lanes {
		w.commit(lane, born, extent{0, 1, 10})
	}
	if got := w.row("t").EffectiveRetention().Time; got != 7*day {
		t.Errorf("%v holds", got)
	}
	preview := w.mustRun(retain.Options{DryRun: true})
	report := w.mustRun(retain.Options{})
	if n := len(report.Topics[0].Behind); n != 2 || len(preview.Topics[0].Behind) != n {
		t.Errorf("%d lanes were behind, %v in the preview", n, preview.Topics[0].Behind)
	}
	for _, lane := range topic.Lanes {
		head, err := w.Table.Head(w.ctx, lane, metadata.Strong)
		check(t, err)
		state, err := w.Table.State(w.ctx, lane, metadata.Strong)
		check(t, err)
		if head.Class != 30 || head.ConfigVersion != 2 || head.Epochs[5] != 1 || state.Class != 30 || state.Version != 2 {
			t.Errorf("lane %s: head of class %s at version %d, epoch %d; state of class %s at version %d", lane, head.Class, head.ConfigVersion, head.Epochs[5], state.Class, state.Version)
		}
	}
	if again := w.mustRun(retain.Options{}); len(again.Topics[0].Behind) != 0 {
		t.Errorf("%v are behind again", again.Topics[0].Behind)
	}
	if row := w.row("t"); !slices.Equal(row.Stored, []segment.Class{7, 30}) {
		t.Errorf("stored %v: two lanes have records of r7d", row.Stored)
	}
	w.now = born.Add(7*day + time.Second)
	w.mustRun(retain.Options{})
	if row := w.row("t"); !slices.Equal(row.Stored, []segment.Class{30}) || row.EffectiveRetention().Time != 30*day {
		t.Errorf("stored %v: what was of r7d has expired", row.Stored)
	}
	if got := w.starts(topic); !slices.Equal(got, []int64{0, 0, 1, 1}) {
		t.Errorf("log starts %v: the records of the first two lanes are of r30d", got)
	}
}

// The preview of a run that finishes a change, and lets go of the old class at once as nothing is stored under it, says so.
func TestPreviewOfAChangeThatDied(t *testing.T) {
	w := newWorld(t)
	w.halfAltered(w.create("t", 4, 1), metadata.RetentionMs, ms(30*day))
	preview := w.mustRun(retain.Options{DryRun: true}).Topics[0]
	if row := w.row("t"); len(row.Stored) != 2 {
		t.Errorf("the preview has changed it: %v", row.Stored)
	}
	run := w.mustRun(retain.Options{}).Topics[0]
	if !slices.Equal(preview.Behind, run.Behind) || !slices.Equal(preview.Left, run.Left) || len(run.Behind) != 2 || len(run.Left) != 1 {
		t.Errorf("the preview says %v are behind and %v goes, the run %v and %v", preview.Behind, preview.Left, run.Behind, run.Left)
	}
}

// The old class is let go only when neither head nor chunk nor row names it above the log start, whichever it is that does.
func TestAClassIsLetGo(t *testing.T) {
	old := segment.Class(7)
	for name, c := range map[string]struct {
		stored func(w *world, t *metadata.Topic)
		left   bool
	}{
		"nothing is stored": {func(*world, *metadata.Topic) {}, true},
		"in the head":       {func(w *world, t *metadata.Topic) { w.commit(t.Lanes[1], w.now, extent{0, 1, 10}) }, false},
		"in a chunk": {func(w *world, t *metadata.Topic) {
			for range 16 {
				w.commit(t.Lanes[1], w.now, extent{0, 1, 10})
			}
		}, false},
		"in a row": {func(w *world, t *metadata.Topic) {
			for range 16 {
				w.commit(t.Lanes[1], w.now, extent{0, 1, 10})
			}
			w.archive(t, t.Lanes[1], 16, 2, old)
		}, false},
		"in chunks that are in the archive, under another": {func(w *world, t *metadata.Topic) {
			for range 16 {
				w.commit(t.Lanes[1], w.now, extent{0, 1, 10})
			}
			w.archive(t, t.Lanes[1], 16, 2, 30)
		}, true},
		"below the log start": {func(w *world, t *metadata.Topic) {
			for range 37 {
				w.commit(t.Lanes[1], w.now, extent{0, 1, 10})
			}
			w.archive(t, t.Lanes[1], 16, 2, old)
			_, err := w.Table.SetStart(w.ctx, t.Lanes[1], 0, 37)
			check(w.t, err)
		}, true},
		"one record above the log start": {func(w *world, t *metadata.Topic) {
			for range 37 {
				w.commit(t.Lanes[1], w.now, extent{0, 2, 10})
			}
			_, err := w.Table.SetStart(w.ctx, t.Lanes[1], 0, 37*2-1)
			check(w.t, err)
		}, false},
		"bytes that were withdrawn":      {func(w *world, t *metadata.Topic) { w.commit(t.Lanes[1], w.now, extent{0, 0, 10}) }, true},
		"in a slot that is no partition": {func(w *world, t *metadata.Topic) { w.commit(t.Lanes[1], w.now, extent{5, 1, 10}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			topic := w.create("t", 3, 1)
			c.stored(w, topic)
			w.alter("t", metadata.RetentionMs, ms(30*day))
			preview := w.mustRun(retain.Options{DryRun: true})
			if row := w.row("t"); !slices.Equal(row.Stored, []segment.Class{7, 30}) {
				t.Fatalf("the preview has changed it: %v", row.Stored)
			}
			report := w.mustRun(retain.Options{})
			want, left := []segment.Class{7, 30}, ""
			if c.left {
				want, left = []segment.Class{30}, "[r7d]"
			}
			if row := w.row("t"); !slices.Equal(row.Stored, want) || row.Version != 2 {
				t.Errorf("stored %v, want %v", row.Stored, want)
			}
			for _, r := range []*retain.Report{preview, report} {
				if got := r.Topics[0].Left; c.left != (len(got) == 1) || c.left && fmt.Sprint(got) != left {
					t.Errorf("left %v", got)
				}
			}
		})
	}
}

// A compactor that has read the row before the change, and writes to the old class what is appended after it, cannot publish that once the change is through.
// Else the longer retention would be promised for what the old class's rule deletes.
func TestACompactorOfTheOldClassComesTooLate(t *testing.T) {
	w := newWorld(t)
	topic := w.create("t", 1, 1)
	w.alter("t", metadata.RetentionMs, ms(30*day))
	for range 16 {
		w.commit(topic.Lanes[0], w.now, extent{0, 1, 10})
	}
	late := w.publication(topic, topic.Lanes[0], 16, 4, topic.Class())
	w.mustRun(retain.Options{})
	if row := w.row("t"); !slices.Equal(row.Stored, []segment.Class{30}) {
		t.Fatalf("stored %v", row.Stored)
	}
	if err := w.Table.Publish(w.ctx, late); !errors.Is(err, metadata.ErrChanged) {
		t.Errorf("published: %v", err)
	}
	w.archive(topic, topic.Lanes[0], 16, 4, 30)
}

// A change in the midst of the look keeps the class.
func TestAChangeWhileLooking(t *testing.T) {
	for at := 0; ; at++ {
		w := newWorld(t)
		w.create("t", 2, 1)
		w.alter("t", metadata.RetentionMs, ms(30*day))
		happened := false
		w.before = func(n int, _ string) {
			if n == at {
				happened = true
				topic := w.alter("t", metadata.RetentionMs, ms(7*day))
				w.commit(topic.Lanes[0], w.now, extent{0, 1, 10})
				w.alter("t", metadata.RetentionMs, ms(60*day))
			}
		}
		w.mustRun(retain.Options{})
		if !happened {
			break
		}
		if row := w.row("t"); !slices.Contains(row.Stored, 7) || row.EffectiveRetention().Time != 7*day {
			t.Errorf("before request %d: stored %v, though a record is of r7d", at, row.Stored)
		}
	}
}

// Shortening holds at once, and what was stored for longer does not come back.
func TestRetentionIsShortened(t *testing.T) {
	w := newWorld(t)
	topic := w.create("t", 1, 1, metadata.RetentionMs, ms(30*day))
	for i := range 30 {
		w.commit(topic.Lanes[0], born.Add(time.Duration(i)*day), extent{0, 1, 10})
	}
	w.now = born.Add(29*day + time.Hour)
	w.mustRun(retain.Options{}) // which notes how old the oldest is
	w.alter("t", metadata.RetentionMs, ms(3*day))
	w.mustRun(retain.Options{})
	if got := w.starts(topic)[0]; got != 27 {
		t.Errorf("log start %d", got)
	}
	w.alter("t", metadata.RetentionMs, "-1")
	if got := w.row("t").EffectiveRetention().Time; got != 3*day {
		t.Errorf("%v hold while records of r3d and r30d are there", got)
	}
}

// What was moved to the new class in front of something of the old class goes with it: the old class's rule deletes that, and the log has no holes. What is
// behind it, and was written to the new class from the start, stays.
func TestOfTwoClasses(t *testing.T) {
	w := newWorld(t)
	topic := w.create("t", 1, 1)
	lane := topic.Lanes[0]
	for i := range 24 {
		w.commit(lane, born.Add(time.Duration(i)*time.Hour), extent{0, 1, 10})
	}
	changed := w.alter("t", metadata.RetentionMs, ms(30*day))
	for i := range 24 {
		w.commit(lane, born.Add(day+time.Duration(i)*time.Hour), extent{0, 1, 10})
	}
	w.archive(changed, lane, 16, 8, 30) // two rows, of the hours to 7 and to 15
	for _, c := range []struct {
		now    time.Time
		want   int64
		stored []segment.Class
	}{
		{born.Add(7*day + 15*time.Hour), 0, []segment.Class{7, 30}}, // nothing of r7d has expired
		{born.Add(7*day + 17*time.Hour), 17, []segment.Class{7, 30}},
		{born.Add(7*day + 23*time.Hour), 23, []segment.Class{7, 30}},
		{born.Add(9 * day), 24, []segment.Class{30}},
		{born.Add(31*day + time.Hour), 25, []segment.Class{30}},
	} {
		w.now = c.now
		w.mustRun(retain.Options{})
		if got, row := w.starts(topic)[0], w.row("t"); got != c.want || !slices.Equal(row.Stored, c.stored) {
			t.Errorf("after %v: log start %d, stored %v; want %d, %v", c.now.Sub(born), got, row.Stored, c.want, c.stored)
		}
	}
}
