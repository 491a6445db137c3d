package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/mem"
)

// world is a log in memory, which verify sees through a lens that a test may bend.
type world struct {
	t     testing.TB
	env   env.Env
	log   *sdk.Log
	table *lens
	store *glass
	raw   *client.Client // past the adapter
	small int            // up to where produce keeps segments in the table
	ids   uint64
}

func newWorld(t testing.TB) *world {
	engine, err := dynamodb.New(dynamodb.Options{})
	check(t, err)
	w := &world{t: t, env: env.System(), store: &glass{Store: mem.New()}}
	config := aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: engine}
	w.raw = client.NewFromConfig(config)
	table, err := dynamo.Open(dynamo.Config{AWS: config, TableName: "varve", Env: w.env})
	check(t, err)
	check(t, table.EnsureTable(t.Context()))
	w.table = &lens{Table: table, hashes: &hashes{all: map[string]bool{}}}
	w.log, err = sdk.Open(t.Context(), "mem://", sdk.WithDriver(driver{sdk.Backend{Table: table, Store: w.store.Store, Bucket: "b", Prefix: "p"}}))
	check(t, err)
	t.Cleanup(func() {
		check(t, w.log.Close())
		check(t, engine.Close())
	})
	return w
}

type driver struct{ backend sdk.Backend }

func (driver) Schemes() []string { return []string{"mem"} }
func (d driver) Open(context.Context, *url.URL, sdk.DriverOptions) (sdk.Backend, error) {
	return d.backend, nil
}

// plain is the table as those see it who change it.
func (w *world) plain() *lens { return &lens{Table: w.table.Table, hashes: w.table.hashes} }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) topic(name string, partitions, lanes int) *metadata.Topic {
	w.t.Helper()
	_, err := w.log.Admin().CreateTopic(w.t.Context(), sdk.NewTopic{Name: name, Partitions: partitions, LaneWidth: (partitions + lanes - 1) / lanes})
	check(w.t, err)
	return w.row(name)
}

func (w *world) row(name string) *metadata.Topic {
	w.t.Helper()
	row, err := w.table.Table.Topic(w.t.Context(), name)
	check(w.t, err)
	return row
}

// produce makes commits, each of one record for every one of the places and of one segment.
func (w *world) produce(commits int, places ...place) {
	w.t.Helper()
	p, err := w.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithSmallSegments(w.small))
	check(w.t, err)
	for i := range commits {
		var records []*sdk.Record
		for _, at := range places {
			records = append(records, &sdk.Record{Topic: at.topic, Partition: at.partition, Key: []byte("key"), Value: bytes.Repeat([]byte{byte(i)}, 100)})
		}
		for _, r := range p.ProduceSync(w.t.Context(), records...) {
			check(w.t, r.Err)
		}
	}
	check(w.t, p.Close(w.t.Context()))
}

type place struct {
	topic     string
	partition int
}

func at(topic string, partitions ...int) (places []place) {
	for _, p := range partitions {
		places = append(places, place{topic, p})
	}
	return places
}

func (w *world) options() verify.Options { return verify.Options{Env: w.env} }

func (w *world) verify(o verify.Options) *verify.Report {
	w.t.Helper()
	report, err := verify.Run(w.t.Context(), w.table, w.store, o)
	check(w.t, err)
	return report
}

// head is the lane's head, past the lens.
func (w *world) head(lane metadata.LaneID) *metadata.Head {
	w.t.Helper()
	h, err := w.table.Table.Head(w.t.Context(), lane, metadata.Strong)
	check(w.t, err)
	return h
}

// entry is the entry of an order, past the lens.
func (w *world) entry(lane metadata.LaneID, order int64) metadata.Entry {
	w.t.Helper()
	if h := w.head(lane); order >= h.First {
		return h.Entries[order-h.First]
	}
	c, err := w.table.Table.Chunk(w.t.Context(), lane, metadata.ChunkOf(order, metadata.ChunkOrders), metadata.Strong)
	check(w.t, err)
	return c.Entries[order-c.First]
}

// object is the object of an order.
func (w *world) object(lane metadata.LaneID, order int64) string {
	return segment.IntakeName(w.entry(lane, order).ID)
}

