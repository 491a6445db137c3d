package compact_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// clock is one that is put forward.
type clock struct {
	env.Clock
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func (c *clock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// damaged is a store whose answers are damaged.
type damaged struct {
	objects
	damage func(name string, b []byte)
}

func (d *damaged) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	b, err := d.objects.Get(ctx, name, off, n, dst)
	if err == nil && d.damage != nil {
		d.damage(name, b)
	}
	return b, err
}

// TestX06_LastingProgress: with time for one of ten lanes in each run, the oldest backlog goes first, each run leaves one lane less, though more is appended all the time,
// and when time allows rows are merged all the same.
func TestX06_LastingProgress(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 10, 1)
	for i := range 10 {
		for range 8 {
			w.append(topic, flush{ago: old + time.Duration((i*7)%10)*time.Minute}, i)
		}
	}
	before := w.all(topic)
	run := func(cost time.Duration) *compact.Report {
		c := &clock{Clock: w.env}
		o := w.options()
		o.Env.Clock = c
		report, err := compact.Run(t.Context(), &table{Table: w.table, ahead: w.ahead}, &objects{Store: w.objects, gate: func(call string) error {
			if call == "PutParts" {
				c.pass(cost)
			}
			return nil
		}}, o)
		check(t, err)
		return report
	}
	const slow = 6 * time.Minute // of ten
	busy := w.topic("busy", 1, 1)
	var last time.Time
	for i := range 10 {
		for range 8 {
			w.append(busy, flush{}, 0)
		}
		report := run(slow)
		if report.Segments != 1 || report.Left != 10-i {
			t.Fatalf("run %d: %d segments, %d lanes left", i, report.Segments, report.Left)
		}
		if oldest := report.Jobs[0].Oldest; oldest.Before(last) {
			t.Errorf("run %d: lane %s of %s, after one of %s", i, report.Jobs[0].Lane, oldest, last)
		} else {
			last = oldest
		}
	}
	for _, l := range topic.Lanes {
		if h, s := w.head(l), w.state(l); s.Archived != h.Next {
			t.Errorf("lane %s: archived up to %d of %d", l, s.Archived, h.Next)
		}
	}
	w.same(topic, before)
	// Ten more rounds leave more rows than are to be, and no run has time to merge them but the last.
	for range 10 {
		for range 8 {
			w.append(topic, flush{ago: old}, 0)
		}
		run(slow)
	}
	if n := len(w.rows(topic, 0)); n != 11 {
		t.Errorf("%d rows", n)
	}
	w.ahead = compact.MergeAfter - time.Hour
	if report := run(0); report.Merged > 0 {
		t.Errorf("%d merges of what is young", report.Merged)
	}
	w.ahead += 2 * time.Hour
	run(0)
	if n := len(w.rows(topic, 0)); n != 1 {
		t.Errorf("%d rows after merging", n)
	}
}

// A store so slow that a job would not end in time: what has been read by half of it is archived, so that there is as long for writing, and each run goes on where the last
// one ended.
func TestCutShort(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 2)
	const n, deadline, atOnce = 128, 40 * time.Minute, 8
	for range n {
		w.append(topic, flush{ago: old}, 0, 1)
	}
	before := w.all(topic)
	runs := 0
	for at := int64(0); at < n; runs++ {
		c := &clock{Clock: w.env}
		o := w.options()
		o.Env.Clock, o.Deadline = c, deadline
		_, err := compact.Run(t.Context(), w.table, &objects{Store: w.objects, gate: func(call string) error {
			if call == "Get" {
				c.pass(time.Minute)
			} else if c.Mono() > deadline/2+atOnce*time.Minute { // those that were under way take one each
				t.Errorf("run %d: writing begins after %v, reading took that long", runs, c.Mono())
			}
			return nil
		}}, o)
		check(t, err)
		now := w.state(topic.Lanes[0]).Archived
		if now == at {
			t.Fatalf("run %d: no progress beyond order %d", runs, at)
		}
		at = now
		w.same(topic, before)
	}
	if runs < 4 {
		t.Errorf("%d runs: none was cut short", runs)
	}
	t.Logf("%d segments in %d runs", n, runs)
}

