// Package s3 is a store in a bucket of Amazon S3 or of something that speaks its protocol.
//
// Put is always one PUT with If-None-Match: *, whatever the size, because only a single PUT is both atomic and
// conditional everywhere. A lost answer is settled: when a repeated PUT is told that the object exists, the
// object's bytes decide whether it is ours. The body's CRC-32C travels as a plain signed header; nothing is
// ever sent in chunked signing or with trailers, which look-alikes refuse. PutParts, for objects too large to be
// held in one piece, is the same with a multipart upload.
//
// Retries happen in one place, the loop in retry.go; the client library is told to make one attempt, because
// its own retries know neither what a repeated conditional put means nor the clock and credentials given here.
//
// The credentials need s3:PutObject, s3:GetObject and, on the bucket, s3:ListBucket (without it S3 answers 403
// where it should say 404); s3:DeleteObject only for whoever calls Delete, s3:Get- and s3:PutLifecycleConfiguration only for the rules, s3:AbortMultipartUpload for PutParts.
package s3

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

// Config says where the bucket is and how to talk to it. Only Bucket must be given.
type Config struct {
	Bucket string
	// Prefix goes before every name, with a slash between; "" is the whole bucket.
	Prefix string
	// Endpoint is http://host[:port] or https://host[:port]. "" takes what the AWS configuration says, and if
	// that says nothing, Amazon's for Region.
	Endpoint string
	// Region is the bucket's. "" takes what the AWS configuration says, else us-east-1. If the service names
	// another one, that is used from then on.
	Region string
	// Profile of the AWS configuration files, "" for the default one.
	Profile string
	// Credentials, nil for AWS's default chain (environment, files, web identity, container, instance). They are
	// renewed before they expire, and once when the service calls them expired. With credentials given here, the
	// AWS configuration is not read at all.
	Credentials aws.CredentialsProvider
	// Compat leaves out what a look-alike cannot do. Open finds out what is needed and says so.
	Compat Compat
	// Concurrency is how many connections are kept for reuse, 0 for 64.
	Concurrency int
	// Transport carries the requests, nil for a pool of this store's own.
	Transport http.RoundTripper
	// Env is where time and jitter come from; the zero value is env.System().
	Env env.Env
}

// Store implements store.Store.
type Store struct {
	cfg    Config
	prefix string // "" or ends with a slash
	creds  *credentials
	client atomic.Pointer[client]
}

var _ store.Store = (*Store)(nil)

// Open checks the configuration, by a small object of its own also against the bucket, and returns the store.
// What the configuration lacks is reported as a *CompatError within the *store.Error.
//
// The object is <prefix>/.selftest/<settings>, always the same, so that nothing piles up: an Open is two small
// requests. A principal that may not write it is taken for a reader, and the test is left out.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := newStore(ctx, cfg)
	if err == nil {
		err = s.selfTest(ctx)
	}
	if err != nil {
		if s != nil {
			s.Close()
		}
		return nil, store.Fail(store.OpOpen, cfg.Bucket, err)
	}
	return s, nil
}

// newStore opens without the test.
func newStore(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := cfg.fromAWS(ctx); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, creds: newCredentials(cfg.Credentials, cfg.Env)}
	if cfg.Prefix != "" {
		s.prefix = cfg.Prefix + "/"
	}
	c, err := newClient(cfg, s.creds, cfg.Region)
	if err != nil {
		return nil, err
	}
	s.client.Store(c)
	return s, nil
}

// Close lets go of idle connections. No call may be running.
func (s *Store) Close() error {
	if t, ok := s.cfg.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return nil
}

const defaultConcurrency = 64

func (cfg Config) withDefaults() Config {
	cfg.Prefix = strings.TrimSuffix(cfg.Prefix, "/")
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = defaultConcurrency
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport(cfg.Concurrency)
	}
	if cfg.Env.Clock == nil {
		cfg.Env = env.System()
	}
	return cfg
}

// maxPrefix leaves room for a name in S3's 1,024 bytes of key.
const maxPrefix = 512

func (cfg Config) validate() error {
	if err := s3utils.CheckValidBucketNameStrict(cfg.Bucket); err != nil {
		return fmt.Errorf("%w: bucket %q: %v", store.ErrConfig, cfg.Bucket, err)
	}
	if len(cfg.Prefix) > maxPrefix {
		return fmt.Errorf("%w: prefix has %d bytes, at most %d are valid", store.ErrConfig, len(cfg.Prefix), maxPrefix)
	}
	for part := range strings.SplitSeq(cfg.Prefix, "/") {
		if cfg.Prefix != "" && (part == "" || part == "." || part == "..") {
			return fmt.Errorf("%w: prefix %q has an empty, '.' or '..' part", store.ErrConfig, cfg.Prefix)
		}
	}
	if i := strings.IndexFunc(cfg.Prefix, func(r rune) bool { return !strings.ContainsRune(prefixRunes, r) }); i >= 0 {
		return fmt.Errorf("%w: prefix %q has a character at byte %d outside of a-z A-Z 0-9 / - _ . ! * ' ( ) =", store.ErrConfig, cfg.Prefix, i)
	}
	return cfg.Compat.validate()
}

// prefixRunes need no escaping anywhere.
const prefixRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.!*'()="
