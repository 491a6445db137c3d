package lambda

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/localdev/tied"
)

// process is one process of the function, and its Runtime API.
type process struct {
	host    *Host
	command *exec.Cmd
	api     *http.Server
	started time.Duration
	work    chan *invocation // room for one
	gone    chan struct{}    // closed when the process is gone

	mu      sync.Mutex
	current *invocation
	answer  *pipe         // of the response under way
	init    time.Duration // until the first event was asked for; 0 before
	why     error         // it was killed
}

// invocation is one event on its way.
type invocation struct {
	id     string
	event  []byte
	answer chan answer // room for one
	told   bool        // process.mu
	begun  time.Duration
	stop   func() // of its timer
}

type answer struct {
	response  *Response
	err       error
	init, run time.Duration
}

// pipe is a response under way: it ends with the error of a process that ends.
type pipe struct{ *io.PipeWriter }

// start starts a process.
func (h *Host) start() (*process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &process{host: h, work: make(chan *invocation, 1), gone: make(chan struct{}), started: h.env.Mono()}
	p.command = exec.Command(h.f.Program)
	p.command.Env = append([]string{
		"AWS_LAMBDA_RUNTIME_API=" + l.Addr().String(), "AWS_LAMBDA_FUNCTION_NAME=" + h.f.Name, "AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512", "AWS_LAMBDA_INITIALIZATION_TYPE=on-demand", "_HANDLER=bootstrap", "LAMBDA_TASK_ROOT=/var/task",
		"TMPDIR=" + os.TempDir(), "PATH=/usr/local/bin:/usr/bin:/bin",
	}, h.f.Env...)
	p.command.Stdout, p.command.Stderr = output{h}, output{h}
	p.api = &http.Server{Handler: p.routes()}
	ended, err := tied.Start(p.command)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("start %s: %w", h.f.Program, err)
	}
	go func() {
		<-ended
		p.ended()
	}()
	go p.api.Serve(l)
	go p.watchInit()
	return p, nil
}

// output is what processes print.
type output struct{ host *Host }

func (o output) Write(b []byte) (int, error) {
	o.host.output.Lock()
	defer o.host.output.Unlock()
	return o.host.f.Output.Write(b)
}

// watchInit kills a process that does not ask for its first event in time.
func (p *process) watchInit() {
	timer, stop := p.host.env.After(initTime)
	defer stop()
	select {
	case <-timer:
		p.mu.Lock()
		late := p.init == 0
		p.mu.Unlock()
		if late {
			p.killed(fmt.Errorf("%w: no event was asked for within %v of the start", ErrTimeout, initTime))
		}
	case <-p.gone:
	}
}

func (p *process) kill() { p.command.Process.Kill() }

// killed kills the process for a reason that its invocation is told.
func (p *process) killed(why error) {
	p.mu.Lock()
	if p.why == nil {
		p.why = why
	}
	p.mu.Unlock()
	p.kill()
}

// ended clears up behind a process.
func (p *process) ended() {
	p.host.lose(p)
	p.api.Close()
	p.mu.Lock()
	why := p.why
	if why == nil {
		why = fmt.Errorf("%w: %v", ErrExited, p.command.ProcessState)
	}
	i, open := p.current, p.answer
	p.mu.Unlock()
	if i == nil {
		select {
		case i = <-p.work: // it was never asked for
		default:
		}
	}
	if open != nil {
		open.CloseWithError(why)
	}
	if i != nil {
		p.tell(i, answer{err: why})
	}
	close(p.gone)
}

// give hands an event to the process. One that has ended meanwhile fails it.
func (p *process) give(i *invocation) {
	p.work <- i
	select {
	case <-p.gone:
		select {
		case i := <-p.work:
			p.tell(i, answer{err: ErrExited})
		default:
		}
	default:
	}
}

// tell tells what became of an invocation, once.
func (p *process) tell(i *invocation, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.told {
		return
	}
	i.told = true
	if a.init = p.init; i.begun > 0 {
		a.run = p.host.env.Mono() - i.begun
	}
	i.answer <- a
}

const version = "/2018-06-01/runtime/"

