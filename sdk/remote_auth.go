package sdk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/varvelog/varve/internal/env"
)

// auth says to a function who asks.
type auth interface {
	sign(ctx context.Context, r *http.Request, body []byte) error
	// refused learns from a refusal, and tells whether the same request may fare better now.
	refused(answered http.Header) bool
}

// errNoKeys: whoever gives out credentials gave none just now, and may later. Nothing was sent.
var errNoKeys = fmt.Errorf("%w: no credentials to be had", ErrDenied)

// nobody asks a server that wants to know nothing.
type nobody struct{}

func (nobody) sign(context.Context, *http.Request, []byte) error { return nil }
func (nobody) refused(http.Header) bool                          { return false }

// bearer is a token.
type bearer string

func (b bearer) sign(_ context.Context, r *http.Request, _ []byte) error {
	r.Header.Set("Authorization", "Bearer "+string(b))
	return nil
}

func (bearer) refused(http.Header) bool { return false }

// String keeps the token out of whatever prints it.
func (bearer) String() string   { return "bearer token (not shown)" }
func (bearer) GoString() string { return "bearer token (not shown)" }

// signer signs by AWS's version 4 for the service lambda.
type signer struct {
	region string
	keys   *aws.CredentialsCache
	signer *v4.Signer
	env    env.Env
	skew   atomic.Int64 // of the service's clock against this machine's, once a refusal has shown one
}

func newSigner(region string, keys aws.CredentialsProvider, e env.Env) *signer {
	cache, ok := keys.(*aws.CredentialsCache)
	if !ok {
		cache = aws.NewCredentialsCache(keys)
	}
	return &signer{region: region, keys: cache, signer: v4.NewSigner(), env: e}
}

func (s *signer) sign(ctx context.Context, r *http.Request, body []byte) error {
	keys, err := s.keys.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoKeys, err)
	}
	sum := sha256.Sum256(body)
	at := s.env.Now().Add(time.Duration(s.skew.Load()))
	return s.signer.SignHTTP(ctx, keys, r, hex.EncodeToString(sum[:]), "lambda", s.region, at)
}

// minSkew is how far two clocks may be apart without a signature being refused for it.
const minSkew = 2 * time.Minute

// refused has credentials fetched anew and, if the service's clock is another, takes that one from now on.
func (s *signer) refused(answered http.Header) bool {
	s.keys.Invalidate()
	at, err := http.ParseTime(answered.Get("Date"))
	if err != nil {
		return true
	}
	if off := at.Sub(s.env.Now()); (off - time.Duration(s.skew.Load())).Abs() > minSkew {
		s.skew.Store(int64(off))
	}
	return true
}
