package retain_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// The fraction of retention.bytes that a group's next record has used up is 1 or more exactly where a run that comes now deletes the record: for each record of
// random histories with rows, chunks and heads.
func TestLagAndRetentionBytes(t *testing.T) {
	deleted, kept, closest := 0, 0, 0.0
	for seed := range uint64(3) {
		rnd := env.NewRand(seed)
		w := newWorld(t)
		keep := 500 + rnd.Int64N(12_000)
		if seed == 0 {
			keep = 0
		}
		topic := w.create("t", 3, 2, metadata.RetentionMs, "-1", metadata.RetentionBytes, fmt.Sprint(keep))
		for i := range 24 + rnd.Int64N(24) {
			var extents [2][]extent
			for p := range 3 {
				if rnd.Int64N(int64(1+2*p)) == 0 {
					extents[p/2] = append(extents[p/2], extent{metadata.Slot(p % 2), int32(1 + rnd.Int64N(3)), int32(100 + rnd.Int64N(1500))})
				}
			}
			for lane, x := range extents {
				if len(x) > 0 {
					w.commit(topic.Lanes[lane], born.Add(time.Duration(i)*time.Minute), x...)
				}
			}
		}
		for _, lane := range topic.Lanes {
			head, err := w.Table.Head(w.ctx, lane, metadata.Strong)
			check(t, err)
			if to := min(rnd.Int64N(40), head.First); to > 0 { // which may be within a chunk
				w.archive(topic, lane, to, int(1+rnd.Int64N(4)), topic.Class())
			}
		}
		used := w.usedByOffset(topic)
		w.mustRun(retain.Options{})
		for p, start := range w.starts(topic) {
			for offset, x := range used[p] {
				if gone := int64(offset) < start; gone != (x >= 1) {
					t.Errorf("seed %d, %d bytes: partition %d starts at %d, at %d the group has used %v", seed, keep, p, start, offset, x)
				} else if gone {
					deleted++
				} else {
					kept, closest = kept+1, max(closest, x)
				}
			}
		}
	}
	t.Logf("%d records deleted, %d kept, of which one had used %.3f", deleted, kept, closest)
	if deleted < 50 || kept < 50 || closest < 0.9 {
		t.Error("too little was tried")
	}
}

// usedByOffset is what a group that stands at each offset of each partition is told.
func (w *world) usedByOffset(topic *metadata.Topic) (used [3][]float64) {
	w.t.Helper()
	log, err := sdk.Open(w.ctx, "mem://", sdk.WithDriver(w.memory))
	check(w.t, err)
	defer log.Close()
	check(w.t, w.Table.PutGroup(w.ctx, &metadata.Group{Name: "g", Created: born}))
	for offset := int64(0); ; offset++ {
		some := false
		for p := range 3 {
			place := topic.Place(p)
			lane, err := w.Table.GroupLane(w.ctx, "g", place.Lane)
			check(w.t, err)
			if len(used[p]) < int(offset) {
				continue // it has no such record
			}
			_, err = w.Table.ResetOffsets(w.ctx, "g", place.Lane, born, []metadata.OffsetReset{{Slot: place.Slot, From: lane.Slots[place.Slot], Offset: offset}})
			check(w.t, err)
		}
		d, err := log.Admin().DescribeGroup(w.ctx, "g", sdk.Earliest)
		check(w.t, err)
		for _, g := range d.Partitions {
			if g.Lag > 0 && g.Committed == offset {
				used[g.Partition], some = append(used[g.Partition], g.Used), true
			}
		}
		if !some {
			return used
		}
	}
}

// Of time and bytes it is the one of which more is used, and where nothing is deleted neither counts.
func TestLagIsTheLargerOfTimeAndBytes(t *testing.T) {
	for name, x := range map[string]struct {
		settings []string
		want     float64
	}{
		"time":    {[]string{metadata.RetentionMs, ms(10 * time.Hour), metadata.RetentionBytes, "1000"}, 0.2},
		"bytes":   {[]string{metadata.RetentionMs, ms(10 * time.Hour), metadata.RetentionBytes, "200"}, 0.5},
		"compact": {[]string{metadata.RetentionMs, ms(10 * time.Hour), metadata.RetentionBytes, "200", metadata.CleanupPolicy, "compact"}, 0},
		"neither": {[]string{metadata.RetentionMs, "-1"}, 0},
	} {
		w := newWorld(t)
		topic := w.create("t", 3, 3, x.settings...)
		for range 2 {
			w.commit(topic.Lanes[0], env.System().Now().Add(-2*time.Hour), extent{0, 1, 100})
		}
		if used := w.usedByOffset(topic)[0]; len(used) != 2 || math.Abs(used[0]-x.want) > 0.01 {
			t.Errorf("%s: %v, want %v for the first", name, used, x.want)
		}
	}
}
