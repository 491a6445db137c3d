package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/wire"
)

const (
	// requestTimeout is how long one request may take, its answer's body included: as long as the functions may run, and a cold start.
	requestTimeout = 45 * time.Second
	// maxJSON bounds a JSON answer: results of the records of one request, or the list of some ten thousand topics.
	maxJSON = 8 << 20
	// connections to one host: requests of all lanes, and of all readers, beyond which they wait.
	connections = 128
	// attempts of what may be repeated, before the caller hears of it.
	attempts    = 5
	firstPause  = 100 * time.Millisecond
	lastPause   = 5 * time.Second
	longestWait = 2 * time.Minute // that a Retry-After is heeded for
)

// client sends requests to functions.
type client struct {
	http  *http.Client
	auth  auth
	env   env.Env
	hooks hooks
	close func()
}

func newClient(c *openConfig, keys auth) *client {
	transport, done := c.transport, func() {}
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = connections, connections, connections
		t.DisableCompression = true // batches are compressed, and a body that is not can be bounded
		t.MaxResponseHeaderBytes = 64 << 10
		transport, done = t, t.CloseIdleConnections
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{http: &http.Client{Transport: transport, CheckRedirect: refuse}, auth: keys, env: c.env, hooks: c.hooks, close: done}
}

// request is one request. It may be sent any number of times.
type request struct {
	op          string // for hooks
	lane        string // likewise
	method      string
	url         *url.URL
	accept      string
	contentType string
	header      http.Header
	body        []byte
	limit       int64         // bytes of an answer; 0: maxJSON
	wait        time.Duration // for which the answer may be held back
	once        bool          // sending it twice is not as sending it once
}

// reply is an answer of status 2xx.
type reply struct {
	header http.Header
	body   []byte
}

// failure is a request that was not answered as it should be.
type failure struct {
	err   error
	sent  bool          // it may have been carried out
	after time.Duration // for which the server wants to be left alone
	anew  bool          // it was refused with credentials that are not used any more
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// send sends the request once. An error is a *failure.
func (c *client) send(ctx context.Context, q request) (*reply, error) {
	start := c.env.Mono()
	r, err := c.exchange(ctx, q)
	n := len(q.body)
	if r != nil {
		n += len(r.body)
	}
	event := RequestEvent{Service: "http", Op: q.op, Lane: q.lane, Requests: 1, Bytes: n, Duration: c.env.Mono() - start, Err: err}
	fire(c.hooks, func(h RequestHook) { h.OnRequest(event) })
	return r, err
}

func (c *client) exchange(ctx context.Context, q request) (*reply, error) {
	ctx, cancel := c.env.WithTimeout(ctx, requestTimeout+q.wait)
	defer cancel()
	hr, err := http.NewRequestWithContext(ctx, q.method, q.url.String(), bytes.NewReader(q.body))
	if err != nil {
		return nil, &failure{err: fmt.Errorf("%w: %w", ErrInvalid, err)}
	}
	for name, values := range q.header {
		hr.Header[name] = values
	}
	hr.Header.Set("User-Agent", "varve")
	setIf(hr.Header, "Accept", q.accept)
	setIf(hr.Header, "Content-Type", q.contentType)
	if err := c.auth.sign(ctx, hr, q.body); err != nil {
		return nil, &failure{err: err}
	}
	resp, err := c.http.Do(hr)
	if err != nil {
		return nil, &failure{err: unanswered(ctx, err), sent: !dialing(err)}
	}
	defer resp.Body.Close()
	return c.read(ctx, resp, q)
}

func setIf(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}

// read reads the answer, as far as its bound.
func (c *client) read(ctx context.Context, resp *http.Response, q request) (*reply, error) {
	limit := q.limit
	if limit == 0 || resp.StatusCode/100 != 2 {
		limit = maxJSON
	}
	ours := resp.StatusCode/100 == 2 || resp.StatusCode >= 500 // or the request was refused before it was carried out
	if resp.ContentLength > limit {
		return nil, &failure{err: fmt.Errorf("%w: %w: %d bytes, at most %d are read", ErrUnreachable, errGigantic, resp.ContentLength, limit), sent: ours}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil: // what a refusal refuses is in its body
		return nil, &failure{err: unanswered(ctx, err), sent: ours}
	case int64(len(body)) > limit:
		return nil, &failure{err: fmt.Errorf("%w: %w: over %d bytes", ErrUnreachable, errGigantic, limit), sent: ours}
	case resp.StatusCode/100 != 2:
		after := retryAfter(resp.Header.Get("Retry-After"), c.env.Now())
		e := remoteError(resp.StatusCode, body)
		anew := e.Err == ErrDenied && c.auth.refused(resp.Header)
		return nil, &failure{err: e, sent: ours && e.Code != wire.NotAppended, after: after, anew: anew}
	}
	return &reply{resp.Header, body}, nil
}

// unanswered says that no answer came, and why.
func unanswered(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, context.Canceled) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// dialing tells whether no connection was made, so that nothing was sent.
func dialing(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// retryAfter reads the header, a number of seconds or a date.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(s); err == nil {
		return min(max(time.Duration(min(n, 3600))*time.Second, 0), longestWait)
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(max(at.Sub(now), 0), longestWait)
	}
	return 0
}

// passing tells whether the same request may be answered another time.
func passing(err error) bool {
	var e *RemoteError
	if errors.As(err, &e) && e.said.Retriable {
		return true
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrThrottled) || errors.Is(err, errGarbage) || errors.Is(err, errNoKeys)
}

// pause is how long to wait after the nth failure: jittered, and at least as long as the server asked for.
func (c *client) pause(n int, err error) time.Duration {
	d := c.env.Jitter(min(firstPause<<min(n, 10), lastPause))
	var f *failure
	if errors.As(err, &f) && f.after > 0 {
		d += f.after + f.after/4 - c.env.Jitter(f.after/4)
	}
	return d
}

// call sends the request until it is answered, a few times at most; a refusal of the credentials once more. read, which may be nil, looks at the answer:
// errGarbage sends it again too.
func (c *client) call(ctx context.Context, q request, read func(*reply) error) error {
	return bare(c.try(ctx, q, read))
}

// try is call with a *failure where there was no good answer.
func (c *client) try(ctx context.Context, q request, read func(*reply) error) error {
	renewed := false
	for n := 0; ; n++ {
		r, err := c.send(ctx, q)
		if err == nil && read != nil {
			err = read(r)
		}
		var f *failure
		definite := errors.As(err, &f) && !f.sent
		again := passing(err) && (!q.once || definite)
		if f != nil && f.anew && !renewed {
			renewed, again = true, true
		}
		if err == nil || !again || n == attempts-1 || ctx.Err() != nil {
			return err
		}
		if c.env.Sleep(ctx, c.pause(n, err)) != nil {
			return err
		}
	}
}

// bare is the error without what only the client needs to know.
func bare(err error) error {
	var f *failure
	if errors.As(err, &f) {
		return f.err
	}
	return err
}

// json is call for an answer in JSON.
func (c *client) json(ctx context.Context, q request, into any) error {
	q.accept = wire.JSONType
	return c.call(ctx, q, func(r *reply) error { return decodeJSON(r.body, into) })
}

func decodeJSON(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %w: %w", ErrUnreachable, errGarbage, err)
	}
	return nil
}
