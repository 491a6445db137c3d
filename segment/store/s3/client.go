package s3

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/varvelog/varve/segment/store"
)

const (
	amazon        = "https://s3.amazonaws.com" // minio-go makes the region's host of it
	defaultRegion = "us-east-1"
	dialTime      = 5 * time.Second
	idleTime      = 60 * time.Second // shorter than the usual 60 to 350 s after which something on the way forgets a connection
)

// client talks to the bucket in one region.
type client struct {
	*minio.Core
	region  string
	adopted bool // the service named the region
}

func newClient(cfg Config, creds *credentials, region string) (*client, error) {
	u, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	switch {
	case cfg.Compat&PathStyle != 0:
		lookup = minio.BucketLookupPath
	case cfg.Compat&VirtualHost != 0:
		lookup = minio.BucketLookupDNS
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:        creds.forClient(),
		Secure:       u.Scheme == "https",
		Transport:    counting{cfg.Transport},
		Region:       region,
		BucketLookup: lookup,
		MaxRetries:   1, // one attempt; after one that fails it still waits up to 200 ms
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrConfig, err)
	}
	core.SetS3EnableDualstack(false) // gateway endpoints of a VPC, which cost nothing, are IPv4
	return &client{Core: core, region: region}, nil
}

func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("%w: endpoint is no URL", store.ErrConfig) // url's error would show what may be a password
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.User != nil {
		return nil, fmt.Errorf("%w: endpoint %q is not http://host[:port] or https://host[:port]", store.ErrConfig, u.Redacted())
	}
	return u, nil
}

// newTransport is a pool for this many requests at a time, HTTP/1.1: one connection each is what S3 scales with.
func newTransport(concurrency int) http.RoundTripper {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout:   dialTime,
		ResponseHeaderTimeout: answerTime,
		IdleConnTimeout:       idleTime,
		MaxIdleConns:          concurrency,
		MaxIdleConnsPerHost:   concurrency,
		DisableCompression:    true, // a range of compressed bytes is not the range asked for
	}
}

// counting tells store.Observe of every request.
type counting struct{ http.RoundTripper }

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	store.CountRequest(r.Context())
	return c.RoundTripper.RoundTrip(r)
}

// fromAWS fills in what the AWS configuration (environment, files) says, and then the defaults.
func (cfg *Config) fromAWS(ctx context.Context) error {
	if cfg.Credentials == nil {
		aws, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(cfg.Profile), config.WithLogger(logging.Nop{}))
		if err != nil {
			return fmt.Errorf("%w: AWS configuration: %w", store.ErrConfig, err)
		}
		cfg.Credentials = aws.Credentials
		if cfg.Region == "" {
			cfg.Region = aws.Region
		}
		if cfg.Endpoint == "" && aws.BaseEndpoint != nil {
			cfg.Endpoint = *aws.BaseEndpoint
		}
	}
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = amazon
	}
	return nil
}

// adopt makes region the bucket's, because the service has named it to a caller of c. It is an error when a
// region that the service named before turned out to be wrong too, or when it named none.
func (s *Store) adopt(c *client, region string) error {
	if region == "" {
		return fmt.Errorf("%w: bucket %q is not in the configured region %q, and the service does not say where it is", store.ErrConfig, s.cfg.Bucket, s.cfg.Region)
	}
	if c.adopted {
		return fmt.Errorf("%w: bucket %q: configured region is %q, the service sent us to %q and now to %q", store.ErrConfig, s.cfg.Bucket, s.cfg.Region, c.region, region)
	}
	moved, err := newClient(s.cfg, s.creds, region)
	if err != nil {
		return err
	}
	moved.adopted = true
	s.client.CompareAndSwap(c, moved) // if it fails, somebody else has adopted it
	return nil
}

// virtualHost tells whether the bucket goes into the host of URLs.
func (s *Store) virtualHost() bool {
	u, err := parseEndpoint(s.cfg.Endpoint)
	return s.cfg.Compat&VirtualHost != 0 || s.cfg.Compat&PathStyle == 0 && err == nil && s3utils.IsVirtualHostSupported(*u, s.cfg.Bucket)
}
