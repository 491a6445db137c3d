package compact_test

import (
	"testing"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/segment"
)

const old = 2 * time.Hour

// TestBR05_ReadsTheSame: all codecs, nulls, empties, several batches, small segments, withdrawn bytes, several lanes in one segment, records from the future: the log
// reads the same before and after, and again after merges.
func TestBR05_ReadsTheSame(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 2, 3)
	fill := func(n int) {
		for i := range n {
			f := flush{ago: old - time.Duration(i)*time.Millisecond, codec: segment.Codec(i % 5), records: 1 + i%4*3, size: i % 5 * 100, batches: 1 + i%3, small: i%6 == 5}
			switch i % 4 {
			case 0:
				w.append(topic, f, 0, 1, 2, 3, 4, 5)
			case 1:
				f.withdrawn = map[int]bool{1: true, 3: true}
				w.append(topic, f, 0, 1, 2, 3)
			case 2:
				w.append(topic, f, 1, 4)
			case 3:
				f.withdrawn = map[int]bool{0: true}
				w.append(topic, f, 0, 5)
			}
		}
	}
	for round := range 12 / min(raceShare, 4) {
		fill(24)
		before := w.all(topic)
		w.ahead += compact.MergeAfter / 2
		for _, memory := range []int64{1, 1 << 20} { // in a file, and in memory: the second has nothing left to do
			o := w.options()
			o.Memory = memory
			report := w.run(o)
			if memory == 1 && report.Segments < 2 {
				t.Fatalf("round %d: %+v", round, report)
			}
		}
		w.same(topic, before)
		w.sound(topic)
		for _, l := range topic.Lanes {
			h, s := w.head(l), w.state(l)
			if s.Archived != h.First || len(h.Entries) > 0 || s.Ends != h.Ends {
				t.Fatalf("round %d: archived up to %d, head %d to %d", round, s.Archived, h.First, h.Next)
			}
		}
	}
	for p := range topic.Partitions {
		if n := len(w.rows(topic, p)); n > 28 {
			t.Errorf("partition %d has %d rows", p, n)
		} else {
			t.Logf("partition %d: %d rows", p, n)
		}
	}
}

func TestNothingIsDue(t *testing.T) {
	w := newWorld(t)
	report := w.run(w.options())
	if report.Lanes != 0 {
		t.Errorf("%+v", report)
	}
	topic := w.topic("topic", 1, 1)
	w.append(topic, flush{}, 0)
	report = w.run(compact.Options{Env: w.env})
	if report.Segments != 0 || report.Lanes != 1 || report.Idle != 0 {
		t.Errorf("%+v", report)
	}
}
