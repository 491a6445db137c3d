package metatest

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func testToken(f *fixture) {
	lane := f.lane()
	h := f.commit(lane, f.entry(1, 2))
	withToken := func(token int64) metadata.Commit {
		c := commitTo(h, 0, f.entry(1, 2))
		c.Tokens = []metadata.Token{{Slot: 2, Token: token}}
		return c
	}
	_, err := f.table.Commit(f.ctx, withToken(1))
	f.refused(err) // not set
	f.costs(1, "SetToken", func() { f.ok(f.table.SetToken(f.ctx, lane, 2, 0, 1)) })
	f.is(f.table.SetToken(f.ctx, lane, 2, 0, 9), metadata.ErrChanged)
	_, err = f.table.Commit(f.ctx, withToken(1))
	f.ok(err)
	f.ok(f.table.SetToken(f.ctx, lane, 2, 1, 5))
	_, err = f.table.Commit(f.ctx, withToken(1)) // the old holder
	if image := f.refused(err); image.Tokens[2] != 5 || len(image.Tokens) != 1 {
		f.Fatal(image.Tokens)
	}
	_, err = f.table.Commit(f.ctx, withToken(5))
	f.ok(err)
	f.commit(lane, f.entry(1, 2)) // who names no token is not asked for one
	f.is(f.table.SetToken(f.ctx, "absent", 2, 0, 1), metadata.ErrNoLane)
	f.is(f.table.SetToken(f.ctx, "absent", 2, 1, 2), metadata.ErrNoLane)
}

func testTokenRace(f *fixture) {
	lane := f.lane()
	for round := range int64(3) {
		f.oneWins(together(6, func(int) error { return f.table.SetToken(f.ctx, lane, 0, round, round+1) }), metadata.ErrChanged)
	}
}

func testRaiseEpoch(f *fixture) {
	lane := f.lane()
	before := f.commit(lane, f.entry(1, 0))
	late := commitTo(before, 5, f.entry(1, 0))
	var h *metadata.Head
	f.costs(1, "RaiseEpoch", func() {
		var err error
		h, err = f.table.RaiseEpoch(f.ctx, lane, 5, 0)
		f.ok(err)
	})
	want := *before
	want.Epochs[5] = 1
	if !reflect.DeepEqual(h, &want) {
		f.Fatalf("\n got %+v\nwant %+v", h, &want)
	}
	_, err := f.table.Commit(f.ctx, late)
	if image := f.refused(err); image.Epochs[5] != 1 {
		f.Fatal(image.Epochs)
	}
	_, err = f.table.Commit(f.ctx, commitTo(before, 6, f.entry(1, 0))) // another epoch's writers are not touched
	f.ok(err)
	for _, err := range together(6, func(int) error {
		h, err := f.table.RaiseEpoch(f.ctx, lane, 5, 1)
		if err == nil && h.Epochs[5] != 2 {
			err = fmt.Errorf("epoch %d", h.Epochs[5])
		}
		return err
	}) {
		f.ok(err)
	}
	if h, err := f.table.RaiseEpoch(f.ctx, lane, 5, 0); err != nil || h.Epochs[5] != 2 { // higher already: fenced already
		f.Fatal(h, err)
	}
	_, err = f.table.RaiseEpoch(f.ctx, "absent", 0, 0)
	f.is(err, metadata.ErrNoLane)
}

func (f *fixture) chunk(lane metadata.LaneID, first int64) *metadata.Chunk {
	c := &metadata.Chunk{Lane: lane, First: first, Bases: metadata.Offsets{0: first}, MaxTimes: metadata.Offsets{0: 5}}
	for i := range int64(metadata.ChunkOrders) {
		at := birth.UnixMilli() + first + i
		e := metadata.Entry{ID: segment.NewID(birth, 7, segment.InBucket, uint64(first+i), segment.ID{}), Order: first + i,
			Slots: []metadata.SlotEntry{{Count: 1, Bytes: 100, MaxTime: at}}}
		c.Entries = append(c.Entries, e)
	}
	return c
}

func testChunk(f *fixture) {
	lane := f.lane()
	_, err := f.table.Chunk(f.ctx, lane, 8, metadata.Strong)
	f.is(err, metadata.ErrNoChunk)
	c := f.chunk(lane, 8)
	f.costs(1, "PutChunk", func() { f.ok(f.table.PutChunk(f.ctx, c)) })
	f.costs(1, "PutChunk", func() { f.ok(f.table.PutChunk(f.ctx, c)) }) // the same again
	different := f.chunk(lane, 8)
	different.Bases[0]++
	f.is(f.table.PutChunk(f.ctx, different), metadata.ErrCorrupt)
	f.ok(f.table.ReplaceChunk(f.ctx, c, different)) // it is there, whatever was there before
	other := f.chunk(lane, 8)
	other.Bases[0] += 2
	f.is(f.table.ReplaceChunk(f.ctx, other, different), metadata.ErrChanged)
	f.costs(1, "ReplaceChunk", func() { f.ok(f.table.ReplaceChunk(f.ctx, different, c)) })
	f.ok(f.table.PutChunk(f.ctx, different))
	f.ok(f.table.ReplaceChunk(f.ctx, c, different))
	for _, consistency := range []metadata.Consistency{metadata.Strong, metadata.Eventual} {
		var got *metadata.Chunk
		f.costs(1, "Chunk", func() { got, err = f.table.Chunk(f.ctx, lane, 8, consistency) })
		if consistency == metadata.Eventual && errors.Is(err, metadata.ErrNoChunk) {
			continue // too early to say
		}
		f.ok(err)
		if !reflect.DeepEqual(got, c) {
			f.Fatalf("\n got %+v\nwant %+v", got, c)
		}
	}
}

