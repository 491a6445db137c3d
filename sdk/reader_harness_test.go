package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// newObjects makes the store of a test's log. It is another one while TestMinIO_Again runs.
var newObjects = func(testing.TB) store.Store { return mem.New() }

// bench is a log in memory whose segments the test writes itself, record by record and commit by commit.
type bench struct {
	t       testing.TB
	ctx     context.Context
	memory  *embedded.Memory
	raw     store.Store
	objects *fault.Store
	backend sdk.Backend
	log     *sdk.Log
	counts  *counts

	writing sync.Mutex    // one segment at a time; guards what writing needs
	mu      sync.Mutex    // guards the hooks
	onStore fault.Hook    // befalls the store
	onTable dynamodb.Hook // befalls the table
	minted  uint64
	maxima  map[metadata.LaneID]metadata.Offsets // of the last chunk
	topics  map[string]*metadata.Topic
	codec   segment.Codec
	footers map[string]*segment.Footer // of what was written, by name
	ends    map[string]map[int]int64   // offsets of partitions after it
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, ctx: t.Context(), raw: newObjects(t), counts: &counts{}, maxima: map[metadata.LaneID]metadata.Offsets{}, topics: map[string]*metadata.Topic{},
		footers: map[string]*segment.Footer{}, ends: map[string]map[int]int64{}}
	b.objects = fault.New(b.raw, env.System(), func(c fault.Call) fault.Fault {
		b.mu.Lock()
		hook := b.onStore
		b.mu.Unlock()
		if hook == nil {
			return fault.Fault{}
		}
		return hook(c)
	})
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Objects: b.objects, Engine: dynamodb.Options{History: time.Minute, Hook: func(ctx context.Context, c dynamodb.Call) dynamodb.Fault {
		b.mu.Lock()
		hook := b.onTable
		b.mu.Unlock()
		if hook == nil {
			return dynamodb.Fault{}
		}
		return hook(ctx, c)
	}}})
	check(t, err)
	b.use(memory)
	t.Cleanup(func() { b.objects.Close() })
	return b
}

// reopen begins again with an empty log over these objects.
func (b *bench) reopen(objects store.Store) {
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Objects: objects})
	check(b.t, err)
	b.use(memory)
}

func (b *bench) use(memory *embedded.Memory) {
	var err error
	b.memory = memory
	b.backend, err = memory.Open(b.ctx, &url.URL{Scheme: "mem"}, sdk.DriverOptions{Env: env.System(), OnTable: func(metadata.Call) {}, OnStore: func(store.Call) {}})
	check(b.t, err)
	b.log = b.open()
	b.t.Cleanup(func() { memory.Close() })
}

// many appends segments of one record in partition 0 that all have the same bytes, 16 to a commit.
func (b *bench) many(topic string, segments int) {
	row, table := b.topics[topic], b.backend.Table
	at := row.Place(0)
	builder := segment.NewBuilder(segment.Intake, segment.LogID{})
	check(b.t, builder.Add(segment.ExtentMeta{Lane: string(at.Lane), Slot: uint8(at.Slot), Topic: row.ID}, 0, b.encode(numbers(0, 1))))
	body, footer, err := builder.Finish()
	check(b.t, err)
	h, err := table.Head(b.ctx, at.Lane, metadata.Strong)
	check(b.t, err)
	for segments > 0 {
		c := metadata.Commit{Lane: at.Lane, Epoch: h.Epochs[0]}
		for range min(segments, metadata.MaxCommitEntries) {
			b.minted++
			id := segment.NewID(time.Now(), row.Class(), segment.InBucket, b.minted, segment.ID{})
			check(b.t, b.raw.Put(b.ctx, segment.IntakeName(id), body))
			x := footer.Extents[0]
			c.Entries = append(c.Entries, metadata.Entry{ID: id, Start: x.Offset, Slots: []metadata.SlotEntry{{Slot: at.Slot, Count: int32(x.Count), Bytes: int32(x.Length), MaxTime: x.MaxTime}}})
		}
		c.Cap = metadata.CapFor(h.First, len(c.Entries))
		h, err = table.Commit(b.ctx, c)
		check(b.t, err)
		h = b.spill(h)
		segments -= len(c.Entries)
	}
}

