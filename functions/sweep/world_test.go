package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// world is a log in virtual time, whose producers and compactors are this test: it takes their single steps.
type world struct {
	t       *testing.T
	env     env.Env
	table   *shortcut
	raw     *client.Client // past the adapter
	bucket  *mem.Store
	store   *fault.Store
	log     segment.LogID
	random  uint64
	request func(dynamodb.Call) dynamodb.Fault // of the table
	call    func(fault.Call) fault.Fault       // of the store

	mu     sync.Mutex
	busy   bool // request or call is under way: what it does itself is not told to it
	counts map[string]int
}

// shortcut answers for those of 2*256 collections into which nothing was ever put, so that a sweep in a test is 20 requests and not 500.
type shortcut struct {
	metadata.Table
	off  bool
	used sync.Map // collections
}

func (s *shortcut) unused(collection string) bool {
	_, used := s.used.Load(collection)
	return !s.off && !used
}

func (s *shortcut) Publish(ctx context.Context, p *metadata.Publication) error {
	s.used.Store("X"+p.ID.Hash(), true)
	return s.Table.Publish(ctx, p)
}

func (s *shortcut) PutSmall(ctx context.Context, id segment.ID, body []byte) error {
	s.used.Store("D"+id.Hash(), true)
	return s.Table.PutSmall(ctx, id, body)
}

func (s *shortcut) Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) ([]*metadata.Replaced, bool, error) {
	if s.unused("X" + hash) {
		return nil, false, nil
	}
	return s.Table.Replaced(ctx, hash, after, before, limit)
}

func (s *shortcut) SmallIDs(ctx context.Context, hash string, after, before segment.ID, limit int) ([]segment.ID, bool, error) {
	if s.unused("D" + hash) {
		return nil, false, nil
	}
	return s.Table.SmallIDs(ctx, hash, after, before, limit)
}

// inBubble runs a test in a world in virtual time.
func inBubble(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, env: env.System(), log: segment.LogID{7}, counts: map[string]int{}}
	w.env.Rand = env.NewRand(1)
	w.bucket = mem.New(mem.Clock(w.env))
	w.store = fault.New(w.bucket, w.env, w.onCall)
	engine, err := dynamodb.New(dynamodb.Options{Hook: w.onRequest})
	check(t, err)
	config := aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: engine, BaseEndpoint: aws.String("http://engine")}
	w.raw = client.NewFromConfig(config)
	table, err := dynamo.Open(dynamo.Config{AWS: config, TableName: "varve", Env: w.env})
	check(t, err)
	t.Cleanup(func() {
		w.store.Close()
		check(t, engine.Close())
	})
	w.table = &shortcut{Table: table}
	check(t, table.EnsureTable(t.Context()))
	id := metadata.Identity{Log: w.log, Version: 1, Bucket: "b", Prefix: "p"}
	_, err = table.PutIdentity(t.Context(), id)
	check(t, err)
	body, err := metadata.EncodeIdentity(id)
	check(t, err)
	check(t, w.bucket.Put(t.Context(), segment.IdentityName, body))
	return w
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// once runs f unless a hook is under way already.
func (w *world) once(what string, f func()) {
	w.mu.Lock()
	busy := w.busy
	if !busy {
		w.counts[what]++
	}
	w.busy = true
	w.mu.Unlock()
	if !busy {
		f()
		w.mu.Lock()
		w.busy = false
		w.mu.Unlock()
	}
}

func (w *world) onRequest(_ context.Context, c dynamodb.Call) (f dynamodb.Fault) {
	w.once(c.Op, func() {
		if w.request != nil {
			f = w.request(c)
		}
	})
	return f
}

func (w *world) onCall(c fault.Call) (f fault.Fault) {
	w.once(c.Op, func() {
		if w.call != nil {
			f = w.call(c)
		}
	})
	return f
}

// options are a sweep's, one request at a time.
func (w *world) options() Options { return Options{Env: w.env, Parallel: 1} }

func (w *world) sweep(o Options) (*Report, []Deletion, error) {
	var told []Deletion
	o.Tell = func(d Deletion) { told = append(told, d) }
	r, err := Run(w.t.Context(), w.table, w.store, o)
	return r, told, err
}