// Runs are begun every four minutes, by a schedule that does not wait for the last one to end, and the store is so slow that each takes its ten: three are at work at any time, on the
// same lane. Of those that do the same one publishes, so what is archived grows all the time.
func TestOverlappingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		topic := w.topic("topic", 1, 2)
		const n = 320
		for range n {
			w.append(topic, flush{ago: old}, 0, 1)
		}
		before := w.all(topic)
		slow := func(call string) error {
			if call == "Get" {
				time.Sleep(20 * time.Second) // eight at a time: two minutes and a half for n/8 of them, so that none reads all
			} else {
				time.Sleep(time.Minute)
			}
			return nil
		}
		var runs sync.WaitGroup
		var mu sync.Mutex
		segments, lost, count, last := 0, 0, 0, int64(0)
		started := time.Now()
		for at := int64(0); at < n; count++ {
			runs.Go(func() {
				report, err := compact.Run(t.Context(), w.table, &objects{Store: w.objects, gate: slow}, w.options())
				mu.Lock()
				defer mu.Unlock()
				if segments, lost = segments+report.Segments, lost+report.Lost; err != nil || report.Seconds > compact.DefaultDeadline.Seconds() {
					t.Errorf("after %.0f s: %v", report.Seconds, err)
				}
			})
			time.Sleep(4 * time.Minute)
			if at = w.state(topic.Lanes[0]).Archived; at == last && count%2 == 1 || count > 12 {
				t.Errorf("after %v: archived up to %d of %d, %d eight minutes before", time.Since(started), at, n, last)
				break
			}
			if count%2 == 1 {
				last = at
			}
		}
		took := time.Since(started)
		runs.Wait()
		w.same(topic, before)
		w.sound(topic)
		if lost == 0 {
			t.Error("no two runs did the same")
		}
		t.Logf("%d runs, %v, %d segments published, %d lost", count, took, segments, lost)
	})
}

// What is young and small waits; what is large does not, and nothing waits for longer than an hour.
func TestWorth(t *testing.T) {
	for name, c := range map[string]struct {
		flush flush
		want  int
	}{
		"young and small": {flush{ago: time.Minute, records: 1}, 0},
		"old":             {flush{ago: 61 * time.Minute, records: 1}, 1},
		"young and large": {flush{ago: time.Minute, records: 20, size: 200}, 1},
	} {
		w := newWorld(t)
		topic := w.topic("topic", 1, 1)
		for range 8 {
			w.append(topic, c.flush, 0)
		}
		if report := w.run(w.options()); report.Segments != c.want {
			t.Errorf("%s: %d segments", name, report.Segments)
		}
	}
}

// Heads of lanes that are idle are emptied, others are not.
func TestIdle(t *testing.T) {
	for name, c := range map[string]struct {
		ago     time.Duration
		commits int
		padding int
		idle    int
	}{
		"in use":      {29 * time.Minute, 3, 0, 0},
		"idle":        {31 * time.Minute, 3, 5, 1},
		"idle, whole": {31 * time.Minute, 8, 0, 0}, // whoever appended the eighth has spilled
		"long idle":   {30 * time.Hour, 9, 7, 1},
	} {
		w := newWorld(t)
		topic := w.topic("topic", 1, 1)
		for range c.commits {
			w.append(topic, flush{ago: c.ago}, 0)
		}
		before := w.all(topic)
		report := w.run(w.options())
		if report.Padding != c.padding || report.Idle != c.idle {
			t.Errorf("%s: %+v", name, report)
		}
		w.same(topic, before)
		if again := w.run(w.options()); again.Padding+again.Idle > 0 {
			t.Errorf("%s: again %+v", name, again)
		}
		if c.idle > 0 {
			if h := w.head(topic.Lanes[0]); len(h.Entries) > 0 || h.Next%h.K != 0 {
				t.Errorf("%s: %d entries are left", name, len(h.Entries))
			}
		}
		// The lane goes on.
		w.append(topic, flush{}, 0)
		w.read(topic, 0)
	}
}

