package compact_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/functions/internal/archivetest"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// busy is a topic of which a run compacts what is in chunks, fills up and spills idle heads, and merges rows of a bucket that is over.
func (w *world) busy(name string) *metadata.Topic {
	w.Helper()
	topic := w.topic(name, 2, 2)
	w.ahead = -compact.MergeAfter
	for range 2 {
		for range 8 {
			w.append(topic, flush{ago: compact.MergeAfter + old, records: 3}, 0, 1, 2, 3)
		}
		o := w.options()
		o.Topics = []string{name}
		w.run(o)
	}
	w.ahead = 0
	for i := range 11 {
		w.append(topic, flush{ago: old, records: 3, small: i == 4, codec: segment.Codec(i % 5)}, 0, 1, 2, 3)
	}
	return topic
}

// finished fails unless everything of the topic is in the archive, and reads as before.
func (w *world) finished(topic *metadata.Topic, before [][]string) {
	w.Helper()
	w.same(topic, before)
	w.sound(topic)
	for _, l := range topic.Lanes {
		if h, s := w.head(l), w.state(l); s.Archived != h.Next || h.Next%h.K != 0 {
			w.Fatalf("lane %s is archived up to %d of %d", l, s.Archived, h.Next)
		}
	}
	for p := range topic.Partitions {
		if n := len(w.rows(topic, p)); n < 2 || n > 3 {
			w.Fatalf("partition %d has %d rows: one is left of the bucket that is over, and the rest was compacted by two runs", p, n)
		}
	}
}

// gate counts calls, and does something to one.
type gate struct {
	mu   sync.Mutex
	n    int
	at   int
	hit  string
	do   func(call string) error
	dead bool
}

// every makes every n-th call fail, in turn for each kind of failure. 1 is all of them.
var every = flag.Int("every", 6, "which of a run's calls fail: every n-th")

var errDead = errors.New("dead")

func (g *gate) pass(call string) error {
	g.mu.Lock()
	g.n++
	now, dead := g.n == g.at, g.dead
	if now {
		g.hit = call
	}
	g.mu.Unlock()
	if dead {
		return errDead
	}
	if now {
		return g.do(call)
	}
	return nil
}

func (g *gate) die() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
}

// TestFaults: each call of a run to table and store fails, fails though it was made, or is the one before which the process dies. The log reads the same then, and the next
// run finishes the work.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	lost := func(call string) error {
		if call == "Commit" {
			return metadata.ErrOutcomeUnknown
		}
		if call == "Get" || call == "PutParts" {
			return store.ErrUnavailable
		}
		return metadata.ErrUnavailable
	}
	hits, topics := map[string]int{}, 0
	for i, kind := range []struct {
		name string
		do   func(g *gate, call string) error
	}{
		{"failed", func(_ *gate, call string) error { return lost(call) }},
		{"failed but applied", func(_ *gate, call string) error { return applied{lost(call)} }},
		{"died before", func(g *gate, call string) error { g.die(); return errDead }},
	} {
		step := *every * raceShare
		for at := 1 + i*step/3; ; at += step {
			topics++
			topic := w.busy(fmt.Sprintf("topic-%d", topics))
			before := w.all(topic)
			g := &gate{at: at}
			g.do = func(call string) error { return kind.do(g, call) }
			o := w.options()
			o.Topics = []string{topic.Name}
			_, err := compact.Run(t.Context(), &table{Table: w.table, gate: g.pass}, &objects{Store: w.objects, gate: g.pass}, o)
			if g.hit == "" {
				check(t, err)
				w.finished(topic, before)
				t.Logf("%s: %d calls", kind.name, g.n)
				break
			}
			hits[g.hit]++
			w.same(topic, before)
			w.run(o)
			w.finished(topic, before)
			if again := w.run(o); again.Segments > 0 {
				t.Fatalf("%s at %d, %s: there was something left to do: %+v", kind.name, at, g.hit, again)
			}
		}
	}
	t.Log(hits)
	for _, call := range []string{"Head", "State", "Chunk", "Chunks", "Topic", "Rows", "Small", "Commit", "PutChunk", "Trim", "Publish", "Get", "PutParts"} {
		if hits[call] == 0 && *every*raceShare == 1 {
			t.Errorf("%s never failed", call)
		}
	}
}