// swept is what a sweep deletes, by kind and name. A dry run before it must have said the same.
func (w *world) swept() []string {
	w.t.Helper()
	o := w.options()
	o.DryRun = true
	before := w.everything()
	_, would, err := w.sweep(o)
	check(w.t, err)
	if after := w.everything(); !slices.Equal(before, after) {
		w.t.Errorf("a dry run changed something:\n%q\n%q", before, after)
	}
	_, did, err := w.sweep(w.options())
	check(w.t, err)
	if a, b := names(would), names(did); !slices.Equal(a, b) {
		w.t.Errorf("a dry run says\n%q\na run deleted\n%q", a, b)
	}
	w.sound()
	return names(did)
}

func names(list []Deletion) (all []string) {
	for _, d := range list {
		all = append(all, string(d.Kind)+" "+d.Name)
	}
	slices.Sort(all)
	return all
}

// everything is the names of all objects.
func (w *world) everything() (all []string) {
	for after, more := "", true; more; {
		page, err := w.bucket.List(w.t.Context(), "", after, 0)
		check(w.t, err)
		for _, o := range page.Objects {
			all = append(all, o.Name)
		}
		after, more = page.Last, page.More
	}
	return all
}

func (w *world) there(name string) bool {
	_, err := w.bucket.Stat(w.t.Context(), name)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) topic(name string, partitions, width int, keep ...bool) *metadata.Topic {
	w.t.Helper()
	config := metadata.DefaultTopicConfig()
	if len(keep) > 0 {
		config.Retention = -1
	}
	t, err := topics.New(w.table, w.env).Create(w.t.Context(), topics.Spec{Name: name, Partitions: partitions, LaneWidth: width, Config: config})
	check(w.t, err)
	return t
}

func (w *world) delete(name string) {
	w.t.Helper()
	check(w.t, topics.New(w.table, w.env).Delete(w.t.Context(), name))
}

// id is one of a time, in the class of seven days.
func (w *world) id(at time.Time, place segment.Place) segment.ID {
	w.random++
	return segment.NewID(at, 7, place, w.random*0x9e3779b97f4a7c15, segment.ID{})
}

// part is what a segment has of a partition: records.
type part struct {
	topic     *metadata.Topic
	partition int
	records   int
}

// intake makes an intake segment's bytes, parts ordered by lane and slot.
func (w *world) intake(id segment.ID, parts ...part) ([]byte, segment.Footer) {
	w.t.Helper()
	b := segment.NewBuilder(segment.Intake, w.log)
	for _, p := range parts {
		at := p.topic.Place(p.partition)
		w.add(b, segment.ExtentMeta{Lane: string(at.Lane), Slot: uint8(at.Slot), Topic: p.topic.ID, Partition: int32(p.partition)}, id.Time(), p.records)
	}
	body, f, err := b.Finish()
	check(w.t, err)
	return body, f
}

func (w *world) add(b *segment.Builder, e segment.ExtentMeta, at time.Time, records int) {
	w.t.Helper()
	open := new(segment.BatchBuilder)
	for range records {
		check(w.t, open.Append(&segment.Record{Timestamp: at.UnixMilli(), Value: []byte("value")}))
	}
	o := segment.DefaultBatchOptions()
	o.BaseOffset = e.BaseOffset
	_, err := b.AddOpen(e, open, o)
	check(w.t, err)
}

// upload puts an intake segment where its id says.
func (w *world) upload(id segment.ID, parts ...part) segment.Footer {
	w.t.Helper()
	body, f := w.intake(id, parts...)
	if id.Place() == segment.InTable {
		check(w.t, w.table.PutSmall(w.t.Context(), id, body))
	} else {
		check(w.t, w.bucket.Put(w.t.Context(), segment.IntakeName(id), body))
	}
	return f
}

// commit commits a segment to a lane, and spills as a producer does.
func (w *world) commit(lane metadata.LaneID, id segment.ID, f segment.Footer) error {
	w.t.Helper()
	h, err := w.commitAll(lane, entryOf(lane, id, f))
	if err == nil && h.Next-h.First >= h.K {
		w.spill(lane)
	}
	return err
}

func entryOf(lane metadata.LaneID, id segment.ID, f segment.Footer) metadata.Entry {
	e := metadata.Entry{ID: id}
	for _, x := range f.Extents {
		if x.Lane != string(lane) {
			continue
		}
		if len(e.Slots) == 0 {
			e.Start = x.Offset
		}
		e.Slots = append(e.Slots, metadata.SlotEntry{Slot: metadata.Slot(x.Slot), Count: int32(x.Count), Bytes: int32(x.Length), MaxTime: metadata.IndexTime(x.MaxTime, id)})
	}
	return e
}

