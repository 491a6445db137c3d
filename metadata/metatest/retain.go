package metatest

import (
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func testSetOldest(f *fixture) {
	lane := f.lane()
	for _, step := range []struct{ to, want time.Duration }{{5, 5}, {3, 5}, {5, 5}, {9, 9}} {
		f.costs(1, "SetOldest", func() { f.ok(f.table.SetOldest(f.ctx, lane, birth.Add(step.to*time.Second))) })
		if got := f.state(lane).Oldest; !got.Equal(birth.Add(step.want * time.Second)) {
			f.Fatalf("oldest to %d: %v", step.to, got)
		}
	}
	f.is(f.table.SetOldest(f.ctx, "absent", birth), metadata.ErrNoState)
}

// testSetStateConfig: from a state's version on, publications of another class are refused, and only those.
func testSetStateConfig(f *fixture) {
	t, p := f.archived()
	lane := t.Lanes[0]
	f.costs(1, "SetStateConfig", func() { f.ok(f.table.SetStateConfig(f.ctx, lane, 5, 30)) })
	for _, version := range []int64{5, 4} {
		f.ok(f.table.SetStateConfig(f.ctx, lane, version, 1))
	}
	before := f.state(lane)
	f.same(before, &metadata.State{Lane: lane, Archived: 8, Ends: metadata.Offsets{80, 80}, Version: 5, Class: 30})
	late := f.archiveID()
	for name, stale := range map[string]*metadata.Publication{
		"orders": {Lane: lane, ID: late, From: 8, To: 16, Ends: map[metadata.Slot]int64{0: 90}, Put: []metadata.Row{row(t, 0, 80, 90, late)}},
		"rows":   {Lane: lane, ID: late, From: 8, To: 8, Put: []metadata.Row{row(t, 0, 0, 80, late)}, Replace: p.Put[:1], Left: []segment.ID{p.ID}},
	} {
		if err := f.table.Publish(f.ctx, stale); err == nil {
			f.Fatalf("%s under a class that is the topic's no more", name)
		} else {
			f.is(err, metadata.ErrChanged)
		}
	}
	f.same(f.state(lane), before)
	id := segment.NewID(late.Time().Add(time.Millisecond), 30, segment.Archived, f.salt, segment.ID{})
	f.ok(f.table.Publish(f.ctx, &metadata.Publication{Lane: lane, ID: id, From: 8, To: 8, Put: []metadata.Row{row(t, 0, 0, 80, id)}, Replace: p.Put[:1], Left: []segment.ID{p.ID}}))
	f.is(f.table.SetStateConfig(f.ctx, "absent", 5, 30), metadata.ErrNoState)
}

func testSetStored(f *fixture) {
	t := f.topic("t", 1, 1)
	t.Stored = []segment.Class{7, 30}
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	stored := func(want ...segment.Class) {
		f.Helper()
		got, err := f.table.Topic(f.ctx, "t")
		f.ok(err)
		if !slices.Equal(got.Stored, want) || got.Version != 1 {
			f.Fatalf("stored %v at version %d, want %v at 1", got.Stored, got.Version, want)
		}
	}
	later, another := *t, *t
	later.Version++
	another.ID = f.topic("t", 1, 1).ID
	for _, stale := range []*metadata.Topic{&later, &another} {
		f.is(f.table.SetStored(f.ctx, stale, []segment.Class{30}), metadata.ErrChanged)
	}
	stored(7, 30)
	f.costs(1, "SetStored", func() { f.ok(f.table.SetStored(f.ctx, t, []segment.Class{30})) })
	f.ok(f.table.SetStored(f.ctx, t, []segment.Class{30})) // as after an answer that was lost
	stored(30)
	// Who has seen the longer list cannot bring the class back that another has found to be left.
	f.is(f.table.SetStored(f.ctx, t, []segment.Class{7}), metadata.ErrChanged)
	stored(30)
	absent := f.topic("absent", 1, 1)
	f.is(f.table.SetStored(f.ctx, absent, nil), metadata.ErrUnknownTopic)
}