// TestCrashes: the process dies at each pause point, each time that it comes by.
func TestCrashes(t *testing.T) {
	w := newWorld(t)
	topics := 0
	for _, point := range slices.Concat(env.ArchivePoints, []env.Point{env.BeforeChunk, env.AfterChunk, env.AfterTrim}) {
		for nth := 1; ; nth += raceShare {
			topics++
			topic := w.busy(fmt.Sprintf("topic-%d", topics))
			before := w.all(topic)
			g := &gate{}
			o := w.options()
			o.Topics = []string{topic.Name}
			passed := 0
			var mu sync.Mutex
			clean := o
			o.Env.Pause = func(p env.Point) {
				mu.Lock()
				defer mu.Unlock()
				if p == point {
					if passed++; passed == nth {
						g.die()
					}
				}
			}
			compact.Run(t.Context(), &table{Table: w.table, gate: g.pass}, &objects{Store: w.objects, gate: g.pass}, o)
			if !g.dead {
				if nth == 1 {
					t.Errorf("%s was never reached", point)
				}
				break
			}
			w.same(topic, before)
			w.run(clean)
			w.finished(topic, before)
		}
	}
}

// TestBR38_TwoCompactors: of two that do the same one publishes, the other is refused, and nothing names its object. A compactor that was paused at publication for two
// hours publishes nothing that is stale: neither after another has run, nor when the sweep has raised the floor meanwhile.
func TestBR38_TwoCompactors(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world, topic *metadata.Topic, o compact.Options){
		"another has run": func(w *world, _ *metadata.Topic, o compact.Options) { w.run(o) },
		"the floor was raised": func(w *world, topic *metadata.Topic, _ compact.Options) {
			for _, l := range topic.Lanes {
				check(w, w.table.RaiseStateFloor(w.Context(), l, segment.NewID(w.env.Now().Add(time.Minute), 7, segment.Archived, 0, segment.ID{})))
			}
		},
	} {
		w := newWorld(t)
		topic := w.topic("topic", 1, 2)
		for range 16 {
			w.append(topic, flush{ago: old}, 0, 1)
		}
		before := w.all(topic)
		clock := &clock{Clock: w.env}
		paused := w.options()
		paused.Env.Clock = clock
		var once sync.Once
		paused.Env.Pause = func(p env.Point) {
			if p == env.BeforePublish {
				once.Do(func() {
					meanwhile(w, topic, w.options())
					clock.pass(2 * time.Hour)
				})
			}
		}
		report, err := compact.Run(t.Context(), w.table, &objects{Store: w.objects}, paused)
		check(t, err)
		if report.Segments != 0 || report.Lost != 1 {
			t.Errorf("%s: %+v", name, report)
		}
		w.same(topic, before)
		w.run(w.options())
		w.same(topic, before)
		w.sound(topic)
		// The object of the refused one is there, and no row names it.
		page, err := w.objects.List(t.Context(), "r7d/archive/", "", 0)
		check(t, err)
		if rows := w.rows(topic, 0); len(page.Objects) != 2 || len(rows) != 1 || w.state("topic-0").Archived != 16 {
			t.Errorf("%s: %d objects, %d rows", name, len(page.Objects), len(rows))
		}
	}
}

