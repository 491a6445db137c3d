package repair_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/repair"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a log whose table can be put back to an earlier moment under all who use it: the engine is another from one request to the next.
type world struct {
	testing.TB
	env     env.Env
	engine  atomic.Pointer[dynamodb.Engine]
	objects *mem.Store
	faulty  *fault.Store
	log     *sdk.Log // a reader's and an administrator's, whose requests meet no faults
	proof   string   // file

	mu      sync.Mutex
	onTable func(dynamodb.Call) dynamodb.Fault // befalls the repair's requests
	onStore func(fault.Call) fault.Fault
	acks    []ack
	gone    map[string]bool // values that need not come back
	n       int
}

// ack is a record, and the offset that its producer was told.
type ack struct {
	topic     string
	partition int
	offset    int64
	value     string
}

// Do answers a request by the table of the moment.
func (w *world) Do(r *http.Request) (*http.Response, error) { return w.engine.Load().Do(r) }

// Schemes and Open make it the driver of mem://.
func (w *world) Schemes() []string { return []string{"mem"} }

func (w *world) Open(ctx context.Context, _ *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	table := w.adapter(o.Env)
	return sdk.Backend{Table: table, Store: w.objects, Bucket: "bucket"}, table.EnsureTable(ctx)
}

func (w *world) config() aws.Config {
	return aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: w, BaseEndpoint: aws.String("http://engine")}
}

func (w *world) adapter(e env.Env) *dynamo.Table {
	t, err := dynamo.Open(dynamo.Config{AWS: w.config(), TableName: "varve", Env: e})
	check(w, err)
	return t
}

func (w *world) newEngine() *dynamodb.Engine {
	engine, err := dynamodb.New(dynamodb.Options{Hook: func(ctx context.Context, c dynamodb.Call) dynamodb.Fault {
		if ctx.Value(marked{}) == nil {
			return dynamodb.Fault{}
		}
		w.mu.Lock()
		do := w.onTable
		w.mu.Unlock()
		if do == nil {
			return dynamodb.Fault{}
		}
		return do(c)
	}})
	check(w, err)
	w.Cleanup(func() {
		synctest.Wait() // for those who are still spilling
		check(w, engine.Close())
	})
	return engine
}

// marked is in the context of a repair.
type marked struct{}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, env: env.System(), objects: mem.New()}
	w.engine.Store(w.newEngine())
	w.faulty = fault.New(w.objects, w.env, func(c fault.Call) fault.Fault {
		w.mu.Lock()
		do := w.onStore
		w.mu.Unlock()
		if do == nil {
			return fault.Fault{}
		}
		return do(c)
	})
	t.Cleanup(func() { w.faulty.Close() })
	w.log = w.open()
	return w
}

func (w *world) open() *sdk.Log {
	w.Helper()
	log, err := sdk.Open(w.Context(), "mem://", sdk.WithDriver(w), sdk.WithCreateTable())
	check(w, err)
	w.Cleanup(func() { log.Close() })
	return log
}

// lose leaves nothing of the table, and opens the log for its repair.
func (w *world) lose() {
	w.Helper()
	w.putBack(w.newEngine())
	w.log.Close()
	if _, err := sdk.Open(w.Context(), "mem://", sdk.WithDriver(w), sdk.WithCreateTable()); !errors.Is(err, sdk.ErrWrongLog) {
		w.Errorf("a lost table: %v", err)
	}
	log, err := sdk.Open(w.Context(), "mem://", sdk.WithDriver(w), sdk.WithLostTable())
	check(w, err)
	check(w, log.Close())
}

func (w *world) reopen() {
	w.Helper()
	w.log.Close()
	w.log = w.open()
}

func (w *world) create(topic string, partitions, width int) {
	w.Helper()
	_, err := w.log.Admin().CreateTopic(w.Context(), sdk.NewTopic{Name: topic, Partitions: partitions, LaneWidth: width})
	check(w, err)
}

// writer is a process that appends.
type writer struct {
	*world
	p *sdk.Producer
}

func (w *world) writer(opts ...sdk.ProducerOption) *writer {
	p, err := w.open().NewProducer(append(opts, sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))...)
	check(w, err)
	return &writer{w, p}
}

// minutes writes to a topic of two partitions once a minute, so many times.
func (w *writer) minutes(topic string, n int) {
	w.Helper()
	for range n {
		w.write(topic, 2)
		time.Sleep(minute)
	}
}