func (w *world) commitAll(lane metadata.LaneID, entries ...metadata.Entry) (*metadata.Head, error) {
	w.t.Helper()
	h := w.head(lane)
	return w.table.Commit(w.t.Context(), metadata.Commit{Lane: lane, Entries: entries, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, len(entries))})
}

func (w *world) spill(lane metadata.LaneID) {
	w.t.Helper()
	h := w.head(lane)
	var before metadata.Offsets
	if h.First > 0 {
		c, err := w.table.Chunk(w.t.Context(), lane, h.First-h.K, metadata.Strong)
		check(w.t, err)
		before = c.MaxTimes
	}
	plan := metadata.PlanSpill(h, before)
	for _, c := range plan.Chunks {
		check(w.t, w.table.PutChunk(w.t.Context(), c))
	}
	_, err := w.table.Trim(w.t.Context(), lane, plan.From, plan.To, plan.IDs)
	check(w.t, err)
}

// produce uploads one segment now and commits it to the lanes of all its parts.
func (w *world) produce(parts ...part) segment.ID { return w.produceIn(segment.InBucket, parts...) }

func (w *world) produceIn(place segment.Place, parts ...part) segment.ID {
	w.t.Helper()
	id := w.id(time.Now(), place)
	f := w.upload(id, parts...)
	var last metadata.LaneID
	for _, p := range parts {
		if lane := p.topic.Place(p.partition).Lane; lane != last {
			check(w.t, w.commit(lane, id, f))
			last = lane
		}
	}
	return id
}

// fill makes n segments, a second apart, of one record for each part.
func (w *world) fill(n int, parts ...part) (ids []segment.ID) {
	w.t.Helper()
	for range n {
		ids = append(ids, w.produce(parts...))
		time.Sleep(time.Second)
	}
	return ids
}

// fillChunks is fill of a partition, where a chunk's segments are committed at once: as if as many producers had come together.
func (w *world) fillChunks(n int, p part) {
	w.t.Helper()
	lane := p.topic.Place(p.partition).Lane
	for n > 0 {
		var entries []metadata.Entry
		for ; n > 0 && len(entries) < metadata.ChunkOrders; n-- {
			id := w.id(time.Now(), segment.InBucket)
			entries = append(entries, entryOf(lane, id, w.upload(id, p)))
			time.Sleep(time.Second)
		}
		h, err := w.commitAll(lane, entries...)
		check(w.t, err)
		if h.Next-h.First >= h.K {
			w.spill(lane)
		}
	}
}

func (w *world) head(lane metadata.LaneID) *metadata.Head {
	w.t.Helper()
	h, err := w.table.Head(w.t.Context(), lane, metadata.Strong)
	check(w.t, err)
	return h
}

func (w *world) state(lane metadata.LaneID) *metadata.State {
	w.t.Helper()
	s, err := w.table.State(w.t.Context(), lane, metadata.Strong)
	check(w.t, err)
	return s
}

func (w *world) chunks(lane metadata.LaneID, from, to int64) []*metadata.Chunk {
	w.t.Helper()
	list, _, err := w.table.Chunks(w.t.Context(), lane, from, to, 1000, metadata.Strong)
	check(w.t, err)
	return list
}

// compaction is the archive segment of all whole chunks of a lane that are not archived, written and not published.
func (w *world) compaction(t *metadata.Topic, lane metadata.LaneID) *metadata.Publication {
	w.t.Helper()
	state := w.state(lane)
	list := w.chunks(lane, state.Archived, w.head(lane).First)
	if len(list) == 0 {
		w.t.Fatal("nothing to compact")
	}
	last := list[len(list)-1]
	p := &metadata.Publication{Lane: lane, ID: w.id(time.Now(), segment.Archived), From: state.Archived, To: last.First + metadata.ChunkOrders, Ends: map[metadata.Slot]int64{}}
	b := segment.NewBuilder(segment.Archive, w.log)
	ends := last.Ends()
	for slot, base := range list[0].Bases {
		at := metadata.Place{Lane: lane, Slot: metadata.Slot(slot)}
		partition, ok := t.Partition(at)
		if !ok || base == ends[slot] {
			continue
		}
		e := segment.ExtentMeta{Lane: string(lane), Slot: uint8(slot), Topic: t.ID, Partition: int32(partition), BaseOffset: base, EndOffset: ends[slot]}
		w.add(b, e, time.Now(), int(ends[slot]-base))
		p.Put = append(p.Put, metadata.Row{Topic: t.ID, Partition: partition, Base: base, End: ends[slot]})
		p.Ends[at.Slot] = ends[slot]
	}
	w.write(t, b, p)
	return p
}

