package main

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/functions/schedule"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store/dir"
)

type options struct {
	playFor time.Duration
	rate    float64
	speed   int
	dir     string
}

// fast is a clock whose wall time runs ahead of the machine's.
type fast struct {
	env.Clock
	start time.Time
	speed int
}

func (f fast) Now() time.Time { return f.start.Add(f.Mono() * time.Duration(f.speed)) }

// driver opens the log in a directory, by a clock of its own.
type driver struct {
	engine *dynamodb.Engine
	path   string
}

func (driver) Schemes() []string { return []string{"file"} }

func (d driver) Open(ctx context.Context, _ *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	table, err := dynamo.Open(dynamo.Config{AWS: aws.Config{Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: d.engine, BaseEndpoint: aws.String("http://soak")},
		TableName: "varve", Env: o.Env})
	if err != nil {
		return sdk.Backend{}, err
	}
	objects, err := dir.Open(d.path, o.Env)
	if err != nil {
		return sdk.Backend{}, err
	}
	return sdk.Backend{Table: table, Store: objects, Bucket: "soak", Near: true}, table.EnsureTable(ctx)
}

const (
	topic      = "events"
	partitions = 16
	retention  = 24 * time.Hour
	valueBytes = 1 << 10
)

// soaking is one run.
type soaking struct {
	options
	env      env.Env
	log      *sdk.Log
	objects  string
	produced atomic.Int64 // records acknowledged
	read     atomic.Int64
	jobs     sync.Map // of name: *atomic.Int64, runs
	failed   chan error
}

// run plays, and says what has grown.
func run(ctx context.Context, o options) (grown []string, err error) {
	if hours := (o.playFor * time.Duration(o.speed)).Hours(); hours < leastSamples+1 {
		return nil, fmt.Errorf("%v at %d times the speed is %.1f hours of the log's, which tells nothing: play %d hours or more", o.playFor, o.speed, hours, leastSamples+1)
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "varve-soak"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(o.dir)
	}
	e := env.System()
	e.Clock = fast{e.Clock, e.Now(), o.speed}
	s := &soaking{options: o, env: e, objects: filepath.Join(o.dir, "objects"), failed: make(chan error, 8)}
	if err := os.MkdirAll(s.objects, 0o700); err != nil {
		return nil, err
	}
	engine, err := dynamodb.New(dynamodb.Options{Now: e.Now, File: filepath.Join(o.dir, "table.sqlite")})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	if s.log, err = sdk.Open(ctx, "file:///soak", sdk.WithDriver(driver{engine, s.objects}), sdk.WithEnv(e), sdk.WithCreateTable()); err != nil {
		return nil, err
	}
	defer s.log.Close()
	config := map[string]string{"retention.ms": strconv.FormatInt(retention.Milliseconds(), 10)}
	if _, err := s.log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: topic, Partitions: partitions, Config: config}); err != nil {
		return nil, err
	}
	return s.play(ctx)
}

func (s *soaking) play(ctx context.Context) ([]string, error) {
	playing, stop := s.env.WithTimeout(ctx, s.playFor)
	defer stop()
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{s.produce, s.follow} {
		parts.Go(func() {
			if err := part(playing); err != nil && playing.Err() == nil {
				s.failed <- err
				stop()
			}
		})
	}
	for _, j := range []struct {
		every time.Duration // of wall time
		do    schedule.Job
	}{{30 * time.Minute, schedule.Compact}, {time.Hour, schedule.Retain}, {4 * time.Hour, schedule.Sweep}} {
		parts.Go(func() {
			for s.env.Sleep(playing, s.env.Jitter(j.every/time.Duration(s.speed))) == nil {
				s.job(playing, j.do)
			}
		})
	}
	samples := s.watch(playing)
	parts.Wait()
	select {
	case err := <-s.failed:
		return nil, err
	default:
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return grownIn(samples), nil
}

// job does one job. What fails is told; the next run goes on.
func (s *soaking) job(ctx context.Context, do schedule.Job) {
	for _, e := range do(ctx, s.log.Backend(), s.env, 0) {
		runs, _ := s.jobs.LoadOrStore(e.Job, new(atomic.Int64))
		runs.(*atomic.Int64).Add(1)
		if e.Err != nil && ctx.Err() == nil {
			fmt.Printf("%s: %v\n", e.Job, e.Err)
		}
	}
}

func (s *soaking) produce(ctx context.Context) error {
	p, err := s.log.NewProducer(sdk.WithCompression(0))
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx))
	start, sent := s.env.Mono(), int64(0)
	value := make([]byte, valueBytes)
	told := func(_ *sdk.Record, err error) {
		if err == nil {
			s.produced.Add(1)
		} else if ctx.Err() == nil {
			select {
			case s.failed <- fmt.Errorf("produce: %w", err):
			default:
			}
		}
	}
	for ctx.Err() == nil {
		due := int64((s.env.Mono() - start).Seconds() * s.rate * (1 << 20) / valueBytes)
		for ; sent < due; sent++ {
			p.Produce(ctx, &sdk.Record{Topic: topic, Key: strconv.AppendInt(nil, sent%1000, 10), Value: value}, told)
		}
		s.env.Sleep(ctx, 20*time.Millisecond)
	}
	return nil
}

