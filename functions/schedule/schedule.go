// Package schedule is the jobs of a log as schedules run them, in the cloud and on a laptop: each once, within the time there is, and what is left the next run
// does. A job may run any number of times at once.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// Event is a job that has ended.
type Event struct {
	Job    string `json:"job"` // compact, clean, retain or sweep
	What   string `json:"what"`
	Did    bool   `json:"did"` // anything
	Report any    `json:"report,omitempty"`
	Err    error  `json:"-"`
	Error  string `json:"error,omitempty"`
}

func event(job, what string, did bool, report any, err error) Event {
	e := Event{Job: job, What: what, Did: did, Report: report, Err: err}
	if err != nil {
		e.Error = err.Error()
	}
	return e
}

// Job does one thing within the time given, 0 being as long as each of its parts takes by default.
type Job func(ctx context.Context, b sdk.Backend, e env.Env, within time.Duration) []Event

// Compact compacts objects, and then keys. Of the time keys have what objects leave, but a third of it at least: a log whose objects take all the time there
// is would never have its keys compacted.
func Compact(ctx context.Context, b sdk.Backend, e env.Env, within time.Duration) []Event {
	start := e.Mono()
	c, err := compact.Run(ctx, b.Table, b.Store, compact.Options{Deadline: min(within-within/3, compact.MaxDeadline), Env: e})
	events := []Event{event("compact", fmt.Sprintf("%d segments published, %d records", c.Segments, c.Records), c.Segments > 0, c, err)}
	if ctx.Err() != nil {
		return events
	}
	left := time.Duration(0)
	if within > 0 {
		left = max(within-(e.Mono()-start), time.Second)
	}
	r, err := clean.Run(ctx, b.Table, b.Store, clean.Options{Deadline: left, Env: e})
	kept, of := int64(0), int64(0)
	for _, p := range r.Partitions {
		kept, of = kept+p.Kept, of+p.Records
	}
	return append(events, event("clean", fmt.Sprintf("%d partitions, %d of %d records kept", len(r.Partitions), kept, of), len(r.Partitions) > 0, r, err))
}

// Retain moves log starts, and keeps the bucket's rules.
func Retain(ctx context.Context, b sdk.Backend, e env.Env, within time.Duration) []Event {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = e.WithTimeout(ctx, within)
		defer cancel()
	}
	r, err := retain.Run(ctx, b.Table, retain.Options{Lifecycle: b.Lifecycle, Env: e})
	moves := 0
	for _, t := range r.Topics {
		moves += len(t.Moves)
	}
	return []Event{event("retain", fmt.Sprintf("%d log starts moved", moves), moves > 0, r, err)}
}

// Sweep deletes what nothing names. That it came to the end of its time is no error: the next one goes on.
func Sweep(ctx context.Context, b sdk.Backend, e env.Env, within time.Duration) []Event {
	r, err := sweep.Run(ctx, b.Table, b.Store, sweep.Options{Deadline: within, Env: e})
	if errors.Is(err, sweep.ErrDeadline) {
		err = nil
	}
	n, bytes := int64(0), int64(0)
	for _, h := range r.Deleted {
		n, bytes = n+h.Count, bytes+h.Bytes
	}
	return []Event{event("sweep", fmt.Sprintf("%d things deleted, %d bytes", n, bytes), n > 0, r, err)}
}