func (p *process) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET "+version+"invocation/next", p.next)
	m.HandleFunc("POST "+version+"invocation/{id}/response", p.response)
	m.HandleFunc("POST "+version+"invocation/{id}/error", p.failure)
	m.HandleFunc("POST "+version+"init/error", func(w http.ResponseWriter, r *http.Request) {
		p.killed(functionError(r.Body))
		w.WriteHeader(http.StatusAccepted)
	})
	// An internal extension, by which aws-lambda-go asks to be told of SIGTERM.
	m.HandleFunc("POST /2020-01-01/extension/register", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Lambda-Extension-Identifier", "00000000-0000-4000-8000-000000000000")
		w.Write([]byte("{}"))
	})
	m.HandleFunc("GET /2020-01-01/extension/event/next", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return m
}

// next ends the invocation before, if there was one, and hands out the next.
func (p *process) next(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	first, before := p.init == 0, p.current
	if first {
		p.init = p.host.env.Mono() - p.started
	}
	p.current = nil
	p.mu.Unlock()
	if before != nil {
		before.stop()
		p.tell(before, answer{err: errors.New("the function asked for the next event without having answered the last")})
	}
	if !first {
		p.host.free(p)
	}
	select {
	case i := <-p.work:
		p.handOut(w, i)
	case <-r.Context().Done():
	}
}

func (p *process) handOut(w http.ResponseWriter, i *invocation) {
	e := p.host.env
	timeout := p.host.f.Timeout
	timer, stop := e.After(timeout)
	done := make(chan struct{})
	i.stop = sync.OnceFunc(func() { close(done) })
	go func() {
		defer stop()
		select {
		case <-timer:
			p.killed(fmt.Errorf("%w: after %v", ErrTimeout, timeout))
		case <-done:
		case <-p.gone:
		}
	}()
	p.mu.Lock()
	p.current, i.begun = i, e.Mono()
	p.mu.Unlock()
	w.Header().Set("Lambda-Runtime-Aws-Request-Id", i.id)
	w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(e.Now().Add(timeout).UnixMilli(), 10))
	w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:"+region+":000000000000:function:"+p.host.f.Name)
	w.Header().Set("Lambda-Runtime-Trace-Id", "Root=1-00000000-000000000000000000000000;Sampled=0")
	w.Header().Set("Content-Type", "application/json")
	w.Write(i.event)
}

// region stands where AWS's would.
const region = "eu-central-1"

// its is the invocation that the request is about, if it is the current one.
func (p *process) its(r *http.Request) *invocation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil || p.current.id != r.PathValue("id") {
		return nil
	}
	return p.current
}

// response passes a response on as it comes. What is wrong with its end a trailer says.
func (p *process) response(w http.ResponseWriter, r *http.Request) {
	i := p.its(r)
	if i == nil {
		http.Error(w, `{"errorType":"InvalidRequestID"}`, http.StatusBadRequest)
		return
	}
	reader, writer := io.Pipe()
	p.mu.Lock()
	p.answer = &pipe{writer}
	p.mu.Unlock()
	p.tell(i, answer{response: &Response{ContentType: r.Header.Get("Content-Type"), Body: reader}})
	_, err := io.Copy(writer, r.Body)
	if errors.Is(err, io.ErrClosedPipe) { // nobody reads it any more, which is not the function's business
		io.Copy(io.Discard, r.Body)
	}
	if kind := r.Trailer.Get("Lambda-Runtime-Function-Error-Type"); kind != "" {
		err = &FunctionError{Type: kind, Message: "while it answered"}
	}
	if err == nil || errors.Is(err, io.ErrClosedPipe) {
		writer.Close()
	} else if r.Context().Err() == nil {
		writer.CloseWithError(err)
	} else { // the process is ending, and its end says why
		return
	}
	p.mu.Lock()
	p.answer = nil
	p.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

func (p *process) failure(w http.ResponseWriter, r *http.Request) {
	i := p.its(r)
	if i == nil {
		http.Error(w, `{"errorType":"InvalidRequestID"}`, http.StatusBadRequest)
		return
	}
	p.tell(i, answer{err: functionError(r.Body)})
	w.WriteHeader(http.StatusAccepted)
}

func functionError(body io.Reader) error {
	b, _ := io.ReadAll(io.LimitReader(body, MaxResponse))
	e := &FunctionError{}
	if json.Unmarshal(b, e) != nil || e.Type == "" && e.Message == "" {
		e.Type, e.Message = "Unhandled", strings.ToValidUTF8(string(bytes.TrimSpace(b)), "?")
	}
	return e
}