// write puts a publication's segment and completes its rows.
func (w *world) write(t *metadata.Topic, b *segment.Builder, p *metadata.Publication) {
	w.t.Helper()
	body, f, err := b.Finish()
	check(w.t, err)
	for i := range p.Put {
		r, x := &p.Put[i], &f.Extents[i]
		r.Segment, r.Count, r.Start, r.Bytes, r.MaxTime, r.RunMax = p.ID, x.Count, x.Offset, x.Length, x.MaxTime, x.MaxTime
		r.First, r.Last = time.Now(), time.Now()
	}
	check(w.t, w.bucket.Put(w.t.Context(), segment.ArchiveName(t.ID, p.ID), body))
}

func (w *world) publish(p *metadata.Publication) {
	w.t.Helper()
	check(w.t, w.table.Publish(w.t.Context(), p))
}

func (w *world) compact(t *metadata.Topic, lane metadata.LaneID) *metadata.Publication {
	w.t.Helper()
	p := w.compaction(t, lane)
	w.publish(p)
	return p
}

// merge replaces rows by one of a new segment.
func (w *world) merge(t *metadata.Topic, rows ...metadata.Row) *metadata.Publication {
	w.t.Helper()
	at := t.Place(rows[0].Partition)
	state := w.state(at.Lane)
	first, last := rows[0], rows[len(rows)-1]
	p := &metadata.Publication{Lane: at.Lane, ID: w.id(time.Now(), segment.Archived), From: state.Archived, To: state.Archived, Replace: rows}
	for _, r := range rows {
		if !slices.Contains(p.Left, r.Segment) {
			p.Left = append(p.Left, r.Segment)
		}
	}
	b := segment.NewBuilder(segment.Archive, w.log)
	w.add(b, segment.ExtentMeta{Lane: string(at.Lane), Slot: uint8(at.Slot), Topic: t.ID, Partition: int32(first.Partition), BaseOffset: first.Base, EndOffset: last.End}, time.Now(), int(last.End-first.Base))
	p.Put = []metadata.Row{{Topic: t.ID, Partition: first.Partition, Base: first.Base, End: last.End}}
	w.write(t, b, p)
	w.publish(p)
	return p
}

func (w *world) rows(t *metadata.Topic, partition int) (all []metadata.Row) {
	w.t.Helper()
	rows, _, err := w.table.Rows(w.t.Context(), t.ID, partition, 0, 1<<60, 1000, metadata.Strong)
	check(w.t, err)
	for _, r := range rows {
		all = append(all, *r)
	}
	return all
}

func (w *world) start(t *metadata.Topic, partition int, start int64) {
	w.t.Helper()
	at := t.Place(partition)
	_, err := w.table.SetStart(w.t.Context(), at.Lane, at.Slot, start)
	check(w.t, err)
}

// sound checks that nothing is named that is not there: of every topic, rows from the log start to the archived offset without gaps, chunks from the archived
// order to the head, and the segments of both.
func (w *world) sound() {
	w.t.Helper()
	list, _, err := w.table.Topics(w.t.Context(), "", 1000)
	check(w.t, err)
	for _, t := range list {
		for _, lane := range t.Lanes {
			state, head := w.state(lane), w.head(lane)
			next := max(state.Archived, state.First)
			for _, c := range w.chunks(lane, next, head.First) {
				if c.First != next {
					w.t.Errorf("%s: chunk %d is missing", t.Name, next)
				}
				next = c.First + head.K
				w.present(t, c.Entries, c.Bases, state)
			}
			if next != head.First {
				w.t.Errorf("%s: chunks end at order %d, the head begins at %d", t.Name, next, head.First)
			}
			if head.First > 0 {
				if _, err := w.table.Chunk(w.t.Context(), lane, head.First-head.K, metadata.Strong); err != nil {
					w.t.Errorf("%s: the newest chunk: %v", t.Name, err)
				}
			}
			if len(head.Entries) > 0 {
				w.present(t, head.Entries, metadata.Bases(head.Entries, head.Ends)[0], state)
			}
		}
		for p := range t.Partitions {
			w.archived(t, p)
		}
	}
}