// spill moves all whole chunks out of the head.
func (b *bench) spill(h *metadata.Head) *metadata.Head {
	plan := metadata.PlanSpill(h, b.maxima[h.Lane])
	if len(plan.Chunks) == 0 {
		return h
	}
	for _, c := range plan.Chunks {
		check(b.t, b.backend.Table.PutChunk(b.ctx, c))
		b.maxima[h.Lane] = c.MaxTimes
	}
	h, err := b.backend.Table.Trim(b.ctx, h.Lane, plan.From, plan.To, plan.IDs)
	check(b.t, err)
	return h
}

// open opens the log as another process would. Requests are counted in b.counts.
func (b *bench) open() *sdk.Log {
	log, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(b.memory), sdk.WithHooks(b.counts))
	check(b.t, err)
	return log
}

func (b *bench) create(topic string, partitions int, width int) {
	_, err := b.log.Admin().CreateTopic(b.ctx, sdk.NewTopic{Name: topic, Partitions: partitions, LaneWidth: width})
	check(b.t, err)
	b.topics[topic], err = b.backend.Table.Topic(b.ctx, topic)
	check(b.t, err)
}

// faults sets what befalls store and table from now on.
func (b *bench) faults(s fault.Hook, table dynamodb.Hook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onStore, b.onTable = s, table
}

// text makes a batch of one record for each value, at consecutive milliseconds from 1,000,000,000,000 on.
func text(values ...string) []segment.Record {
	var rs []segment.Record
	for i, v := range values {
		rs = append(rs, segment.Record{Timestamp: 1_000_000_000_000 + int64(i), Value: []byte(v)})
	}
	return rs
}

// numbers makes a batch of records whose values are from, from+1, …
func numbers(from, n int) []segment.Record {
	var values []string
	for i := range n {
		values = append(values, fmt.Sprint(from+i))
	}
	return text(values...)
}

// write appends one segment with these batches of each partition, and spills when it is due. It returns the segment's name.
func (b *bench) write(topic string, parts map[int][][]segment.Record) string {
	batches := map[int][][]byte{}
	for p, bs := range parts {
		for _, records := range bs {
			batches[p] = append(batches[p], b.encode(records))
		}
	}
	return b.writeBatches(topic, batches)
}

func (b *bench) encode(records []segment.Record) []byte {
	var builder segment.BatchBuilder
	for i := range records {
		check(b.t, builder.Append(&records[i]))
	}
	o := segment.DefaultBatchOptions()
	o.Codec = b.codec
	batch, _, err := builder.Finish(nil, o)
	check(b.t, err)
	return batch
}

// writeBatches appends one segment of finished batches, which need not be well formed beyond their headers.
func (b *bench) writeBatches(topic string, parts map[int][][]byte) string {
	b.writing.Lock()
	defer b.writing.Unlock()
	t := b.topics[topic]
	b.minted++
	id := segment.NewID(time.Now(), t.Class(), segment.InBucket, b.minted, segment.ID{})
	builder := segment.NewBuilder(segment.Intake, segment.LogID{})
	for _, p := range slices.Sorted(maps.Keys(parts)) {
		at := t.Place(p)
		check(b.t, builder.Add(segment.ExtentMeta{Lane: string(at.Lane), Slot: uint8(at.Slot), Topic: t.ID, Partition: int32(p)}, 0, parts[p]...))
	}
	body, footer, err := builder.Finish()
	check(b.t, err)
	name := segment.IntakeName(id)
	check(b.t, b.raw.Put(b.ctx, name, body))
	b.ends[name] = map[int]int64{}
	for lane, ends := range b.commit(id, footer) {
		for _, x := range footer.Extents {
			if x.Lane == string(lane) {
				b.ends[name][int(x.Partition)] = ends[x.Slot]
			}
		}
	}
	b.footers[name] = &footer
	return name
}