func testChunks(f *fixture) {
	lane := f.lane()
	for _, first := range []int64{0, 8, 16, 40, 48} {
		f.ok(f.table.PutChunk(f.ctx, f.chunk(lane, first)))
	}
	for _, c := range []struct {
		from, to int64
		limit    int
		want     []int64
		mayMore  bool
	}{
		{0, 1 << 40, 10, []int64{0, 8, 16, 40, 48}, false},
		{8, 48, 10, []int64{8, 16, 40}, false},
		{9, 41, 10, []int64{16, 40}, false},
		{0, 1 << 40, 2, []int64{0, 8}, true},
		{17, 40, 10, nil, false},
		{-5, 1, 10, []int64{0}, false},
		{50, 60, 10, nil, false},
	} {
		f.costs(1, "Chunks", func() {
			chunks, more, err := f.table.Chunks(f.ctx, lane, c.from, c.to, c.limit, metadata.Strong)
			f.ok(err)
			var got []int64
			for _, chunk := range chunks {
				if !reflect.DeepEqual(chunk, f.chunk(lane, chunk.First)) {
					f.Fatalf("%+v", chunk)
				}
				got = append(got, chunk.First)
			}
			if !reflect.DeepEqual(got, c.want) || more && !c.mayMore || c.mayMore && !more {
				f.Errorf("[%d, %d) limit %d: %v, more %v", c.from, c.to, c.limit, got, more)
			}
		})
	}
	f.costs(0, "Chunks", func() {
		if chunks, more, err := f.table.Chunks(f.ctx, lane, 8, 8, 10, metadata.Strong); len(chunks) != 0 || more || err != nil {
			f.Error(chunks, more, err)
		}
	})
}

func testTrim(f *fixture) {
	lane := f.lane()
	var h *metadata.Head
	for range 10 {
		h = f.commit(lane, f.entry(1, 0))
	}
	plan := metadata.PlanSpill(h, metadata.Offsets{})
	f.costs(1, "Trim", func() {
		var err error
		h, err = f.table.Trim(f.ctx, lane, plan.From, plan.To, plan.IDs)
		f.ok(err)
	})
	if h.First != 8 || h.Next != 10 || len(h.Entries) != 2 || h.Entries[0].Order != 8 || h.Ends[0] != 10 || !reflect.DeepEqual(f.head(lane), h) {
		f.Fatalf("%+v", h)
	}
	again, err := f.table.Trim(f.ctx, lane, plan.From, plan.To, plan.IDs) // it was done, by whomever
	if err != nil || !reflect.DeepEqual(again, h) {
		f.Fatalf("%+v %v", again, err)
	}
	other, err := f.table.Trim(f.ctx, lane, 16, 17, plan.IDs[:1])
	f.is(err, metadata.ErrChanged)
	if !reflect.DeepEqual(other, h) {
		f.Fatalf("%+v", other)
	}
	_, err = f.table.Trim(f.ctx, "absent", 0, 1, plan.IDs[:1])
	f.is(err, metadata.ErrNoLane)
}

func testTrimRace(f *fixture) {
	lane := f.lane()
	var images []*metadata.Head
	for range 30 {
		images = append(images, f.commit(lane, f.entry(1, 0)))
	}
	errs := together(8, func(i int) error {
		if i < 2 {
			for range 5 {
				h, err := f.table.Head(f.ctx, lane, metadata.Strong)
				if err == nil {
					_, err = f.table.Commit(f.ctx, commitTo(h, i, f.entry(1, 0)))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		return f.spill(images[9+i*2])
	})
	for _, err := range errs {
		f.ok(err)
	}
	entries := f.whole(lane)
	if len(entries) != 40 || f.head(lane).First == 0 {
		f.Fatalf("%d entries, first %d", len(entries), f.head(lane).First)
	}
	for i, e := range entries {
		if e.Order != int64(i) {
			f.Fatalf("entry %d has order %d", i, e.Order)
		}
	}
}

func testSetStart(f *fixture) {
	lane := f.lane()
	for _, step := range []struct{ to, want int64 }{{5, 5}, {3, 5}, {5, 5}, {9, 9}, {0, 9}} {
		f.costs(1, "SetStart", func() {
			s, err := f.table.SetStart(f.ctx, lane, 2, step.to)
			f.ok(err)
			if !reflect.DeepEqual(s, &metadata.State{Lane: lane, Starts: metadata.Offsets{2: step.want}}) {
				f.Fatalf("start to %d: %+v", step.to, s)
			}
		})
	}
	for _, err := range together(6, func(i int) error { _, err := f.table.SetStart(f.ctx, lane, 3, int64(10+i)); return err }) {
		f.ok(err)
	}
	s, err := f.table.State(f.ctx, lane, metadata.Strong)
	f.ok(err)
	if s.Starts != (metadata.Offsets{2: 9, 3: 15}) {
		f.Fatal(s.Starts)
	}
	_, err = f.table.SetStart(f.ctx, "absent", 0, 1)
	f.is(err, metadata.ErrNoState)
}
