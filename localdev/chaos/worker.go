package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
)

// role is what a process does.
type role string

const (
	producer role = "producer" // appends to all topics but those of clients and steppers
	reader   role = "reader"   // follows topics, and goes on where it was
	member   role = "member"   // of the group that works
	stepper  role = "stepper"  // of the group that makes a result of each record
	keeper   role = "keeper"   // runs the background jobs
	server   role = "server"   // serves the log over HTTP
	client   role = "client"   // appends through the server, with producer id and sequence
	watcher  role = "watcher"  // looks at what groups have committed
	engine   role = "engine"   // serves the DynamoDB engine on a file
)

// What there is in the log.
const (
	orders   = "orders"  // producers append it, groups read it
	results  = "results" // of steppers
	web      = "web"     // of clients
	latest   = "latest"  // of each key the latest record stays
	window   = "window"  // the latest bytes stay
	working  = "working" // the group of members
	stepping = "stepping"
)

var topics = []sdk.NewTopic{
	{Name: orders, Partitions: 6, LaneWidth: 3},
	{Name: results, Partitions: 4, LaneWidth: 4},
	{Name: web, Partitions: 4, LaneWidth: 4},
	{Name: latest, Partitions: 2, Config: map[string]string{"cleanup.policy": "compact"}},
	{Name: window, Partitions: 2, Config: map[string]string{"retention.bytes": "200000"}},
}

// partitionsOf is how many partitions the topic has.
func partitionsOf(topic string) int {
	for _, t := range topics {
		if t.Name == topic {
			return t.Partitions
		}
	}
	panic(topic)
}

// removes tells whether records of the topic are removed in time.
func removes(topic string) bool { return topic == latest || topic == window }

// spec is what a worker is told, in its environment.
type spec struct {
	Role    role
	Name    string
	Life    int
	Seed    uint64
	Dir     string        // of histories
	Log     string        // its URL
	Web     string        // the server's URL, for clients
	Timeout time.Duration // of sessions
	Pace    time.Duration // between two bursts of a producer
}

const specVariable = "VARVE_CHAOS_WORKER"

// flushTime is how long a worker that is to end may take to settle what it has under way.
const flushTime = 60 * time.Second

// worker is one process.
type worker struct {
	spec
	env     env.Env
	journal *journal
}

// by is this life of the process.
func (s *spec) by() string { return fmt.Sprintf("%s.%d", s.Name, s.Life) }

func (s *spec) history() string { return filepath.Join(s.Dir, s.Name+journalSuffix) }

// work is main of a worker. It ends when it is told to, by SIGTERM, or when its work is done.
func work(told string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := &worker{env: env.System()}
	if err := json.Unmarshal([]byte(told), &w.spec); err != nil {
		return err
	}
	w.env.Rand = env.NewRand(w.Seed)
	if w.Role == engine {
		return w.serveTable(ctx)
	}
	if w.Role != server {
		fmt.Println() // from now on it can be told to end
	}
	earlier, err := readJournal(w.history())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if w.journal, err = openJournal(w.history(), w.by(), w.env); err != nil {
		return err
	}
	if err := w.act(ctx, earlier); err != nil {
		return err
	}
	w.journal.write(line{Kind: ended})
	return nil
}

// act does what the worker's role is.
func (w *worker) act(ctx context.Context, earlier []line) error {
	if w.Role == client {
		return w.post(ctx, earlier)
	}
	log := w.open(ctx)
	if log == nil {
		return nil
	}
	defer log.Close()
	switch w.Role {
	case producer:
		return w.produce(ctx, log)
	case reader:
		return w.readAll(ctx, log, earlier)
	case member, stepper:
		return w.consume(ctx, log)
	case keeper:
		return w.keep(ctx, log)
	case server:
		return w.serve(ctx, log)
	case watcher:
		return w.watch(ctx, log)
	}
	return fmt.Errorf("no such role: %s", w.Role)
}

const openTime = 10 * time.Second // for one attempt

// open opens the log as often as it takes, or returns nil when the worker is to end.
func (w *worker) open(ctx context.Context) *sdk.Log {
	for ctx.Err() == nil {
		attempt, cancel := w.env.WithTimeout(ctx, openTime)
		log, err := sdk.Open(attempt, w.Log, sdk.WithDriver(embedded.Driver()))
		cancel()
		if err == nil {
			return log
		}
		w.note("open", err)
		w.rest(ctx, 200*time.Millisecond)
	}
	return nil
}

// rest waits up to d.
func (w *worker) rest(ctx context.Context, d time.Duration) { _ = w.env.Sleep(ctx, w.env.Jitter(d)) }

func (w *worker) below(n int) int   { return int(w.env.Int64N(int64(n))) }
func (w *worker) oneIn(n int) bool  { return w.below(n) == 0 }
func (w *worker) wrong(text string) { w.journal.write(line{Kind: wrong, Text: text}) }

// note tells of an error that may be, where there is one.
func (w *worker) note(what string, err error) {
	if err != nil {
		w.journal.write(line{Kind: trouble, Text: what + ": " + strings.TrimSpace(err.Error())})
	}
}
