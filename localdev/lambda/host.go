// Package lambda runs Lambda functions on this machine: unmodified bootstrap binaries, each process behind a Runtime API of its own, and before them what a function URL
// is. It does what decides whether a function is right, and what AWS's own emulator does not: another process for each request at a time, up to a limit and then 429;
// responses that are streamed; a process frozen (SIGSTOP) from the end of its response to its next request; one that takes too long killed. It limits neither memory nor
// processor, and of identities it knows one key at most.
package lambda

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// Function says what is run. Program is required.
type Function struct {
	Name    string // default "function"
	Program string // the bootstrap
	// Env are variables NAME=value besides those that Lambda sets. Of this machine's own none is passed on.
	Env         []string
	Timeout     time.Duration // of an invocation; default 3 s, as Lambda's
	Concurrency int           // processes at once; default 1000
	Freeze      bool          // stop processes between invocations, where the system can
	Output      io.Writer     // what processes print, by one goroutine at a time; default: nowhere
	Signed      *Signer       // whose requests alone the URL lets through; nil: everybody's
	// Tell, if set, is told of each invocation when its response has begun, or has failed. It may be called concurrently.
	Tell  func(Invocation)
	Clock env.Env // default env.System()
}

// Limits, of the service.
const (
	MaxRequest  = 6 << 20 // bytes of an event
	MaxResponse = 6291556 // bytes of a response that is not streamed
	initTime    = 10 * time.Second
)

// Invocation is one that has begun to answer, or failed.
type Invocation struct {
	Cold  bool
	Init  time.Duration // of a cold one: from the start of the process until it asked for its first event
	Run   time.Duration // from the event until the first byte of the response
	Error error
}

// Conditions of an invocation.
var (
	ErrThrottled = errors.New("as many processes as are allowed are busy")
	ErrTimeout   = errors.New("the function took too long, and was killed")
	ErrExited    = errors.New("the function's process ended")
	ErrTooLarge  = errors.New("event or response is over the limit")
	ErrClosed    = errors.New("host is closed")
)

// FunctionError is an error that the function returned.
type FunctionError struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

func (e *FunctionError) Error() string {
	return fmt.Sprintf("function failed: %s: %s", e.Type, e.Message)
}

// Host runs one function. Its methods may be called concurrently.
type Host struct {
	f   Function
	env env.Env

	mu      sync.Mutex
	all     map[*process]struct{}
	idle    []*process // the one that was busy last comes last, and is taken first
	closed  bool
	output  sync.Mutex
	ids     int
	started int
}

// New makes a Host, which starts nothing before it is asked to. A *metadata.FieldError: a setting makes no sense.
func New(f Function) (*Host, error) {
	bad := func(field, value, valid string) error {
		return &metadata.FieldError{Field: field, Value: value, Valid: valid}
	}
	switch {
	case f.Program == "":
		return nil, bad("program", "", "the path of a bootstrap")
	case f.Timeout < 0 || f.Timeout > 15*time.Minute:
		return nil, bad("time-out", f.Timeout.String(), "up to 15m")
	case f.Concurrency < 0:
		return nil, bad("concurrency", fmt.Sprint(f.Concurrency), "1 or more, or 0 for the default")
	case f.Freeze && !canFreeze:
		return nil, bad("freeze", "true", "false: this system cannot stop processes")
	}
	if f.Name == "" {
		f.Name = "function"
	}
	if f.Timeout == 0 {
		f.Timeout = 3 * time.Second
	}
	if f.Concurrency == 0 {
		f.Concurrency = 1000
	}
	if f.Output == nil {
		f.Output = io.Discard
	}
	if f.Clock.Clock == nil {
		f.Clock = env.System()
	}
	return &Host{f: f, env: f.Clock, all: map[*process]struct{}{}}, nil
}

// Close kills all processes and waits until they are gone. What is under way fails with ErrExited.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	var all []*process
	for p := range h.all {
		all = append(all, p)
	}
	h.mu.Unlock()
	for _, p := range all {
		p.kill()
	}
	for _, p := range all {
		<-p.gone
	}
	return nil
}

// Started is how many processes were started.
func (h *Host) Started() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started
}

// take is a process that is free, or a new one.
func (h *Host) take() (p *process, cold bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, false, ErrClosed
	}
	for len(h.idle) > 0 {
		p = h.idle[len(h.idle)-1]
		h.idle = h.idle[:len(h.idle)-1]
		if _, lives := h.all[p]; lives {
			return p, false, p.thaw()
		}
	}
	if len(h.all) >= h.f.Concurrency {
		return nil, false, ErrThrottled
	}
	if p, err = h.start(); err != nil {
		return nil, false, err
	}
	h.started++
	h.all[p] = struct{}{}
	return p, true, nil
}

// free takes a process back that has asked for its next event.
func (h *Host) free(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, lives := h.all[p]; !lives || h.closed {
		return
	}
	if h.f.Freeze {
		p.freeze()
	}
	h.idle = append(h.idle, p)
}

// lose forgets a process that has ended.
func (h *Host) lose(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, p)
}

func (h *Host) newID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", h.ids)
}

// Response is what a function answers. Body is to be read and closed: it may still be written.
type Response struct {
	ContentType string
	Body        io.ReadCloser
}

// Start begins an invocation and returns when its response begins. It does not end with ctx, as an invocation does not when its caller goes away; then only
// nobody reads what it answers. ErrThrottled, ErrTimeout, ErrExited, ErrTooLarge, *FunctionError.
func (h *Host) Start(ctx context.Context, event []byte) (*Response, error) {
	if len(event) > MaxRequest {
		return nil, fmt.Errorf("%w: an event of %d bytes, at most %d", ErrTooLarge, len(event), MaxRequest)
	}
	p, cold, err := h.take()
	if err != nil {
		return nil, err
	}
	i := &invocation{id: h.newID(), event: event, answer: make(chan answer, 1)}
	p.give(i)
	var a answer
	select {
	case a = <-i.answer:
	case <-ctx.Done():
		go func() { // somebody has to read it, or it would not end
			if a := <-i.answer; a.response != nil {
				io.Copy(io.Discard, a.response.Body)
				a.response.Body.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
	if h.f.Tell != nil {
		told := Invocation{Cold: cold, Run: a.run, Error: a.err}
		if cold {
			told.Init = a.init
		}
		h.f.Tell(told)
	}
	return a.response, a.err
}

// Invoke runs an invocation to its end, and returns its answer, as one does that is not streamed.
func (h *Host) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	r, err := h.Start(ctx, event)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(io.LimitReader(r.Body, MaxResponse+1))
	if err == nil && len(b) > MaxResponse {
		err = fmt.Errorf("%w: a response of more than %d bytes", ErrTooLarge, MaxResponse)
	}
	return b, err
}

// PIDs are the ids of the processes that there are.
func (h *Host) PIDs() (all []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.all {
		all = append(all, p.command.Process.Pid)
	}
	return all
}