func (s *soaking) follow(ctx context.Context) error {
	r, err := s.log.NewReader(ctx, topic, sdk.RecycleRecords())
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		fetches, err := r.Poll(ctx)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		for _, f := range fetches {
			s.read.Add(int64(len(f.Records)))
		}
	}
}

// sample is what the process takes at a moment.
type sample struct {
	heap, goroutines, objects, objectBytes, tableBytes int64
}

// leastSamples are those of which one can say that something has grown.
const leastSamples = 8

var names = [...]string{"heap", "goroutines", "objects", "bytes of objects", "bytes of the table"}

func (s sample) all() [5]int64 {
	return [5]int64{s.heap, s.goroutines, s.objects, s.objectBytes, s.tableBytes}
}

// watch takes a sample each hour of wall time until ctx is done, and prints one in twelve.
func (s *soaking) watch(ctx context.Context) (samples []sample) {
	start := s.env.Now()
	for s.env.Sleep(ctx, time.Hour/time.Duration(s.speed)) == nil {
		x := s.sample()
		samples = append(samples, x)
		if len(samples)%12 == 0 {
			fmt.Printf("%5.1f days: %d records appended, %d read; heap %d MiB, %d goroutines, %d objects of %d MiB, table %.1f MiB\n",
				s.env.Now().Sub(start).Hours()/24, s.produced.Load(), s.read.Load(), x.heap>>20, x.goroutines, x.objects, x.objectBytes>>20, float64(x.tableBytes)/(1<<20))
		}
	}
	s.jobs.Range(func(job, n any) bool {
		fmt.Printf("%v: %d runs\n", job, n.(*atomic.Int64).Load())
		return true
	})
	return samples
}

func (s *soaking) sample() (x sample) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	x.heap, x.goroutines = int64(m.HeapAlloc), int64(runtime.NumGoroutine())
	filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what goes meanwhile is not there
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if filepath.Dir(path) == s.dir {
			x.tableBytes += info.Size()
			return nil
		}
		x.objects++
		x.objectBytes += info.Size()
		return nil
	})
	return x
}

// grownIn is what was larger in the second half than in the second quarter, by more than a quarter and what is noise: the highest of each is compared.
func grownIn(samples []sample) (grown []string) {
	n := len(samples)
	if n < leastSamples {
		return []string{fmt.Sprintf("%d samples tell nothing; play longer", n)}
	}
	noise := sample{heap: 16 << 20, goroutines: 20, objects: 20, objectBytes: 16 << 20, tableBytes: 1 << 20}.all()
	peak := func(some []sample, i int) int64 {
		return slices.MaxFunc(some, func(a, b sample) int { return int(a.all()[i] - b.all()[i]) }).all()[i]
	}
	for i, name := range names {
		before, after := peak(samples[n/4:n/2], i), peak(samples[n/2:], i)
		fmt.Printf("%s: %d at most in the second quarter, %d in the second half\n", name, before, after)
		if after > before+before/4+noise[i] {
			grown = append(grown, fmt.Sprintf("%s: %d, then %d", name, before, after))
		}
	}
	return grown
}
