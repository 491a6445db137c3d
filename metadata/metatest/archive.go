package metatest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// archiveID is a new id of an archive segment, above all ids before it.
func (f *fixture) archiveID() segment.ID { return f.idIn(segment.Archived) }

// row is a row of the topic's partition with a record at every offset. Those of partition 0 have no sums.
func row(t *metadata.Topic, partition int, base, end int64, id segment.ID) metadata.Row {
	first := birth.Add(time.Duration(base) * time.Second)
	r := metadata.Row{Topic: t.ID, Partition: partition, Base: base, End: end, Count: end - base, Segment: id, Start: 16 + base, Bytes: 100 * (end - base),
		MaxTime: birth.UnixMilli() + end, RunMax: birth.UnixMilli() + end, First: first, Last: first.Add(time.Second)}
	if partition > 0 {
		r.Summed, r.Sum = true, segment.Sum{Records: r.Count, Plain: math.MaxUint64 - uint64(base), Weighted: uint64(end)}
	}
	return r
}

// archived is a topic of one lane with two partitions whose first eight orders, offsets [0, 80), are published.
func (f *fixture) archived() (*metadata.Topic, *metadata.Publication) {
	f.Helper()
	t := f.topic("archived", 2, 2)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	id := f.archiveID()
	p := &metadata.Publication{Lane: t.Lanes[0], ID: id, To: 8, Ends: map[metadata.Slot]int64{0: 80, 1: 80},
		Put: []metadata.Row{row(t, 0, 0, 80, id), row(t, 1, 0, 80, id)}}
	f.costs(1, "Publish", func() { f.ok(f.table.Publish(f.ctx, p)) })
	return t, p
}

func (f *fixture) state(lane metadata.LaneID) *metadata.State {
	f.Helper()
	s, err := f.table.State(f.ctx, lane, metadata.Strong)
	f.ok(err)
	return s
}

// rows are all rows of a partition.
func (f *fixture) rows(t *metadata.Topic, partition int) []metadata.Row {
	f.Helper()
	list, more, err := f.table.Rows(f.ctx, t.ID, partition, 0, math.MaxInt64, 100, metadata.Strong)
	f.ok(err)
	if more {
		f.Fatal("there are more")
	}
	rows := []metadata.Row{}
	for _, r := range list {
		rows = append(rows, *r)
	}
	return rows
}

func (f *fixture) same(got, want any) {
	f.Helper()
	if !reflect.DeepEqual(got, want) {
		f.Fatalf("\n got %+v\nwant %+v", got, want)
	}
}

func testPublish(f *fixture) {
	t, p := f.archived()
	lane := t.Lanes[0]
	f.same(f.state(lane), &metadata.State{Lane: lane, Archived: 8, Ends: metadata.Offsets{80, 80}})
	f.same(f.rows(t, 1), p.Put[1:])
	f.ok(f.table.Publish(f.ctx, p)) // the same again is the same
	next := f.archiveID()
	f.ok(f.table.Publish(f.ctx, &metadata.Publication{Lane: lane, ID: next, From: 8, To: 24, Ends: map[metadata.Slot]int64{1: 90}, Put: []metadata.Row{row(t, 1, 80, 90, next)}}))
	f.same(f.state(lane), &metadata.State{Lane: lane, Archived: 24, Ends: metadata.Offsets{80, 90}})
	f.same(len(f.rows(t, 1)), 2)
	// Rows are replaced: one by a shorter one at its base, the other by none.
	merged := f.archiveID()
	last := row(t, 1, 0, 90, merged)
	last.Count, last.Sum.Records, last.Gone = 3, 3, segment.Sum{Records: 87, Plain: 5, Weighted: math.MaxUint64}
	swap := &metadata.Publication{Lane: lane, ID: merged, From: 24, To: 24, Put: []metadata.Row{last}, Replace: f.rows(t, 1), Left: []segment.ID{p.ID, next}}
	f.ok(f.table.Publish(f.ctx, swap))
	f.same(f.rows(t, 1), []metadata.Row{last})
	f.same(f.rows(t, 0), p.Put[:1])
	f.same(f.state(lane), &metadata.State{Lane: lane, Archived: 24, Ends: metadata.Offsets{80, 90}})
	// A row of which nothing is left has no segment.
	none := metadata.Row{Topic: t.ID, Partition: 1, Base: 0, End: 90, RunMax: last.RunMax, First: last.First, Last: last.Last, Summed: true, Gone: segment.Sum{Records: 90, Plain: 1}}
	f.ok(f.table.Publish(f.ctx, &metadata.Publication{Lane: lane, ID: f.archiveID(), From: 24, To: 24, Put: []metadata.Row{none}, Replace: []metadata.Row{last}, Left: []segment.ID{merged}}))
	f.same(f.rows(t, 1), []metadata.Row{none})
}

