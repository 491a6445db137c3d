package sdk

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Result is what became of one record. On success its Partition, Offset and Timestamp are set; over HTTP the Timestamp stays the record's own, also in a topic that
// puts the time of appending in its place.
type Result struct {
	Record *Record
	Err    error
}

// Results are in the order in which the records were given.
type Results []Result

// Err is the first error, or nil.
func (rs Results) Err() error {
	for _, r := range rs {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// waiter gathers the results of records for a caller that waits.
type waiter struct {
	mu      sync.Mutex
	results Results
	settled []bool
	left    int
	all     chan struct{} // closed when none is left
}

func newWaiter(records []*Record) *waiter {
	w := &waiter{results: make(Results, len(records)), settled: make([]bool, len(records)), left: len(records), all: make(chan struct{})}
	for i, r := range records {
		w.results[i].Record = r
	}
	if w.left == 0 {
		close(w.all)
	}
	return w
}

// promise is the promise of record i.
func (w *waiter) promise(i int) func(*Record, error) {
	return func(_ *Record, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.results[i].Err, w.settled[i] = err, true
		if w.left--; w.left == 0 {
			close(w.all)
		}
	}
}

// wait returns when all are settled, or, with ErrUnknown for those that are not, when ctx is done.
func (w *waiter) wait(ctx context.Context) Results {
	select {
	case <-w.all:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	results := slices.Clone(w.results) // promises still to come must not change what the caller has
	for i := range results {
		if !w.settled[i] {
			results[i].Err = fmt.Errorf("%w: not waited for: %w", ErrUnknown, context.Cause(ctx))
		}
	}
	return results
}
