package sdk

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment/store"
)

// Log is an open log. It may be used by any number of producers and readers at once.
type Log struct {
	table     metadata.Table
	store     store.Store
	lifecycle store.Lifecycle
	presigner store.Presigner
	env       env.Env
	hooks     hooks
	identity  metadata.Identity
	ahead     time.Duration // minter.ahead, as of Open
	lanes     *lanes
	walker    *walk.Walker
	fetcher   *fetcher
	near      bool // as Backend says
	small     int  // likewise: bytes of segments that producers keep in the table unless told otherwise
	closed    atomic.Bool
	close     func() error
	remote    *remote // of a log that is reached over HTTP, which has nothing of the above but env and hooks; else nil
}

func newLog(b Backend, e env.Env, hs hooks, identity metadata.Identity, closeBackend func() error) *Log {
	lanes := newLanes(b.Table, e)
	return &Log{table: b.Table, store: b.Store, lifecycle: b.Lifecycle, presigner: b.Presigner, env: e, hooks: hs, identity: identity, lanes: lanes, walker: walk.New(lanes),
		fetcher: newFetcher(objects.NewReader(b.Store, b.Table), e, hs), near: b.Near, small: b.SmallSegments, close: closeBackend}
}

// Close gives up the connections. Close producers and readers first: what is asked of them afterwards, as of the log, fails with ErrClosed. A second
// Close does nothing.
func (l *Log) Close() error {
	l.closed.Store(true)
	return l.close()
}

// Backend returns the two services of the log, for use cases that work on them directly. Of a log that is reached over HTTP they are nil.
func (l *Log) Backend() Backend {
	if l.remote != nil {
		return Backend{}
	}
	return Backend{Table: l.table, Store: l.store, Lifecycle: l.lifecycle, Presigner: l.presigner, Bucket: l.identity.Bucket, Prefix: l.identity.Prefix, Near: l.near, SmallSegments: l.small}
}

// live is ErrClosed once the log is closed. A backend that was given up would be tried for as long as one that does not answer.
func (l *Log) live() error {
	if l.closed.Load() {
		return fmt.Errorf("log: %w", ErrClosed)
	}
	return nil
}

// Driver opens the two services behind a log URL. It is how a log lives on something else than S3 and DynamoDB; localdev/embedded has the one
// for file:// and mem://.
type Driver interface {
	// Schemes are the URL schemes that the driver opens.
	Schemes() []string
	// Open opens what the URL names, or creates it if that was asked for; otherwise it fails with ErrNoLog and leaves no trace. The driver
	// reports every request to the observers.
	Open(ctx context.Context, u *url.URL, o DriverOptions) (Backend, error)
}

// DriverOptions is what Open hands to a driver.
type DriverOptions struct {
	Env         env.Env
	OnTable     func(metadata.Call)
	OnStore     func(store.Call)
	CreateTable bool // a missing table is to be created
}

// Backend is the two services. Bucket and Prefix go into the log's identity: they say where the objects are. SmallSegments is the default of
// WithSmallSegments. Close, called once, may be nil.
type Backend struct {
	Table          metadata.Table
	Store          store.Store
	Lifecycle      store.Lifecycle // of the bucket; nil where the store deletes nothing by itself
	Presigner      store.Presigner // of the bucket; nil where there are no links to objects
	Bucket, Prefix string
	SmallSegments  int
	// Near says that the objects are files of this machine. Readers then read less far ahead: a get is a copy, for which nobody has to wait, and
	// whose bytes the processor's cache still holds if they are used soon.
	Near  bool
	Close func() error
}

// closeOnce is the backend's Close, safe to call again.
func (b Backend) closeOnce() func() error {
	if b.Close == nil {
		return func() error { return nil }
	}
	return sync.OnceValue(b.Close)
}
