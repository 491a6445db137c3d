package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// harmless is what may be found in a sound log that is in use.
func harmless(r *verify.Report) bool {
	for _, f := range r.Findings {
		if f.Severity != verify.Information {
			return false
		}
	}
	return r.Damage == 0 && r.Suspicious == 0
}

// events are what may happen to a log while it is verified, each as a whole between two requests of the check.
var events = []struct {
	name   string
	happen func(w *world)
}{
	{"commits and a spill", func(w *world) { w.produce(metadata.ChunkOrders+1, at("t", 0, 2)...) }},
	{"commits of segments in the table, and a spill", func(w *world) {
		w.small = 4000
		w.produce(metadata.ChunkOrders+1, at("t", 0, 2)...)
		w.small = 0
	}},
	{"the lane goes on by three chunks", func(w *world) { w.produce(3*metadata.ChunkOrders, at("t", 1)...) }},
	{"records deleted and their objects gone", func(w *world) {
		lane := w.row("t").Lanes[0]
		for _, p := range []int{0, 1, 3} {
			_, err := w.log.Admin().DeleteRecords(w.t.Context(), "t", p, 12)
			check(w.t, err)
		}
		for order := range int64(12) {
			w.vanish(w.object(lane, order))
		}
	}},
	{"all records deleted and their objects gone", func(w *world) {
		lane := w.row("t").Lanes[0]
		for _, p := range []int{0, 1, 3} {
			_, err := w.log.Admin().DeleteRecords(w.t.Context(), "t", p, w.head(lane).Ends[p])
			check(w.t, err)
		}
		for order := range w.head(lane).Next - 3 { // the last three are another topic's too
			w.vanish(w.object(lane, order))
		}
	}},
	{"topic deleted", func(w *world) { check(w.t, w.log.Admin().DeleteTopic(w.t.Context(), "t")) }},
	{"topic's row deleted, heads not yet", func(w *world) {
		row := w.row("t")
		check(w.t, w.table.DeleteTopic(w.t.Context(), row, &metadata.GoneTopic{ID: row.ID, Name: row.Name, Lanes: row.Lanes, Width: row.LaneWidth, Classes: row.Classes, Deleted: w.env.Now()}))
	}},
	{"topic deleted, everything of it", func(w *world) { w.wipe("t") }},
	{"topic deleted, everything of it, and made anew", func(w *world) {
		w.wipe("t")
		w.topic("t", 4, 1)
		w.produce(10, at("t", 0, 1)...)
	}},
	{"topic grown", func(w *world) {
		_, err := w.log.Admin().AlterTopic(w.t.Context(), "t", sdk.Alteration{Partitions: 6, MoveKeys: true})
		check(w.t, err)
		w.produce(9, at("t", 4, 5)...)
	}},
	{"retention changed", func(w *world) {
		_, err := w.log.Admin().AlterTopic(w.t.Context(), "t", sdk.Alteration{Config: map[string]string{metadata.RetentionMs: "86400000"}})
		check(w.t, err)
		w.produce(3, at("t", 0)...)
	}},
	{"another topic made", func(w *world) {
		w.topic("new", 2, 1)
		w.produce(9, at("new", 0)...)
	}},
}

// vanish removes an object, as a lifecycle rule or the sweep does.
func (w *world) vanish(name string) { check(w.t, w.store.Delete(w.t.Context(), name)) }

// wipe deletes a topic and all that it has, as a cleaner does that is hours ahead.
func (w *world) wipe(name string) {
	row := w.row(name)
	var objects []string
	for _, id := range row.Lanes {
		for order := range w.head(id).Next - 3 {
			objects = append(objects, w.object(id, order))
		}
	}
	check(w.t, topics.New(w.table.Table, w.env).Delete(w.t.Context(), name))
	for _, id := range row.Lanes {
		for done := false; !done; {
			var err error
			done, err = w.table.DeleteLaneRest(w.t.Context(), id)
			check(w.t, err)
		}
	}
	check(w.t, w.table.DeleteGone(w.t.Context(), row.ID))
	check(w.t, w.store.Delete(w.t.Context(), objects...))
}

// Each event at each moment: before the first request of the check, before the second, and so on to its end.
func TestEveryEventAtEveryMoment(t *testing.T) {
	for _, e := range events {
		t.Run(e.name, func(t *testing.T) {
			for moment, requests := 0, 1; moment < requests && !t.Failed(); moment += stride {
				synctest.Test(t, func(t *testing.T) {
					w, _ := sound(t)
					requests = happening(w, e.happen, moment)
				})
			}
		})
	}
}

// happening verifies a log to which something happens before that request of the check, and tells how many requests there were.
func happening(w *world, happen func(*world), moment int) (n int) {
	w.t.Helper()
	return happeningIn(w, w.options(), happen, moment)
}

