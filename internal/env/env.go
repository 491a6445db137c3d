// Package env holds what varve takes from outside the program: wall and monotonic time, chance, and the
// named points at which a test may stop a process. Everything else receives an Env; only this package
// reads the system's clock, so that several processes with clocks of their own can live in one test
// (internal/lint forbids time.Now and friends elsewhere).
package env

import (
	"context"
	"time"
)

// Clock is wall time and monotonic time, kept apart because wall time may jump and a frozen process's
// monotonic clock may not have moved. Implementations are safe for concurrent use.
type Clock interface {
	// Now is the wall clock. It may jump either way.
	Now() time.Time
	// Mono is time since an arbitrary origin; it never goes back.
	Mono() time.Duration
	// After closes (or sends on) c once d has passed. stop releases the timer; it may be called more than once.
	After(d time.Duration) (c <-chan time.Time, stop func())
	// WithTimeout is context.WithTimeout on this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Env is handed to every part that needs time, chance or pause points. The zero value is not usable: start
// from System.
type Env struct {
	Clock
	*Rand
	// Pause is called at each named point, in the goroutine that reached it; it may block. nil does nothing.
	Pause func(Point)
}

// System is the machine's own clock and a randomly seeded source.
func System() Env { return Env{Clock: systemClock{start: time.Now()}, Rand: NewRand(systemSeed())} }

// At reports that point p was reached.
func (e Env) At(p Point) {
	if e.Pause != nil {
		e.Pause(p)
	}
}

// Sleep waits for d, or until ctx is done and then returns its cause.
func (e Env) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	c, stop := e.After(d)
	defer stop()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Jitter is a random duration in [d/2, d].
func (e Env) Jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + time.Duration(e.Int64N(int64(d-d/2)+1))
}

// Point names a place at which a crash or a freeze is interesting. The name says what has just been done,
// or is about to be.
type Point string

// The points of the produce walk, in order of their occurrence, then those of settling and spilling.
const (
	BeforeUpload Point = "before-upload"
	AfterUpload  Point = "after-upload"
	BeforeCommit Point = "before-commit" // the conditional update is about to be sent
	AfterCommit  Point = "after-commit"  // it was answered; promises are not resolved yet
	BeforeFence  Point = "before-fence"
	AfterFence   Point = "after-fence"
	BeforeChunk  Point = "before-chunk" // a chunk is about to be put
	AfterChunk   Point = "after-chunk"  // chunks are put, the head is not trimmed
	AfterTrim    Point = "after-trim"
	BeforeDelete Point = "before-delete"
)

// Points lists them all, for tests that visit each.
var Points = []Point{BeforeUpload, AfterUpload, BeforeCommit, AfterCommit, BeforeFence, AfterFence, BeforeChunk, AfterChunk, AfterTrim, BeforeDelete}

// The points of writing the archive, in order of their occurrence.
const (
	BeforePut     Point = "before-put" // an archive segment is about to be begun
	AfterPut      Point = "after-put"  // it is durable, and nothing names it
	BeforePublish Point = "before-publish"
	AfterPublish  Point = "after-publish"
)

// ArchivePoints lists these.
var ArchivePoints = []Point{BeforePut, AfterPut, BeforePublish, AfterPublish}

type systemClock struct{ start time.Time }

func (systemClock) Now() time.Time        { return time.Now().Round(0) }
func (c systemClock) Mono() time.Duration { return time.Since(c.start) }
func (systemClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
func (systemClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}
