package produce

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/sdk"
)

// appender is the producer that requests share, so that those which are served at the same time share flushes: while two are being uploaded, requests gather in the
// next. It is made anew when a request has run out of time.
type appender struct {
	log     *sdk.Log
	options []sdk.ProducerOption

	mu       sync.Mutex
	producer *sdk.Producer      // nil before the first request, and after one has run out of time
	active   int                // requests under way
	awaited  context.CancelFunc // ends the wait of the last request for what is left to be done; nil while none waits
}

func (a *appender) close(ctx context.Context) error {
	a.mu.Lock()
	p := a.producer
	a.producer = nil
	a.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Close(ctx)
}

// current is the producer that all requests share.
func (a *appender) current() (*sdk.Producer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.producer == nil {
		p, err := a.log.NewProducer(a.options...)
		if err != nil {
			return nil, err
		}
		a.producer = p
	}
	return a.producer, nil
}

// enter begins a request that appends.
func (a *appender) enter() (*sdk.Producer, error) {
	p, err := a.current()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active++
	if a.awaited != nil {
		a.awaited() // this request will wait itself
		a.awaited = nil
	}
	return p, nil
}

// leave ends a request. The last one of those that are under way at once waits until nothing runs any more. If that takes longer than there is time, what still runs
// is given up: it is no request's.
func (a *appender) leave(ctx context.Context, p *sdk.Producer) {
	a.mu.Lock()
	a.active--
	if a.active > 0 {
		a.mu.Unlock()
		return
	}
	waiting, cancel := context.WithCancel(ctx)
	a.awaited = cancel
	a.mu.Unlock()
	defer cancel()
	if p.Idle(waiting) != nil && ctx.Err() != nil {
		a.retire(p)
	}
}

// retire gives up what the producer has under way, and lets the next request begin with another. When it returns nothing of the producer runs, unless another
// request is just retiring it too.
func (a *appender) retire(p *sdk.Producer) {
	a.mu.Lock()
	if a.producer == p {
		a.producer = nil
	}
	a.mu.Unlock()
	_ = p.Close(done) // the promises tell
}

// done is a context that is.
var done = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: the request's time is over", sdk.ErrTimedOut))
	return ctx
}()

// append appends the records as one flush and returns what became of each.
func (a *appender) append(ctx context.Context, p *sdk.Producer, records []*sdk.Record) sdk.Results {
	results := make(sdk.Results, len(records))
	all := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(len(records)))
	for i, r := range records {
		results[i].Record = r
		p.Produce(ctx, r, func(_ *sdk.Record, err error) {
			results[i].Err = err
			if left.Add(-1) == 0 {
				close(all)
			}
		})
	}
	_ = p.Flush(done) // ends the linger, and does not wait: for this request's records, below, only
	select {
	case <-all:
	case <-ctx.Done():
		a.retire(p)
		<-all
	}
	return results
}
