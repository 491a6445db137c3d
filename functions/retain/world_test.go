package retain_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const day = 24 * time.Hour

// born is when the worlds of this file begin.
var born = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// world is a table whose time the test sets, and the commits that it makes itself: retain reads no objects, so there are none.
type world struct {
	t   testing.TB
	ctx context.Context
	metadata.Table
	memory *embedded.Memory
	env    env.Env
	now    time.Time
	minted uint64
	maxima map[metadata.LaneID]metadata.Offsets

	mu     sync.Mutex
	calls  []string                      // of the contract, in order
	before func(n int, op string)        // each call, n from 0
	fault  func(op string) (bool, error) // of a write: whether it is applied, and what its caller hears
}

func newWorld(t testing.TB) *world {
	memory, err := embedded.NewMemory(embedded.MemoryOptions{})
	check(t, err)
	t.Cleanup(func() { memory.Close() })
	w := &world{t: t, ctx: t.Context(), memory: memory, env: env.System(), now: born, maxima: map[metadata.LaneID]metadata.Offsets{}}
	log, err := sdk.Open(w.ctx, "mem://", sdk.WithDriver(memory), sdk.WithCreateTable())
	check(t, err)
	w.Table = log.Backend().Table
	return w
}

// what retain calls is counted, and may be led astray.

func (w *world) call(op string) {
	w.mu.Lock()
	n, before := len(w.calls), w.before
	w.calls = append(w.calls, op)
	w.mu.Unlock()
	if before != nil {
		before(n, op)
	}
}

func (w *world) write(op string, do func() error) error {
	w.call(op)
	w.mu.Lock()
	fault := w.fault
	w.mu.Unlock()
	if fault != nil {
		if applied, err := fault(op); err != nil {
			if applied {
				if err := do(); err != nil {
					return err
				}
			}
			return err
		}
	}
	return do()
}

func (w *world) ServiceTime() (time.Time, bool) { return w.now, true }

func (w *world) Identity(ctx context.Context) (metadata.Identity, bool, error) {
	w.call("Identity")
	return w.Table.Identity(ctx)
}

func (w *world) Topics(ctx context.Context, after string, limit int) ([]*metadata.Topic, bool, error) {
	w.call("Topics")
	return w.Table.Topics(ctx, after, limit)
}

func (w *world) State(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.State, error) {
	w.call("State")
	return w.Table.State(ctx, lane, c)
}

func (w *world) Head(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	w.call("Head")
	return w.Table.Head(ctx, lane, c)
}

func (w *world) Chunks(ctx context.Context, lane metadata.LaneID, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Chunk, bool, error) {
	w.call("Chunks")
	return w.Table.Chunks(ctx, lane, from, to, limit, c)
}

func (w *world) Row(ctx context.Context, topic segment.TopicID, partition int, offset int64, c metadata.Consistency) (*metadata.Row, error) {
	w.call("Row")
	return w.Table.Row(ctx, topic, partition, offset, c)
}

func (w *world) Rows(ctx context.Context, topic segment.TopicID, partition int, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Row, bool, error) {
	w.call("Rows")
	return w.Table.Rows(ctx, topic, partition, from, to, min(limit, 3), c) // small pages
}

func (w *world) SetStart(ctx context.Context, lane metadata.LaneID, slot metadata.Slot, start int64) (s *metadata.State, err error) {
	err = w.write("SetStart", func() error { s, err = w.Table.SetStart(ctx, lane, slot, start); return err })
	return s, err
}

func (w *world) SetOldest(ctx context.Context, lane metadata.LaneID, oldest time.Time) error {
	return w.write("SetOldest", func() error { return w.Table.SetOldest(ctx, lane, oldest) })
}

func (w *world) SetHeadConfig(ctx context.Context, lane metadata.LaneID, version int64, class segment.Class) error {
	return w.write("SetHeadConfig", func() error { return w.Table.SetHeadConfig(ctx, lane, version, class) })
}

func (w *world) SetStateConfig(ctx context.Context, lane metadata.LaneID, version int64, class segment.Class) error {
	return w.write("SetStateConfig", func() error { return w.Table.SetStateConfig(ctx, lane, version, class) })
}

func (w *world) SetStored(ctx context.Context, t *metadata.Topic, stored []segment.Class) error {
	return w.write("SetStored", func() error { return w.Table.SetStored(ctx, t, stored) })
}

// create makes a topic with this configuration.
func (w *world) create(name string, partitions, width int, settings ...string) *metadata.Topic {
	w.t.Helper()
	spec := topics.Spec{Name: name, Partitions: partitions, LaneWidth: width, Config: metadata.DefaultTopicConfig()}
	check(w.t, spec.Config.SetAll(name, config(settings)))
	t, err := topics.New(w.Table, w.env).Create(w.ctx, spec)
	check(w.t, err)
	return t
}

func config(settings []string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(settings); i += 2 {
		m[settings[i]] = settings[i+1]
	}
	return m
}

func (w *world) alter(name string, settings ...string) *metadata.Topic {
	w.t.Helper()
	t, err := topics.New(w.Table, w.env).Alter(w.ctx, name, topics.Change{Set: config(settings)})
	check(w.t, err)
	return t
}

func (w *world) row(name string) *metadata.Topic {
	w.t.Helper()
	t, err := w.Table.Topic(w.ctx, name)
	check(w.t, err)
	return t
}

