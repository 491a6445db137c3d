package sweep

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
)

// A segment of two lanes whose first is compacted before the second commits. While the second may still commit it the floor is below it; when the floor has
// passed it the second either names it or never will.
func TestFirstLaneCompactedBeforeSecondCommits(t *testing.T) {
	for _, c := range []struct {
		name    string
		commits func(*world, func() error) // when the second lane's commit arrives, in relation to the sweep that would delete
		applied bool
	}{
		{"at once", func(w *world, commit func() error) { check(w.t, commit()) }, true},
		{"just before its floor rises", func(w *world, commit func() error) { w.before("UpdateItem", "L#", 2, func() { check(w.t, commit()) }) }, true},
		{"just after", func(w *world, commit func() error) {
			w.before("UpdateItem", "A#", 2, func() {
				if commit() == nil {
					w.t.Error("committed a segment below the floor")
				}
			})
		}, false},
		{"never", func(*world, func() error) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.topic("a", 1, 1), w.topic("b", 1, 1)
				w.fill(8, part{b, 0, 1})
				w.fill(7, part{a, 0, 1})
				id := w.id(time.Now(), segment.InBucket)
				f := w.upload(id, part{a, 0, 1}, part{b, 0, 1})
				check(t, w.commit(a.Lanes[0], id, f))
				w.fill(8, part{a, 0, 1}) // so that its chunk is not the newest
				w.compact(a, a.Lanes[0])
				if c.name == "at once" {
					check(t, w.commit(b.Lanes[0], id, f))
					c.commits = func(*world, func() error) {}
				}
				time.Sleep(RestoreWindow + time.Minute)
				c.commits(w, func() error { return w.commit(b.Lanes[0], id, f) })
				_, _, err := w.sweep(w.options())
				check(t, err)
				w.request = nil
				w.sound()
				if w.has(id) != c.applied {
					t.Fatalf("kept %v, named %v", w.has(id), c.applied)
				}
				if !c.applied {
					return
				}
				for range 2 {
					w.fill(8, part{b, 0, 1})
				}
				w.compact(b, b.Lanes[0])
				time.Sleep(RestoreWindow - time.Hour)
				w.swept()
				if !w.has(id) {
					t.Error("deleted within the restore window of the second lane's publication")
				}
				time.Sleep(2 * time.Hour)
				w.swept()
				if w.has(id) {
					t.Error("kept for ever")
				}
			})
		})
	}
}

// before runs something before the nth request of this operation on an item or a collection of this kind.
func (w *world) before(op, kind string, n int, do func()) {
	w.request = func(c dynamodb.Call) dynamodb.Fault {
		if c.Op == op && len(c.Keys) > 0 && strings.HasPrefix(c.Keys[0].Partition, kind) {
			if n--; n == 0 {
				do()
			}
		}
		return dynamodb.Fault{}
	}
}

// A compactor that stands still for two hours before it publishes, with a sweep in between, publishes nothing that points to a deleted object.
func TestCompactorPausedAtPublish(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 1, 1)
		w.fill(16, part{topic, 0, 1})
		paused := w.compaction(topic, topic.Lanes[0])
		time.Sleep(2 * time.Hour)
		want(t, w.swept(), archiveLine(topic, paused.ID))
		var stale *metadata.StaleError
		if err := w.table.Publish(t.Context(), paused); !errors.As(err, &stale) {
			t.Fatalf("published a deleted object: %v", err)
		}
		w.compact(topic, topic.Lanes[0])
		w.sound()
	})
}

// A writer whose clock is two hours slow. Before the first sweep its ids are as good as any; behind the floor they are refused, and what it uploaded is found
// although the last search has passed its ids.
func TestWriterTwoHoursSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.topic("a", 1, 1), w.topic("b", 1, 1)
		slow := func() segment.ID { return w.id(time.Now().Add(-2*time.Hour), segment.InBucket) }
		lane := a.Lanes[0]
		first := slow()
		check(t, w.commit(lane, first, w.upload(first, part{a, 0, 1})))
		w.fill(20, part{a, 0, 1}, part{b, 0, 1})
		second := slow()
		check(t, w.commit(lane, second, w.upload(second, part{a, 0, 1})))
		want(t, w.swept())
		third := slow()
		f := w.upload(third, part{a, 0, 1})
		if err := w.commit(lane, third, f); err == nil {
			t.Error("committed below the floor")
		}
		fourth := segment.NewID(third.Time(), 7, segment.InBucket, 77, w.head(lane).Floor) // as its next attempt is
		check(t, w.commit(lane, fourth, w.upload(fourth, part{a, 0, 1})))
		time.Sleep(2 * time.Hour)
		want(t, w.swept(), intakeLines(third))
		want(t, w.swept())
	})
}

