package metatest

import (
	"errors"
	"reflect"
	"sync"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func testCommit(f *fixture) {
	lane := f.lane()
	a, b := f.entry(3, 0, 7), f.entry(2, 7, 63)
	var h *metadata.Head
	first := commitTo(f.head(lane), 9, a)
	f.costs(1, "Commit", func() {
		var err error
		h, err = f.table.Commit(f.ctx, first)
		f.ok(err)
	})
	a.Order = 0
	want := &metadata.Head{Lane: lane, Next: 1, Entries: []metadata.Entry{a}, Ends: metadata.Offsets{0: 3, 7: 3}, ConfigVersion: 1, Class: 7,
		K: metadata.ChunkOrders, MinVersion: metadata.FormatVersion}
	if !reflect.DeepEqual(h, want) {
		f.Fatalf("\n got %+v\nwant %+v", h, want)
	}
	h = f.commit(lane, b)
	b.Order = 1
	want.Next, want.Entries, want.Ends = 2, []metadata.Entry{a, b}, metadata.Offsets{0: 3, 7: 5, 63: 2}
	if !reflect.DeepEqual(h, want) || !reflect.DeepEqual(f.head(lane), want) {
		f.Fatalf("\n got %+v\nwant %+v", h, want)
	}
	bases := metadata.Bases(h.Entries, h.Ends)
	if bases[0] != (metadata.Offsets{}) || bases[1] != (metadata.Offsets{0: 3, 7: 3}) {
		f.Fatal(bases)
	}
	eventual, err := f.table.Head(f.ctx, lane, metadata.Eventual)
	f.ok(err)
	if eventual.Next > 2 {
		f.Fatal(eventual)
	}
}

func testCommitSeveral(f *fixture) {
	lane := f.lane()
	f.commit(lane, f.entry(1, 5))
	withdrawn, a, b := f.entry(0, 6), f.entry(4, 5, 6), f.entry(2, 5)
	all := commitTo(f.head(lane), 0, withdrawn, a, b)
	var h *metadata.Head
	f.costs(1, "Commit", func() {
		var err error
		h, err = f.table.Commit(f.ctx, all)
		f.ok(err)
	})
	if h.Next != 4 || h.Ends != (metadata.Offsets{5: 7, 6: 4}) {
		f.Fatalf("%+v", h)
	}
	bases := metadata.Bases(h.Entries, h.Ends)
	for i, want := range []metadata.Offsets{1: {5: 1}, 2: {5: 1}, 3: {5: 5, 6: 4}} {
		if i > 0 && (h.Entries[i].ID != all.Entries[i-1].ID || h.Entries[i].Order != int64(i) || bases[i] != want) {
			f.Errorf("order %d: %+v at %v, want %v", i, h.Entries[i], bases[i], want)
		}
	}
}

func testCommitWidest(f *fixture) {
	lane := f.lane()
	h := f.head(lane)
	c := commitTo(h, 0)
	for range metadata.MaxCommitEntries {
		e := f.entry(1)
		for s := range metadata.SlotsPerLane {
			e.Slots = append(e.Slots, metadata.SlotEntry{Slot: metadata.Slot(s), Count: 1_000_000, Bytes: 1 << 30, MaxTime: -1 << 62})
		}
		c.Entries = append(c.Entries, e)
	}
	c.Cap = metadata.CapFor(0, len(c.Entries))
	for s := range metadata.MaxCommitConditions {
		f.ok(f.table.SetToken(f.ctx, lane, metadata.Slot(s), 0, 7))
		c.Tokens = append(c.Tokens, metadata.Token{Slot: metadata.Slot(s), Token: 7})
	}
	f.widest(c)
	c.Tokens = nil
	for i := range metadata.ProducerID(metadata.MaxProducers) {
		c.Producers = append(c.Producers, metadata.ProducerStep{ID: 1<<62 + i, Sequence: 1, Entry: int(i)})
	}
	c.Lane = f.topicLane("others")
	f.widest(c)
	for n := int64(2); n <= 3; n++ { // the first from an attribute of its own
		for i := range c.Entries {
			c.Entries[i].ID = f.id()
			c.Producers[i].Sequence = n
		}
		c.Cap += int64(len(c.Entries))
		h, err := f.table.Commit(f.ctx, c)
		f.ok(err)
		if at, ok := h.Producers[1<<62+5].Order(n); !ok || at != (n-1)*metadata.MaxCommitEntries+5 {
			f.Fatalf("%+v", h.Producers)
		}
	}
}

func (f *fixture) widest(c metadata.Commit) {
	f.Helper()
	h, err := f.table.Commit(f.ctx, c)
	f.ok(err)
	if h.Next != metadata.MaxCommitEntries || h.Ends[63] != metadata.MaxCommitEntries*1_000_000 {
		f.Fatalf("next %d, ends %v", h.Next, h.Ends)
	}
}

func testCommitRefusals(f *fixture) {
	lane := f.lane()
	e := f.entry(3, 2)
	h := f.commit(lane, e)
	for name, c := range map[string]struct {
		commit metadata.Commit
		want   metadata.Reason
	}{
		"there already": {commitTo(h, 0, e), metadata.ReasonAlreadyThere},
		"one of two":    {commitTo(h, 0, f.entry(1, 2), e), metadata.ReasonAlreadyThere},
		"epoch":         {metadata.Commit{Lane: lane, Entries: []metadata.Entry{f.entry(1, 2)}, Epoch: 1, Cap: 64}, metadata.ReasonEpoch},
		"cap":           {metadata.Commit{Lane: lane, Entries: []metadata.Entry{f.entry(1, 2)}, Cap: 1}, metadata.ReasonFull},
	} {
		var err error
		f.costs(1, "Commit", func() { _, err = f.table.Commit(f.ctx, c.commit) })
		image := f.refused(err)
		if !reflect.DeepEqual(image, h) {
			f.Errorf("%s: image\n%+v, want\n%+v", name, image, h)
		}
		if why := metadata.WhyRefused(c.commit, image); why != c.want {
			f.Errorf("%s: refused because %v", name, why)
		}
	}
	if after := f.head(lane); !reflect.DeepEqual(after, h) {
		f.Errorf("refusals have changed the head:\n%+v\n%+v", after, h)
	}
	_, err := f.table.Commit(f.ctx, commitTo(&metadata.Head{Lane: "absent"}, 0, f.entry(1, 0)))
	var r *metadata.RefusedError
	if !errors.As(err, &r) || r.Head != nil || r.Lane != "absent" {
		f.Fatalf("no lane: %v", err)
	}
	_, err = f.table.Head(f.ctx, "absent", metadata.Strong) // the refused update has made none
	f.is(err, metadata.ErrNoLane)
}

func testCommitPadding(f *fixture) {
	lane := f.lane()
	h := f.commit(lane, f.entry(1, 0))
	ids := make([]segment.ID, h.PadNeeded())
	for i := range ids {
		ids[i] = f.id()
	}
	pad := metadata.PlanPadding(h, 0, ids)
	moved := f.commit(lane, f.entry(1, 0))
	_, err := f.table.Commit(f.ctx, pad)
	if image := f.refused(err); metadata.WhyRefused(pad, image) != metadata.ReasonPadding {
		f.Fatal(metadata.WhyRefused(pad, image))
	}
	h, err = f.table.Commit(f.ctx, metadata.PlanPadding(moved, 0, ids[1:]))
	f.ok(err)
	if h.Next != metadata.ChunkOrders || h.Ends != moved.Ends || !h.Entries[7].Empty || h.Entries[7].ID != ids[len(ids)-1] {
		f.Fatalf("%+v", h)
	}
	f.ok(f.spill(h))
	if h = f.head(lane); h.First != metadata.ChunkOrders || len(h.Entries) != 0 {
		f.Fatalf("%+v", h)
	}
}

func testCommitRace(f *fixture) {
	const writers, each = 8, 12
	lane := f.lane()
	var mu sync.Mutex
	sent := map[segment.ID]bool{}
	errs := together(writers, func(w int) error {
		h, err := f.table.Head(f.ctx, lane, metadata.Strong)
		for n := 0; n < each && err == nil; {
			e := f.entry(int32(1+n%3), metadata.Slot(w%2), 9)
			var next *metadata.Head
			next, err = f.table.Commit(f.ctx, commitTo(h, w, e))
			var r *metadata.RefusedError
			switch {
			case err == nil:
				mu.Lock()
				sent[e.ID] = true
				mu.Unlock()
				h, n = next, n+1
			case errors.As(err, &r) && r.Head != nil:
				h = r.Head
				err = f.spill(h)
			}
		}
		return err
	})
	for w, err := range errs {
		if err != nil {
			f.Fatalf("writer %d: %v", w, err)
		}
	}
	entries, at := f.whole(lane), metadata.Offsets{}
	if len(entries) != writers*each {
		f.Fatalf("%d entries, %d were committed", len(entries), writers*each)
	}
	for i, e := range entries {
		if e.Order != int64(i) || !sent[e.ID] {
			f.Fatalf("entry %d has order %d, known: %v", i, e.Order, sent[e.ID])
		}
		delete(sent, e.ID)
		for _, s := range e.Slots {
			at[s.Slot] += int64(s.Count)
		}
	}
	if h := f.head(lane); h.Ends != at {
		f.Fatalf("ends %v, counted %v", h.Ends, at)
	}
}

func (f *fixture) whole(lane metadata.LaneID) (entries []metadata.Entry) {
	f.Helper()
	h := f.head(lane)
	var at metadata.Offsets
	for first := int64(0); first < h.First; first += h.K {
		c, err := f.table.Chunk(f.ctx, lane, first, metadata.Strong)
		f.ok(err)
		if c.Bases != at {
			f.Fatalf("chunk %d starts at %v, want %v", first, c.Bases, at)
		}
		entries, at = append(entries, c.Entries...), c.Ends()
	}
	return append(entries, h.Entries...)
}

func testCap(f *fixture) {
	lane := f.lane()
	h := f.head(lane)
	for h.Next < metadata.MaxHeadEntries {
		var err error
		h, err = f.table.Commit(f.ctx, commitTo(h, 0, f.entry(1, 0), f.entry(1, 1)))
		f.ok(err)
	}
	_, err := f.table.Commit(f.ctx, commitTo(h, 0, f.entry(1, 0)))
	if image := f.refused(err); len(image.Entries) != metadata.MaxHeadEntries {
		f.Fatalf("%d entries in the head", len(image.Entries))
	}
	f.ok(f.spill(h))
	h, err = f.table.Head(f.ctx, lane, metadata.Strong)
	f.ok(err)
	h, err = f.table.Commit(f.ctx, commitTo(h, 0, f.entry(1, 0)))
	f.ok(err)
	if h.Next != metadata.MaxHeadEntries+1 || len(h.Entries) != 1 || h.Ends[0] != metadata.MaxHeadEntries/2+1 {
		f.Fatalf("%+v", h)
	}
}

// testOnce: a commit that is sent again after it was applied is refused, also when its entry has left the head.
func testOnce(f *fixture) {
	lane := f.lane()
	c := commitTo(f.head(lane), 0, f.entry(1, 0))
	c.Once, c.Since = true, 0
	h, err := f.table.Commit(f.ctx, c)
	f.ok(err)
	_, err = f.table.Commit(f.ctx, c)
	if image := f.refused(err); metadata.WhyRefused(c, image) != metadata.ReasonAlreadyThere {
		f.Fatalf("%+v", image)
	}
	for h.Next < metadata.ChunkOrders {
		h = f.commit(lane, f.entry(1, 0))
	}
	f.ok(f.spill(h))
	_, err = f.table.Commit(f.ctx, c)
	if image := f.refused(err); metadata.WhyRefused(c, image) != metadata.ReasonSpilled || image.Next != metadata.ChunkOrders {
		f.Fatalf("%+v", image)
	}
	c.Since = metadata.ChunkOrders // as somebody who knows that it is not there
	_, err = f.table.Commit(f.ctx, c)
	f.ok(err)
}

func testExpect(f *fixture) {
	lane := f.lane()
	h := f.head(lane)
	expecting := func(offset int64) metadata.Commit {
		c := commitTo(h, 0, f.entry(3, 4))
		c.Expect = []metadata.Expect{{Slot: 4, Offset: offset}}
		return c
	}
	_, err := f.table.Commit(f.ctx, expecting(3))
	f.refused(err)
	_, err = f.table.Commit(f.ctx, expecting(0))
	f.ok(err)
	_, err = f.table.Commit(f.ctx, expecting(0))
	f.refused(err)
	// Two appenders expect the same end: one gets it.
	a, b := expecting(3), expecting(3)
	won := 0
	for _, err := range together(2, func(i int) error {
		_, err := f.table.Commit(f.ctx, []metadata.Commit{a, b}[i])
		return err
	}) {
		if err == nil {
			won++
		} else if image := f.refused(err); metadata.WhyRefused(a, image) != metadata.ReasonOffset && metadata.WhyRefused(b, image) != metadata.ReasonOffset {
			f.Errorf("%+v", image)
		}
	}
	if h = f.head(lane); won != 1 || h.Ends[4] != 6 {
		f.Fatalf("%d have won, the end is %d", won, h.Ends[4])
	}
}

func testCommitAll(f *fixture) {
	lanes := f.lanes(3)
	var commits []metadata.Commit
	for _, lane := range lanes {
		commits = append(commits, commitTo(f.head(lane), 0, f.entry(2, 1), f.entry(1, 1)))
	}
	f.costs(1, "CommitAll", func() { f.ok(f.table.CommitAll(f.ctx, f.token("1"), commits)) })
	f.ok(f.table.CommitAll(f.ctx, f.token("1"), commits)) // the same again is the same
	for i, lane := range lanes {
		h := f.head(lane)
		if h.Next != 2 || h.Ends[1] != 3 || h.Entries[0].ID != commits[i].Entries[0].ID {
			f.Fatalf("%+v", h)
		}
	}
}

func testCommitAllRefuses(f *fixture) {
	lanes := f.lanes(3)
	fresh := func() (commits []metadata.Commit) {
		for _, lane := range lanes {
			commits = append(commits, commitTo(f.head(lane), 0, f.entry(2, 1)))
		}
		return commits
	}
	commits := fresh()
	commits[1].Epoch, commits[2].Cap = 4, 0
	err := f.table.CommitAll(f.ctx, f.token("1"), commits)
	if h := f.refused(err); h.Lane != lanes[1] || metadata.WhyRefused(commits[1], h) != metadata.ReasonEpoch {
		f.Fatalf("%+v", h)
	}
	commits = fresh()
	commits[2].Lane = "absent"
	err = f.table.CommitAll(f.ctx, f.token("2"), commits)
	var r *metadata.RefusedError
	if !errors.As(err, &r) || r.Head != nil || r.Lane != "absent" {
		f.Fatal(err)
	}
	commits = fresh()
	commits[2].Lane = lanes[0]
	f.is(f.table.CommitAll(f.ctx, f.token("3"), commits), metadata.ErrInvalid)
	for _, lane := range lanes {
		if h := f.head(lane); h.Next != 0 {
			f.Fatalf("none, but lane %s has %d", lane, h.Next)
		}
	}
}

func testCommitAllRace(f *fixture) {
	lanes := f.lanes(2)
	const callers, each = 4, 6
	attempt := func(n int) error {
		var commits []metadata.Commit
		for _, lane := range lanes {
			h, err := f.table.Head(f.ctx, lane, metadata.Strong)
			if err != nil {
				return err
			}
			commits = append(commits, commitTo(h, n%metadata.Epochs, f.entry(1, metadata.Slot(n))))
		}
		return f.table.CommitAll(f.ctx, commits[0].Entries[0].ID.String(), commits)
	}
	errs := together(callers, func(n int) error {
		for range each {
			err := attempt(n)
			for errors.Is(err, metadata.ErrContended) {
				err = attempt(n)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		f.ok(err)
	}
	for _, lane := range lanes {
		if h := f.head(lane); h.Next != callers*each || h.Ends != (metadata.Offsets{each, each, each, each}) {
			f.Fatalf("%d commits, ends %v", h.Next, h.Ends)
		}
	}
}
