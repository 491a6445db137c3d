package metatest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func testIdentity(f *fixture) {
	if _, ok, err := f.table.Identity(f.ctx); ok || err != nil {
		f.Fatalf("a new table has an identity: %v", err)
	}
	if floor, err := f.table.Floor(f.ctx); !floor.IsZero() || err != nil {
		f.Fatal(floor, err)
	}
	errs := together(8, func(i int) error {
		mine := metadata.Identity{Log: segment.LogID{byte(i + 1)}, Version: metadata.FormatVersion, Bucket: "b", Prefix: "p"}
		got, err := f.table.PutIdentity(f.ctx, mine)
		if err == nil && got != mine {
			err = fmt.Errorf("lost to %v", got.Log[0])
		}
		return err
	})
	won := -1
	for i, err := range errs {
		if err == nil && won >= 0 {
			f.Fatal("two have put the identity")
		} else if err == nil {
			won = i
		}
	}
	id, ok, err := f.table.Identity(f.ctx)
	if !ok || err != nil || id.Log[0] != byte(won+1) || id.Bucket != "b" || id.Prefix != "p" || id.Version != metadata.FormatVersion {
		f.Fatalf("%+v %v %v, put by %d", id, ok, err, won)
	}
	again, err := f.table.PutIdentity(f.ctx, metadata.Identity{Log: segment.LogID{99}, Version: 1})
	if err != nil || again != id {
		f.Fatalf("%+v %v", again, err)
	}
}

func testServiceTime(f *fixture) {
	_, err := f.table.Floor(f.ctx)
	f.ok(err)
	first, ok := f.table.ServiceTime()
	if !ok || first.Year() < 2000 {
		f.Fatalf("%v %v after an answer", first, ok)
	}
	if second, _ := f.table.ServiceTime(); second.Before(first) {
		f.Fatalf("%v, then %v", first, second)
	}
}

func testEnsureTableAgain(f *fixture) { f.ok(f.table.EnsureTable(f.ctx)) }

func testCreateTopic(f *fixture) {
	t := f.topic("flights", 100, 64)
	t.Config.Retention = 36 * time.Hour
	t.Config.TimeType = segment.LogAppendTime
	f.costs(1, "CreateTopic", func() { f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{})) })
	var got *metadata.Topic
	f.costs(1, "Topic", func() {
		var err error
		got, err = f.table.Topic(f.ctx, "flights")
		f.ok(err)
	})
	if !reflect.DeepEqual(got, t) {
		f.Fatalf("\n got %+v\nwant %+v", got, t)
	}
	for _, lane := range t.Lanes {
		want := &metadata.Head{Lane: lane, Entries: []metadata.Entry{}, ConfigVersion: 1, Class: 2, K: metadata.ChunkOrders, MinVersion: metadata.FormatVersion}
		if h := f.head(lane); !reflect.DeepEqual(h, want) {
			f.Errorf("\n got %+v\nwant %+v", h, want)
		}
		s, err := f.table.State(f.ctx, lane, metadata.Strong)
		f.ok(err)
		if !reflect.DeepEqual(s, &metadata.State{Lane: lane}) {
			f.Errorf("%+v", s)
		}
	}
}

func testCreateTopicRefuses(f *fixture) {
	f.ok(f.table.CreateTopic(f.ctx, f.topic("there", 1, 1), segment.ID{}))
	second := f.topic("there", 1, 1)
	f.is(f.table.CreateTopic(f.ctx, second, segment.ID{}), metadata.ErrTopicExists)
	moved := f.topic("moved", 1, 1)
	f.is(f.table.CreateTopic(f.ctx, moved, f.id()), metadata.ErrChanged) // the floor is not what was read
	for _, t := range []*metadata.Topic{second, moved} {
		_, err := f.table.Head(f.ctx, t.Lanes[0], metadata.Strong)
		f.is(err, metadata.ErrNoLane)
		_, err = f.table.State(f.ctx, t.Lanes[0], metadata.Strong)
		f.is(err, metadata.ErrNoState)
	}
	_, err := f.table.Topic(f.ctx, "moved")
	f.is(err, metadata.ErrUnknownTopic)
}

// Two creators: one wins, and nothing of the other is left.
func testCreateTopicRace(f *fixture) {
	topics := make([]*metadata.Topic, 6)
	for i := range topics {
		topics[i] = f.topic("contested", 3, 1)
	}
	won := f.oneWins(together(len(topics), func(i int) error { return f.table.CreateTopic(f.ctx, topics[i], segment.ID{}) }), metadata.ErrTopicExists)
	got, err := f.table.Topic(f.ctx, "contested")
	f.ok(err)
	if got.ID != topics[won].ID {
		f.Fatalf("the row is of %s, %s won", got.ID, topics[won].ID)
	}
	for i, t := range topics {
		for _, lane := range t.Lanes {
			if _, err := f.table.Head(f.ctx, lane, metadata.Strong); (err == nil) != (i == won) {
				f.Errorf("head of creator %d (%d won): %v", i, won, err)
			}
		}
	}
}

