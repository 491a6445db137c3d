// Package housekeep does in one process, now and then, what schedules do for a log in the cloud: compaction, retention, the sweep. Each of them may also be run by
// anybody else at any time.
package housekeep

import (
	"context"
	"sync"
	"time"

	"github.com/varvelog/varve/functions/schedule"
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
type Event = schedule.Event

// Run does the jobs until ctx is done, and returns when the last one has ended. A job that fails is told of and done again at its time.
func Run(ctx context.Context, b sdk.Backend, o Options) {
	k := &keeper{backend: b, o: o}
	var jobs sync.WaitGroup
	for _, j := range []struct {
		every, otherwise time.Duration
		do               func(context.Context)
	}{{o.Compact, DefaultCompact, k.job(schedule.Compact)}, {o.Retain, DefaultRetain, k.job(schedule.Retain)}, {o.Sweep, DefaultSweep, k.job(schedule.Sweep)}} {
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

// job does the job once and tells of it. What an interruption ends is not told.
func (k *keeper) job(do schedule.Job) func(context.Context) {
	return func(ctx context.Context) {
		for _, e := range do(ctx, k.backend, k.o.Env, 0) {
			if k.o.Tell != nil && (e.Err == nil || ctx.Err() == nil) {
				k.mu.Lock()
				k.o.Tell(e)
				k.mu.Unlock()
			}
		}
	}
}