// clockAt is a clock that is off.
type clockAt struct {
	env.Clock
	off time.Duration
}

func (c clockAt) Now() time.Time { return c.Clock.Now().Add(c.off) }

// A sweeper whose clock is years ahead, or a little more than a minute off, changes nothing and says why.
func TestClock(t *testing.T) {
	for _, off := range []time.Duration{5 * 365 * 24 * time.Hour, 62 * time.Second, -62 * time.Second, -24 * time.Hour, 50 * time.Second} {
		inBubble(t, func(t *testing.T, w *world) {
			topic := w.topic("orders", 1, 1)
			w.fill(3, part{topic, 0, 1})
			w.upload(w.id(time.Now(), segment.InBucket), part{topic, 0, 1})
			w.counts = map[string]int{}
			o := w.options()
			o.Env.Clock = clockAt{w.env.Clock, off}
			r, told, err := w.sweep(o)
			if off == 50*time.Second {
				check(t, err)
				return
			}
			var clock *ClockError
			if !errors.As(err, &clock) || clock.Own.Sub(clock.Service).Abs() < MaxClockSkew || len(told) > 0 || r.Finished {
				t.Fatalf("%v, %+v", err, r)
			}
			if w.counts["UpdateItem"] > 0 || w.counts["delete"] > 0 {
				t.Errorf("it wrote: %v", w.counts)
			}
		})
	}
}

// An entry of a clock that was a year ahead lies far below those of today. When its time comes its segment is not taken for an orphan.
func TestEntryOfAClockThatWasAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 1, 1)
		ahead := w.id(time.Now().Add(365*24*time.Hour), segment.InBucket)
		check(t, w.commit(topic.Lanes[0], ahead, w.upload(ahead, part{topic, 0, 1})))
		w.fillChunks(600, part{topic, 0, 1})
		time.Sleep(364*24*time.Hour + 20*time.Hour)
		w.swept()
		time.Sleep(2 * time.Hour)
		w.fillChunks(600, part{topic, 0, 1})
		dead := w.id(time.Now(), segment.InBucket)
		w.upload(dead, part{topic, 0, 1})
		time.Sleep(6 * time.Hour)
		want(t, w.swept(), intakeLines(dead))
		if !w.has(ahead) {
			t.Error("a committed segment was deleted")
		}
	})
}

func TestBR32_CrashAfterUpload(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) { // (i), and (v): the sweep shares nothing with producers but table and bucket
		topic := w.topic("orders", 1, 1)
		w.fill(5, part{topic, 0, 1})
		dead := w.id(time.Now(), segment.InBucket)
		w.upload(dead, part{topic, 0, 1})
		w.fill(5, part{topic, 0, 1})
		time.Sleep(2 * time.Hour)
		want(t, w.swept(), intakeLines(dead))
	})
}

func TestBR32_PausedBeyondTheGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) { // (ii)
		topic := w.topic("orders", 1, 1)
		id := w.id(time.Now(), segment.InBucket)
		f := w.upload(id, part{topic, 0, 1})
		time.Sleep(26 * time.Hour)
		want(t, w.swept(), intakeLines(id))
		if err := w.commit(topic.Lanes[0], id, f); err == nil {
			t.Error("committed a pointer to nothing")
		}
		w.sound()
	})
}

// An object whose name has last week's time and that was uploaded just now is deleted only if it can never be committed: by a lane with a floor above it. With
// none, it is committed, and kept.
func TestBR32_OldNameFreshUpload(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) { // (iii)
		topic := w.topic("orders", 1, 1)
		week := w.id(time.Now().Add(-7*24*time.Hour), segment.InBucket)
		f := w.upload(week, part{topic, 0, 1})
		w.before("UpdateItem", "L#", 1, func() { check(t, w.commit(topic.Lanes[0], week, f)) })
		_, _, err := w.sweep(w.options())
		check(t, err)
		w.request = nil
		if !w.has(week) {
			t.Error("deleted a committed segment")
		}
		w.sound()
	})
}

