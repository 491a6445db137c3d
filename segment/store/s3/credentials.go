package s3

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	minio "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

const (
	renewTime  = 30 * time.Second // for one renewal
	renewAgain = 5 * time.Second  // after a renewal that failed while the old credentials still hold
	maxWindow  = 5 * time.Minute  // before expiry, in which they are renewed; a fifth of their life if that is less
)

// credentials hands AWS credentials to minio-go and renews them. minio-go would hold a lock while it renews;
// so they are renewed here, before each attempt, and minio-go only copies what is there.
type credentials struct {
	source aws.CredentialsProvider
	env    env.Env

	mu      sync.Mutex
	value   aws.Credentials
	serial  int       // of value; 0 is none
	renewAt time.Time // zero: never
	pending *renewal
}

type renewal struct {
	done chan struct{}
	err  error // set before done is closed
}

func newCredentials(source aws.CredentialsProvider, e env.Env) *credentials {
	return &credentials{source: source, env: e}
}

// ready waits until there are credentials that hold, and returns their serial number. One caller at a time
// renews them; while the old ones still hold, the others do not wait for it.
func (c *credentials) ready(ctx context.Context) (serial int, err error) {
	for {
		serial, pending, mine := c.look()
		switch {
		case pending == nil:
			return serial, nil
		case mine:
			return c.renew(ctx, pending)
		}
		select {
		case <-pending.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if pending.err != nil && pending.err != errRenewerLeft {
			return 0, pending.err
		}
	}
}

// errRenewerLeft tells those who wait that the caller who renewed was cancelled, so that another must.
var errRenewerLeft = errors.New("renewal was cancelled")

// look returns the serial number of credentials that may be used now, or the renewal that must come before, and
// whether it is the caller's to do.
func (c *credentials) look() (serial int, pending *renewal, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.env.Now()
	due := c.serial == 0 || !c.renewAt.IsZero() && !now.Before(c.renewAt)
	switch {
	case !due, c.holds(now) && c.pending != nil:
		return c.serial, nil, false
	case c.pending != nil:
		return 0, c.pending, false
	}
	c.pending = &renewal{done: make(chan struct{})}
	return 0, c.pending, true
}

// holds tells whether the service must still accept the credentials. The caller has the lock.
func (c *credentials) holds(now time.Time) bool {
	return c.serial > 0 && (!c.value.CanExpire || now.Before(c.value.Expires))
}

func (c *credentials) renew(ctx context.Context, p *renewal) (serial int, err error) {
	if cache, ok := c.source.(interface{ Invalidate() }); ok {
		cache.Invalidate() // else it returns what it has until that is dead
	}
	limited, cancel := c.env.WithTimeout(ctx, renewTime)
	value, err := c.source.Retrieve(limited)
	cancel()

	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(p.done)
	c.pending = nil
	now := c.env.Now()
	switch {
	case err == nil:
		c.value, c.serial, c.renewAt = value, c.serial+1, time.Time{}
		if value.CanExpire {
			c.renewAt = value.Expires.Add(-min(maxWindow, value.Expires.Sub(now)/5))
		}
	case c.holds(now):
		c.renewAt = now.Add(min(renewAgain, c.value.Expires.Sub(now)))
	case ctx.Err() != nil:
		p.err = errRenewerLeft
		return 0, ctx.Err()
	default:
		p.err = fmt.Errorf("%w: %w", store.ErrNoCredentials, err)
		return 0, p.err
	}
	return c.serial, nil
}

// expired is called when the service called the credentials of that serial number expired. They are renewed
// before the next attempt, unless they have been already.
func (c *credentials) expired(serial int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serial == serial {
		c.renewAt = c.env.Now()
		c.value.CanExpire, c.value.Expires = true, c.renewAt
	}
}

// forClient makes what one minio-go client is given.
func (c *credentials) forClient() *minio.Credentials { return minio.New(&handed{c: c}) }

// handed is what one client has been handed. minio-go serialises the calls.
type handed struct {
	c      *credentials
	serial int
}

func (h *handed) IsExpired() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.serial != h.c.serial
}

func (h *handed) RetrieveWithCredContext(*minio.CredContext) (minio.Value, error) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.serial = h.c.serial
	v := h.c.value
	return minio.Value{AccessKeyID: v.AccessKeyID, SecretAccessKey: v.SecretAccessKey, SessionToken: v.SessionToken, SignerType: minio.SignatureV4}, nil
}

func (h *handed) Retrieve() (minio.Value, error) { return h.RetrieveWithCredContext(nil) }
