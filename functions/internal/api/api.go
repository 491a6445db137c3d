// Package api is what the HTTP functions share: finding the route, reading bodies and parameters within bounds, answering in JSON, and turning errors into answers.
// docs/openapi.yaml describes what comes of it. Nothing of it runs after a handler has returned.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/wire"
)

// Options are what every handler is given.
type Options struct {
	Env env.Env
	// Tell, if set, hears of each request when it is answered. It must return at once.
	Tell func(Event)
}

// Event is a request that was answered.
type Event struct {
	Method   string
	Route    string // as in docs/openapi.yaml; "" if there is none
	Status   int
	Duration time.Duration
	Err      error // that it was answered with; with a panic its stack
}

// Route is one operation. Path has names in braces for single segments.
type Route struct {
	Method, Path string
	Serve        func(*Call) error
}

// Handler serves routes. Errors that they return, and everything that is no route, it answers in JSON.
type Handler struct {
	routes  []route
	options Options
}

type route struct {
	Route
	segments []string
}

// New makes a handler of the routes.
func New(o Options, routes ...Route) *Handler {
	h := &Handler{options: o}
	for _, r := range routes {
		h.routes = append(h.routes, route{r, strings.Split(r.Path, "/")})
	}
	return h
}

// Call is one request under way.
type Call struct {
	W     http.ResponseWriter
	R     *http.Request
	names map[string]string
	sent  int // status, once it is answered
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := h.options.Env.Mono()
	c := &Call{W: w, R: r}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	path, err := h.serve(c)
	if err != nil && c.sent == 0 {
		c.fail(err)
	}
	if h.options.Tell != nil {
		h.options.Tell(Event{Method: r.Method, Route: path, Status: c.sent, Duration: h.options.Env.Mono() - start, Err: err})
	}
}

// serve finds the route and runs it. A panic is its error.
func (h *Handler) serve(c *Call) (path string, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	var allowed []string
	for _, r := range h.routes {
		names, ok := r.match(c.R.URL)
		if !ok {
			continue
		}
		if r.Method == c.R.Method {
			c.names = names
			return r.Path, r.Serve(c)
		}
		allowed = append(allowed, r.Method)
	}
	if len(allowed) > 0 {
		slices.Sort(allowed)
		allow := strings.Join(slices.Compact(allowed), ", ")
		c.W.Header().Set("Allow", allow)
		return "", &wire.Error{Code: wire.MethodNotAllowed, Message: fmt.Sprintf("%s is not possible here: it is %s", clip(c.R.Method), allow)}
	}
	return "", &wire.Error{Code: wire.NotFound, Message: fmt.Sprintf("there is nothing at %q; docs/openapi.yaml has every path", clip(c.R.URL.EscapedPath()))}
}

// match tells whether the URL is of the route, and what stands in the place of its names. A segment is unescaped after the path was cut, so an escaped slash is part
// of a name, and no path is cleaned: ".." is a name like others, and as such refused.
func (r *route) match(u *url.URL) (map[string]string, bool) {
	segments := strings.Split(u.EscapedPath(), "/")
	if len(segments) != len(r.segments) {
		return nil, false
	}
	names := map[string]string{}
	for i, want := range r.segments {
		if !strings.HasPrefix(want, "{") {
			if segments[i] != want {
				return nil, false
			}
			continue
		}
		name, err := url.PathUnescape(segments[i])
		if err != nil {
			return nil, false
		}
		names[want[1:len(want)-1]] = name
	}
	return names, true
}

// Name is what stands in the path in the place of a name.
func (c *Call) Name(name string) string { return c.names[name] }

// Number is Name for a number of a partition.
func (c *Call) Number(name string) (int, error) {
	n, err := strconv.ParseUint(c.names[name], 10, 31)
	if err != nil {
		return 0, BadField(name, c.names[name], "a whole number from 0 on")
	}
	return int(n), nil
}

// JSON answers with v, if that is no longer than wire.MaxAnswer.
func (c *Call) JSON(status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	if size, limit := int64(b.Len()), int64(wire.MaxAnswer); size > limit {
		return &wire.Error{Code: wire.TooLarge, Size: &size, Limit: &limit, Message: fmt.Sprintf("the answer would have %d bytes, at most %d are possible", size, limit)}
	}
	c.Send(status, wire.JSONType, b.Bytes())
	return nil
}

// Send answers with a body. That the client has gone away meanwhile concerns nobody.
func (c *Call) Send(status int, contentType string, body []byte) {
	c.sent = status
	h := c.W.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.W.WriteHeader(status)
	_, _ = c.W.Write(body)
}

// fail answers with an error.
func (c *Call) fail(err error) {
	if c.R.Context().Err() != nil && errors.Is(err, context.Canceled) {
		err = &wire.Error{Code: wire.Unavailable, Message: "the client went away", Retriable: true}
	}
	c.Fail(&wire.Failure{Error: ErrorOf(err)})
}

// Fail answers with a failure that says more than its error.
func (c *Call) Fail(f *wire.Failure) {
	status := StatusOf(f.Error.Code)
	if seconds := retryAfter[f.Error.Code]; seconds > 0 && f.Error.RetryAfter == nil {
		f.Error.RetryAfter = &seconds
	}
	if f.Error.RetryAfter != nil {
		c.W.Header().Set("Retry-After", strconv.Itoa(*f.Error.RetryAfter))
	}
	if status == http.StatusUnauthorized {
		c.W.Header().Set("WWW-Authenticate", "Bearer")
	}
	if err := c.JSON(status, f); err != nil { // a message that JSON cannot carry is not made here
		c.Send(http.StatusInternalServerError, wire.JSONType, []byte(`{"error":{"code":"internal","message":"the error could not be written","retriable":false}}`))
	}
}

// BadField is a request that is refused for one thing that it says.
func BadField(field, value, valid string) *wire.Error {
	value = clip(value)
	return &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("%s %q is not valid: want %s", field, value, valid), Field: field, Value: value, Valid: valid}
}

// clip keeps what a client sent from filling the answer, and whole runes.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// Refuse answers a request that no handler is to see.
func Refuse(w http.ResponseWriter, r *http.Request, code, message string) {
	retriable := StatusOf(code) == http.StatusServiceUnavailable
	c := &Call{W: w, R: r}
	c.Fail(&wire.Failure{Error: &wire.Error{Code: code, Message: message, Retriable: retriable}})
}