func testMaxLanes(f *fixture) {
	t := f.topic("wide", metadata.MaxLanes, 1)
	f.costs(1, "CreateTopic", func() { f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{})) })
	f.head(t.Lanes[metadata.MaxLanes-1])
	f.is(f.table.CreateTopic(f.ctx, f.topic("wider", metadata.MaxLanes+1, 1), segment.ID{}), metadata.ErrInvalid)
}

func testTopics(f *fixture) {
	names := []string{"orders", "orders-archive", "orders2"} // BR-46: in the order of their bytes, each its own
	for _, name := range []string{names[2], names[0], names[1]} {
		f.ok(f.table.CreateTopic(f.ctx, f.topic(name, 1, 1), segment.ID{}))
	}
	list := func(after string, limit int) (got []string, more bool) {
		topics, more, err := f.table.Topics(f.ctx, after, limit)
		f.ok(err)
		for _, t := range topics {
			got = append(got, t.Name)
		}
		return got, more
	}
	if got, more := list("", 100); !reflect.DeepEqual(got, names) || more {
		f.Error(got, more)
	}
	if got, more := list("", 2); !reflect.DeepEqual(got, names[:2]) || !more {
		f.Error(got, more)
	}
	if got, more := list(names[1], 100); !reflect.DeepEqual(got, names[2:]) || more {
		f.Error(got, more)
	}
	if got, more := list(names[2], 100); len(got) != 0 || more {
		f.Error(got, more)
	}
}

func testReplaceTopic(f *fixture) {
	t := f.topic("t", 2, 2)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	old := *t
	t.Version, t.Partitions = 2, 5
	t.History = append(t.History, metadata.Growth{Version: 2, Partitions: 5})
	t.Config.Retention, t.Config.CleanupPolicy = 30*24*time.Hour, "compact,delete"
	f.widen(t)
	f.is(f.table.ReplaceTopic(f.ctx, t, 1, f.id()), metadata.ErrChanged) // another floor
	f.costs(1, "ReplaceTopic", func() { f.ok(f.table.ReplaceTopic(f.ctx, t, 1, segment.ID{})) })
	got, err := f.table.Topic(f.ctx, "t")
	f.ok(err)
	if !reflect.DeepEqual(got, t) {
		f.Fatalf("\n got %+v\nwant %+v", got, t)
	}
	if h := f.head(t.Lanes[2]); h.ConfigVersion != 2 || h.Class != 30 {
		f.Errorf("a new lane has version %d, class %v", h.ConfigVersion, h.Class)
	}
	if h := f.head(t.Lanes[0]); h.ConfigVersion != 1 || h.Class != 7 {
		f.Errorf("an old lane has version %d, class %v before its turn", h.ConfigVersion, h.Class)
	}
	f.is(f.table.ReplaceTopic(f.ctx, t, 3, segment.ID{}), metadata.ErrChanged) // the version is taken
	other := *t
	other.ID, other.Version = f.topic("u", 1, 1).ID, 3
	f.is(f.table.ReplaceTopic(f.ctx, &other, 3, segment.ID{}), metadata.ErrChanged) // another topic's
	old.Name, old.Version = "absent", 2
	f.is(f.table.ReplaceTopic(f.ctx, &old, 1, segment.ID{}), metadata.ErrChanged)
}

// Two growers from one version: one wins, and no lane of the other is left.
func testGrowthRace(f *fixture) {
	t := f.topic("t", 1, 1)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	grown := make([]*metadata.Topic, 4)
	for i := range grown {
		g := *t
		g.Version, g.Partitions = 2, 2
		g.History = []metadata.Growth{t.History[0], {Version: 2, Partitions: 2}}
		g.Lanes = []metadata.LaneID{t.Lanes[0], metadata.LaneID(fmt.Sprintf("grown-%d", i))}
		grown[i] = &g
	}
	won := f.oneWins(together(len(grown), func(i int) error { return f.table.ReplaceTopic(f.ctx, grown[i], 1, segment.ID{}) }), metadata.ErrChanged)
	for i, g := range grown {
		if _, err := f.table.Head(f.ctx, g.Lanes[1], metadata.Strong); (err == nil) != (i == won) {
			f.Errorf("lane of grower %d (%d won): %v", i, won, err)
		}
	}
}