func testSetCleaned(f *fixture) {
	t, _ := f.archived()
	lane, at := t.Lanes[0], time.UnixMilli(1_700_000_000_123).UTC()
	var none metadata.Cleaning
	one := metadata.Cleaning{To: 80, Settled: 80, Since: at}
	two := metadata.Cleaning{To: 80, Settled: 70, Since: at, Purged: 60, Until: at.Add(time.Hour)}
	want := f.state(lane)
	for _, step := range []struct {
		slot     metadata.Slot
		was, now metadata.Cleaning
		err      error
	}{{1, none, one, nil}, {1, none, one, nil}, {1, none, two, metadata.ErrChanged}, {1, one, two, nil}, {1, one, metadata.Cleaning{To: 1}, metadata.ErrChanged}, {63, none, one, nil}, {64, none, one, metadata.ErrInvalid}} {
		err := f.table.SetCleaned(f.ctx, lane, step.slot, step.was, step.now)
		if step.err == nil {
			f.ok(err)
			want.Cleaned[step.slot] = step.now
		} else {
			f.is(err, step.err)
		}
		f.same(f.state(lane), want)
	}
	f.is(f.table.SetCleaned(f.ctx, "absent", 0, none, one), metadata.ErrNoState)
}

func testPublishRefuses(f *fixture) {
	t, p := f.archived()
	lane := t.Lanes[0]
	before := []any{f.state(lane), f.rows(t, 0), f.rows(t, 1)}
	unchanged := func() {
		f.Helper()
		f.same([]any{f.state(lane), f.rows(t, 0), f.rows(t, 1)}, before)
	}
	id := f.archiveID()
	other := row(t, 0, 0, 80, id)
	for name, wrong := range map[string]*metadata.Publication{
		"archived already": {Lane: lane, ID: id, From: 0, To: 8, Put: []metadata.Row{row(t, 1, 80, 90, id)}},
		"not yet":          {Lane: lane, ID: id, From: 16, To: 24, Put: []metadata.Row{row(t, 1, 80, 90, id)}},
		"row is there":     {Lane: lane, ID: id, From: 8, To: 16, Put: []metadata.Row{row(t, 1, 0, 90, id)}},
		"row of another":   {Lane: lane, ID: id, From: 8, To: 8, Put: []metadata.Row{other}, Replace: []metadata.Row{other}},
		"row is gone":      {Lane: lane, ID: id, From: 8, To: 8, Put: []metadata.Row{other}, Replace: []metadata.Row{row(t, 0, 5, 80, p.ID)}},
		"row has grown":    {Lane: lane, ID: id, From: 8, To: 8, Put: []metadata.Row{other}, Replace: []metadata.Row{row(t, 0, 0, 70, p.ID)}},
	} {
		err := f.table.Publish(f.ctx, wrong)
		if f.is(err, metadata.ErrChanged); errors.As(err, new(*metadata.StaleError)) {
			f.Fatalf("%s: %v", name, err)
		}
		unchanged()
	}
	f.is(f.table.Publish(f.ctx, &metadata.Publication{Lane: "absent", ID: id, To: 8, Put: []metadata.Row{row(t, 1, 80, 90, id)}}), metadata.ErrNoState)
	// A floor refuses what is not above it.
	f.ok(f.table.RaiseStateFloor(f.ctx, lane, id))
	err := f.table.Publish(f.ctx, &metadata.Publication{Lane: lane, ID: id, From: 8, To: 16})
	var stale *metadata.StaleError
	if f.is(err, metadata.ErrChanged); !errors.As(err, &stale) || stale.Floor != id {
		f.Fatal(err)
	}
	f.ok(f.table.Publish(f.ctx, &metadata.Publication{Lane: lane, ID: f.archiveID(), From: 8, To: 16}))
}

func testPublishRace(f *fixture) {
	t, p := f.archived()
	f.oneWins(together(5, func(int) error {
		id := f.archiveID()
		return f.table.Publish(f.ctx, &metadata.Publication{Lane: t.Lanes[0], ID: id, From: 8, To: 16, Ends: map[metadata.Slot]int64{0: 85}, Put: []metadata.Row{row(t, 0, 80, 85, id)}})
	}), metadata.ErrChanged)
	f.oneWins(together(5, func(int) error {
		id := f.archiveID()
		return f.table.Publish(f.ctx, &metadata.Publication{Lane: t.Lanes[0], ID: id, From: 16, To: 16, Put: []metadata.Row{row(t, 0, 0, 80, id)}, Replace: p.Put[:1], Left: []segment.ID{p.ID}})
	}), metadata.ErrChanged)
}