// A lane that goes on while it is about to be padded is left alone.
func TestIdleNoMore(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 1)
	w.append(topic, flush{ago: old}, 0)
	report, err := compact.Run(t.Context(), &table{Table: w.table, gate: func(call string) error {
		if call == "Commit" {
			w.append(topic, flush{}, 0)
		}
		return nil
	}}, &objects{Store: w.objects}, w.options())
	check(t, err)
	if h := w.head(topic.Lanes[0]); h.Next != 2 || len(h.Entries) != 2 || report.Segments != 0 {
		t.Errorf("head %d to %d, %+v", h.First, h.Next, report)
	}
}

// TestAges: rows hold no records whose append times are further apart than a bucket, neither when they are made nor when they are merged, also where 64 partitions are
// appended to once a day: then one chunk has more rows than a publication takes.
func TestAges(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 64)
	bucket := topic.Config.AgeBucket()
	all := make([]int, 64)
	for i := range all {
		all[i] = i
	}
	for day := 16; day > 0; day-- {
		w.append(topic, flush{ago: time.Duration(day) * 24 * time.Hour}, all...)
	}
	for i := range 8 {
		w.append(topic, flush{ago: 20*time.Hour - time.Duration(i)*2*time.Hour}, 3, 5) // in two buckets
	}
	before := w.all(topic)
	w.run(w.options())
	w.same(topic, before)
	w.sound(topic)
	if s := w.state(topic.Lanes[0]); s.Archived != 24 {
		t.Errorf("archived up to %d", s.Archived)
	}
	for p := range topic.Partitions {
		rows := w.rows(topic, p)
		for _, r := range rows {
			if r.Last.Sub(r.First) > bucket {
				t.Errorf("partition %d: a row spans %s", p, r.Last.Sub(r.First))
			}
		}
		want := 16
		if p == 3 || p == 5 {
			want = 17 // its last day's row takes in the first four of them
		}
		if len(rows) != want {
			t.Errorf("partition %d: %d rows", p, len(rows))
		}
	}
}

// What is below the log start is neither read, though its object is gone, nor written.
func TestBelowLogStart(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 3)
	for range 8 {
		w.append(topic, flush{ago: old, records: 4}, 0, 1)
	}
	gone := w.first(topic.Lanes[0])
	for range 8 {
		w.append(topic, flush{ago: old, records: 4}, 0, 1, 2)
	}
	for slot, start := range []int64{64, 10, 3} { // the end; within an extent; within the first
		_, err := w.table.SetStart(t.Context(), topic.Lanes[0], metadata.Slot(slot), start)
		check(t, err)
	}
	check(t, w.objects.Delete(t.Context(), gone))
	before := w.all(topic)
	report := w.run(w.options())
	w.same(topic, before)
	w.sound(topic)
	if report.Requests != 14 || report.Records != 56+32 {
		t.Errorf("%+v", report)
	}
	if rows := w.rows(topic, 0); len(rows) != 0 {
		t.Errorf("%d rows", len(rows))
	}
	if rows := w.rows(topic, 1); rows[0].Base != 8 {
		t.Errorf("%+v", rows[0])
	}
	w.append(topic, flush{}, 0)
	w.read(topic, 0)
}

