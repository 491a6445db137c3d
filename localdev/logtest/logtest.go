// Package logtest gives tests a log in memory on the real parts (the SDK, the AWS SDK, the DynamoDB engine) with faults to order. It works inside
// testing/synctest.
package logtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// World is a log in memory. OnTable and OnStore decide what befalls requests, and count them; they may be set while nothing is under way.
type World struct {
	T       testing.TB
	OnTable func(dynamodb.Call) dynamodb.Fault
	OnStore func(fault.Call) fault.Fault

	memory *embedded.Memory
	mu     sync.Mutex
	table  map[string]int
	store  map[store.Op]int
}

// New makes an empty log, which ends with the test.
func New(t testing.TB) *World {
	t.Helper()
	w := &World{T: t, table: map[string]int{}, store: map[store.Op]int{}}
	objects := fault.New(mem.New(), env.System(), func(c fault.Call) fault.Fault {
		if c.Name == segment.IdentityName {
			return fault.Fault{}
		}
		w.mu.Lock()
		w.store[c.Op]++
		w.mu.Unlock()
		if w.OnStore == nil {
			return fault.Fault{}
		}
		return w.OnStore(c)
	})
	var err error
	w.memory, err = embedded.NewMemory(embedded.MemoryOptions{Objects: objects, Engine: dynamodb.Options{Hook: func(ctx context.Context, c dynamodb.Call) dynamodb.Fault {
		w.mu.Lock()
		w.table[c.Op]++
		w.mu.Unlock()
		if killed, ok := ctx.Value(processKey{}).(*atomic.Bool); ok && killed.Load() {
			return dynamodb.Dropped()
		}
		if w.OnTable == nil || ctx.Value(sparedKey{}) != nil {
			return dynamodb.Fault{}
		}
		return w.OnTable(c)
	}}})
	w.Must(err)
	t.Cleanup(func() {
		w.OnTable, w.OnStore = nil, nil
		objects.Close()
		w.Must(w.memory.Close())
	})
	return w
}

// FailAt makes the n-th request to table or store from now on, counted from 0, fail, times times in a row: it is not performed, or it is and its answer is lost. hit
// ends that, and tells whether it was reached.
func (w *World) FailAt(n, times int, applied bool) (hit func() bool) {
	var mu sync.Mutex
	requests := 0
	now := func() bool {
		mu.Lock()
		defer mu.Unlock()
		requests++
		return requests > n && requests <= n+times
	}
	w.OnTable = func(dynamodb.Call) dynamodb.Fault {
		if now() {
			return dynamodb.Fault{Skip: !applied, Reply: dynamodb.ErrConnectionLost}
		}
		return dynamodb.Fault{}
	}
	w.OnStore = func(fault.Call) fault.Fault {
		switch {
		case !now():
			return fault.Fault{}
		case applied:
			return fault.Fault{Kind: fault.LostAfter}
		}
		return fault.Fault{Kind: fault.LostBefore}
	}
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		w.OnTable, w.OnStore = nil, nil
		return requests > n
	}
}

// Must ends the test if there is an error.
func (w *World) Must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

type processKey struct{}

// Process is a context of requests to the table by a process that is killed, or cut off, by kill: from then on none of them gets through.
func Process(ctx context.Context) (of context.Context, kill func()) {
	killed := &atomic.Bool{}
	return context.WithValue(ctx, processKey{}, killed), func() { killed.Store(true) }
}

type sparedKey struct{}

// Spared is a context whose requests to the table nothing befalls.
func Spared(ctx context.Context) context.Context { return context.WithValue(ctx, sparedKey{}, true) }

// Open opens the log as one more process would.
func (w *World) Open(opts ...sdk.Option) *sdk.Log {
	w.T.Helper()
	log, err := sdk.Open(Spared(context.Background()), "mem://", append([]sdk.Option{sdk.WithDriver(w.memory)}, opts...)...)
	w.Must(err)
	return log
}

// Create creates a topic.
func (w *World) Create(log *sdk.Log, t sdk.NewTopic) {
	w.T.Helper()
	_, err := log.Admin().CreateTopic(Spared(context.Background()), t)
	w.Must(err)
}

// Counts returns how many requests there were to table and store since it was called last, and of which kinds.
func (w *World) Counts() (table, objects int, kinds string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds = fmt.Sprint(w.table, w.store)
	for _, n := range w.table {
		table += n
	}
	for _, n := range w.store {
		objects += n
	}
	clear(w.table)
	clear(w.store)
	return table, objects, kinds
}

// IsCommit tells whether a call to the table is a commit: the one update of a head that brings bytes, its entries.
func IsCommit(c dynamodb.Call) bool {
	return c.Op == "UpdateItem" && len(c.Keys) == 1 && c.Keys[0].Sort == "HEAD" && bytes.Contains(c.Body, []byte(`{"B":`))
}

// Records are all records of a topic, by partition.
func (w *World) Records(log *sdk.Log, topic string) [][]sdk.Record {
	w.T.Helper()
	ctx := Spared(context.Background())
	t, err := log.Admin().Topic(ctx, topic)
	w.Must(err)
	all := make([][]sdk.Record, t.Partitions)
	r, err := log.NewReplay(ctx, topic, sdk.ReplayParallel(1))
	w.Must(err)
	w.Must(r.Run(ctx, func(_ context.Context, f sdk.Fetch) error {
		all[f.Partition] = append(all[f.Partition], f.Records...)
		return nil
	}))
	return all
}

// Values are the values of all records of a topic, by partition.
func (w *World) Values(log *sdk.Log, topic string) [][]string {
	w.T.Helper()
	var values [][]string
	for _, records := range w.Records(log, topic) {
		of := []string{}
		for _, r := range records {
			of = append(of, string(r.Value))
		}
		values = append(values, of)
	}
	return values
}