func (w *world) body(name string) []byte {
	w.t.Helper()
	b, err := w.store.Store.Get(w.t.Context(), name, 0, -1, nil)
	check(w.t, err)
	return b
}

// spoil changes an attribute of an item.
func (w *world) spoil(k metadata.Key, attr string, v types.AttributeValue) {
	w.t.Helper()
	key := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: k.PK}, "sk": &types.AttributeValueMemberS{Value: k.SK}}
	out, err := w.raw.GetItem(w.t.Context(), &client.GetItemInput{TableName: aws.String("varve"), Key: key, ConsistentRead: aws.Bool(true)})
	check(w.t, err)
	if out.Item == nil {
		w.t.Fatalf("no item %s", k)
	}
	out.Item[attr] = v
	_, err = w.raw.PutItem(w.t.Context(), &client.PutItemInput{TableName: aws.String("varve"), Item: out.Item})
	check(w.t, err)
}

// lens is a table of which a test may change what is read, item by item.
type lens struct {
	metadata.Table
	head     func(*metadata.Head)
	chunk    func(*metadata.Chunk)
	state    func(*metadata.State)
	topic    func(*metadata.Topic)
	more     []*metadata.Chunk // are there too
	mark     metadata.EraMark  // if it has begun, that of the log
	lost     map[int64]bool    // chunks
	identity func(*metadata.Identity)
	floor    segment.ID
	small    bool // there may be small segments: else nobody is asked for them, 256 times in each of many checks
	row      func(*metadata.Row)
	moreRows []*metadata.Row       // are there too
	lostRows map[metadata.Key]bool // are not
	torn     []*metadata.Row       // the next answer with rows of that partition: some as they were, some as they are
	rowsPage int                   // if set, as many rows are in an answer at most
	hashes   *hashes               // of the work list, that have entries: others are not asked for, likewise
	before   func(call string)     // each call
}

func (l *lens) EraMark(ctx context.Context) (metadata.EraMark, error) {
	if l.mark.Begun > 0 {
		return l.mark, nil
	}
	return l.Table.EraMark(ctx)
}

func (l *lens) SmallIDs(ctx context.Context, hash string, after, before segment.ID, limit int) ([]segment.ID, bool, error) {
	if !l.small {
		return nil, false, nil
	}
	return l.Table.SmallIDs(ctx, hash, after, before, limit)
}

// hashes are those of ids.
type hashes struct {
	mu  sync.Mutex
	all map[string]bool
}

func (h *hashes) add(id segment.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[id.Hash()] = true
}

func (h *hashes) has(hash string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[hash]
}

// Publish notes where the work list has an entry.
func (l *lens) Publish(ctx context.Context, p *metadata.Publication) error {
	l.hashes.add(p.ID)
	return l.Table.Publish(ctx, p)
}

func (l *lens) Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) ([]*metadata.Replaced, bool, error) {
	if !l.hashes.has(hash) {
		return nil, false, nil
	}
	l.calling("Replaced")
	return l.Table.Replaced(ctx, hash, after, before, limit)
}

func (l *lens) Rows(ctx context.Context, topic segment.TopicID, partition int, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Row, bool, error) {
	l.calling("Rows")
	return l.rows(ctx, topic, partition, from, to, limit, c)
}

func (l *lens) rows(ctx context.Context, topic segment.TopicID, partition int, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Row, bool, error) {
	if t := l.torn; t != nil && t[0].Topic == topic && t[0].Partition == partition {
		l.torn = nil
		return t, false, nil
	}
	if l.rowsPage > 0 {
		limit = min(limit, l.rowsPage)
	}
	rows, more, err := l.Table.Rows(ctx, topic, partition, from, to, limit, c)
	rows = slices.DeleteFunc(rows, func(r *metadata.Row) bool { return l.lostRows[r.Key()] })
	for _, r := range l.moreRows {
		if r.Topic == topic && r.Partition == partition && r.Base >= from && r.Base < to {
			x := *r
			rows = append(rows, &x)
		}
	}
	slices.SortFunc(rows, func(a, b *metadata.Row) int { return int(a.Base - b.Base) })
	for _, r := range rows {
		if l.row != nil {
			l.row(r)
		}
	}
	return rows, more, err
}