// testPublishWidest publishes as many rows as one transaction takes.
func testPublishWidest(f *fixture) {
	t := f.topic("wide", metadata.SlotsPerLane, metadata.SlotsPerLane)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	id := f.archiveID()
	p := &metadata.Publication{Lane: t.Lanes[0], ID: id, To: 8, Ends: map[metadata.Slot]int64{}}
	for i := range metadata.MaxPublishRows {
		partition, base := i%metadata.SlotsPerLane, int64(i/metadata.SlotsPerLane*10)
		p.Put = append(p.Put, row(t, partition, base, base+10, id))
		p.Ends[metadata.Slot(partition)] = base + 10
	}
	f.ok(f.table.Publish(f.ctx, p))
	p.Put = append(p.Put, row(t, 0, 20, 30, id))
	f.is(f.table.Publish(f.ctx, p), metadata.ErrInvalid)
}

func testRows(f *fixture) {
	t, p := f.archived()
	want := []metadata.Row{p.Put[0]}
	for i := range int64(5) {
		id, base := f.archiveID(), 80+10*i
		r := row(t, 0, base, base+10, id)
		f.ok(f.table.Publish(f.ctx, &metadata.Publication{Lane: t.Lanes[0], ID: id, From: 8 + i, To: 9 + i, Ends: map[metadata.Slot]int64{0: base + 10}, Put: []metadata.Row{r}}))
		want = append(want, r)
	}
	for _, at := range []struct{ offset, base int64 }{{0, 0}, {79, 0}, {80, 80}, {89, 80}, {129, 120}, {130, 120}, {math.MaxInt64, 120}} {
		f.costs(1, "Row", func() {
			r, err := f.table.Row(f.ctx, t.ID, 0, at.offset, metadata.Strong)
			if f.ok(err); r.Base != at.base {
				f.Fatalf("offset %d: %+v", at.offset, r)
			}
		})
	}
	_, err := f.table.Row(f.ctx, t.ID, 2, 5, metadata.Strong)
	f.is(err, metadata.ErrNoRow)
	for _, c := range []struct {
		from, to     int64
		limit, first int
		n            int
		more         bool
	}{{0, 130, 10, 0, 6, false}, {1, 130, 10, 1, 5, false}, {80, 120, 10, 1, 4, false}, {80, 121, 2, 1, 2, true}, {80, 81, 2, 1, 1, false}, {81, 81, 5, 0, 0, false}, {500, 600, 5, 0, 0, false}} {
		rows, more, err := f.table.Rows(f.ctx, t.ID, 0, c.from, c.to, c.limit, metadata.Strong)
		if f.ok(err); len(rows) != c.n || more != c.more {
			f.Fatalf("%+v: %d rows, %v", c, len(rows), more)
		}
		for i := range rows {
			f.same(*rows[i], want[c.first+i])
		}
	}
	f.ok(f.table.DeleteRows(f.ctx, []*metadata.Row{&want[0], {Topic: t.ID, Base: 80, End: 95, Segment: want[1].Segment}, {Topic: t.ID, Base: 7}}))
	f.same(f.rows(t, 0), want[1:])
}

func testFloors(f *fixture) {
	t, _ := f.archived()
	lane := t.Lanes[0]
	low, high := f.id(), f.id()
	for _, to := range []segment.ID{low, high, low, high} {
		f.costs(1, "RaiseFloor", func() { f.ok(f.table.RaiseFloor(f.ctx, to)) })
		f.costs(1, "RaiseHeadFloor", func() { f.ok(f.table.RaiseHeadFloor(f.ctx, lane, to)) })
		f.costs(1, "RaiseStateFloor", func() { f.ok(f.table.RaiseStateFloor(f.ctx, lane, to)) })
		f.ok(f.table.SetSweepMark(f.ctx, metadata.SweepMark{To: to}))
		floor, err := f.table.Floor(f.ctx)
		f.ok(err)
		mark, err := f.table.SweepMark(f.ctx)
		f.ok(err)
		f.same([]segment.ID{floor, mark.To, f.head(lane).Floor, f.state(lane).Floor}, []segment.ID{to, to, to, to})
		if to == high {
			break
		}
	}
	for _, m := range []metadata.SweepMark{{To: high, Next: f.id(), Past: "keep/intake/3f"}, {To: high}, {To: low, Next: high, Past: "x"}} {
		f.costs(1, "SetSweepMark", func() { f.ok(f.table.SetSweepMark(f.ctx, m)) })
		if m.To == low {
			m = metadata.SweepMark{To: high}
		}
		mark, err := f.table.SweepMark(f.ctx)
		f.ok(err)
		f.same(mark, m)
	}
	f.ok(f.table.RaiseHeadFloor(f.ctx, lane, low))
	f.ok(f.table.RaiseFloor(f.ctx, low))
	floor, err := f.table.Floor(f.ctx)
	f.ok(err)
	f.same([]segment.ID{floor, f.head(lane).Floor}, []segment.ID{high, high})
	f.is(f.table.RaiseHeadFloor(f.ctx, "absent", high), metadata.ErrNoLane)
	f.is(f.table.RaiseStateFloor(f.ctx, "absent", high), metadata.ErrNoState)
	_, err = f.table.Head(f.ctx, "absent", metadata.Strong)
	f.is(err, metadata.ErrNoLane) // and made none
}

