package compact_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/mem"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a log in memory: the real table's adapter on the engine, objects in memory. What is appended to it is made here, by the formats' own means, so
// that a test decides about ages, withdrawn bytes and places.
type world struct {
	testing.TB
	env     env.Env
	table   *dynamo.Table
	raw     *client.Client // past the adapter
	objects *mem.Store
	log     segment.LogID
	mu      sync.Mutex
	calls   map[string]int // requests to the table
	units   float64        // of writing that publications took
	config  metadata.TopicConfig
	topics  map[string]*metadata.Topic
	n       uint64
	ahead   time.Duration // the service's clock, of runs
}

func newWorld(t testing.TB) *world {
	engine, err := dynamodb.New(dynamodb.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, engine.Close()) })
	w := &world{TB: t, env: env.System(), objects: mem.New(), config: metadata.DefaultTopicConfig(), topics: map[string]*metadata.Topic{}}
	config := aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: engine}
	w.raw, w.calls = client.NewFromConfig(config), map[string]int{}
	w.table, err = dynamo.Open(dynamo.Config{AWS: config, TableName: "varve", Env: w.env, OnCall: func(c metadata.Call) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls[c.Op]++
		if c.Op == "Publish" {
			w.units += c.WriteUnits
		}
	}})
	check(t, err)
	check(t, w.table.EnsureTable(t.Context()))
	w.log = segment.LogID{1, 2, 3}
	identity := metadata.Identity{Log: w.log, Version: metadata.FormatVersion, Bucket: "b", Prefix: "p"}
	_, err = w.table.PutIdentity(t.Context(), identity)
	check(t, err)
	body, err := metadata.EncodeIdentity(identity)
	check(t, err)
	check(t, w.objects.Put(t.Context(), segment.IdentityName, body))
	check(t, err)
	return w
}

// topic makes a topic of so many lanes with so many partitions each.
func (w *world) topic(name string, lanes, width int) *metadata.Topic {
	w.Helper()
	w.n++
	t := &metadata.Topic{Name: name, ID: segment.TopicID(fmt.Sprintf("%012d", w.n)), Version: 1, Partitions: lanes * width, LaneWidth: width, Partitioner: "murmur2",
		Classes: []segment.Class{w.config.Class()}, Config: w.config}
	t.History = []metadata.Growth{{Version: 1, Partitions: t.Partitions}}
	for i := range lanes {
		t.Lanes = append(t.Lanes, metadata.LaneID(fmt.Sprintf("%s-%d", name, i)))
	}
	check(w, w.table.CreateTopic(w.Context(), t, segment.ID{}))
	w.topics[name] = t
	return t
}

// flush is one segment and its commit.
type flush struct {
	ago       time.Duration // age of its id
	small     bool          // it is kept in the table
	codec     segment.Codec
	records   int // for each partition
	size      int // of a value
	withdrawn map[int]bool
	batches   int
}

// append makes one segment with records for the partitions and commits it to each of their lanes, which are spilled when they are due.
func (w *world) append(t *metadata.Topic, f flush, partitions ...int) {
	w.Helper()
	place := segment.InBucket
	if f.small {
		place = segment.InTable
	}
	w.n++
	id := segment.NewID(w.env.Now().Add(-f.ago), t.Class(), place, w.n, segment.ID{})
	b := segment.NewBuilder(segment.Intake, w.log)
	entries := map[metadata.LaneID]*metadata.Entry{}
	var lanes []metadata.LaneID
	slices.Sort(partitions)
	for _, p := range partitions {
		at := t.Place(p)
		e := entries[at.Lane]
		if e == nil {
			e = &metadata.Entry{ID: id, Start: int64(b.Size())}
			entries[at.Lane], lanes = e, append(lanes, at.Lane)
		}
		s := metadata.SlotEntry{Slot: at.Slot}
		for range max(f.batches, 1) {
			open := new(segment.BatchBuilder)
			for i := range max(f.records, 1) {
				check(w, open.Append(w.record(id, p, i, f.size)))
			}
			o := segment.DefaultBatchOptions()
			o.Codec = f.codec
			info, err := b.AddOpen(segment.ExtentMeta{Lane: string(at.Lane), Slot: uint8(at.Slot), Topic: t.ID, Partition: int32(p)}, open, o)
			check(w, err)
			if s.Bytes += int32(info.Length); !f.withdrawn[p] {
				s.Count += int32(info.Count)
			}
			s.MaxTime = max(s.MaxTime, metadata.IndexTime(info.MaxTime, id))
		}
		e.Slots = append(e.Slots, s)
	}
	body, _, err := b.Finish()
	check(w, err)
	if f.small {
		check(w, w.table.PutSmall(w.Context(), id, body))
	} else {
		check(w, w.objects.Put(w.Context(), segment.IntakeName(id), body))
	}
	for _, l := range lanes {
		w.commit(l, *entries[l])
	}
}