func happeningIn(w *world, o verify.Options, happen func(*world), moment int) (n int) {
	w.t.Helper()
	turn := make(chan struct{}, 1) // and no mutex: time goes on while others wait for it
	tick := func(string) {
		turn <- struct{}{}
		defer func() { <-turn }()
		if n++; n == moment+1 {
			happen(w)
		}
	}
	w.table.before, w.store.before = tick, tick
	o.Parallel = 1
	r := w.verify(o)
	w.table.before, w.store.before = nil, nil
	if !harmless(r) {
		w.t.Fatalf("before request %d: %s", moment, describe(r))
	}
	if n <= moment && moment < 20 {
		w.t.Fatalf("the check makes only %d requests", n)
	}
	return n
}

// The same all at once: producers, spills, compaction, merges, deletions of records with their objects, topics made and deleted, while checks run one after
// another.
func TestLogInUse(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 8, 2)
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	for i := range 3 {
		users.Go(func() { w.keepProducing(ctx, i) })
	}
	users.Go(func() { w.keepDeleting(ctx) })
	users.Go(func() { w.keepChanging(ctx) })
	users.Go(func() { w.keepArchiving(ctx) })
	checks, commits, rows := 0, int64(0), int64(0)
	for checks < 20/raceShare || commits < 2000/raceShare || rows < 200/raceShare {
		r := w.verify(w.options())
		if !harmless(r) {
			t.Error(describe(r))
			break
		}
		checks, commits, rows = checks+1, commits+r.Totals.Commits, rows+r.Totals.Rows
	}
	stop()
	users.Wait()
	t.Logf("%d checks of %d commits and %d rows in all", checks, commits, rows)
	if r := w.verify(w.options()); !harmless(r) {
		t.Error(describe(r))
	}
}

func (w *world) keepProducing(ctx context.Context, n int) {
	p, err := w.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(time.Millisecond, time.Millisecond))
	if err != nil {
		w.t.Error(err)
		return
	}
	for i := 0; ctx.Err() == nil; i++ {
		for _, r := range p.ProduceSync(ctx, &sdk.Record{Topic: "t", Partition: (n + i) % 8, Value: bytes.Repeat([]byte("x"), 200)}) {
			if r.Err != nil && ctx.Err() == nil {
				w.t.Error(r.Err)
			}
		}
	}
	if err := p.Close(context.WithoutCancel(ctx)); err != nil {
		w.t.Error(err)
	}
}

// keepDeleting raises log starts, and removes the objects of which nothing is left.
func (w *world) keepDeleting(ctx context.Context) {
	next := map[metadata.LaneID]int64{}
	for ctx.Err() == nil {
		offsets, err := w.log.Admin().Offsets(ctx, "t")
		for _, o := range offsets {
			if err == nil && o.End-o.Start > 20 {
				_, err = w.log.Admin().DeleteRecords(ctx, "t", o.Partition, o.End-10)
			}
		}
		row, rowErr := w.table.Table.Topic(ctx, "t")
		if err != nil || rowErr != nil {
			break
		}
		for _, id := range row.Lanes {
			if next[id], err = w.removeExpired(ctx, id, next[id]); err != nil {
				break
			}
		}
	}
}

func (w *world) removeExpired(ctx context.Context, id metadata.LaneID, next int64) (int64, error) {
	state, err := w.table.Table.State(ctx, id, metadata.Strong)
	if err != nil {
		return next, err
	}
	chunks, _, err := w.table.Table.Chunks(ctx, id, next, 1<<40, 100, metadata.Strong)
	if err != nil {
		return next, err
	}
	for _, c := range chunks {
		for s, end := range c.Ends() {
			if end > state.Starts[s] {
				return next, nil
			}
		}
		for i := range c.Entries {
			name := segment.IntakeName(c.Entries[i].ID)
			if err := w.store.Delete(ctx, name); err != nil {
				return next, err
			}
		}
		next = c.First + int64(len(c.Entries))
	}
	return next, nil
}

// keepChanging makes topics, fills them and deletes them, and all that they had.
func (w *world) keepChanging(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("short-%d", i%3)
		if _, err := w.log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: name, Partitions: 2}); err != nil {
			return
		}
		p, err := w.log.NewProducer()
		if err != nil {
			return
		}
		for range 10 {
			p.ProduceSync(ctx, &sdk.Record{Topic: name, Value: []byte("x")})
		}
		p.Close(context.WithoutCancel(ctx))
		if ctx.Err() == nil {
			w.wipeAlone(name)
		}
	}
}

// wipeAlone is wipe of a topic whose objects nobody else has a part in.
func (w *world) wipeAlone(name string) {
	row := w.row(name)
	var ids []segment.ID
	for _, id := range row.Lanes {
		h := w.head(id)
		ids = append(ids, idsOf(h.Entries)...)
		chunks, _, err := w.table.Table.Chunks(w.t.Context(), id, 0, h.First, 100, metadata.Strong)
		check(w.t, err)
		for _, c := range chunks {
			ids = append(ids, idsOf(c.Entries)...)
		}
	}
	check(w.t, topics.New(w.table.Table, w.env).Delete(w.t.Context(), name))
	for _, id := range row.Lanes {
		_, err := w.table.DeleteLaneRest(w.t.Context(), id)
		check(w.t, err)
	}
	check(w.t, w.table.DeleteGone(w.t.Context(), row.ID))
	for _, id := range ids {
		w.vanish(segment.IntakeName(id))
	}
}

