package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/varvelog/varve/functions/fetch"
	produceservice "github.com/varvelog/varve/functions/produce"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// far is a log that is reached over HTTP, beside the world that it lives in.
type far struct {
	*world
	*hop
	log  *sdk.Log // over HTTP
	near *sdk.Log // the functions' own
}

// hop is the network between a client and the functions, which are called in this process, through the client's transport: so it may be in virtual time.
type hop struct {
	handler http.Handler

	mu    sync.Mutex
	fault func(r *http.Request) mishap
	count map[string]int // requests by "METHOD path"
}

// mishap is what befalls one request.
type mishap int

const (
	nothing    mishap = iota
	cutBefore         // the connection ends before the request is carried out
	cutAfter          // and after that
	fails500          // an answer of the platform's, not carried out
	failed500         // carried out all the same
	throttled         // 429 of the platform's
	retryLater        // 503 with Retry-After
	cutBody           // carried out, the answer's body ends in the middle
	garbage           // carried out, the answer is nonsense
	silence           // not carried out, never answered
)

func newFar(t testing.TB, opts ...sdk.Option) *far {
	f := &far{world: newWorld(t)}
	f.near = f.open()
	f.hop = newHop(t, f.near)
	f.log = f.dial(opts...)
	return f
}

// dial opens the log over HTTP, as one more process would.
func (f *far) dial(opts ...sdk.Option) *sdk.Log { return f.hop.dial(f.t, opts...) }

func newHop(t testing.TB, log *sdk.Log) *hop {
	return &hop{handler: newHandler(t, log, env.System()), count: map[string]int{}}
}

func (f *hop) dial(t testing.TB, opts ...sdk.Option) *sdk.Log {
	t.Helper()
	log, err := sdk.Open(context.Background(), "http://localhost", append(opts, sdk.WithTransport(f))...)
	check(t, err)
	t.Cleanup(func() { log.Close() })
	return log
}

// befall says what happens to each request from now on. nil: nothing.
func (f *hop) befall(fault func(r *http.Request) mishap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// requests returns the counts since it was called last.
func (f *hop) requests() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.count
	f.count = map[string]int{}
	return n
}

var errCut = errors.New("connection reset by peer")

// RoundTrip is the network and the function.
func (f *hop) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.count[r.Method+" "+r.URL.Path]++
	m := nothing
	if f.fault != nil {
		m = f.fault(r)
	}
	f.mu.Unlock()
	switch m {
	case cutBefore:
		return nil, errCut
	case fails500:
		return canned(r, 502, "", `{"Message":"Internal server error"}`), nil
	case throttled:
		return canned(r, 429, "", `{"Message":"Rate exceeded"}`), nil
	case retryLater:
		return canned(r, 503, "2", `{"error":{"code":"unavailable","message":"later","retriable":true}}`), nil
	case silence:
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	resp, err := f.carryOut(r)
	switch {
	case err != nil:
		return nil, err
	case m == cutAfter:
		return nil, errCut
	case m == failed500:
		return canned(r, 500, "", `{"error":{"code":"internal","message":"oops"}}`), nil
	case m == cutBody:
		b, _ := io.ReadAll(resp.Body)
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b[:len(b)/2]), broken{}))
	case m == garbage:
		b, _ := io.ReadAll(resp.Body)
		for i := range b {
			b[i] ^= 0x5a
		}
		resp.Body = io.NopCloser(bytes.NewReader(b))
	}
	return resp, nil
}

// carryOut serves the request, whether or not anybody waits for the answer.
func (f *hop) carryOut(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	served := r.Clone(r.Context())
	served.Body = io.NopCloser(bytes.NewReader(body))
	answered := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, served)
		answered <- w.Result()
	}()
	select {
	case resp := <-answered:
		resp.Request = r
		return resp, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

func canned(r *http.Request, status int, retryAfter, body string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)), Request: r}
	if retryAfter != "" {
		resp.Header.Set("Retry-After", retryAfter)
	}
	return resp
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// newHandler serves the log as a function, or the local server, does.
func newHandler(t testing.TB, log *sdk.Log, e env.Env) http.Handler {
	appends := produceservice.New(log, produceservice.Options{Env: e, With: []sdk.ProducerOption{sdk.WithLinger(0, 0)}}) // so that its time is not in a test's
	all := http.NewServeMux()
	all.Handle("POST /v1/topics/{topic}/records", appends.Handler())
	all.Handle("POST /v1/records", appends.Handler())
	all.Handle("POST /v1/producers", appends.Handler())
	all.Handle("/", fetch.New(log, fetch.Options{Env: e}).Handler())
	t.Cleanup(func() { appends.Close(ctx) })
	return all
}
