package metatest

import (
	"errors"
	"reflect"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func testEras(f *fixture) {
	for _, step := range []struct{ set, want metadata.EraMark }{
		{metadata.EraMark{}, metadata.EraMark{}},
		{metadata.EraMark{Begun: 1}, metadata.EraMark{Begun: 1}},
		{metadata.EraMark{Begun: 1, Done: 1}, metadata.EraMark{Begun: 1, Done: 1}},
		{metadata.EraMark{Begun: 1}, metadata.EraMark{Begun: 1, Done: 1}},
		{metadata.EraMark{Begun: 3, Done: 2}, metadata.EraMark{Begun: 3, Done: 2}},
		{metadata.EraMark{Begun: 2, Done: 2}, metadata.EraMark{Begun: 3, Done: 2}},
	} {
		if step.set.Begun > 0 {
			f.costs(1, "SetEraMark", func() { f.ok(f.table.SetEraMark(f.ctx, step.set)) })
		}
		if m, err := f.table.EraMark(f.ctx); err != nil || m != step.want {
			f.Fatalf("after %+v: %+v, %v", step.set, m, err)
		}
	}
}

func testFence(f *fixture) {
	lane := f.lane()
	before := f.head(lane)
	f.costs(1, "Fence", func() {
		h, err := f.table.Fence(f.ctx, lane)
		f.ok(err)
		for x := range h.Epochs {
			if h.Epochs[x] < before.Epochs[x]+1000 {
				f.Errorf("epoch %d is %d, it was %d", x, h.Epochs[x], before.Epochs[x])
			}
		}
	})
	if _, err := f.table.Fence(f.ctx, "none"); !errors.Is(err, metadata.ErrNoLane) {
		f.Error(err)
	}
}

func testSetCuts(f *fixture) {
	lane := f.lane()
	first := []metadata.Cut{{Slot: 1, From: 3, To: metadata.EraStep, Order: 7}}
	second := append(first[:1:1], metadata.Cut{Slot: 2, From: 0, To: metadata.EraStep})
	read := func() *metadata.State {
		s, err := f.table.State(f.ctx, lane, metadata.Strong)
		f.ok(err)
		return s
	}
	none := read()
	set := func(was *metadata.State, cuts []metadata.Cut) error {
		s, err := f.table.SetCuts(f.ctx, was, cuts)
		if err == nil && !reflect.DeepEqual(s.Cuts, cuts) {
			f.Fatalf("%+v after %+v", s.Cuts, cuts)
		}
		return err
	}
	f.costs(1, "SetCuts", func() { f.ok(set(none, first)) })
	f.ok(set(none, first)) // again, as after a lost answer
	if err := set(none, second); !errors.Is(err, metadata.ErrChanged) {
		f.Error(err)
	}
	f.ok(set(read(), second))
	if s := read(); s.Cut(1, 3) == nil || s.Cut(1, 2) != nil || s.Cut(1, metadata.EraStep) != nil || s.Cut(2, 0) == nil || s.Cut(3, 0) != nil {
		f.Errorf("%+v", s.Cuts)
	}
	if err := set(&metadata.State{Lane: "none"}, first); !errors.Is(err, metadata.ErrNoState) {
		f.Error(err)
	}
	if err := set(read(), nil); !errors.Is(err, metadata.ErrInvalid) {
		f.Error(err)
	}
}

func testJump(f *fixture) {
	lane := f.lane()
	all := make([]metadata.Slot, metadata.SlotsPerLane)
	for s := range all {
		all[s] = metadata.Slot(s)
	}
	if _, err := f.table.Jump(f.ctx, lane, 1, all, metadata.EraStep); !errors.Is(err, metadata.ErrChanged) {
		f.Error(err)
	}
	f.costs(1, "Jump", func() {
		h, err := f.table.Jump(f.ctx, lane, 0, all, metadata.EraStep)
		f.ok(err)
		for s, end := range h.Ends {
			if end != metadata.EraStep {
				f.Fatalf("slot %d ends at %d", s, end)
			}
		}
	})
	for _, next := range []int64{0, 5} { // as after a lost answer, also when the lane has gone on
		if _, err := f.table.Jump(f.ctx, lane, next, all, metadata.EraStep); err != nil {
			f.Error(err)
		}
	}
	if h, err := f.table.Jump(f.ctx, lane, 0, all, metadata.EraStep-1); err != nil || h.Ends[0] != metadata.EraStep {
		f.Errorf("back: %+v, %v", h.Ends[0], err)
	}
	if _, err := f.table.Jump(f.ctx, lane, 0, nil, metadata.EraStep); !errors.Is(err, metadata.ErrInvalid) {
		f.Error(err)
	}
	if _, err := f.table.Jump(f.ctx, "none", 0, all, metadata.EraStep); !errors.Is(err, metadata.ErrNoLane) {
		f.Error(err)
	}
}

// testAmendTopic: as ReplaceTopic, from whatever version to a higher one.
func testAmendTopic(f *fixture) {
	t := f.topic("t", 2, 2)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	was := t.Version
	next := *t
	next.Version += metadata.VersionStep
	f.is(f.table.AmendTopic(f.ctx, was+1, &next, len(t.Lanes), segment.ID{}), metadata.ErrChanged)
	f.costs(1, "AmendTopic", func() { f.ok(f.table.AmendTopic(f.ctx, was, &next, len(t.Lanes), segment.ID{})) })
	got, err := f.table.Topic(f.ctx, t.Name)
	f.ok(err)
	if got.Version != next.Version {
		f.Fatalf("version %d, want %d", got.Version, next.Version)
	}
	f.is(f.table.AmendTopic(f.ctx, was, &next, len(t.Lanes), segment.ID{}), metadata.ErrChanged)
}
