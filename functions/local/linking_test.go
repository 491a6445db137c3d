package local_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/local"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
)

// linking is a log in memory whose store has links, to a server of the test's.
type linking struct {
	*embedded.Memory
	objects store.Store
	url     string
	onTable atomic.Pointer[func(dynamodb.Call) dynamodb.Fault]
}

func newLinking(t testing.TB) *linking {
	l := &linking{}
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Engine: dynamodb.Options{Hook: func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if f := l.onTable.Load(); f != nil {
			return (*f)(c)
		}
		return dynamodb.Fault{}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l.Memory = memory
	t.Cleanup(func() { memory.Close() })
	return l
}

func (l *linking) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	b, err := l.Memory.Open(ctx, u, o)
	l.objects, b.Presigner = b.Store, l
	return b, err
}

func (l *linking) PresignGet(_ context.Context, name string, off, n int64, lifetime time.Duration) (store.Link, error) {
	return store.Link{URL: l.url + "/" + name, Range: fmt.Sprintf("bytes=%d-%d", off, off+n-1), Expires: time.Now().Add(lifetime)}, nil
}

// ServeHTTP is the bucket.
func (l *linking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var first, last int64
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
		http.Error(w, "no range", http.StatusForbidden)
		return
	}
	b, err := l.objects.Get(r.Context(), strings.TrimPrefix(r.URL.Path, "/"), first, last-first+1, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusPartialContent)
	w.Write(b)
}

// siteOn is a site over the driver's log, with a topic "t" of 4 partitions.
func siteOn(t testing.TB, d *linking) *site {
	log, err := sdk.Open(context.Background(), "mem://", sdk.WithDriver(d))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Admin().CreateTopic(context.Background(), sdk.NewTopic{Name: "t", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, log: log}
	s.serve(local.Options{})
	return s
}