// Several compactors at once on several lanes: all end, and the work is done once.
func TestManyCompactors(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 3, 2)
	for range 40 {
		w.append(topic, flush{ago: old, size: 2000}, 0, 1, 2, 3, 4, 5)
	}
	before := w.all(topic)
	var all sync.WaitGroup
	reports := make([]*compact.Report, 4)
	for i := range reports {
		all.Go(func() {
			o := w.options()
			o.Target = 32 << 10 // several jobs for each lane
			var err error
			if reports[i], err = compact.Run(t.Context(), w.table, &objects{Store: w.objects}, o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	segments, lost := 0, 0
	for _, r := range reports {
		segments, lost = segments+r.Segments-r.Merged, lost+r.Lost
	}
	o := w.options()
	o.Target = 32 << 10
	w.run(o) // a lane that two left to each other
	w.same(topic, before)
	w.sound(topic)
	for _, l := range topic.Lanes {
		if s := w.state(l); s.Archived != 40 {
			t.Errorf("lane %s is archived up to %d", l, s.Archived)
		}
	}
	t.Logf("%d segments published, %d lost", segments, lost)
}

// TestDeletedMeanwhile: at whatever call a topic is deleted, the run ends without an error, and other topics are compacted.
func TestDeletedMeanwhile(t *testing.T) {
	w := newWorld(t)
	for at := 1; ; at += *every * raceShare {
		gone, stays := w.busy(fmt.Sprintf("a%d", at)), w.busy(fmt.Sprintf("b%d", at))
		before := w.all(stays)
		o := w.options()
		o.Topics = []string{gone.Name, stays.Name}
		g := &gate{at: at, do: func(string) error {
			check(t, w.table.DeleteTopic(t.Context(), gone, &metadata.GoneTopic{ID: gone.ID, Name: gone.Name, Lanes: gone.Lanes, Width: gone.LaneWidth, Classes: gone.Classes, Deleted: w.env.Now()}))
			for _, l := range gone.Lanes {
				check(t, w.table.DeleteHead(t.Context(), l))
				_, err := w.table.DeleteLaneRest(t.Context(), l)
				check(t, err)
			}
			return nil
		}}
		report, err := compact.Run(t.Context(), &table{Table: w.table, gate: g.pass}, &objects{Store: w.objects, gate: g.pass}, o)
		if errors.Is(err, metadata.ErrUnknownTopic) && strings.Contains(err.Error(), gone.Name) {
			continue // it was gone before the run had begun
		}
		if err != nil {
			t.Fatalf("deleted at call %d, %s: %v", at, g.hit, err)
		}
		w.finished(stays, before)
		if g.hit == "" {
			break
		}
		_ = report
	}
}

// TestAlarm: what contradicts itself stops its lane, says what is wrong, changes nothing there, and does not keep others from being compacted.
func TestAlarm(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world, topic *metadata.Topic) func(name string, b []byte)
		is    func(error) bool
	}{
		"chunk": {func(w *world, topic *metadata.Topic) func(string, []byte) {
			check(w, w.table.DeleteChunks(w.Context(), topic.Lanes[0], 8, 16))
			return nil
		}, alarm("chunk at order 8 is missing")},
		"first chunk": {func(w *world, topic *metadata.Topic) func(string, []byte) {
			check(w, w.table.DeleteChunks(w.Context(), topic.Lanes[0], 0, 8))
			return nil
		}, alarm("chunk at order 0 is missing")},
		"object": {func(w *world, topic *metadata.Topic) func(string, []byte) {
			check(w, w.objects.Delete(w.Context(), w.first(topic.Lanes[0])))
			return nil
		}, alarm("is missing")},
		"damage": {func(w *world, topic *metadata.Topic) func(string, []byte) {
			name := w.first(topic.Lanes[0])
			return func(n string, b []byte) {
				if n == name {
					b[len(b)-1] ^= 1
				}
			}
		}, func(err error) bool { return errors.Is(err, segment.ErrCorrupt) }},
		"another segment": {func(w *world, topic *metadata.Topic) func(string, []byte) {
			name, other := w.first(topic.Lanes[0]), w.first(topic.Lanes[1])
			return func(n string, b []byte) {
				if n == name {
					body, err := w.objects.Get(w.Context(), other, 16, int64(len(b)), nil)
					check(w, err)
					copy(b, body)
				}
			}
		}, func(err error) bool { return err != nil }},
	} {
		w := newWorld(t)
		topic := w.topic("topic", 2, 1)
		for i := range 24 {
			w.append(topic, flush{ago: old, records: 1}, 0)
			w.append(topic, flush{ago: old, records: 2 + i%2}, 1)
		}
		damage := c.spoil(w, topic)
		report, err := compact.Run(t.Context(), w.table, &damaged{objects: objects{Store: w.objects}, damage: damage}, w.options())
		if !c.is(err) || len(report.Failures) != 1 || report.Failures[0].Lane != string(topic.Lanes[0]) {
			t.Errorf("%s: %v, %+v", name, err, report)
		}
		if a, b := w.state(topic.Lanes[0]), w.state(topic.Lanes[1]); a.Archived > 0 || b.Archived != 24 {
			t.Errorf("%s: archived up to %d and %d", name, a.Archived, b.Archived)
		}
	}
}

// An object of the archive that is gone is an alarm of the merge that wants it, and a state that is gone is no deleted topic.
func TestAlarmOfArchive(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 1)
	for range 8 {
		for range 8 {
			w.append(topic, flush{ago: old}, 0)
		}
		o := w.options()
		if len(w.rows(topic, 0)) < 7 {
			w.run(o)
			continue
		}
		check(t, w.objects.Delete(t.Context(), segment.ArchiveName(topic.ID, w.rows(topic, 0)[0].Segment)))
		w.run(o)
		report, err := compact.Run(t.Context(), &table{Table: w.table, ahead: compact.MergeAfter + time.Minute}, w.objects, o)
		if !alarm("is missing")(err) || report.Segments != 0 {
			t.Errorf("%v, %+v", err, report)
		}
	}
	if n := len(w.rows(topic, 0)); n != 8 {
		t.Errorf("%d rows", n)
	}
	_, err := w.table.DeleteLaneRest(t.Context(), topic.Lanes[0])
	check(t, err)
	if report, err := compact.Run(t.Context(), w.table, w.objects, w.options()); !errors.Is(err, metadata.ErrNoState) || report.Gone != 0 {
		t.Errorf("%v, %+v", err, report)
	}
}