// write appends one record to each of the topic's partitions, and waits for the answers.
func (w *writer) write(topic string, partitions int) {
	w.Helper()
	var all sync.WaitGroup
	for partition := range partitions {
		w.mu.Lock()
		w.n++
		value := fmt.Sprintf("%s/%d/%d", topic, partition, w.n)
		w.mu.Unlock()
		all.Add(1)
		w.p.Produce(w.Context(), &sdk.Record{Topic: topic, Partition: partition, Value: []byte(value)}, func(r *sdk.Record, err error) {
			defer all.Done()
			if err != nil {
				w.Errorf("record %s: %v", value, err)
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.acks = append(w.acks, ack{topic, partition, r.Offset, value})
		})
	}
	all.Wait()
}

// snapshot is a copy of the table, made between two requests of whoever writes.
func (w *world) snapshot() *dynamodb.Engine {
	w.Helper()
	to := w.newEngine()
	config := w.config()
	config.HTTPClient = to
	copied, err := dynamo.Open(dynamo.Config{AWS: config, TableName: "varve", Env: w.env})
	check(w, err)
	check(w, copied.EnsureTable(w.Context()))
	for _, it := range w.scan() {
		_, err := client.NewFromConfig(config).PutItem(w.Context(), &client.PutItemInput{TableName: aws.String("varve"), Item: it})
		check(w, err)
	}
	return to
}

// copied is a copy of the table, and how to repair a log whose table is put back to it.
func (w *world) copied() (repair.Options, *dynamodb.Engine) {
	w.Helper()
	o := w.options()
	o.Back = w.env.Now()
	time.Sleep(time.Second)
	return o, w.snapshot()
}

// scan are all items of the table.
func (w *world) scan() []map[string]types.AttributeValue {
	w.Helper()
	items, err := client.NewFromConfig(w.config()).Scan(w.Context(), &client.ScanInput{TableName: aws.String("varve"), ConsistentRead: aws.Bool(true)})
	check(w, err)
	if len(items.LastEvaluatedKey) > 0 {
		w.Fatal("the table is larger than a page")
	}
	return items.Items
}

func (w *world) compact(topics ...string) {
	w.Helper()
	_, err := compact.Run(w.Context(), w.adapter(w.env), w.objects, compact.Options{Topics: topics, All: true, Env: w.env})
	check(w, err)
}

func (w *world) options() repair.Options { return repair.Options{Env: w.env} }

// repair repairs by requests that meet the world's faults.
func (w *world) repair(o repair.Options) (*repair.Report, error) {
	ctx := context.WithValue(w.Context(), marked{}, true)
	return repair.Run(ctx, w.adapter(o.Env), w.faulty, o)
}

func (w *world) mustRepair(o repair.Options) *repair.Report {
	w.Helper()
	report, err := w.repair(o)
	check(w, err)
	return report
}

// read reads a topic from the log starts to the ends, by value.
func (w *world) read(topic string) map[string]sdk.Record {
	w.Helper()
	r, err := w.log.NewReader(w.Context(), topic, sdk.From(sdk.Earliest), sdk.To(sdk.Latest))
	check(w, err)
	defer r.Close()
	all := map[string]sdk.Record{}
	for {
		fetches, err := r.Poll(w.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		check(w, err)
		for _, f := range fetches {
			for _, record := range f.Records {
				if old, twice := all[string(record.Value)]; twice {
					w.Errorf("record %s is at offsets %d and %d", record.Value, old.Offset, record.Offset)
				}
				all[string(record.Value)] = record
			}
		}
	}
}

// at is what a reader is told that begins at an offset.
func (w *world) at(topic string, partition int, offset int64) (*sdk.Record, error) {
	w.Helper()
	r, err := w.log.NewReader(w.Context(), topic, sdk.ReadPartitions(partition), sdk.FromOffsets(map[int]int64{partition: offset}), sdk.To(sdk.Latest))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	fetches, err := r.Poll(w.Context())
	if err != nil {
		return nil, err
	}
	return &fetches[0].Records[0], nil
}

func (w *world) sound(topic string) (kept, moved int) {
	w.Helper()
	return w.soundAs(topic, topic)
}

// soundAs checks what was promised: every record that was acknowledged is there once, and at its offset is it, or nothing. The topic may have another name by now.
func (w *world) soundAs(was, topic string) (kept, moved int) {
	w.Helper()
	w.mu.Lock()
	acks := slices.Clone(w.acks)
	w.mu.Unlock()
	now := w.read(topic)
	sent := 0
	for _, a := range acks {
		if a.topic != was && a.topic != topic {
			continue
		}
		sent++
		r, ok := now[a.value]
		if !ok {
			if !w.gone[a.value] {
				w.Errorf("record %s, which was acknowledged at offset %d, is gone", a.value, a.offset)
			}
		}
		got, err := w.at(topic, a.partition, a.offset)
		var outside *sdk.RangeError
		switch {
		case err == nil && got.Offset == a.offset && string(got.Value) == a.value:
			kept++
		case errors.As(err, &outside) && outside.Err == sdk.ErrRewritten && outside.CutFrom <= a.offset && a.offset < outside.CutTo && outside.CutTo <= outside.End:
			moved++
		default:
			w.Errorf("record %s was acknowledged at %d/%d and is at offset %d; a reader that begins there gets %+v, %v", a.value, a.partition, a.offset, r.Offset, got, err)
		}
	}
	if sent < len(now) {
		w.Errorf("%d records, %d were acknowledged", len(now), sent)
	}
	return kept, moved
}

// all checks that every record that was acknowledged is there, and once.
func (w *world) all(topic string) {
	w.Helper()
	now := w.read(topic)
	for _, a := range w.acks {
		if _, ok := now[a.value]; !ok {
			w.Errorf("record %s, which was acknowledged at offset %d, is gone", a.value, a.offset)
		}
	}
	if len(now) != len(w.acks) {
		w.Errorf("%d records, %d were acknowledged", len(now), len(w.acks))
	}
}

// putBack proves the log as it is, and puts its table back.
func (w *world) putBack(old *dynamodb.Engine) {
	w.Helper()
	w.verify()
	w.engine.Store(old)
}

// verify compares with what was proven by the one before, as well.
func (w *world) verify() *verify.Report {
	w.Helper()
	if w.proof == "" {
		w.proof = filepath.Join(w.TempDir(), "proof")
	}
	report, err := verify.Run(w.Context(), w.shortcut(), w.objects, verify.Options{Proof: w.proof, All: true, Env: w.env})
	check(w, err)
	return report
}

// shortcut is a table that answers for those of 2*256 collections in which there is nothing now, so that a check or a sweep in a test is some 20 requests and not 500.
type shortcut struct {
	*dynamo.Table
	used map[string]bool
}

func (w *world) shortcut() *shortcut {
	w.Helper()
	s := &shortcut{w.adapter(w.env), map[string]bool{}}
	for _, item := range w.scan() {
		s.used[item["pk"].(*types.AttributeValueMemberS).Value] = true
	}
	return s
}

func (s *shortcut) Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) ([]*metadata.Replaced, bool, error) {
	if !s.used[metadata.ReplacedCollection(hash).PK] {
		return nil, false, nil
	}
	return s.Table.Replaced(ctx, hash, after, before, limit)
}

func (s *shortcut) SmallIDs(ctx context.Context, hash string, after, before segment.ID, limit int) ([]segment.ID, bool, error) {
	if !s.used[metadata.SmallCollection(hash).PK] {
		return nil, false, nil
	}
	return s.Table.SmallIDs(ctx, hash, after, before, limit)
}

// whole fails if verify finds damage.
func (w *world) whole() {
	w.Helper()
	report := w.verify()
	if !report.OK() {
		for _, f := range report.Findings {
			w.Errorf("%s: %s %s", f.Kind, f.What, f.Where())
		}
	}
}

func (w *world) kinds() map[verify.Kind]int {
	w.Helper()
	kinds := map[verify.Kind]int{}
	for _, f := range w.verify().Findings {
		kinds[f.Kind]++
	}
	return kinds
}

// heads are the heads of a topic.
func (w *world) heads(topic string) (heads []*metadata.Head) {
	w.Helper()
	table := w.adapter(w.env)
	t, err := table.Topic(w.Context(), topic)
	check(w, err)
	for _, l := range t.Lanes {
		h, err := table.Head(w.Context(), l, metadata.Strong)
		check(w, err)
		heads = append(heads, h)
	}
	return heads
}

const minute = time.Minute