func (l *lens) Row(ctx context.Context, topic segment.TopicID, partition int, offset int64, c metadata.Consistency) (*metadata.Row, error) {
	l.calling("Row")
	if l.row == nil && l.lostRows == nil && l.moreRows == nil {
		return l.Table.Row(ctx, topic, partition, offset, c)
	}
	rows, _, err := l.rows(ctx, topic, partition, 0, offset+1, 1000, c)
	if err == nil && len(rows) == 0 {
		return nil, metadata.ErrNoRow
	}
	if err != nil {
		return nil, err
	}
	return rows[len(rows)-1], nil
}

func (l *lens) calling(call string) {
	if l.before != nil {
		l.before(call)
	}
}

func (l *lens) Head(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	l.calling("Head")
	h, err := l.Table.Head(ctx, lane, c)
	if err == nil && l.head != nil {
		l.head(h)
	}
	return h, err
}

func (l *lens) State(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.State, error) {
	l.calling("State")
	s, err := l.Table.State(ctx, lane, c)
	if err == nil && l.state != nil {
		l.state(s)
	}
	return s, err
}

func (l *lens) Chunk(ctx context.Context, lane metadata.LaneID, first int64, c metadata.Consistency) (*metadata.Chunk, error) {
	l.calling("Chunk")
	chunk, err := l.Table.Chunk(ctx, lane, first, c)
	if err == nil && l.lost[first] {
		return nil, &metadata.Error{Op: "Chunk", Key: metadata.ChunkKey(lane, first).String(), Err: metadata.ErrNoChunk}
	}
	if err == nil && l.chunk != nil {
		l.chunk(chunk)
	}
	return chunk, err
}

func (l *lens) Chunks(ctx context.Context, lane metadata.LaneID, from, to int64, limit int, c metadata.Consistency) ([]*metadata.Chunk, bool, error) {
	l.calling("Chunks")
	chunks, more, err := l.Table.Chunks(ctx, lane, from, to, limit, c)
	chunks = slices.DeleteFunc(chunks, func(c *metadata.Chunk) bool { return l.lost[c.First] })
	for _, c := range l.more {
		if c.Lane == lane && c.First >= from && c.First < to {
			chunks = append(chunks, c)
		}
	}
	slices.SortFunc(chunks, func(a, b *metadata.Chunk) int { return int(a.First - b.First) })
	for _, c := range chunks {
		if l.chunk != nil {
			l.chunk(c)
		}
	}
	return chunks, more, err
}

func (l *lens) Topics(ctx context.Context, after string, limit int) ([]*metadata.Topic, bool, error) {
	l.calling("Topics")
	topics, more, err := l.Table.Topics(ctx, after, limit)
	for _, t := range topics {
		if l.topic != nil {
			l.topic(t)
		}
	}
	return topics, more, err
}

func (l *lens) Topic(ctx context.Context, name string) (*metadata.Topic, error) {
	l.calling("Topic")
	t, err := l.Table.Topic(ctx, name)
	if err == nil && l.topic != nil {
		l.topic(t)
	}
	return t, err
}

func (l *lens) Identity(ctx context.Context) (metadata.Identity, bool, error) {
	l.calling("Identity")
	id, ok, err := l.Table.Identity(ctx)
	if err == nil && l.identity != nil {
		l.identity(&id)
	}
	return id, ok, err
}

func (l *lens) Floor(ctx context.Context) (segment.ID, error) {
	l.calling("Floor")
	floor, err := l.Table.Floor(ctx)
	if !l.floor.IsZero() {
		floor = l.floor
	}
	return floor, err
}

// glass is a store of which a test may change what is read.
type glass struct {
	store.Store
	mu     sync.Mutex
	bodies map[string][]byte // instead of what is there; nil: nothing is
	before func(call string)
}

func (g *glass) calling(call string) {
	if g.before != nil {
		g.before(call)
	}
}