// commit appends the segment to its lanes and returns their ends.
func (b *bench) commit(id segment.ID, footer segment.Footer) map[metadata.LaneID]metadata.Offsets {
	entries, ends := map[metadata.LaneID]*metadata.Entry{}, map[metadata.LaneID]metadata.Offsets{}
	for _, x := range footer.Extents {
		lane := metadata.LaneID(x.Lane)
		if entries[lane] == nil {
			entries[lane] = &metadata.Entry{ID: id, Start: x.Offset}
		}
		entries[lane].Slots = append(entries[lane].Slots, metadata.SlotEntry{Slot: metadata.Slot(x.Slot), Count: int32(x.Count), Bytes: int32(x.Length),
			MaxTime: metadata.IndexTime(x.MaxTime, id)})
	}
	for _, lane := range slices.Sorted(maps.Keys(entries)) {
		ends[lane] = b.append(lane, *entries[lane])
	}
	return ends
}

// append commits an entry and spills what is due. It returns the lane's ends after it.
func (b *bench) append(lane metadata.LaneID, e metadata.Entry) metadata.Offsets {
	table := b.backend.Table
	h, err := table.Head(b.ctx, lane, metadata.Strong)
	check(b.t, err)
	h, err = table.Commit(b.ctx, metadata.Commit{Lane: lane, Entries: []metadata.Entry{e}, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, 1)})
	check(b.t, err)
	if h.SpillDue(1) {
		b.spill(h)
	}
	return h.Ends
}

// reader makes a reader that is closed with the test.
func (b *bench) reader(topic string, opts ...sdk.ReaderOption) *sdk.Reader {
	r, err := reach(b.t, b.log, b.counts).NewReader(b.ctx, topic, opts...)
	check(b.t, err)
	b.t.Cleanup(func() { r.Close() })
	return r
}

// values polls until the reader says that it is done, and returns each partition's values, joined by blanks. Offsets must be dense from the first on.
func (b *bench) values(r *sdk.Reader) map[int]string {
	got := map[int]string{}
	next := map[int]int64{}
	for {
		fetches, err := r.Poll(b.ctx)
		if err != nil {
			if err.Error() != "EOF" {
				b.t.Fatal(err)
			}
			return got
		}
		collect(b.t, fetches, next, got)
	}
}

func collect(t testing.TB, fetches []sdk.Fetch, next map[int]int64, got map[int]string) {
	t.Helper()
	for _, f := range fetches {
		for _, r := range f.Records {
			if want, ok := next[f.Partition]; ok && r.Offset != want || r.Partition != f.Partition || r.Topic != f.Topic {
				t.Fatalf("partition %d: got offset %d after %d, record says %s %d", f.Partition, r.Offset, want-1, r.Topic, r.Partition)
			}
			next[f.Partition] = r.Offset + 1
			got[f.Partition] = strings.TrimSpace(got[f.Partition] + " " + string(r.Value))
		}
	}
}

// counts counts what a log does.
type counts struct {
	mu     sync.Mutex
	ops    map[string]int // requests to the table by operation
	gets   int
	bytes  int // of all gets
	most   int // of one get
	holes  int // gets of objects that are gone
	resets []sdk.ResetEvent
}

func (c *counts) OnRequest(e sdk.RequestEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Service == "table" {
		if c.ops == nil {
			c.ops = map[string]int{}
		}
		c.ops[e.Op]++
	}
}

func (c *counts) OnFetch(e sdk.FetchEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets++
	c.bytes += e.Bytes
	c.most = max(c.most, e.Bytes)
	if errors.Is(e.Err, store.ErrNotExist) {
		c.holes++
	}
}

func (c *counts) OnReset(e sdk.ResetEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets = append(c.resets, e)
}

// take returns what was counted since the last take.
func (c *counts) take() (ops map[string]int, gets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ops, gets = c.ops, c.gets
	c.ops, c.gets = nil, 0
	return ops, gets
}

// fetched is the bytes that were read since the last call, and by how many requests of how many bytes at most.
func (c *counts) fetched() (bytes, gets, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, gets, most = c.bytes, c.gets, c.most
	c.bytes, c.gets, c.most = 0, 0, 0
	return bytes, gets, most
}

func total(ops map[string]int) (n int) {
	for _, c := range ops {
		n += c
	}
	return n
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
