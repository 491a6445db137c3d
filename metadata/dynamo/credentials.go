package dynamo

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// renewing is the credentials of a table: remembered until they expire, and renewed at once when the service says that they have, whatever they say
// themselves.
type renewing struct {
	cache *aws.CredentialsCache

	mu      sync.Mutex
	last    aws.Credentials // given to a request
	expired string          // access key and token that the service has called expired
	asked   bool            // since then
}

// newRenewing remembers what the provider gives, unless it does so itself; nil where requests are not signed.
func newRenewing(p aws.CredentialsProvider) *renewing {
	if p == nil || aws.IsCredentialsProvider(p, (*aws.AnonymousCredentials)(nil)) {
		return nil
	}
	cache, ok := p.(*aws.CredentialsCache)
	if !ok {
		cache = aws.NewCredentialsCache(p)
	}
	return &renewing{cache: cache}
}

// Retrieve implements aws.CredentialsProvider.
func (r *renewing) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := r.cache.Retrieve(ctx)
	if err != nil {
		return c, &noCredentials{err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.asked = c, true
	return c, nil
}

// renew has the next request ask for others; false if whoever gives them out has given those that have expired again.
func (r *renewing) renew() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if used := r.last.AccessKeyID + " " + r.last.SessionToken; used != r.expired {
		r.expired, r.asked = used, false
		r.cache.Invalidate()
		return true
	}
	return !r.asked // another request was faster to find out
}

// noCredentials is what a provider said instead of giving some.
type noCredentials struct{ err error }

func (e *noCredentials) Error() string { return e.err.Error() }
func (e *noCredentials) Unwrap() error { return e.err }
