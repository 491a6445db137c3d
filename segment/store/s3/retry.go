package s3

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/segment/store"
)

const (
	maxAttempts  = 5
	answerTime   = 10 * time.Second // S3 answers within a second in all but the rarest cases
	slowest      = 1 << 20          // bytes per second that an attempt is given time for
	firstWait    = 50 * time.Millisecond
	firstSlowing = 400 * time.Millisecond // after a throttled attempt
	longestWait  = 5 * time.Second
)

// call is what one method of Store wants from the service.
type call struct {
	op   store.Op
	name string // in the error
	size int64  // bytes that one attempt moves
	once bool   // no repetition
	// try makes one attempt: one request, or a few that belong together. Its context has the attempt's own limit.
	try func(ctx context.Context, c *client) error
}

// do makes attempts until one succeeds, fails for good, or maxAttempts are used up. Renewing credentials and
// going to another region are not waited for, and done once each: adopt refuses a second region.
func (s *Store) do(ctx context.Context, c call) error {
	renewed := false
	var last *failure
	for n := 1; ; n++ {
		f := s.attempt(ctx, c)
		if f == nil {
			return nil
		}
		if f.cut && ctx.Err() != nil && last != nil {
			f = last // says more than that the caller's time is up
		}
		last = f
		switch {
		case ctx.Err() != nil:
			return c.fail(ctx, f)
		case f.expired && !renewed:
			renewed = true
			s.creds.expired(f.serial)
		case f.moved:
			if err := s.adopt(f.client, f.region); err != nil {
				f.err = err
				return c.fail(ctx, f)
			}
		case !f.retry || n >= maxAttempts || c.once:
			return c.fail(ctx, f)
		default:
			if s.cfg.Env.Sleep(ctx, s.wait(n, f.throttled)) != nil {
				return c.fail(ctx, f)
			}
		}
	}
}

func (s *Store) attempt(ctx context.Context, c call) *failure {
	serial, err := s.creds.ready(ctx)
	if err != nil {
		return &failure{err: err}
	}
	client := s.client.Load()
	limited, cancel := s.cfg.Env.WithTimeout(ctx, answerTime+time.Duration(c.size/slowest)*time.Second)
	defer cancel()
	if err = c.try(limited, client); err == nil {
		return nil
	}
	f := classify(err, client.region)
	f.serial, f.client = serial, client
	return &f
}

func (s *Store) wait(n int, throttled bool) time.Duration {
	first := firstWait
	if throttled {
		first = firstSlowing
	}
	return s.cfg.Env.Jitter(min(first<<(n-1), longestWait))
}

// fail is the call's error: what the last attempt said, and that the caller's context is done if it is.
func (c call) fail(ctx context.Context, f *failure) error {
	err, over := f.err, ctx.Err()
	switch {
	case over == nil:
	case f.cut || errors.Is(err, over):
		err = over
	default:
		err = fmt.Errorf("%w; last attempt: %w", over, err)
	}
	return &store.Error{Op: c.op, Name: c.name, Code: f.code, Err: err}
}
