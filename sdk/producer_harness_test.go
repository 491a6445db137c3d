package sdk_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// world is one log in memory with faults to order, on the real adapters: the DynamoDB engine through the AWS SDK, and a store.
type world struct {
	t       testing.TB
	memory  *embedded.Memory
	objects *fault.Store
	puts    atomic.Pointer[func(fault.Call) fault.Fault]
	calls   atomic.Pointer[func(context.Context, dynamodb.Call) dynamodb.Fault]
	view    sdk.Backend // of the judge, who goes to table and store by himself
	largest int         // records in the largest batch that the judge has seen
}

func newWorld(t testing.TB) *world {
	w := &world{t: t}
	w.objects = fault.New(mem.New(), env.System(), func(c fault.Call) fault.Fault {
		if f := w.puts.Load(); f != nil && c.Op == store.OpPut && c.Name != segment.IdentityName {
			return (*f)(c)
		}
		return fault.Fault{}
	})
	var err error
	w.memory, err = embedded.NewMemory(embedded.MemoryOptions{Objects: w.objects, Engine: dynamodb.Options{
		Hook: func(ctx context.Context, c dynamodb.Call) dynamodb.Fault {
			if f := w.calls.Load(); f != nil && ctx.Value(judging{}) == nil {
				return (*f)(ctx, c)
			}
			return dynamodb.Fault{}
		},
	}})
	w.must(err)
	w.view, err = w.memory.Open(context.Background(), &url.URL{Scheme: "mem"}, sdk.DriverOptions{Env: env.System(), OnTable: func(metadata.Call) {}, OnStore: func(store.Call) {}})
	w.must(err)
	t.Cleanup(func() {
		w.heal()
		w.objects.Close()
		w.must(w.memory.Close())
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// onPut says what happens to every put of a segment from now on; onCall what happens to every call to the table.
func (w *world) onPut(f func(fault.Call) fault.Fault) { w.puts.Store(&f) }
func (w *world) onCall(f func(context.Context, dynamodb.Call) dynamodb.Fault) {
	w.calls.Store(&f)
}

// heal ends all faults.
func (w *world) heal() {
	w.puts.Store(nil)
	w.calls.Store(nil)
}

// open opens the log as one more process would.
func (w *world) open(opts ...sdk.Option) *sdk.Log {
	w.t.Helper()
	log, err := sdk.Open(context.Background(), "mem://", append([]sdk.Option{sdk.WithDriver(w.memory)}, opts...)...)
	w.must(err)
	return log
}

func (w *world) create(log *sdk.Log, t sdk.NewTopic) {
	w.t.Helper()
	_, err := log.Admin().CreateTopic(context.Background(), t)
	w.must(err)
}

func (w *world) producer(log *sdk.Log, opts ...sdk.ProducerOption) *sdk.Producer {
	w.t.Helper()
	p, err := reach(w.t, log, nil).NewProducer(opts...)
	w.must(err)
	return p
}

// isCommit tells whether a call to the table is a commit: the one update of a head that brings bytes, its entries.
func isCommit(c dynamodb.Call) bool {
	return c.Op == "UpdateItem" && len(c.Keys) == 1 && c.Keys[0].Sort == "HEAD" && bytes.Contains(c.Body, []byte(`{"B":`))
}

// judging marks the requests of the judge, which no fault befalls.
type judging struct{}

var judge = context.WithValue(context.Background(), judging{}, true)

// contents is what a dumb reader finds in a topic: per partition, all records in the order of the index. It knows the index
// by itself and shares with the log's own reader only the codecs.
func (w *world) contents(topic string) [][]segment.Record {
	w.t.Helper()
	row, err := w.view.Table.Topic(judge, topic)
	w.must(err)
	all := make([][]segment.Record, row.Partitions)
	for _, lane := range row.Lanes {
		head, err := w.view.Table.Head(judge, lane, metadata.Strong)
		w.must(err)
		var next metadata.Offsets
		for _, e := range w.entries(head) {
			at := e.Start
			for _, s := range e.Slots {
				p, ok := row.Partition(metadata.Place{Lane: lane, Slot: s.Slot})
				if !ok {
					w.t.Fatalf("entry of slot %d, which is no partition", s.Slot)
				}
				if s.Count > 0 {
					all[p] = append(all[p], w.records(e.ID, at, s, next[s.Slot])...)
				}
				at += int64(s.Bytes)
				next[s.Slot] += int64(s.Count)
			}
		}
		if next != head.Ends {
			w.t.Fatalf("lane %s: entries lead to ends %v, the head says %v", lane, next, head.Ends)
		}
	}
	return all
}

// entries are all entries of a lane by order.
func (w *world) entries(head *metadata.Head) (all []metadata.Entry) {
	w.t.Helper()
	for from := int64(0); from < head.First; from += head.K {
		c, err := w.view.Table.Chunk(judge, head.Lane, from, metadata.Strong)
		w.must(err)
		all = append(all, c.Entries...)
	}
	return append(all, head.Entries...)
}

// records reads one extent, in which each batch must follow the one before.
func (w *world) records(id segment.ID, at int64, s metadata.SlotEntry, base int64) (records []segment.Record) {
	w.t.Helper()
	b, err := objects.NewReader(w.view.Store, w.view.Table).Get(judge, objects.Of("", id), at, int64(s.Bytes), nil)
	w.must(err)
	var d segment.Decoder
	for len(b) > 0 {
		var batch []byte
		batch, b, err = segment.SplitBatch(b)
		w.must(err)
		got, err := d.Decode(batch, base, nil)
		w.must(err)
		w.largest = max(w.largest, len(got))
		records = append(records, got...)
	}
	if len(records) != int(s.Count) || records[0].Offset != base {
		w.t.Fatalf("segment %s slot %d: %d records from %d, the index says %d from %d", id, s.Slot, len(records), records[0].Offset, s.Count, base)
	}
	return records
}

// acks gathers what promises were told.
type acks struct {
	mu   sync.Mutex
	seen []ack
}

type ack struct {
	record *sdk.Record
	err    error
}

func (a *acks) promise(r *sdk.Record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, ack{r, err})
}

func (a *acks) list() []ack {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// verify checks every acknowledgement against the log: each record is at exactly the offset it was told, and each
// offset was told once. It returns how many records were acknowledged.
func (w *world) verify(topic string, seen []ack) (acknowledged int) {
	w.t.Helper()
	all := w.contents(topic)
	taken := map[string]string{}
	for _, a := range seen {
		if a.err != nil {
			continue
		}
		acknowledged++
		r := a.record
		at := fmt.Sprintf("%d/%d", r.Partition, r.Offset)
		if other, ok := taken[at]; ok {
			w.t.Fatalf("partition/offset %s acknowledged for %q and for %q", at, other, r.Value)
		}
		taken[at] = string(r.Value)
		if r.Offset >= int64(len(all[r.Partition])) {
			w.t.Fatalf("%q acknowledged at %s, the partition ends at %d", r.Value, at, len(all[r.Partition]))
		}
		if got := all[r.Partition][r.Offset]; string(got.Value) != string(r.Value) || got.Offset != r.Offset {
			w.t.Fatalf("%q acknowledged at %s, where %q is", r.Value, at, got.Value)
		}
	}
	return acknowledged
}

// counter is a hook that counts requests.
type counter struct {
	mu    sync.Mutex
	count map[string]int
	units float64
}

func (c *counter) OnRequest(e sdk.RequestEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[string]int{}
	}
	c.count[e.Service+" "+e.Op] += e.Requests
	c.units += e.WriteUnits
}

// take returns the counts since the last take.
func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count
	c.count = nil
	return n
}

// takeUnits returns the write units since the last takeUnits.
func (c *counter) takeUnits() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.units
	c.units = 0
	return n
}

func rec(topic, value string) *sdk.Record { return &sdk.Record{Topic: topic, Value: []byte(value)} }

const ms = time.Millisecond

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