// record is one of the shapes that records have: null, empty, and full keys, values and headers.
func (w *world) record(id segment.ID, partition, i, size int) *segment.Record {
	w.n++
	r := &segment.Record{Timestamp: id.Time().UnixMilli() - int64(i), Key: fmt.Appendf(nil, "key-%d-%d", partition, w.n), Value: make([]byte, max(size, 10))}
	for j := range r.Value {
		r.Value[j] = byte(w.n>>(j%8)) + byte(j/100)
	}
	switch w.n % 7 {
	case 0:
		r.Key = nil
	case 1:
		r.Key = []byte{}
	case 2:
		r.Value = nil
	case 3:
		r.Value = []byte{}
	case 4:
		r.Headers = []segment.Header{{Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("full")}, {Key: "null", Value: []byte{0}}}
	case 5:
		r.Timestamp += 1 << 40 // in the far future
	}
	return r
}

func (w *world) commit(l metadata.LaneID, e metadata.Entry) {
	w.Helper()
	h := w.head(l)
	h, err := w.table.Commit(w.Context(), metadata.Commit{Lane: l, Entries: []metadata.Entry{e}, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, 1)})
	check(w, err)
	if h.SpillDue(1) {
		check(w, lane.Spill(w.Context(), w.table, w.env, h))
	}
}

func (w *world) head(l metadata.LaneID) *metadata.Head {
	w.Helper()
	h, err := w.table.Head(w.Context(), l, metadata.Strong)
	check(w, err)
	return h
}

func (w *world) state(l metadata.LaneID) *metadata.State {
	w.Helper()
	s, err := w.table.State(w.Context(), l, metadata.Strong)
	check(w, err)
	return s
}

// rows are the archive rows of a partition, which must cover the offsets from the log start, or an extent that holds it, to the archived offset.
func (w *world) rows(t *metadata.Topic, p int) []*metadata.Row {
	w.Helper()
	rows, more, err := w.table.Rows(w.Context(), t.ID, p, 0, math.MaxInt64, 1000, metadata.Strong)
	check(w, err)
	if more {
		w.Fatal("there are more rows")
	}
	at := t.Place(p)
	s := w.state(at.Lane)
	for i, r := range rows {
		if i > 0 && (r.Base != rows[i-1].End || r.RunMax < rows[i-1].RunMax) {
			w.Errorf("partition %d: row %+v after %+v", p, r, rows[i-1])
		}
		if r.RunMax < r.MaxTime {
			w.Errorf("partition %d: row %+v", p, r)
		}
	}
	n := len(rows)
	if n > 0 && (rows[0].Base > s.Starts[at.Slot] || rows[n-1].End != s.Ends[at.Slot]) || n == 0 && s.Ends[at.Slot] > s.Starts[at.Slot] {
		w.Errorf("partition %d: archived up to %d from %d on, with %d rows", p, s.Ends[at.Slot], s.Starts[at.Slot], n)
	}
	return rows
}

// read returns what a partition holds from its log start on, record by record as text: what is archived from rows and archive segments, the rest from chunks, head
// and intake.
func (w *world) read(t *metadata.Topic, p int) (records []string) {
	w.Helper()
	at := t.Place(p)
	state := w.state(at.Lane)
	d := new(segment.Decoder)
	next := state.Starts[at.Slot]
	var sum segment.Sum // of all that was decoded
	var summer segment.Summer
	add := func(b []byte, base int64) {
		w.Helper()
		for len(b) > 0 {
			batch, rest, err := segment.SplitBatch(b)
			check(w, err)
			got, err := d.Decode(batch, base, nil)
			check(w, err)
			for _, r := range got {
				sum = sum.Plus(summer.Sum(&r))
				if r.Offset < next {
					continue
				}
				if r.Offset != next {
					w.Fatalf("partition %d: offset %d, not %d", p, r.Offset, next)
				}
				next++
				records = append(records, fmt.Sprintf("%d %d %#v %t %s %#v", r.Offset, r.Timestamp, r.Key, r.Value == nil, r.Value, r.Headers))
			}
			b = rest
		}
	}
	for _, r := range w.rows(t, p) {
		if r.End > next && r.Count > 0 {
			body, err := w.objects.Get(w.Context(), segment.ArchiveName(t.ID, r.Segment), r.Start, r.Bytes, nil)
			check(w, err)
			before := sum
			if add(body, 0); !r.Summed || sum.Minus(before) != r.Sum || r.Gone != (segment.Sum{}) {
				w.Errorf("partition %d: the records of %+v have the sum %v", p, r, sum.Minus(before))
			}
		}
	}
	w.entries(at.Lane, func(e *metadata.Entry, bases *metadata.Offsets) {
		pos := e.Start
		for _, s := range e.Slots {
			if s.Slot == at.Slot && s.Count > 0 && bases[s.Slot] >= state.Ends[s.Slot] && bases[s.Slot]+int64(s.Count) > next {
				body := w.body(e.ID)
				add(body[pos:pos+int64(s.Bytes)], bases[s.Slot])
			}
			pos += int64(s.Bytes)
		}
	})
	if end := w.head(at.Lane).Ends[at.Slot]; next != end {
		w.Errorf("partition %d: read up to offset %d of %d", p, next, end)
	}
	return records
}

