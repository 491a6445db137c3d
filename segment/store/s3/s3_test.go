package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/storetest"
)

func TestConformance(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&conditionalCompletion{Handler: gofakes3.New(backend).Server()})
	defer server.Close()
	conform(t, Config{Bucket: "bucket", Endpoint: server.URL, Credentials: static})
}

// conditionalCompletion gives a server that passes over the condition on the completion of an upload what S3 does.
type conditionalCompletion struct {
	http.Handler
	mu sync.Mutex
}

func (c *conditionalCompletion) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.Header.Get("If-None-Match") == "" {
		c.Handler.ServeHTTP(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	look := httptest.NewRecorder()
	c.Handler.ServeHTTP(look, httptest.NewRequest(http.MethodHead, r.URL.Path, nil))
	if look.Code != http.StatusNotFound {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	c.Handler.ServeHTTP(w, r)
}

// TestConformanceElsewhere runs the suite on the bucket that VARVE_TEST_S3 names as http://host:port/bucket, with
// the credentials and region of the AWS configuration. Without the variable there is nothing to run it on.
func TestConformanceElsewhere(t *testing.T) {
	target := os.Getenv("VARVE_TEST_S3")
	if target == "" {
		t.Skip("VARVE_TEST_S3 names no bucket")
	}
	endpoint, bucket := path.Split(target)
	compat, err := ParseCompat(os.Getenv("VARVE_TEST_S3_COMPAT"))
	if err != nil {
		t.Fatal(err)
	}
	conform(t, Config{Bucket: bucket, Endpoint: endpoint, Compat: compat})
}

// conform runs the suite, each test under a prefix of its own.
func conform(t *testing.T, cfg Config) {
	run := env.System().Uint64()
	storetest.Run(t, func(t *testing.T) store.Store {
		cfg.Prefix = fmt.Sprintf("conformance/%x/%s", run, strings.ReplaceAll(t.Name(), "/", "-"))
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}

// TestObserveCountsRequests: those of retries and of settling too.
func TestObserveCountsRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(n int, _ *request, next func() *http.Response) (*http.Response, error) {
			if resp := next(); n > 2 {
				return resp, nil
			}
			return nil, errReset
		}
		var calls []store.Call
		st := store.Observe(s.open(nil), env.System(), func(c store.Call) { calls = append(calls, c) })
		if err := st.Put(t.Context(), "a", []byte("mine")); err != nil {
			t.Fatal(err)
		}
		if len(calls) != 1 || calls[0].Requests != 5 || calls[0].Bytes != 4 || calls[0].Err != nil {
			t.Errorf("%+v; want 3 PUTs, a HEAD and a GET", calls)
		}
		if err := st.Put(t.Context(), "..", nil); !errors.Is(err, store.ErrBadName) || calls[1].Requests != 0 || len(s.requests) != 5 {
			t.Errorf("%v, %+v", err, calls[1])
		}
	})
}

// TestConnectionsAreReused: as many as run at a time, not one for every request.
func TestConnectionsAreReused(t *testing.T) {
	const concurrency, rounds = 16, 8
	backend := newService(t)
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(backend)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	st, err := Open(t.Context(), Config{Bucket: "bucket", Endpoint: server.URL, Credentials: static, Concurrency: concurrency})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for round := range rounds {
		var wg sync.WaitGroup
		for i := range concurrency {
			wg.Go(func() {
				name := fmt.Sprintf("%d/%d", round, i)
				if err := st.Put(t.Context(), name, digits(1000)); err != nil {
					t.Error(err)
				}
				if _, err := st.Get(t.Context(), name, 10, 100, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if n := opened.Load(); n > 2*concurrency {
		t.Errorf("%d connections for %d requests, %d at a time", n, 2*concurrency*rounds, concurrency)
	}
}
