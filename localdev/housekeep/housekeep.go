// Package housekeep does in one process, now and then, what schedules do for a log in the cloud: compaction, retention, the sweep. Each of them may also be run by
// anybody else at any time.
package housekeep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// Options say how often each job is done; 0 is its default, less is never.
type Options struct {
	Compact time.Duration // default DefaultCompact
	Retain  time.Duration // default DefaultRetain
	Sweep   time.Duration // default DefaultSweep
	// Tell, if set, is told of each run, by one goroutine at a time.
	Tell func(Event)
	Env  env.Env
}

// Defaults.
const (
	DefaultCompact = time.Minute
	DefaultRetain  = 5 * time.Minute
	DefaultSweep   = time.Hour
)

// Event is a run that has ended.
type Event struct {
	Job    string `json:"job"` // compact, clean, retain or sweep
	What   string `json:"what"`
	Did    bool   `json:"did"` // anything
	Report any    `json:"report"`
	Err    error  `json:"-"`
	Error  string `json:"error,omitempty"`
}

// Run does the jobs until ctx is done, and returns when the last one has ended. A job that fails is told of and done again at its time.
func Run(ctx context.Context, b sdk.Backend, o Options) {
	k := &keeper{backend: b, o: o}
	var jobs sync.WaitGroup
	for _, j := range []struct {
		every, otherwise time.Duration
		do               func(context.Context)
	}{{o.Compact, DefaultCompact, k.compact}, {o.Retain, DefaultRetain, k.retain}, {o.Sweep, DefaultSweep, k.sweep}} {
		every := j.every
		if every == 0 {
			every = j.otherwise
		}
		if every < 0 {
			continue
		}
		jobs.Go(func() {
			for o.Env.Sleep(ctx, o.Env.Jitter(every)) == nil {
				j.do(ctx)
			}
		})
	}
	jobs.Wait()
}

type keeper struct {
	backend sdk.Backend
	o       Options
	mu      sync.Mutex
}

func (k *keeper) tell(ctx context.Context, job, what string, did bool, report any, err error) {
	if k.o.Tell == nil || err != nil && ctx.Err() != nil {
		return
	}
	e := Event{Job: job, What: what, Did: did, Report: report, Err: err}
	if err != nil {
		e.Error = err.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.o.Tell(e)
}

func (k *keeper) compact(ctx context.Context) {
	c, err := compact.Run(ctx, k.backend.Table, k.backend.Store, compact.Options{Env: k.o.Env})
	k.tell(ctx, "compact", fmt.Sprintf("%d segments published, %d records", c.Segments, c.Records), c.Segments > 0, c, err)
	if ctx.Err() != nil {
		return
	}
	r, err := clean.Run(ctx, k.backend.Table, k.backend.Store, clean.Options{Env: k.o.Env})
	kept, of := int64(0), int64(0)
	for _, p := range r.Partitions {
		kept, of = kept+p.Kept, of+p.Records
	}
	k.tell(ctx, "clean", fmt.Sprintf("%d partitions, %d of %d records kept", len(r.Partitions), kept, of), len(r.Partitions) > 0, r, err)
}

func (k *keeper) retain(ctx context.Context) {
	r, err := retain.Run(ctx, k.backend.Table, retain.Options{Lifecycle: k.backend.Lifecycle, Env: k.o.Env})
	moves := 0
	for _, t := range r.Topics {
		moves += len(t.Moves)
	}
	k.tell(ctx, "retain", fmt.Sprintf("%d log starts moved", moves), moves > 0, r, err)
}

func (k *keeper) sweep(ctx context.Context) {
	r, err := sweep.Run(ctx, k.backend.Table, k.backend.Store, sweep.Options{Env: k.o.Env})
	if errors.Is(err, sweep.ErrDeadline) {
		err = nil // the next one goes on
	}
	n, bytes := int64(0), int64(0)
	for _, h := range r.Deleted {
		n, bytes = n+h.Count, bytes+h.Bytes
	}
	k.tell(ctx, "sweep", fmt.Sprintf("%d things deleted, %d bytes", n, bytes), n > 0, r, err)
}