// A merge of records that are not what they were when they were archived, with a right checksum, changes nothing.
func TestMergeOfAnotherSum(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 1)
	for range 8 {
		for range 8 {
			w.append(topic, flush{ago: old}, 0)
		}
		w.run(w.options())
	}
	before := w.rows(topic, 0)
	name := segment.ArchiveName(topic.ID, before[5].Segment)
	aged := &damaged{objects: objects{Store: w.objects}, damage: func(n string, b []byte) {
		if n == name {
			batch, _, err := segment.SplitBatch(b)
			check(t, err)
			archivetest.Age(batch)
		}
	}}
	var differs *archive.SumError
	report, err := compact.Run(t.Context(), &table{Table: w.table, ahead: compact.MergeAfter + time.Minute}, aged, w.options())
	if !errors.As(err, &differs) || differs.Row.Base != before[5].Base || report.Segments != 0 || len(report.Failures) != 1 {
		t.Errorf("%v, %+v", err, report)
	}
	if after := w.rows(topic, 0); len(after) != len(before) || !slices.EqualFunc(after, before, (*metadata.Row).Same) {
		t.Errorf("%d rows, %d before", len(after), len(before))
	}
}

// A merge keeps account of what was removed of its rows before.
func TestMergeKeepsWhatHasGone(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 1)
	for range 8 {
		for range 8 {
			w.append(topic, flush{ago: old, records: 2}, 0)
		}
		w.run(w.options())
	}
	before := w.rows(topic, 0)
	all := segment.Sum{}
	for _, r := range before {
		all = all.Plus(r.Sum)
	}
	x := archive.Rewriting{Log: w.log, Topic: topic, Groups: [][]*metadata.Row{{before[2]}, {before[5]}}, Keep: func(r *segment.Record) bool { return r.Offset%3 > 0 }}
	_, _, err := archive.Rewrite(t.Context(), archive.Services{Env: w.env, Table: w.table, Objects: w.objects}, x, func() {})
	check(t, err)
	_, err = compact.Run(t.Context(), &table{Table: w.table, ahead: compact.MergeAfter + time.Minute}, w.objects, w.options())
	check(t, err)
	after := w.rows(topic, 0)
	if r := after[0]; len(after) != 1 || r.Sum.Plus(r.Gone) != all || r.Gone.Records != 10 || r.Sum.Records != r.Count {
		t.Errorf("%d rows, %+v; %v was appended", len(after), r, all)
	}
}

func alarm(what string) func(error) bool {
	return func(err error) bool {
		var a *archive.AlarmError
		return errors.As(err, &a) && strings.Contains(err.Error(), what)
	}
}

// first is the object of a lane's first order.
func (w *world) first(l metadata.LaneID) (name string) {
	w.Helper()
	w.entries(l, func(e *metadata.Entry, _ *metadata.Offsets) {
		if e.Order == 0 {
			name = segment.IntakeName(e.ID)
		}
	})
	return name
}