func testKeyed(f *fixture) {
	t := f.topic("t", 1, 1)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	f.costs(1, "MarkKeyed", func() { f.ok(f.table.MarkKeyed(f.ctx, "t", t.ID)) })
	f.ok(f.table.MarkKeyed(f.ctx, "t", t.ID))
	got, err := f.table.Topic(f.ctx, "t")
	f.ok(err)
	if !got.Keyed || got.Version != 1 {
		f.Fatalf("%+v", got)
	}
	// A grower read the row, found no keyed records, and writes after they came: it must look again.
	t.Version = 2
	f.is(f.table.ReplaceTopic(f.ctx, t, 1, segment.ID{}), metadata.ErrChanged)
	t.Keyed = true
	f.ok(f.table.ReplaceTopic(f.ctx, t, 1, segment.ID{}))
	if got, err = f.table.Topic(f.ctx, "t"); err != nil || !got.Keyed {
		f.Fatalf("%+v %v", got, err)
	}
	f.is(f.table.MarkKeyed(f.ctx, "absent", t.ID), metadata.ErrUnknownTopic)
	f.is(f.table.MarkKeyed(f.ctx, "t", f.topic("u", 1, 1).ID), metadata.ErrTopicGone)
	k := f.topic("k", 1, 1)
	k.Keyed = true
	f.ok(f.table.CreateTopic(f.ctx, k, segment.ID{}))
	if got, err = f.table.Topic(f.ctx, "k"); err != nil || !got.Keyed {
		f.Fatalf("%+v %v", got, err)
	}
}

func testSetHeadConfig(f *fixture) {
	lane := f.lane()
	before := f.commit(lane, f.entry(2, 1))
	f.costs(1, "SetHeadConfig", func() { f.ok(f.table.SetHeadConfig(f.ctx, lane, 5, 30)) })
	want := *before
	want.ConfigVersion, want.Class = 5, 30
	for x := range want.Epochs {
		want.Epochs[x]++
	}
	if h := f.head(lane); !reflect.DeepEqual(h, &want) {
		f.Fatalf("\n got %+v\nwant %+v", h, &want)
	}
	for _, version := range []int64{5, 4} { // done before, or overtaken: no epoch moves again
		f.ok(f.table.SetHeadConfig(f.ctx, lane, version, 1))
		if h := f.head(lane); !reflect.DeepEqual(h, &want) {
			f.Fatalf("version %d after 5: %+v", version, h)
		}
	}
	// A writer that did not see the change is refused, and shown it.
	_, err := f.table.Commit(f.ctx, commitTo(before, 3, f.entry(1, 1)))
	if h := f.refused(err); h.ConfigVersion != 5 {
		f.Errorf("%+v", h)
	}
	f.is(f.table.SetHeadConfig(f.ctx, "absent", 5, 30), metadata.ErrNoLane)
}

func testDeleteTopic(f *fixture) {
	t := f.topic("t", 2, 1)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	gone := &metadata.GoneTopic{ID: t.ID, Name: t.Name, Lanes: t.Lanes, Width: t.LaneWidth, Classes: []segment.Class{7, segment.Keep}, Named: []segment.ID{f.id(), f.id()}, Deleted: birth}
	f.ok(f.table.PutGone(f.ctx, gone)) // only rewrites
	if list, err := f.table.Gone(f.ctx); err != nil || len(list) != 0 {
		f.Fatal(list, err)
	}
	stale := *t
	stale.Version = 2
	f.is(f.table.DeleteTopic(f.ctx, &stale, gone), metadata.ErrChanged)
	f.costs(1, "DeleteTopic", func() { f.ok(f.table.DeleteTopic(f.ctx, t, gone)) })
	f.is(f.table.DeleteTopic(f.ctx, t, gone), metadata.ErrChanged)
	_, err := f.table.Topic(f.ctx, "t")
	f.is(err, metadata.ErrUnknownTopic)
	gone.Pass = 1
	f.ok(f.table.PutGone(f.ctx, gone))
	list, err := f.table.Gone(f.ctx)
	f.ok(err)
	if len(list) != 1 || !reflect.DeepEqual(list[0], gone) {
		f.Fatalf("\n got %+v\nwant %+v", list, gone)
	}
	// The name may be used again while the old topic is being cleaned; the heads are apart.
	f.ok(f.table.CreateTopic(f.ctx, f.topic("t", 2, 1), segment.ID{}))
	h := f.head(t.Lanes[0])
	f.ok(f.table.DeleteHead(f.ctx, t.Lanes[0]))
	f.ok(f.table.DeleteHead(f.ctx, t.Lanes[0]))
	_, err = f.table.Head(f.ctx, t.Lanes[0], metadata.Strong)
	f.is(err, metadata.ErrNoLane)
	_, err = f.table.Commit(f.ctx, commitTo(h, 0, f.entry(1, 0)))
	var r *metadata.RefusedError
	if !errors.As(err, &r) || r.Head != nil || r.Lane != t.Lanes[0] {
		f.Fatalf("commit to a deleted head: %v", err)
	}
	_, err = f.table.RaiseEpoch(f.ctx, t.Lanes[0], 0, 0)
	f.is(err, metadata.ErrNoLane)
	_, err = f.table.Head(f.ctx, t.Lanes[0], metadata.Strong) // neither call has made a head again
	f.is(err, metadata.ErrNoLane)
	f.ok(f.table.DeleteGone(f.ctx, t.ID))
	if list, err := f.table.Gone(f.ctx); err != nil || len(list) != 0 {
		f.Fatal(list, err)
	}
}