func (w *world) body(id segment.ID) []byte {
	w.Helper()
	var body []byte
	var err error
	if id.Place() == segment.InTable {
		body, err = w.table.Small(w.Context(), id)
	} else {
		body, err = w.objects.Get(w.Context(), segment.IntakeName(id), 0, -1, nil)
	}
	check(w, err)
	return body
}

// entries goes through chunks and head.
func (w *world) entries(l metadata.LaneID, do func(*metadata.Entry, *metadata.Offsets)) {
	w.Helper()
	h := w.head(l)
	for next := w.state(l).First; next < h.First; next += h.K {
		c, err := w.table.Chunk(w.Context(), l, next, metadata.Strong)
		check(w, err)
		bases := metadata.Bases(c.Entries, c.Ends())
		for i := range c.Entries {
			do(&c.Entries[i], &bases[i])
		}
	}
	bases := metadata.Bases(h.Entries, h.Ends)
	for i := range h.Entries {
		do(&h.Entries[i], &bases[i])
	}
}

// all is what all partitions of a topic hold.
func (w *world) all(t *metadata.Topic) (all [][]string) {
	w.Helper()
	for p := range t.Partitions {
		all = append(all, w.read(t, p))
	}
	return all
}

// same fails unless the topic still holds what it held.
func (w *world) same(t *metadata.Topic, before [][]string) {
	w.Helper()
	for p, now := range w.all(t) {
		if !slices.Equal(now, before[p]) {
			w.Fatalf("topic %s, partition %d reads otherwise than before: %d records, %d before", t.Name, p, len(now), len(before[p]))
		}
	}
}

// sound verifies every archive segment: as an object, and that rows and footers agree.
func (w *world) sound(t *metadata.Topic) {
	w.Helper()
	footers := map[segment.ID]segment.Footer{}
	for p := range t.Partitions {
		for _, r := range w.rows(t, p) {
			if r.Count == 0 {
				continue
			}
			f, ok := footers[r.Segment]
			if !ok {
				body, err := w.objects.Get(w.Context(), segment.ArchiveName(t.ID, r.Segment), 0, -1, nil)
				check(w, err)
				f, err = (&segment.Decoder{Reuse: true}).Verify(body)
				check(w, err)
				footers[r.Segment] = f
			}
			if !slices.ContainsFunc(f.Extents, func(e segment.Extent) bool {
				return e.Topic == t.ID && e.Partition == int32(p) && e.BaseOffset == r.Base && e.EndOffset == r.End && e.Offset == r.Start && e.Length == r.Bytes && e.Count == r.Count &&
					metadata.Slot(e.Slot) == t.Place(p).Slot && e.Lane == string(t.Place(p).Lane)
			}) {
				w.Fatalf("no extent of segment %s is row %+v", r.Segment, r)
			}
		}
	}
}

func (w *world) options() compact.Options { return compact.Options{Env: w.env, Target: 64 << 10} }

func (w *world) run(o compact.Options) *compact.Report {
	w.Helper()
	report, err := compact.Run(w.Context(), &table{Table: w.table, ahead: w.ahead}, &objects{Store: w.objects}, o)
	check(w, err)
	return report
}

// objects is a store that is told about before each call, and may be made to fail.
type objects struct {
	store.Store
	gate func(call string) error // an error: the call fails; applied says whether it is made nonetheless
	mu   sync.Mutex
	gets int
	puts int
}

func (o *objects) pass(call string, do func() error) error { return pass(o.gate, call, do) }

