package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// ear takes in what a reader delivers, and notes how old it is.
type ear struct {
	reader *sdk.Reader
	env    env.Env
	done   chan struct{} // closed when it hears no more
	news   chan struct{} // room for one: something was heard

	mu     sync.Mutex
	heard  int // records, not awaited yet
	delays []time.Duration
	failed error
}

// listen begins to take in what the reader delivers, until it is closed or fails.
func listen(ctx context.Context, r *sdk.Reader, e env.Env) *ear {
	l := &ear{reader: r, env: e, done: make(chan struct{}), news: make(chan struct{}, 1)}
	go func() {
		defer close(l.done)
		for {
			fetches, err := r.Poll(ctx)
			l.hear(fetches, l.env.Mono())
			if err != nil {
				l.fail(err)
				return
			}
		}
	}()
	return l
}

func (l *ear) hear(fetches []sdk.Fetch, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range fetches {
		l.heard += len(f.Records)
		for i := range f.Records {
			if at, ok := stampOf(&f.Records[i]); ok {
				l.delays = append(l.delays, now-at)
			}
		}
	}
	l.wake()
}

// fail ends a wait for records that will not come.
func (l *ear) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
	l.wake()
}

func (l *ear) wake() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// await returns when n more records have been heard.
func (l *ear) await(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		enough := l.heard >= n
		if enough {
			l.heard -= n
		}
		err := l.failed
		l.mu.Unlock()
		if enough || err != nil {
			return err
		}
		select {
		case <-l.news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// takeDelays returns how long delivery took since it was called before.
func (l *ear) takeDelays() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.delays
	l.delays = nil
	return d
}

// close ends the reader.
func (l *ear) close() error {
	err := l.reader.Close()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.failed, sdk.ErrClosed) || errors.Is(l.failed, context.Canceled) {
		return err
	}
	return errors.Join(err, l.failed)
}