// The chunk before the archived order may have been swept: then the archive's rows tell the running maxima.
func TestMaximaAfterSweep(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 2)
	for range 40 {
		w.append(topic, flush{ago: old}, 0, 1)
	}
	w.run(w.options())
	most := w.rows(topic, 0)[0].RunMax
	for range 16 {
		w.append(topic, flush{ago: old + time.Minute}, 0)
	}
	_, err := w.table.SetFirst(t.Context(), topic.Lanes[0], 40)
	check(t, err)
	check(t, w.table.DeleteChunks(t.Context(), topic.Lanes[0], 0, 40))
	before := w.all(topic)
	w.run(w.options())
	w.same(topic, before)
	if rows := w.rows(topic, 0); len(rows) != 2 || rows[1].RunMax < most {
		t.Errorf("%d rows", len(rows))
	}
}

// A dry run says what a run does, and does nothing.
func TestDryRun(t *testing.T) {
	w := newWorld(t)
	topic := w.busy("topic")
	before := w.all(topic)
	states := [2]metadata.State{*w.state(topic.Lanes[0]), *w.state(topic.Lanes[1])}
	o := w.options()
	o.DryRun = true
	dry := w.run(o)
	if now := [2]metadata.State{*w.state(topic.Lanes[0]), *w.state(topic.Lanes[1])}; !reflect.DeepEqual(now, states) {
		t.Fatalf("%+v", now)
	}
	w.same(topic, before)
	report := w.run(w.options())
	if dry.Padding != report.Padding || dry.Idle != report.Idle || dry.Segments < 2 || !dry.DryRun {
		t.Errorf("dry %+v\nrun %+v", dry, report)
	}
	if dry.Jobs[0].From != report.Jobs[0].From || dry.Jobs[0].Topic != "topic" {
		t.Errorf("dry %+v\nrun %+v", dry.Jobs[0], report.Jobs[0])
	}
}

// All archives what was committed before, however little and new it is, also in lanes to which others append meanwhile.
func TestAll(t *testing.T) {
	for _, busy := range []bool{false, true} {
		w := newWorld(t)
		topic := w.topic("t", 2, 2)
		for range 3 {
			w.append(topic, flush{}, 0, 1, 2, 3)
		}
		before := w.all(topic)
		o := w.options()
		o.All = true
		var mu sync.Mutex // lanes are padded at once
		report, err := compact.Run(t.Context(), &table{Table: w.table, gate: func(call string) error {
			if busy && call == "Commit" { // padding meets a lane that goes on
				mu.Lock()
				defer mu.Unlock()
				w.append(topic, flush{}, 0, 2)
			}
			return nil
		}}, &objects{Store: w.objects}, o)
		check(t, err)
		for i, lane := range topic.Lanes {
			if s := w.state(lane); s.Archived < 3 {
				t.Errorf("busy %t: lane %d is archived up to order %d: %+v", busy, i, s.Archived, report)
			}
		}
		for p, records := range w.all(topic) {
			if len(records) < len(before[p]) || !slices.Equal(records[:len(before[p])], before[p]) {
				t.Errorf("busy %t: partition %d has %d records, had %d", busy, p, len(records), len(before[p]))
			}
		}
		w.sound(topic)
	}
}

// A run that stood still before a publication, for so long that it was not sent any more, says what is left to do, and not that another has done it; the next does it.
func TestStandsStillOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		topic := w.topic("topic", 2, 1)
		for range 8 {
			w.append(topic, flush{ago: old}, 0, 1)
		}
		before := w.all(topic)
		o, stood := w.options(), false
		o.All, o.Deadline = true, compact.MaxDeadline
		o.Env.Pause = func(at env.Point) {
			if at == env.BeforePublish && !stood {
				stood = true
				time.Sleep(metadata.MaxArchiveAge)
			}
		}
		if r := w.run(o); r.Lost > 0 || r.Left != 2 || r.Segments > 0 {
			t.Errorf("%d lost, %d left, %d segments", r.Lost, r.Left, r.Segments)
		}
		if r := w.run(o); r.Left > 0 || r.Segments != 2 {
			t.Errorf("the next: %d left, %d segments", r.Left, r.Segments)
		}
		w.same(topic, before)
	})
}