// show puts a body in place of an object's; nil is none.
func (g *glass) show(name string, body []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bodies == nil {
		g.bodies = map[string][]byte{}
	}
	g.bodies[name] = body
}

func (g *glass) shown(name string) (body []byte, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	body, ok = g.bodies[name]
	return body, ok
}

func (g *glass) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	g.calling("Get")
	body, ok := g.shown(name)
	switch {
	case !ok:
		return g.Store.Get(ctx, name, off, n, dst)
	case body == nil:
		return nil, store.Fail(store.OpGet, name, store.ErrNotExist)
	}
	end, err := store.Range(off, n, int64(len(body)))
	if err != nil {
		return nil, store.Fail(store.OpGet, name, err)
	}
	return append(dst[:0], body[off:end]...), nil
}

func (g *glass) Stat(ctx context.Context, name string) (store.Info, error) {
	g.calling("Stat")
	body, ok := g.shown(name)
	switch {
	case !ok:
		return g.Store.Stat(ctx, name)
	case body == nil:
		return store.Info{}, store.Fail(store.OpStat, name, store.ErrNotExist)
	}
	return store.Info{Name: name, Size: int64(len(body))}, nil
}

func (g *glass) List(ctx context.Context, prefix, after string, max int) (store.Page, error) {
	g.calling("List")
	return g.Store.List(ctx, prefix, after, max)
}

// kinds are the kinds found, with how often.
func kinds(r *verify.Report) map[verify.Kind]int {
	found := map[verify.Kind]int{}
	for _, f := range r.Findings {
		found[f.Kind]++
	}
	return found
}

// only is the one finding that is wanted.
func only(t testing.TB, r *verify.Report, want verify.Kind) verify.Finding {
	t.Helper()
	if len(r.Findings) != 1 || r.Findings[0].Kind != want {
		t.Fatalf("want %s once, found %s", want, describe(r))
	}
	return r.Findings[0]
}

func describe(r *verify.Report) string {
	s := fmt.Sprintf("%d findings", len(r.Findings))
	for i := range r.Findings {
		s += fmt.Sprintf("\n%s %s: %s (%s)", r.Findings[i].Severity, r.Findings[i].Kind, r.Findings[i].What, r.Findings[i].Where())
	}
	return s
}

// id is one made just now.
func (w *world) id(ago time.Duration) segment.ID {
	w.ids++
	return segment.NewID(w.env.Now().Add(-ago), 7, segment.InBucket, w.ids, segment.ID{})
}

// extra is a chunk of empty entries.
func (w *world) extra(lane metadata.LaneID, first int64) *metadata.Chunk {
	c := &metadata.Chunk{Lane: lane, First: first}
	for i := range int64(metadata.ChunkOrders) {
		c.Entries = append(c.Entries, metadata.Entry{ID: w.id(0), Order: first + i, Empty: true})
	}
	return c
}

// maxima are those of the chunk at first.
func (w *world) maxima(lane metadata.LaneID, first int64) metadata.Offsets {
	w.t.Helper()
	c, err := w.table.Table.Chunk(w.t.Context(), lane, first, metadata.Strong)
	check(w.t, err)
	return c.MaxTimes
}

// large makes one segment of n uncompressed records for each place, and returns its name.
func (w *world) large(n, size int, places ...place) string {
	w.t.Helper()
	p, err := w.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithCompression(segment.None), sdk.WithSegmentBytes(64<<20), sdk.WithBufferBytes(256<<20), sdk.WithLinger(time.Minute, time.Minute))
	check(w.t, err)
	var records []*sdk.Record
	for i := range n {
		for _, at := range places {
			records = append(records, &sdk.Record{Topic: at.topic, Partition: at.partition, Value: bytes.Repeat([]byte{byte(i)}, size)})
		}
	}
	for _, r := range p.ProduceSync(w.t.Context(), records...) {
		check(w.t, r.Err)
	}
	check(w.t, p.Close(w.t.Context()))
	lane := w.row(places[0].topic).Lanes[0]
	if h := w.head(lane); h.Next != 1 {
		w.t.Fatalf("%d commits", h.Next)
	}
	return w.object(lane, 0)
}
