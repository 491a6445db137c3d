// Package function is what the Lambda mains share: the environment, the log, the time there is, and what is told of it.
package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/varvelog/varve/functions/environment"
	"github.com/varvelog/varve/functions/monitor"
	"github.com/varvelog/varve/functions/schedule"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// Function is a function's process. Its methods may be called concurrently.
type Function struct {
	Name   string
	Values environment.Values
	Env    env.Env

	out    io.Writer
	counts monitor.Counts
	open   func(context.Context) (*sdk.Log, error)
	mu     sync.Mutex
	log    *sdk.Log
}

// Start reads the function's environment and opens its log. A process whose environment is wrong, or whose log cannot be opened now, is not ended for it: that would
// only be started again. Each invocation then says so, and tries again.
func Start(name string) *Function {
	f := &Function{Name: name, Env: env.System(), out: os.Stdout}
	f.open = func(ctx context.Context) (*sdk.Log, error) {
		var err error
		if f.Values, err = environment.Read(name, os.LookupEnv); err != nil {
			return nil, err
		}
		return sdk.Open(ctx, f.Values[environment.Log], sdk.WithHooks(&f.counts))
	}
	ctx, cancel := f.Env.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	f.Log(ctx)
	return f
}

// openTimeout is less than the ten seconds that Lambda lets a process take before its first invocation.
const openTimeout = 8 * time.Second

// Log is the function's log.
func (f *Function) Log(ctx context.Context) (*sdk.Log, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log != nil {
		return f.log, nil
	}
	log, err := f.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", f.Name, err)
	}
	f.log = log
	return log, nil
}

// Budget is the time an invocation may take: what its ctx leaves, less a tenth, and a second at least, to end in good order.
func Budget(ctx context.Context, e env.Env) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 10 * time.Minute
	}
	left := deadline.Sub(e.Now())
	return max(left-max(left/10, time.Second), left/2, time.Millisecond)
}

// Told is what an invocation answers, and prints as a line of its own.
type Told struct {
	Function string           `json:"function"`
	Did      []schedule.Event `json:"did"`
}

// Job runs a job once. What it did, and what failed, is printed; the invocation fails if anything did.
func (f *Function) Job(do schedule.Job) func(context.Context) error {
	return func(ctx context.Context) error {
		log, err := f.Log(ctx)
		if err != nil {
			return err
		}
		var events []schedule.Event
		for _, e := range do(ctx, log.Backend(), f.Env, Budget(ctx, f.Env)) {
			err = errors.Join(err, e.Err)
			if e.Report = nil; e.Did || e.Err != nil {
				events = append(events, e)
			}
		}
		if len(events) > 0 {
			f.Tell(Told{f.Name, events})
		}
		f.Count(log)
		return err
	}
}

// Tell prints one line of JSON.
func (f *Function) Tell(what any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	json.NewEncoder(f.out).Encode(what)
}

// Count prints what the hooks have counted since it was called last.
func (f *Function) Count(log *sdk.Log) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := log.Backend()
	f.counts.Write(f.out, f.Env.Now(), monitor.LogName(b.Bucket, b.Prefix), f.Name)
}
