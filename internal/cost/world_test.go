package cost_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/internal/cost"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// How long the services take in this world.
const (
	putTakes   = 30 * time.Millisecond
	getTakes   = 20 * time.Millisecond
	tableTakes = 5 * time.Millisecond
)

// world is a log in memory that counts what the services would bill: the units are the engine's own account, the requests those that reach the store. It is the
// driver of mem://, and every Open is another process.
type world struct {
	t       testing.TB
	engine  *dynamodb.Engine
	objects *fault.Store
	kept    *mem.Store // by objects
	chance  *rand.Rand

	mu         sync.Mutex
	puts, gets float64
	parts      map[string]float64 // of uploads under way
	produced   float64            // bytes of keys and values
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, chance: rand.New(rand.NewPCG(seed, 0)), parts: map[string]float64{}}
	var err error
	w.engine, err = dynamodb.New(dynamodb.Options{Hook: func(ctx context.Context, _ dynamodb.Call) dynamodb.Fault {
		select {
		case <-time.After(tableTakes):
		case <-ctx.Done():
		}
		return dynamodb.Fault{}
	}})
	w.must(err)
	w.kept = mem.New()
	w.objects = fault.New(w.kept, env.System(), w.requested)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.objects.Close()
	w.must(w.engine.Close())
}

// requested counts a request to the store as S3 bills it. An object of one part is one PUT (segment/store/s3), of more one for each, and two.
func (w *world) requested(c fault.Call) fault.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch c.Op {
	case store.OpPut, store.OpList:
		w.puts++
	case fault.OpPart:
		w.parts[c.Name]++
	case fault.OpComplete:
		if w.puts += w.parts[c.Name]; w.parts[c.Name] > 1 {
			w.puts += 2
		}
		delete(w.parts, c.Name)
	case store.OpGet, store.OpStat:
		w.gets++
		return fault.Fault{Delay: getTakes}
	}
	return fault.Fault{Delay: putTakes}
}

// billed is what was billed so far.
func (w *world) billed() cost.Usage {
	units := w.engine.Consumed()
	w.mu.Lock()
	defer w.mu.Unlock()
	return cost.Usage{Puts: w.puts, Gets: w.gets, WriteUnits: units.WriteUnits, ReadUnits: units.ReadUnits}
}

func (w *world) Schemes() []string { return []string{"mem"} }

func (w *world) Open(ctx context.Context, _ *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	table, err := dynamo.Open(dynamo.Config{AWS: aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: w.engine,
		BaseEndpoint: aws.String("http://engine")}, TableName: "varve", Env: o.Env, OnCall: o.OnTable})
	if err != nil {
		return sdk.Backend{}, err
	}
	return sdk.Backend{Table: table, Store: store.Observe(w.objects, o.Env, o.OnStore), Bucket: "bucket"}, table.EnsureTable(ctx)
}

// process opens the log as one more process.
func (w *world) process() *sdk.Log {
	w.t.Helper()
	log, err := sdk.Open(context.Background(), "mem://", sdk.WithDriver(w), sdk.WithEnv(w.env()))
	w.must(err)
	return log
}

func (w *world) env() env.Env {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := env.System()
	e.Rand = env.NewRand(w.chance.Uint64())
	return e
}

// meter is what was billed, and how many bytes were produced, between two calls of it.
func (w *world) meter() func() (cost.Usage, float64) {
	bytes := func() float64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.produced
	}
	before, already := w.billed(), bytes()
	return func() (cost.Usage, float64) {
		after := w.billed()
		return cost.Usage{Puts: after.Puts - before.Puts, Gets: after.Gets - before.Gets, WriteUnits: after.WriteUnits - before.WriteUnits, ReadUnits: after.ReadUnits - before.ReadUnits},
			bytes() - already
	}
}

// start makes the topic and lets real producers and readers work on it as the input says, until the returned function is called.
func (w *world) start(in cost.Input) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logs := []*sdk.Log{w.process()}
	t, err := logs[0].Admin().CreateTopic(ctx, sdk.NewTopic{Name: "t", Partitions: in.Partitions, LaneWidth: in.LaneWidth,
		Config: map[string]string{metadata.RetentionMs: fmt.Sprint(in.Retention.Milliseconds())}})
	w.must(err)
	w.sweptOnce(t, logs[0].Backend().Table)
	var all sync.WaitGroup
	for i := range in.Readers + in.Producers {
		log := w.process()
		logs = append(logs, log)
		if i < in.Readers {
			poll, stop := w.reader(ctx, log, in)
			all.Go(func() {
				for ctx.Err() == nil {
					if _, err := poll(ctx); err != nil && ctx.Err() == nil {
						w.t.Error(err)
						return
					}
				}
				stop()
			})
			continue
		}
		p, err := log.NewProducer(sdk.WithLinger(in.LingerFloor, in.Linger), sdk.WithSmallSegments(in.Small), sdk.WithCompression(segment.None), sdk.WithDeliveryDeadline(time.Hour))
		w.must(err)
		chance := rand.New(rand.NewPCG(w.env().Uint64(), 1))
		all.Go(func() { w.produce(ctx, p, in, chance) })
	}
	return func() {
		cancel()
		all.Wait()
		for _, log := range logs {
			w.must(log.Close())
		}
	}
}

// sweptOnce raises the floor, which heads have for good once there was a sweep.
func (w *world) sweptOnce(t *sdk.Topic, table metadata.Table) {
	w.t.Helper()
	row, err := table.Topic(context.Background(), t.Name)
	w.must(err)
	floor := segment.NewID(time.Now().Add(-time.Hour), row.Class(), segment.InBucket, 1, segment.ID{})
	w.must(table.RaiseFloor(context.Background(), floor))
	for _, lane := range row.Lanes {
		w.must(table.RaiseHeadFloor(context.Background(), lane, floor))
		w.must(table.RaiseStateFloor(context.Background(), lane, floor))
	}
}

// reader follows the topic, in a group of its own or in none.
func (w *world) reader(ctx context.Context, log *sdk.Log, in cost.Input) (poll func(context.Context) ([]sdk.Fetch, error), stop func()) {
	w.t.Helper()
	if !in.Group {
		r, err := log.NewReader(ctx, "t", sdk.From(sdk.Latest))
		w.must(err)
		return r.Poll, func() { r.Close() }
	}
	c, err := log.NewConsumer(ctx, fmt.Sprint("group", w.env().Uint64()), []string{"t"})
	w.must(err)
	return c.Poll, func() { c.Close(context.Background()) }
}

// produce sends records with random keys at random times, and closes the producer.
func (w *world) produce(ctx context.Context, p *sdk.Producer, in cost.Input, chance *rand.Rand) {
	every := float64(in.Producers) * in.Record / in.Rate * float64(time.Second)
	value := make([]byte, int(in.Record)-8)
	for next := time.Now(); ; {
		next = next.Add(time.Duration(chance.ExpFloat64() * every))
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			w.must(p.Close(context.Background()))
			return
		}
		w.mu.Lock()
		w.produced += in.Record
		w.mu.Unlock()
		p.Produce(ctx, &sdk.Record{Topic: "t", Key: binary.BigEndian.AppendUint64(nil, chance.Uint64()), Value: value}, func(_ *sdk.Record, err error) {
			if err != nil {
				w.t.Error(err)
			}
		})
	}
}