// present checks that the segments of entries are there which have something above the log start.
func (w *world) present(t *metadata.Topic, entries []metadata.Entry, ends metadata.Offsets, state *metadata.State) {
	w.t.Helper()
	for i := range entries {
		needed := false
		for _, s := range entries[i].Slots {
			ends[s.Slot] += int64(s.Count)
			needed = needed || s.Count > 0 && ends[s.Slot] > state.Starts[s.Slot]
		}
		if needed && !w.has(entries[i].ID) {
			w.t.Errorf("%s: order %d names %s, which is not there", t.Name, entries[i].Order, entries[i].ID)
		}
	}
}

// has tells whether an intake segment is there.
func (w *world) has(id segment.ID) bool {
	w.t.Helper()
	if id.Place() != segment.InTable {
		return w.there(segment.IntakeName(id))
	}
	_, err := w.table.Small(w.t.Context(), id)
	if err != nil && !errors.Is(err, metadata.ErrNoSegment) {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) archived(t *metadata.Topic, partition int) {
	w.t.Helper()
	at := t.Place(partition)
	state := w.state(at.Lane)
	next := state.Starts[at.Slot]
	for _, r := range w.rows(t, partition) {
		if r.End <= next {
			continue
		}
		if r.Base > next {
			w.t.Errorf("%s/%d: no row has the offsets [%d, %d)", t.Name, partition, next, r.Base)
		}
		next = r.End
		if r.Count > 0 && !w.there(segment.ArchiveName(t.ID, r.Segment)) {
			w.t.Errorf("%s/%d: row %d names %s, which is not there", t.Name, partition, r.Base, r.Segment)
		}
	}
	if next < state.Ends[at.Slot] {
		w.t.Errorf("%s/%d: rows end at %d, archived are %d", t.Name, partition, next, state.Ends[at.Slot])
	}
}

// intakeLines are the Deletion lines of intake segments.
func intakeLines(ids ...segment.ID) (lines []string) {
	for _, id := range ids {
		if id.Place() == segment.InTable {
			lines = append(lines, fmt.Sprintf("%s %s", Small, metadata.SmallKey(id)))
		} else {
			lines = append(lines, fmt.Sprintf("%s %s", Object, segment.IntakeName(id)))
		}
	}
	slices.Sort(lines)
	return lines
}

// want compares what was deleted with what should be.
func want(t *testing.T, got []string, lists ...[]string) {
	t.Helper()
	all := slices.Concat(lists...)
	slices.Sort(all)
	if !slices.Equal(got, all) {
		t.Errorf("deleted\n%q\nwant\n%q", got, all)
	}
}

func chunkLines(lane metadata.LaneID, firsts ...int64) (lines []string) {
	for _, f := range firsts {
		lines = append(lines, fmt.Sprintf("%s %s", Chunk, metadata.ChunkKey(lane, f)))
	}
	return lines
}

func entryLine(id segment.ID) []string {
	return []string{fmt.Sprintf("%s %s", Replaced, metadata.ReplacedKey(id))}
}

func archiveLine(t *metadata.Topic, id segment.ID) []string {
	return []string{fmt.Sprintf("%s %s", Object, segment.ArchiveName(t.ID, id))}
}

func asStale(err error, stale **metadata.StaleError) bool { return errors.As(err, stale) }

// keys are the keys of all items of the table.
func (w *world) keys() (all []string) {
	w.t.Helper()
	out, err := w.raw.Scan(w.t.Context(), &client.ScanInput{TableName: aws.String("varve"), ConsistentRead: aws.Bool(true)})
	check(w.t, err)
	for _, it := range out.Items {
		all = append(all, it["pk"].(*types.AttributeValueMemberS).Value+"|"+it["sk"].(*types.AttributeValueMemberS).Value)
	}
	slices.Sort(all)
	return all
}

// spoil makes an item unreadable.
func (w *world) spoil(k metadata.Key, attr string) {
	w.t.Helper()
	_, err := w.raw.UpdateItem(w.t.Context(), &client.UpdateItemInput{TableName: aws.String("varve"), Key: w.key(k), UpdateExpression: aws.String("SET #a = :v"),
		ExpressionAttributeNames: map[string]string{"#a": attr}, ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberNULL{Value: true}}})
	check(w.t, err)
}

// lose removes an item.
func (w *world) lose(k metadata.Key) {
	w.t.Helper()
	_, err := w.raw.DeleteItem(w.t.Context(), &client.DeleteItemInput{TableName: aws.String("varve"), Key: w.key(k)})
	check(w.t, err)
}

func (w *world) key(k metadata.Key) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: k.PK}, "sk": &types.AttributeValueMemberS{Value: k.SK}}
}
