package verify_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// endless is a lane of any length that takes no memory: entries, chunks and objects are worked out when they are asked for. It is table and bucket.
type endless struct {
	commits  int64
	topic    *metadata.Topic
	identity metadata.Identity
	body     []byte // of every object
	footer   segment.Footer
	batch    []byte // of every run of the archive
}

const (
	laneOfAll = metadata.LaneID("lane")
	perSlot   = 3 // records
	spacing   = 100 * time.Millisecond
)

var firstCommit = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func newEndless(t *testing.T, commits int64) *endless {
	e := &endless{commits: commits, identity: metadata.Identity{Log: segment.LogID{1}, Version: 1, Bucket: "b", Prefix: "p"}}
	e.topic = &metadata.Topic{Name: "t", ID: "000000000001", Version: 1, Partitions: 4, LaneWidth: 4, Lanes: []metadata.LaneID{laneOfAll}, Config: metadata.DefaultTopicConfig()}
	b := segment.NewBuilder(segment.Intake, e.identity.Log)
	for slot := range uint8(2) {
		open := new(segment.BatchBuilder)
		for range perSlot {
			check(t, open.Append(&segment.Record{Timestamp: firstCommit.UnixMilli(), Value: []byte("value")}))
		}
		_, err := b.AddOpen(segment.ExtentMeta{Lane: string(laneOfAll), Slot: slot, Topic: e.topic.ID, Partition: int32(slot)}, open, segment.DefaultBatchOptions())
		check(t, err)
	}
	var err error
	e.body, e.footer, err = b.Finish()
	check(t, err)
	open := new(segment.BatchBuilder)
	for range perRow * perSlot {
		check(t, open.Append(&segment.Record{Timestamp: firstCommit.UnixMilli(), Value: []byte("value")}))
	}
	e.batch, _, err = open.Finish(nil, segment.DefaultBatchOptions())
	check(t, err)
	return e
}

// perRow is how many commits one archive segment holds, each slot's in a row. The first half of the lane is archived.
const perRow = 40

func (e *endless) archived() int64 { return e.commits / 2 / perRow * perRow }

// at is the row of a slot that begins with the order.
func (e *endless) at(slot int, order int64) *metadata.Row {
	first := e.entry(order).ID
	last := e.entry(order + perRow - 1).ID.Time()
	r := &metadata.Row{Topic: e.topic.ID, Partition: slot, Base: order * perSlot, End: (order + perRow) * perSlot, Count: perRow * perSlot,
		Segment: segment.NewID(last, segment.Keep, segment.Archived, uint64(order), segment.ID{}), First: first.Time(), Last: last}
	r.MaxTime = metadata.IndexTime(e.footer.Extents[0].MaxTime, first)
	r.RunMax = r.MaxTime
	_, footer := e.archive(order)
	r.Start, r.Bytes = footer.Extents[slot].Offset, footer.Extents[slot].Length
	return r
}

// archive is the archive segment that begins with the order.
func (e *endless) archive(order int64) ([]byte, segment.Footer) {
	b := segment.NewBuilder(segment.Archive, e.identity.Log)
	for slot := range e.footer.Extents {
		batch := slices.Clone(e.batch)
		segment.SetBaseOffset(batch, order*perSlot)
		meta := segment.ExtentMeta{Lane: string(laneOfAll), Slot: uint8(slot), Topic: e.topic.ID, Partition: int32(slot), BaseOffset: order * perSlot, EndOffset: (order + perRow) * perSlot}
		if err := b.Add(meta, math.MinInt64, batch); err != nil {
			panic(err)
		}
	}
	body, footer, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return body, footer
}

// object is an object's body.
func (e *endless) object(name string) []byte {
	p, err := segment.ParseName(name)
	if err != nil {
		panic(err)
	}
	if p.Topic == "" {
		return e.body
	}
	body, _ := e.archive((int64(p.ID.Time().Sub(firstCommit)/spacing) + 1) - perRow)
	return body
}