func testWorkList(f *fixture) {
	t, p := f.archived()
	want := []*metadata.Replaced{{ID: p.ID, Lane: p.Lane, To: 8}}
	for i := range int64(40) {
		id := f.archiveID()
		left := []segment.ID{f.archiveID(), f.archiveID()}
		f.ok(f.table.Publish(f.ctx, &metadata.Publication{Lane: p.Lane, ID: id, From: 8 + i, To: 9 + i, Left: left}))
		want = append(want, &metadata.Replaced{ID: id, Lane: p.Lane, From: 8 + i, To: 9 + i, Left: left})
	}
	after, before := want[0].ID, want[len(want)-1].ID
	inside := map[segment.ID]*metadata.Replaced{}
	for _, r := range want[1 : len(want)-1] {
		inside[r.ID] = r
	}
	seen := 0
	for hash := range 256 {
		for at := after; ; {
			page, more, err := f.table.Replaced(f.ctx, fmt.Sprintf("%02x", hash), at, before, 1)
			f.ok(err)
			for _, r := range page {
				f.same(r, inside[r.ID])
				at = r.ID
				seen++
			}
			if !more {
				break
			}
		}
	}
	f.same(seen, len(inside))
	f.ok(f.table.DeleteReplaced(f.ctx, want[3].ID))
	f.ok(f.table.DeleteReplaced(f.ctx, want[3].ID))
	page, _, err := f.table.Replaced(f.ctx, want[3].ID.Hash(), want[2].ID, want[4].ID, 10)
	if f.ok(err); len(page) != 0 {
		f.Fatal(page)
	}
	f.same(len(f.rows(t, 0)), 1)
}

func testDeleteChunks(f *fixture) {
	lane := f.lane()
	for range 6 {
		for range metadata.ChunkOrders {
			f.commit(lane, f.entry(1, 1))
		}
		f.ok(f.spill(f.head(lane)))
	}
	s, err := f.table.SetFirst(f.ctx, lane, 16)
	f.ok(err)
	f.same(s.First, int64(16))
	s, err = f.table.SetFirst(f.ctx, lane, 8)
	f.ok(err)
	f.same(s.First, int64(16))
	_, err = f.table.SetFirst(f.ctx, "absent", 8)
	f.is(err, metadata.ErrNoState)
	for range 2 {
		f.ok(f.table.DeleteChunks(f.ctx, lane, 0, 16))
		chunks, _, err := f.table.Chunks(f.ctx, lane, 0, 1000, 100, metadata.Strong)
		f.ok(err)
		f.same([]int64{int64(len(chunks)), chunks[0].First}, []int64{4, 16})
	}
}

func testSmall(f *fixture) {
	id, body := f.idIn(segment.InTable), bytes.Repeat([]byte{7}, metadata.MaxSmallBytes)
	_, err := f.table.Small(f.ctx, id)
	f.is(err, metadata.ErrNoSegment)
	f.costs(1, "PutSmall", func() { f.ok(f.table.PutSmall(f.ctx, id, body)) })
	f.ok(f.table.PutSmall(f.ctx, id, body))
	f.is(f.table.PutSmall(f.ctx, id, body[1:]), metadata.ErrChanged)
	f.is(f.table.PutSmall(f.ctx, f.idIn(segment.InTable), append(body, 1)), metadata.ErrInvalid)
	f.is(f.table.PutSmall(f.ctx, f.id(), body), metadata.ErrInvalid)
	got, err := f.table.Small(f.ctx, id)
	if f.ok(err); !bytes.Equal(got, body) {
		f.Fatal(len(got))
	}
	var ids []segment.ID
	hashes := map[string]bool{"00": true, "ff": true}
	for range 30 {
		ids = append(ids, f.idIn(segment.InTable))
		hashes[ids[len(ids)-1].Hash()] = true
		f.ok(f.table.PutSmall(f.ctx, ids[len(ids)-1], []byte("x")))
	}
	seen := 0
	for hash := range hashes {
		page, more, err := f.table.SmallIDs(f.ctx, hash, ids[0], ids[29], 100)
		if f.ok(err); more {
			f.Fatal("more")
		}
		seen += len(page)
	}
	f.same(seen, 28)
	for range 2 {
		f.ok(f.table.DeleteSmall(f.ctx, ids))
	}
	_, err = f.table.Small(f.ctx, ids[7])
	f.is(err, metadata.ErrNoSegment)
	_, err = f.table.Small(f.ctx, id)
	f.ok(err)
}