func idsOf(entries []metadata.Entry) (ids []segment.ID) {
	for i := range entries {
		ids = append(ids, entries[i].ID)
	}
	return ids
}

// A service that does not answer is an error, never a finding: each request in turn fails.
func TestNoAnswerIsNoFinding(t *testing.T) {
	w, _ := archived(t)
	for moment := 0; ; moment++ {
		var mu sync.Mutex
		n := 0
		failing := func() bool {
			mu.Lock()
			defer mu.Unlock()
			n++
			return n == moment+1
		}
		o := w.options()
		o.Parallel = 1
		r, err := verify.Run(t.Context(), mute{w.table, failing}, muteStore{w.store, failing}, o)
		if n <= moment {
			if err != nil || moment < 20 {
				t.Errorf("%d requests, %v", moment, err)
			}
			return
		}
		if err == nil || len(r.Findings) != 0 || !r.Incomplete || r.OK() {
			t.Errorf("request %d failed: %v, %s", moment, err, describe(r))
		}
	}
}

var errMute = metadata.ErrUnavailable

// mute is a table that does not answer some requests.
type mute struct {
	*lens
	failing func() bool
}

func (m mute) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	if m.failing() {
		return nil, errMute
	}
	return m.lens.Head(ctx, l, c)
}

func (m mute) State(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.State, error) {
	if m.failing() {
		return nil, errMute
	}
	return m.lens.State(ctx, l, c)
}

func (m mute) Chunks(ctx context.Context, l metadata.LaneID, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Chunk, bool, error) {
	if m.failing() {
		return nil, false, errMute
	}
	return m.lens.Chunks(ctx, l, from, to, limit, c)
}

func (m mute) Topics(ctx context.Context, after string, limit int) ([]*metadata.Topic, bool, error) {
	if m.failing() {
		return nil, false, errMute
	}
	return m.lens.Topics(ctx, after, limit)
}

func (m mute) Gone(ctx context.Context) ([]*metadata.GoneTopic, error) {
	if m.failing() {
		return nil, errMute
	}
	return m.lens.Gone(ctx)
}

func (m mute) Identity(ctx context.Context) (metadata.Identity, bool, error) {
	if m.failing() {
		return metadata.Identity{}, false, errMute
	}
	return m.lens.Identity(ctx)
}

func (m mute) Rows(ctx context.Context, t segment.TopicID, p int, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Row, bool, error) {
	if m.failing() {
		return nil, false, errMute
	}
	return m.lens.Rows(ctx, t, p, from, to, limit, c)
}

func (m mute) Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) ([]*metadata.Replaced, bool, error) {
	if m.lens.hashes.has(hash) && m.failing() {
		return nil, false, errMute
	}
	return m.lens.Replaced(ctx, hash, after, before, limit)
}

func (m mute) Floor(ctx context.Context) (segment.ID, error) {
	if m.failing() {
		return segment.ID{}, errMute
	}
	return m.lens.Floor(ctx)
}

type muteStore struct {
	*glass
	failing func() bool
}

func (m muteStore) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	if m.failing() {
		return nil, store.Fail(store.OpGet, name, store.ErrUnavailable)
	}
	return m.glass.Get(ctx, name, off, n, dst)
}

func (m muteStore) Stat(ctx context.Context, name string) (store.Info, error) {
	if m.failing() {
		return store.Info{}, store.Fail(store.OpStat, name, store.ErrUnavailable)
	}
	return m.glass.Stat(ctx, name)
}

func (m muteStore) List(ctx context.Context, prefix, after string, max int) (store.Page, error) {
	if m.failing() {
		return store.Page{}, store.Fail(store.OpList, prefix, store.ErrUnavailable)
	}
	return m.glass.List(ctx, prefix, after, max)
}

// Eventual reads that miss chunks, each of them, are asked again strongly.
func TestStaleReadsAreNoGaps(t *testing.T) {
	w, _ := sound(t)
	r, err := verify.Run(t.Context(), stale{w.table}, w.store, w.options())
	check(t, err)
	if len(r.Findings) != 0 || r.Totals.Commits != 24 {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
}

type stale struct{ *lens }

func (s stale) Chunks(ctx context.Context, l metadata.LaneID, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Chunk, bool, error) {
	chunks, more, err := s.lens.Chunks(ctx, l, from, to, limit, c)
	if c == metadata.Eventual && len(chunks) > 0 {
		chunks = slices.Delete(chunks, 0, 1)
	}
	return chunks, more, err
}