func TestBR32_RunningCompaction(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) { // (iv)
		topic := w.topic("orders", 1, 1)
		w.fill(16, part{topic, 0, 1})
		time.Sleep(30 * time.Hour)
		p := w.compaction(topic, topic.Lanes[0]) // under way
		time.Sleep(50 * time.Minute)
		want(t, w.swept())
		w.publish(p)
		w.sound()
	})
}

// Two topics of one class share segments; of one all expires at once, the other is compacted later. The space is won back in the end, and what is below the log
// start is not kept twice. (Topics of different classes never share a segment.)
func TestX08_SharedSegments(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		short, long := w.topic("short", 1, 1), w.topic("long", 1, 1)
		shared := w.fill(24, part{short, 0, 1}, part{long, 0, 1})
		w.start(short, 0, 24)
		time.Sleep(2 * time.Hour)
		want(t, w.swept())
		p := w.compact(short, short.Lanes[0])
		row := w.rows(short, 0)[0]
		time.Sleep(2 * time.Hour)
		want(t, w.swept(), archiveLine(short, p.ID), rowLine(row)) // it was below the log start from the beginning
		time.Sleep(RestoreWindow)
		want(t, w.swept(), chunkLines(short.Lanes[0], 0, 8), entryLine(p.ID)) // the other lane needs the objects
		w.fill(8, part{long, 0, 1})
		w.compact(long, long.Lanes[0])
		w.fill(8, part{short, 0, 1})
		time.Sleep(RestoreWindow + time.Minute)
		w.swept()
		for i, id := range shared {
			if w.has(id) {
				t.Errorf("shared segment %d is kept for ever", i)
			}
		}
	})
}

// Topics whose names begin alike, and a topic of the same name as a deleted one, stay whole, and nothing of what was deleted is left.
func TestBR27_BR46_DeletedTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var list []*metadata.Topic
		for _, name := range []string{"orders", "orders-archive", "orders2"} {
			list = append(list, w.topic(name, 4, 2))
		}
		var all []part
		for _, topic := range list {
			for p := range 4 {
				all = append(all, part{topic, p, 1})
			}
		}
		slices.SortFunc(all, func(a, b part) int {
			return strings.Compare(string(a.topic.Place(a.partition).Lane), string(b.topic.Place(b.partition).Lane))
		})
		alone := w.fill(3, part{list[0], 0, 1}, part{list[0], 1, 1})
		shared := w.fill(20, all...)
		small := w.produceIn(segment.InTable, part{list[0], 2, 1})
		for _, topic := range list {
			for _, lane := range topic.Lanes {
				w.compact(topic, lane)
			}
		}
		w.lost(list[0])
		time.Sleep(2 * time.Hour)
		late := w.head(list[0].Lanes[0])
		check(t, w.table.PutGroup(t.Context(), &metadata.Group{Name: "readers", Created: time.Now()}))
		for _, topic := range list[:2] {
			lease := metadata.Lease{Session: metadata.SessionID(strings.Repeat("s", 16)), Epoch: 1}
			_, err := w.table.SetLeases(t.Context(), "readers", topic.Lanes[0], []metadata.LeaseChange{{To: lease}})
			check(t, err)
			_, err = w.table.CommitOffsets(t.Context(), "readers", topic.Lanes[0], time.Now(), []metadata.OffsetCommit{{Lease: lease, First: true, Offset: 1}})
			check(t, err)
		}
		w.delete("orders")
		again := w.topic("orders", 4, 2)
		w.fill(20, part{again, 0, 1}, part{again, 1, 1})
		w.compact(again, again.Lanes[0])
		w.swept()
		time.Sleep(SafeAge + time.Minute)
		w.swept() // the first pass
		plan := metadata.PlanSpill(&metadata.Head{Lane: late.Lane, First: 64, Next: 64 + late.K, K: late.K, Ends: late.Ends, Entries: entriesAt(w, 64, late.K)}, metadata.Offsets{})
		check(t, w.table.PutChunk(t.Context(), plan.Chunks[0])) // of a writer that stood still for an hour
		if _, err := w.table.Trim(t.Context(), late.Lane, plan.From, plan.To, plan.IDs); !errors.Is(err, metadata.ErrNoLane) {
			t.Errorf("trimmed a lane that is gone: %v", err)
		}
		for range 4 {
			time.Sleep(time.Hour + time.Minute)
			w.swept()
		}
		for _, id := range append(alone, small) {
			if w.has(id) {
				t.Errorf("%s is kept for ever", id)
			}
		}
		for _, id := range shared {
			if !w.has(id) {
				t.Error("a neighbour's segment was deleted")
			}
		}
		time.Sleep(RestoreWindow)
		w.swept()
		if l, err := w.table.GroupLane(t.Context(), "readers", list[1].Lanes[0]); err != nil || l.Slots[0].Offset != 1 {
			t.Errorf("what a group has committed for a neighbour: %+v, %v", l, err)
		}
		for _, k := range w.keys() {
			for _, lane := range list[0].Lanes {
				if strings.Contains(k, string(lane)) {
					t.Errorf("%s is left", k)
				}
			}
			if strings.Contains(k, string(list[0].ID)) {
				t.Errorf("%s is left", k)
			}
		}
		for _, name := range w.everything() {
			if strings.Contains(name, string(list[0].ID)) {
				t.Errorf("%s is left", name)
			}
		}
	})
}

