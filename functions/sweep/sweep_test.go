package sweep

import (
	"testing"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// What a publication has replaced goes when it is older than the restore window, and then its chunks and its entry in the work list.
func TestSuperseded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 2, 2)
		lane := topic.Lanes[0]
		ids := w.fill(20, part{topic, 0, 2}, part{topic, 1, 1})
		small := w.produceIn(segment.InTable, part{topic, 1, 1})
		time.Sleep(2 * time.Hour)
		w.swept() // nothing
		p := w.compact(topic, lane)
		time.Sleep(RestoreWindow - time.Minute)
		want(t, w.swept())
		time.Sleep(2 * time.Minute)
		want(t, w.swept(), intakeLines(ids[:16]...), chunkLines(lane, 0), entryLine(p.ID)) // of orders [0, 16); the newest chunk stays
		want(t, w.swept())
		w.fill(11, part{topic, 0, 1})
		w.compact(topic, lane)
		time.Sleep(RestoreWindow + time.Minute)
		got := w.swept()
		for _, id := range append(ids[16:], small) {
			if w.has(id) {
				t.Errorf("%s is there; deleted were %q", id, got)
			}
		}
		if s := w.state(lane); s.First != 24 || len(w.chunks(lane, 0, 1000)) != 1 {
			t.Errorf("%+v", s)
		}
		want(t, w.swept())
	})
}

// The orders and segments that are not archived are none of its business.
func TestNothingIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 2, 1)
		want(t, w.swept())
		w.fill(30, part{topic, 0, 1}, part{topic, 1, 1})
		for range 5 {
			time.Sleep(9 * time.Hour)
			want(t, w.swept())
		}
	})
}

func TestOrphans(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 2, 2)
		w.fill(10, part{topic, 0, 1})
		dead := w.id(time.Now(), segment.InBucket)
		w.upload(dead, part{topic, 0, 1})
		deadSmall := w.id(time.Now(), segment.InTable)
		w.upload(deadSmall, part{topic, 1, 1})
		lost := w.compaction(topic, topic.Lanes[0])
		w.fill(10, part{topic, 0, 1})
		time.Sleep(SafeAge - time.Minute)
		want(t, w.swept())
		time.Sleep(2 * time.Minute)
		want(t, w.swept(), intakeLines(dead, deadSmall), archiveLine(topic, lost.ID))
		want(t, w.swept())
		var stale *metadata.StaleError
		if err := w.table.Publish(t.Context(), lost); !asStale(err, &stale) {
			t.Errorf("a publication of a deleted segment: %v", err)
		}
	})
}