// applied is an error that a call gives though it was made.
type applied struct{ error }

func pass(gate func(string) error, call string, do func() error) error {
	if gate == nil {
		return do()
	}
	err := gate(call)
	if a, ok := err.(applied); ok {
		do()
		return a.error
	}
	if err != nil {
		return err
	}
	return do()
}

func (o *objects) Get(ctx context.Context, name string, off, n int64, dst []byte) (b []byte, err error) {
	o.mu.Lock()
	o.gets++
	o.mu.Unlock()
	return b, o.pass("Get", func() error { b, err = o.Store.Get(ctx, name, off, n, dst); return err })
}

func (o *objects) PutParts(ctx context.Context, name string, next func() ([]byte, error)) (size int64, err error) {
	o.mu.Lock()
	o.puts++
	o.mu.Unlock()
	return size, o.pass("PutParts", func() error { size, err = o.Store.PutParts(ctx, name, next); return err })
}

// table is a table of which the same is true.
type table struct {
	metadata.Table
	gate  func(call string) error
	ahead time.Duration
}

func (t *table) ServiceTime() (time.Time, bool) {
	now, ok := t.Table.ServiceTime()
	return now.Add(t.ahead), ok
}

func (t *table) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (h *metadata.Head, err error) {
	err = pass(t.gate, "Head", func() error { h, err = t.Table.Head(ctx, l, c); return err })
	return h, err
}

func (t *table) State(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (s *metadata.State, err error) {
	err = pass(t.gate, "State", func() error { s, err = t.Table.State(ctx, l, c); return err })
	return s, err
}

func (t *table) Chunk(ctx context.Context, l metadata.LaneID, first int64, c metadata.Consistency) (k *metadata.Chunk, err error) {
	err = pass(t.gate, "Chunk", func() error { k, err = t.Table.Chunk(ctx, l, first, c); return err })
	return k, err
}

func (t *table) Chunks(ctx context.Context, l metadata.LaneID, from, to int64, limit int, c metadata.Consistency) (k []*metadata.Chunk, more bool, err error) {
	err = pass(t.gate, "Chunks", func() error { k, more, err = t.Table.Chunks(ctx, l, from, to, limit, c); return err })
	return k, more, err
}

func (t *table) Row(ctx context.Context, topic segment.TopicID, p int, offset int64, c metadata.Consistency) (r *metadata.Row, err error) {
	err = pass(t.gate, "Row", func() error { r, err = t.Table.Row(ctx, topic, p, offset, c); return err })
	return r, err
}

func (t *table) Rows(ctx context.Context, topic segment.TopicID, p int, from, to int64, limit int, c metadata.Consistency) (r []*metadata.Row, more bool, err error) {
	err = pass(t.gate, "Rows", func() error { r, more, err = t.Table.Rows(ctx, topic, p, from, to, limit, c); return err })
	return r, more, err
}

func (t *table) Topic(ctx context.Context, name string) (row *metadata.Topic, err error) {
	err = pass(t.gate, "Topic", func() error { row, err = t.Table.Topic(ctx, name); return err })
	return row, err
}

func (t *table) Small(ctx context.Context, id segment.ID) (b []byte, err error) {
	err = pass(t.gate, "Small", func() error { b, err = t.Table.Small(ctx, id); return err })
	return b, err
}

func (t *table) Commit(ctx context.Context, c metadata.Commit) (h *metadata.Head, err error) {
	err = pass(t.gate, "Commit", func() error { h, err = t.Table.Commit(ctx, c); return err })
	if err != nil {
		h = nil
	}
	return h, err
}

func (t *table) PutChunk(ctx context.Context, c *metadata.Chunk) error {
	return pass(t.gate, "PutChunk", func() error { return t.Table.PutChunk(ctx, c) })
}

func (t *table) Trim(ctx context.Context, l metadata.LaneID, from, to int64, ids []segment.ID) (h *metadata.Head, err error) {
	err = pass(t.gate, "Trim", func() error { h, err = t.Table.Trim(ctx, l, from, to, ids); return err })
	if err != nil && !errors.Is(err, metadata.ErrChanged) { // with that the image comes
		h = nil
	}
	return h, err
}

func (t *table) Publish(ctx context.Context, p *metadata.Publication) error {
	return pass(t.gate, "Publish", func() error { return t.Table.Publish(ctx, p) })
}

func (t *table) Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) (r []*metadata.Replaced, more bool, err error) {
	err = pass(t.gate, "Replaced", func() error { r, more, err = t.Table.Replaced(ctx, hash, after, before, limit); return err })
	return r, more, err
}
