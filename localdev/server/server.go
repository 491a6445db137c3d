// Package server serves a log over HTTP on this machine, by the handlers that are functions in the cloud. It listens on loopback only, unless there is a token; a bearer
// token, if one is set, keeps other users of the machine out, and the Host header web pages.
package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/varvelog/varve/functions/local"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/sdk"
)

// Options are what a server is given; the zero value is ready.
type Options struct {
	// Listen is host:port. The host is a loopback address, or localhost; with a Token any address, for a container whose port is forwarded from the machine's loopback
	// address. Port 0 is any that is free. Default 127.0.0.1:0.
	Listen string
	// Token, if set, has to be in each request: Authorization: Bearer TOKEN.
	Token string
	// Tell, if set, hears of each request when it is answered.
	Tell func(Event)
	Env  env.Env
	// Headers and Body are how long a client may take to send them; defaults 5 s and 30 s.
	Headers, Body time.Duration
}

// Event is a request that was answered.
type Event = local.Event

// Limits of what clients may occupy.
const (
	maxHeaderBytes = 64 << 10
	maxRequests    = 256 // at a time
	maxWaiting     = 192 // of them for records
	mostTime       = 30 * time.Second
	idleTime       = time.Minute
	lastTime       = 2 * time.Second // for a body to come when the server is told to end
)

// Server serves one log until it is closed.
type Server struct {
	url      string
	http     *http.Server
	service  *local.Service
	base     context.Context    // of all requests
	stop     context.CancelFunc // ends requests that wait
	serving  chan error
	requests chan struct{}
	token    [sha256.Size]byte
	options  Options
}

// Start begins to serve the log, which must outlive the server. Close it.
func Start(log *sdk.Log, o Options) (*Server, error) {
	if o.Env.Clock == nil {
		o.Env = env.System()
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Headers <= 0 {
		o.Headers = 5 * time.Second
	}
	if o.Body <= 0 {
		o.Body = 30 * time.Second
	}
	listener, err := listen(o.Listen, o.Token != "")
	if err != nil {
		return nil, err
	}
	base, stop := context.WithCancel(context.Background())
	s := &Server{
		url: "http://" + listener.Addr().String(), base: base, stop: stop, serving: make(chan error, 1), requests: make(chan struct{}, maxRequests),
		service: local.New(log, local.Options{Env: o.Env, Tell: o.Tell, Most: mostTime, MaxWaiting: maxWaiting}), token: sha256.Sum256([]byte(o.Token)), options: o,
	}
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serve), BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: o.Headers, IdleTimeout: idleTime, WriteTimeout: o.Body + 3*mostTime, MaxHeaderBytes: maxHeaderBytes,
	}
	go func() { s.serving <- s.http.Serve(listener) }()
	return s, nil
}

// listen listens on a loopback address, or anywhere, or not at all.
func listen(address string, anywhere bool) (net.Listener, error) {
	bad := &sdk.FieldError{Field: "address to listen on", Value: address, Valid: "a loopback address and a port, such as 127.0.0.1:8080, [::1]:8080 or localhost:0; others take a token"}
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return nil, bad
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil || !anywhere && !at.IP.IsLoopback() {
		return nil, bad
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// URL is where it is served, without a slash at the end.
func (s *Server) URL() string { return s.url }

// Close lets requests under way end, those that wait for records at once and those whose body has not come soon, and returns when nothing of the server runs. When ctx is done first, it breaks off what is
// left: what was not answered may have been done.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	if served := <-s.serving; err == nil && !errors.Is(served, http.ErrServerClosed) {
		err = served
	}
	return errors.Join(err, s.service.Close(ctx))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case s.requests <- struct{}{}:
		defer func() { <-s.requests }()
	default:
		local.Fail(w, r, wire.Unavailable, fmt.Sprintf("%d requests are under way, which is the most; try again", maxRequests))
		return
	}
	switch {
	case !loopbackName(r.Host):
		local.Fail(w, r, wire.BadRequest, "this server is for this machine: the Host has to be localhost or a loopback address")
	case !s.allowed(r):
		local.Fail(w, r, wire.Unauthorized, "the request needs the header Authorization: Bearer TOKEN, with the token of this server")
	default:
		limited, done := s.limitBody(w, r)
		defer done()
		s.service.ServeHTTP(w, limited)
	}
}

// loopbackName refuses names that somebody may have pointed to this machine, to get at it from a web page.
func loopbackName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// allowed compares hashes, so that the time that it takes tells nothing, the token's length included.
func (s *Server) allowed(r *http.Request) bool {
	if s.options.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], s.token[:]) == 1
}

// limitBody sets the time until which the body must have come, sooner when the server is told to end. It ends with the body: a request may take longer to be served. The
// request that is served is a copy: net/http takes a body that it does not know for one to be read to its end before a refusal is sent, and a slow one would hold that up.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) (limited *http.Request, done func()) {
	limited = r.WithContext(r.Context())
	if r.ContentLength == 0 {
		return limited, func() {}
	}
	control := http.NewResponseController(w)
	if control.SetReadDeadline(s.options.Env.Now().Add(s.options.Body)) != nil {
		return limited, func() {}
	}
	unhurried := context.AfterFunc(s.base, func() { _ = control.SetReadDeadline(s.options.Env.Now().Add(lastTime)) })
	limited.Body = &timedBody{r.Body, func() {
		unhurried()
		_ = control.SetReadDeadline(time.Time{})
	}}
	return limited, func() { unhurried() }
}

// timedBody calls ended when all of the body has come.
type timedBody struct {
	io.ReadCloser
	ended func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended()
	}
	return n, err
}