func testDeleteLaneRest(f *fixture) {
	lanes := f.lanes(2)
	const chunks, others = 230, 20
	for lane, n := range map[metadata.LaneID]int{lanes[0]: chunks, lanes[1]: others} {
		for i := range n {
			f.ok(f.table.PutChunk(f.ctx, f.chunk(lane, int64(i)*metadata.ChunkOrders)))
		}
	}
	pieces := 0
	for done := false; !done; pieces++ {
		if pieces > chunks {
			f.Fatal("no end")
		}
		if _, err := f.table.State(f.ctx, lanes[0], metadata.Strong); err != nil {
			f.Fatalf("the state goes last: %v", err)
		}
		var err error
		done, err = f.table.DeleteLaneRest(f.ctx, lanes[0])
		f.ok(err)
	}
	if pieces < 2 {
		f.Errorf("%d chunks went in %d pieces", chunks, pieces)
	}
	left, _, err := f.table.Chunks(f.ctx, lanes[0], 0, 1<<40, 10, metadata.Strong)
	if err != nil || len(left) != 0 {
		f.Errorf("%d chunks are left: %v", len(left), err)
	}
	_, err = f.table.State(f.ctx, lanes[0], metadata.Strong)
	f.is(err, metadata.ErrNoState)
	if done, err := f.table.DeleteLaneRest(f.ctx, lanes[0]); !done || err != nil {
		f.Errorf("again: %v %v", done, err)
	}
	other, _, err := f.table.Chunks(f.ctx, lanes[1], 0, 1<<40, others+1, metadata.Strong)
	if err != nil || len(other) != others {
		f.Errorf("the other lane has %d chunks: %v", len(other), err)
	}
}

func testInvalidSendsNothing(f *fixture) {
	bad := f.topic("t", 1, 1)
	bad.Name = "a/b"
	f.costs(0, "", func() {
		f.is(f.table.CreateTopic(f.ctx, bad, segment.ID{}), metadata.ErrInvalid)
		_, err := f.table.Topic(f.ctx, "..")
		f.is(err, metadata.ErrInvalid)
		_, err = f.table.Commit(f.ctx, metadata.Commit{Lane: "l"})
		f.is(err, metadata.ErrInvalid)
		f.is(f.table.CommitAll(f.ctx, f.token("token"), nil), metadata.ErrInvalid)
		f.is(f.table.PutChunk(f.ctx, &metadata.Chunk{Lane: "l"}), metadata.ErrInvalid)
		f.is(f.table.SetToken(f.ctx, "l", 0, 5, 5), metadata.ErrInvalid)
		_, err = f.table.SetStart(f.ctx, "l", metadata.SlotsPerLane, 1)
		f.is(err, metadata.ErrInvalid)
		_, err = f.table.Trim(f.ctx, "l", 0, 8, nil)
		f.is(err, metadata.ErrInvalid)
		_, err = f.table.RaiseEpoch(f.ctx, "l", metadata.Epochs, 0)
		f.is(err, metadata.ErrInvalid)
	})
}

func testCancelledSendsNothing(f *fixture) {
	lane := f.lane()
	commit := commitTo(f.head(lane), 0, f.entry(1, 0))
	reason := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(reason)
	f.costs(0, "", func() {
		_, err := f.table.Commit(ctx, commit)
		f.is(err, reason)
		if errors.Is(err, metadata.ErrOutcomeUnknown) {
			f.Errorf("what was never sent is unknown: %v", err)
		}
		_, err = f.table.Head(ctx, lane, metadata.Strong)
		f.is(err, reason)
		f.is(f.table.CreateTopic(ctx, f.topic("t", 1, 1), segment.ID{}), reason)
	})
	if h := f.head(lane); h.Next != 0 {
		f.Errorf("%+v", h)
	}
}
