package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/metadata/topics"
)

const (
	timeout   = 30 * time.Second
	heartbeat = 3 * time.Second
)

// world is a table on the engine in memory, in a bubble of virtual time, and the processes on it.
type world struct {
	*testing.T
	table  *dynamo.Table
	keeper *topics.Keeper
	seed   uint64

	mu     sync.Mutex
	calls  map[string]int
	owners map[Partition]string // who delivers, as the processes see it
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, calls: map[string]int{}, owners: map[Partition]string{}}
		engine, err := dynamodb.New(dynamodb.Options{})
		w.ok(err)
		defer engine.Close()
		w.table, err = dynamo.Open(dynamo.Config{
			AWS:       aws.Config{Region: "us-east-1", Credentials: credentials{}, HTTPClient: engine, BaseEndpoint: aws.String("http://engine")},
			TableName: "groups", Env: env.System(), OnCall: w.called,
		})
		w.ok(err)
		w.ok(w.table.EnsureTable(t.Context()))
		w.keeper = topics.New(w.table, env.System())
		test(w)
	})
}

type credentials struct{}

func (credentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "x", SecretAccessKey: "x"}, nil
}

func (w *world) called(c metadata.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[c.Op]++
}

// counted is how often each operation was called since the last time.
func (w *world) counted() (calls map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, w.calls = w.calls, map[string]int{}
	return calls
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(name string, partitions, width int) *metadata.Topic {
	w.Helper()
	t, err := w.keeper.Create(w.Context(), topics.Spec{Name: name, Partitions: partitions, LaneWidth: width, Config: metadata.DefaultTopicConfig()})
	w.ok(err)
	return t
}

// process is one member in a process with clocks of its own. It ticks until it is killed, and releases at once what it is to give up.
type process struct {
	*Member
	w      *world
	clock  *clock
	cancel context.CancelFunc
	done   chan struct{}
	err    error // that ended it

	mu     sync.Mutex
	stops  int // partitions that stopped, to go elsewhere
	frozen chan struct{}
}

// clock is a process's: its wall time is off, and both stand while it is frozen.
type clock struct {
	env.Clock
	skew time.Duration
}

func (c *clock) Now() time.Time { return c.Clock.Now().Add(c.skew) }

func (w *world) join(c Config) *process {
	w.Helper()
	p, err := w.tryJoin(c, 0)
	w.ok(err)
	return p
}

func (w *world) tryJoin(c Config, skew time.Duration) (*process, error) {
	return w.joinOn(w.table, c, skew)
}

func (w *world) joinOn(t Table, c Config, skew time.Duration) (*process, error) {
	w.seed++
	p := &process{w: w, clock: &clock{env.System().Clock, skew}, done: make(chan struct{})}
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	if c.Refresh == 0 {
		c.Refresh = time.Minute
	}
	c.Group = "g"
	m, err := Join(w.Context(), t, env.Env{Clock: p.clock, Rand: env.NewRand(w.seed)}, c)
	if err != nil {
		return nil, err
	}
	p.Member = m
	ctx, cancel := context.WithCancel(w.Context())
	p.cancel = cancel
	go p.run(ctx)
	return p, nil
}

func (p *process) run(ctx context.Context) {
	defer close(p.done)
	every := p.config.Timeout / 10
	var beat time.Time
	for ctx.Err() == nil {
		now := time.Now()
		look := p.Look
		if !now.Before(beat) {
			look, beat = p.Tick, now.Add(every)
		}
		change, err := look(ctx)
		p.follow(ctx, change)
		if errors.Is(err, metadata.ErrFenced) {
			p.err = err
			return
		}
		next := beat
		if change.Waiting || errors.Is(err, metadata.ErrChanged) {
			next = earlier(beat, now.Add(every/4))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		}
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// follow keeps the books: nobody may be assigned what another delivers.
func (p *process) follow(ctx context.Context, c Change) {
	w := p.w
	w.mu.Lock()
	for _, x := range append(c.Lost, c.Revoked...) {
		if w.owners[x] == p.Name() {
			delete(w.owners, x)
		}
	}
	p.mu.Lock()
	p.stops += len(c.Lost) + len(c.Revoked)
	p.mu.Unlock()
	for _, x := range c.Assigned {
		w.owners[x.Partition] = p.Name()
	}
	w.mu.Unlock()
	if len(c.Revoked) > 0 {
		p.Release(ctx, c.Revoked)
	}
}

// stopped is how many partitions stopped.
func (p *process) stopped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stops
}

// kill ends the process without a word.
func (p *process) kill() {
	p.cancel()
	<-p.done
}

// leave ends it in good order.
func (p *process) leave() {
	p.kill()
	p.w.ok(p.Leave(p.w.Context()))
}

func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = nil
}

// loads is how many partitions each process holds.
func loads(ps ...*process) (n []int) {
	for _, p := range ps {
		n = append(n, len(p.Held()))
	}
	return n
}

// settle lets time pass.
func (w *world) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) balanced(what string, partitions int, ps ...*process) {
	w.Helper()
	n := loads(ps...)
	sum, least, most := 0, 1<<30, 0
	for _, k := range n {
		sum, least, most = sum+k, min(least, k), max(most, k)
	}
	if sum != partitions || most-least > 1 {
		w.Fatalf("%s: the members hold %v of %d partitions", what, n, partitions)
	}
}

func reads(names ...string) Config { return Config{Topics: names} }

func named(name string, c Config) Config {
	c.Name = name
	return c
}

func describe(ps []Partition) (s string) {
	for _, p := range ps {
		s += fmt.Sprintf(" %s/%d", p.Topic, p.Partition)
	}
	return s
}