func (e *endless) Row(ctx context.Context, topic segment.TopicID, partition int, offset int64, c metadata.Consistency) (*metadata.Row, error) {
	panic("rows that follow one another are not asked for singly")
}

func (e *endless) Rows(_ context.Context, _ segment.TopicID, partition int, from, to int64, limit int, _ metadata.Consistency) (rows []*metadata.Row, more bool, err error) {
	if partition >= len(e.footer.Extents) {
		return nil, false, nil
	}
	order := (from + perRow*perSlot - 1) / (perRow * perSlot) * perRow
	for ; order < e.archived() && len(rows) < limit; order += perRow {
		rows = append(rows, e.at(partition, order))
	}
	return rows, order < e.archived(), nil
}

func (*endless) Replaced(context.Context, string, segment.ID, segment.ID, int) ([]*metadata.Replaced, bool, error) {
	return nil, false, nil
}

func (*endless) Small(context.Context, segment.ID) ([]byte, error) { return nil, metadata.ErrNoSegment }
func (*endless) SmallIDs(context.Context, string, segment.ID, segment.ID, int) ([]segment.ID, bool, error) {
	return nil, false, nil
}

func (e *endless) entry(order int64) metadata.Entry {
	id := segment.NewID(firstCommit.Add(time.Duration(order)*spacing), segment.Keep, segment.InBucket, uint64(order), segment.ID{})
	entry := metadata.Entry{ID: id, Order: order, Start: e.footer.Extents[0].Offset}
	for s, x := range e.footer.Extents {
		entry.Slots = append(entry.Slots, metadata.SlotEntry{Slot: metadata.Slot(s), Count: perSlot, Bytes: int32(x.Length), MaxTime: metadata.IndexTime(x.MaxTime, id)})
	}
	return entry
}

// before are the offsets before the order.
func (e *endless) before(order int64) (o metadata.Offsets) {
	for s := range e.footer.Extents {
		o[s] = order * perSlot
	}
	return o
}

func (e *endless) Head(_ context.Context, lane metadata.LaneID, _ metadata.Consistency) (*metadata.Head, error) {
	first := max(0, metadata.ChunkOf(e.commits-1, metadata.ChunkOrders))
	h := &metadata.Head{Lane: lane, Next: e.commits, First: first, Ends: e.before(e.commits), ConfigVersion: 1, K: metadata.ChunkOrders}
	for order := first; order < e.commits; order++ {
		h.Entries = append(h.Entries, e.entry(order))
	}
	return h, nil
}

func (e *endless) Chunk(_ context.Context, lane metadata.LaneID, first int64, _ metadata.Consistency) (*metadata.Chunk, error) {
	c := &metadata.Chunk{Lane: lane, First: first, Bases: e.before(first)}
	for order := first; order < first+metadata.ChunkOrders; order++ {
		c.Entries = append(c.Entries, e.entry(order))
	}
	for s, x := range e.footer.Extents {
		c.MaxTimes[s] = x.MaxTime
	}
	return c, nil
}

func (e *endless) Chunks(ctx context.Context, lane metadata.LaneID, from, to int64, limit int, c metadata.Consistency) (chunks []*metadata.Chunk, more bool, err error) {
	for to = min(to, metadata.ChunkOf(e.commits-1, metadata.ChunkOrders)); from < to && len(chunks) < limit; from += metadata.ChunkOrders {
		chunk, _ := e.Chunk(ctx, lane, from, c)
		chunks = append(chunks, chunk)
	}
	return chunks, from < to, nil
}

func (e *endless) State(_ context.Context, lane metadata.LaneID, _ metadata.Consistency) (*metadata.State, error) {
	return &metadata.State{Lane: lane, Archived: e.archived(), Ends: e.before(e.archived())}, nil
}