// A topic that nobody has written to for days is deleted: what its head named is found, although no search looks at ids that old. What is younger than the floor
// waits for it, and so does all that leads to it.
func TestDeletedIdleTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("idle", 1, 1)
		ids := w.fill(12, part{topic, 0, 1}) // of which four are in the head
		for range 6 {
			time.Sleep(12 * time.Hour)
			w.swept()
		}
		ids = append(ids, w.fill(2, part{topic, 0, 1})...)
		fresh := ids[12:]
		w.delete("idle")
		time.Sleep(topics.Grace + time.Minute)
		w.swept()
		for _, id := range fresh {
			if !w.has(id) {
				t.Errorf("%s was deleted above the floor", id)
			}
		}
		for range 4 {
			time.Sleep(time.Hour + time.Minute)
			w.swept()
		}
		if left := w.everything(); len(left) != 1 {
			t.Errorf("%q are left", left)
		}
		for _, k := range w.keys() {
			if strings.Contains(k, string(topic.Lanes[0])) || strings.HasPrefix(k, "GONE") {
				t.Errorf("%s is left", k)
			}
		}
	})
}

// lost is an archive segment that nobody will publish.
func (w *world) lost(topic *metadata.Topic) segment.ID {
	w.t.Helper()
	id := w.id(time.Now(), segment.Archived)
	b := segment.NewBuilder(segment.Archive, w.log)
	at := topic.Place(0)
	w.add(b, segment.ExtentMeta{Lane: string(at.Lane), Slot: uint8(at.Slot), Topic: topic.ID, BaseOffset: 1000, EndOffset: 1005}, time.Now(), 5)
	body, _, err := b.Finish()
	check(w.t, err)
	check(w.t, w.bucket.Put(w.t.Context(), segment.ArchiveName(topic.ID, id), body))
	return id
}

func entriesAt(w *world, first, n int64) (list []metadata.Entry) {
	for i := range n {
		list = append(list, metadata.Entry{ID: w.id(time.Now(), segment.InBucket), Order: first + i, Slots: []metadata.SlotEntry{{Count: 1, Bytes: 100}}})
	}
	return list
}

// BR-35: nothing of a deleted topic stays behind because a listing has pages, and its neighbour keeps everything.
func TestBR35_DeletedTopicsOfSeveralPages(t *testing.T) {
	sizes := []int{1001, 1000, 2501}
	if raced {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		inBubble(t, func(t *testing.T, w *world) {
			topic, stays := w.topic("orders", 1, 1), w.topic("orders2", 1, 1)
			w.fillChunks(n, part{topic, 0, 1})
			w.fill(3, part{stays, 0, 1})
			for range 1100 {
				w.lost(topic)
			}
			time.Sleep(2 * time.Hour)
			w.delete("orders")
			time.Sleep(topics.Grace + time.Minute)
			for range 5 {
				time.Sleep(time.Hour + time.Minute)
				o := w.options()
				o.Force = true
				_, _, err := w.sweep(o)
				check(t, err)
			}
			if left := w.everything(); len(left) != 4 {
				t.Errorf("%d: %d objects are left", n, len(left))
			}
			for _, k := range w.keys() {
				if strings.Contains(k, string(topic.Lanes[0])) || strings.HasPrefix(k, "GONE") {
					t.Errorf("%s is left", k)
				}
			}
			w.sound()
		})
	}
}