func ms(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// extent is what a commit appends to a slot.
type extent struct {
	slot         metadata.Slot
	count, bytes int32
}

// commit appends extents at a time, and spills what is due. The class is the head's.
func (w *world) commit(lane metadata.LaneID, at time.Time, extents ...extent) segment.ID {
	w.t.Helper()
	h, err := w.Table.Head(w.ctx, lane, metadata.Strong)
	check(w.t, err)
	w.minted++
	e := metadata.Entry{ID: segment.NewID(at, h.Class, segment.InBucket, w.minted, segment.ID{}), Start: 64}
	for _, x := range extents {
		e.Slots = append(e.Slots, metadata.SlotEntry{Slot: x.slot, Count: x.count, Bytes: x.bytes, MaxTime: at.UnixMilli()})
	}
	h, err = w.Table.Commit(w.ctx, metadata.Commit{Lane: lane, Entries: []metadata.Entry{e}, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, 1)})
	check(w.t, err)
	if len(h.Entries) >= 2*metadata.ChunkOrders {
		w.spill(h)
	}
	return e.ID
}

// series makes n commits of an extent in slot 0, every so often, eight at a time.
func (w *world) series(lane metadata.LaneID, n int, every time.Duration, x extent) {
	w.t.Helper()
	h, err := w.Table.Head(w.ctx, lane, metadata.Strong)
	check(w.t, err)
	c := metadata.Commit{Lane: lane, Epoch: h.Epochs[0]}
	for i := range n {
		at := born.Add(time.Duration(i) * every)
		w.minted++
		id := segment.NewID(at, h.Class, segment.InBucket, w.minted, segment.ID{})
		c.Entries = append(c.Entries, metadata.Entry{ID: id, Start: 64, Slots: []metadata.SlotEntry{{Slot: x.slot, Count: x.count, Bytes: x.bytes, MaxTime: at.UnixMilli()}}})
		if len(c.Entries) < metadata.ChunkOrders && i < n-1 {
			continue
		}
		c.Cap = metadata.CapFor(h.First, len(c.Entries))
		h, err = w.Table.Commit(w.ctx, c)
		check(w.t, err)
		if c.Entries = nil; len(h.Entries) >= 2*metadata.ChunkOrders {
			w.spill(h)
			h.First += int64(len(h.Entries)) / h.K * h.K
		}
	}
}

func (w *world) spill(h *metadata.Head) {
	w.t.Helper()
	s := metadata.PlanSpill(h, w.maxima[h.Lane])
	for _, c := range s.Chunks {
		check(w.t, w.Table.PutChunk(w.ctx, c))
		w.maxima[h.Lane] = c.MaxTimes
	}
	_, err := w.Table.Trim(w.ctx, h.Lane, s.From, s.To, s.IDs)
	check(w.t, err)
}

// archive moves what a lane has in chunks below order to into rows, of so many extents each, in one segment of the class.
func (w *world) archive(t *metadata.Topic, lane metadata.LaneID, to int64, extents int, class segment.Class) *metadata.Publication {
	w.t.Helper()
	p := w.publication(t, lane, to, extents, class)
	check(w.t, w.Table.Publish(w.ctx, p))
	return p
}

func (w *world) publication(t *metadata.Topic, lane metadata.LaneID, to int64, extents int, class segment.Class) *metadata.Publication {
	w.t.Helper()
	state, err := w.Table.State(w.ctx, lane, metadata.Strong)
	check(w.t, err)
	w.minted++
	p := &metadata.Publication{Lane: lane, ID: segment.NewID(w.now, class, segment.Archived, w.minted, segment.ID{}), From: state.Archived, To: to, Ends: map[metadata.Slot]int64{}}
	chunks, _, err := w.Table.Chunks(w.ctx, lane, metadata.ChunkOf(p.From, metadata.ChunkOrders), p.To, 1000, metadata.Strong)
	check(w.t, err)
	rows := map[metadata.Slot][]metadata.Row{}
	last := map[metadata.Slot]int{}
	for _, c := range chunks {
		bases := metadata.Bases(c.Entries, c.Ends())
		for i, e := range c.Entries {
			if e.Order < p.From || e.Order >= p.To {
				continue
			}
			for _, x := range e.Slots {
				partition, _ := t.Partition(metadata.Place{Lane: lane, Slot: x.Slot})
				base, end := bases[i][x.Slot], bases[i][x.Slot]+int64(x.Count)
				if last[x.Slot]%extents == 0 {
					rows[x.Slot] = append(rows[x.Slot], metadata.Row{Topic: t.ID, Partition: partition, Base: base, Segment: p.ID, Start: 64, First: e.ID.Time()})
				}
				last[x.Slot]++
				r := &rows[x.Slot][len(rows[x.Slot])-1]
				r.End, r.Count, r.Bytes, r.Last, p.Ends[x.Slot] = end, r.Count+int64(x.Count), r.Bytes+int64(x.Bytes), e.ID.Time(), end
				r.MaxTime = e.ID.Time().UnixMilli()
				r.RunMax = r.MaxTime
			}
		}
	}
	for _, s := range slices.SortedFunc(func(yield func(metadata.Slot) bool) {
		for s := range rows {
			if !yield(s) {
				return
			}
		}
	}, cmp.Compare) {
		p.Put = append(p.Put, rows[s]...)
	}
	return p
}

func (w *world) run(o retain.Options) (*retain.Report, error) {
	o.Env = w.env
	w.mu.Lock()
	w.calls = nil
	w.mu.Unlock()
	return retain.Run(w.ctx, w, o)
}

func (w *world) mustRun(o retain.Options) *retain.Report {
	w.t.Helper()
	r, err := w.run(o)
	check(w.t, err)
	return r
}

// starts are the log starts of the topic's partitions.
func (w *world) starts(t *metadata.Topic) (starts []int64) {
	w.t.Helper()
	for p := range t.Partitions {
		at := t.Place(p)
		s, err := w.Table.State(w.ctx, at.Lane, metadata.Strong)
		check(w.t, err)
		starts = append(starts, s.Starts[at.Slot])
	}
	return starts
}