func (e *endless) Topic(context.Context, string) (*metadata.Topic, error) { return e.topic, nil }
func (e *endless) Topics(context.Context, string, int) ([]*metadata.Topic, bool, error) {
	return []*metadata.Topic{e.topic}, false, nil
}
func (e *endless) Gone(context.Context) ([]*metadata.GoneTopic, error) { return nil, nil }
func (e *endless) Identity(context.Context) (metadata.Identity, bool, error) {
	return e.identity, true, nil
}
func (e *endless) EraMark(context.Context) (metadata.EraMark, error) { return metadata.EraMark{}, nil }
func (e *endless) Floor(context.Context) (segment.ID, error)         { return segment.ID{}, nil }
func (e *endless) ServiceTime() (time.Time, bool)                    { return firstCommit.Add(1000 * time.Hour), true }

func (e *endless) Stat(_ context.Context, name string) (store.Info, error) {
	if name == segment.IdentityName {
		return store.Info{Name: name, Size: 1 << 10}, nil
	}
	return store.Info{Name: name, Size: int64(len(e.object(name)))}, nil
}

func (e *endless) Get(_ context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	if name == segment.IdentityName {
		return metadata.EncodeIdentity(e.identity)
	}
	return append(dst[:0], e.object(name)[off:off+n]...), nil
}

// List lists every object, in no order that a store would have, and of each page an orphan.
func (e *endless) List(_ context.Context, _, after string, _ int) (page store.Page, err error) {
	order := int64(0)
	if after != "" {
		name, err := segment.ParseName(after)
		if err != nil {
			return page, err
		}
		order = int64(name.ID.Time().Sub(firstCommit)/spacing) + 1
	}
	for n := 0; n < store.MaxPage-1 && order < e.commits; n++ {
		page.Last = segment.IntakeName(e.entry(order).ID)
		page.Objects = append(page.Objects, store.Info{Name: page.Last, Size: int64(len(e.body))})
		order++
	}
	page.More = order < e.commits
	stray := segment.NewID(firstCommit, segment.Keep, segment.InBucket, uint64(order)<<20, segment.ID{})
	page.Objects = append(page.Objects, store.Info{Name: segment.IntakeName(stray), Size: 1})
	return page, nil
}

// held verifies a log of that many commits and returns the most bytes that were held at any of some moments of it, over what was held before.
func held(t *testing.T, commits int64) int64 {
	e := newEndless(t, commits)
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, next, samples := live(), int64(0), int64(0), 0
	r, err := verify.Run(t.Context(), e, e, verify.Options{Env: env.System(), Progress: func(p verify.Progress) {
		if done := p.Commits + p.Listed; done >= next {
			next += commits / 8
			samples++
			most = max(most, live()-before)
		}
	}})
	check(t, err)
	pages := (commits + store.MaxPage - 2) / (store.MaxPage - 1)
	archived := e.archived()
	want := verify.Totals{Topics: 1, Partitions: 4, Commits: commits, Rows: 2 * archived / perRow, Unsummed: 2 * archived / perRow, Records: 2 * perSlot * commits, Objects: commits - archived + archived/perRow,
		Bytes: r.Totals.Bytes, Listed: commits + pages, Superseded: verify.Heap{Objects: archived, Bytes: archived * int64(len(e.body))}, Orphans: verify.Heap{Objects: pages, Bytes: pages}}
	if !r.OK() || r.Totals != want || r.Damage+r.Suspicious > 0 || samples < 8 {
		t.Fatalf("%d commits, %d samples: %+v\n%s", commits, samples, r.Totals, describe(r))
	}
	return most
}

// What a check holds does not grow with the log. A longer log has its last quarter of an hour of ids in memory, which the shorter has too.
func TestMemoryIsBounded(t *testing.T) {
	const few, many = 10_000 / raceShare, 200_000 / raceShare
	short, long := held(t, few), held(t, many)
	t.Logf("held at most: %.1f MiB for %d commits, half of them archived, %.1f MiB for %d", float64(short)/(1<<20), few, float64(long)/(1<<20), many)
	if long > short+2<<20 || long > 24<<20 {
		t.Errorf("%d bytes held for %d commits, %d for %d", short, few, long, many)
	}
}
