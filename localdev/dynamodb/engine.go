package dynamodb

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
)

// Options configure an Engine. The zero value is an unlimited engine in memory on the machine's clock.
type Options struct {
	// Now is the engine's clock: the Date header, table creation, the age of request tokens, throughput limits
	// and stale reads go by it. nil is the machine's. It must be safe for concurrent use.
	Now func() time.Time
	// File is the SQLite file that holds the tables; several processes may share it. Empty: memory.
	File string
	// ItemWriteUnits is how many write units a second one item takes before it is throttled, as one partition
	// of the service does; a second's worth may be spent at once. 0: no limit.
	ItemWriteUnits int
	// History is how far back a Hook can make eventual reads stale. Every write of that time is kept in memory.
	// 0: no stale reads.
	History time.Duration
	// Hook may fault calls. nil: none.
	Hook Hook
}

// Engine serves DynamoDB's API. Its methods are safe for concurrent use.
type Engine struct {
	options     Options
	store       storage.Store
	schemas     schemas
	expressions expressions
	locks       locks
	limiter     limiter
	history     history
	meter       meter
	requests    atomic.Int64 // answered so far; they are the request ids

	// What is applied late lives until ctx ends. closing orders a call that becomes late against Close: it is
	// either waited for or dropped.
	closing sync.Mutex
	ctx     context.Context
	stop    context.CancelFunc
	late    sync.WaitGroup
}

// New opens an engine. It is to be closed.
func New(o Options) (*Engine, error) {
	if o.Now == nil {
		o.Now = systemNow
	}
	store, err := open(o.File)
	if err != nil {
		return nil, err
	}
	e := &Engine{options: o, store: store}
	e.limiter.perSecond = float64(o.ItemWriteUnits)
	e.history.keep = o.History
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e, nil
}

func open(file string) (storage.Store, error) {
	if file == "" {
		return storage.NewMemory(), nil
	}
	return storage.OpenSQLite(file)
}

// Close ends what the engine still has to do: calls that were to be applied late are dropped, and Close waits for
// their goroutines. Calls after Close fail.
func (e *Engine) Close() error {
	e.closing.Lock()
	e.stop()
	e.closing.Unlock()
	e.late.Wait()
	return e.store.Close()
}
