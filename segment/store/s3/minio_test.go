package s3

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	awscreds "github.com/aws/aws-sdk-go-v2/credentials"

	server "github.com/varvelog/varve/localdev/minio"
	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/segment/store"
)

// The tests of this file run on a real MinIO. It polices what a server in the process lets pass: signatures, checksums, regions, and conditions
// on the completion of multipart uploads.

// onMinIO is the configuration for the server's bucket, with the root user's credentials.
func onMinIO(s *server.Server) Config {
	access, secret := s.Credentials()
	return Config{Bucket: miniotest.Bucket, Endpoint: s.Endpoint(), Region: server.Region, Credentials: awscreds.NewStaticCredentialsProvider(access, secret, "")}
}

func mustOpen(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestMinIO_Conformance(t *testing.T) { conform(t, onMinIO(miniotest.Start(t))) }

// onTheWay is a transport that does something to requests after they were signed.
type onTheWay func(*http.Request)

func (change onTheWay) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	change(r)
	return http.DefaultTransport.RoundTrip(r)
}

// TestMinIO_Signatures: who does not have the secret is refused, and so is a request that was changed after it was signed.
func TestMinIO_Signatures(t *testing.T) {
	good := onMinIO(miniotest.Start(t))
	keys, err := good.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, good)
	for name, c := range map[string]struct {
		key, secret, token string
		want               string
	}{
		"another secret":    {keys.AccessKeyID, "another" + keys.SecretAccessKey, "", "SignatureDoesNotMatch"},
		"an unknown key":    {"another" + keys.AccessKeyID, keys.SecretAccessKey, "", "InvalidAccessKeyId"},
		"a token of no use": {keys.AccessKeyID, keys.SecretAccessKey, "token", "InvalidTokenId"},
	} {
		bad := good
		bad.Credentials = awscreds.NewStaticCredentialsProvider(c.key, c.secret, c.token)
		_, err := Open(t.Context(), bad)
		if !errors.Is(err, store.ErrDenied) || code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), c.secret) || strings.Contains(err.Error(), keys.SecretAccessKey)) {
			t.Errorf("%s: the error shows a secret", name)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"another object":   func(r *http.Request) { r.URL.Path += "x" },
		"another checksum": func(r *http.Request) { r.Header.Set(checksumHeader, crc32c([]byte("other"))) },
		"no condition":     func(r *http.Request) { r.Header.Del("If-None-Match") },
	} {
		var tampering atomic.Bool
		cfg := good
		cfg.Transport = onTheWay(func(r *http.Request) {
			if tampering.Load() {
				change(r)
			}
		})
		s := mustOpen(t, cfg)
		tampering.Store(true)
		if err := s.Put(t.Context(), "tampered", []byte("bytes")); !errors.Is(err, store.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
		tampering.Store(false)
		if page, err := s.List(t.Context(), "tampered", "", 0); err != nil || len(page.Objects) > 0 {
			t.Errorf("%s: %v, %v", name, page, err)
		}
	}
}

// flip damages the first byte of bodies on the way, which no signature covers, as long as it is to.
type flip struct {
	left    atomic.Int32
	refused atomic.Int32
}

func (f *flip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || f.left.Add(-1) < 0 {
		return http.DefaultTransport.RoundTrip(r)
	}
	body := new(bytes.Buffer)
	if _, err := body.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	r.Body.Close()
	body.Bytes()[0] ^= 1
	r = r.Clone(r.Context())
	r.Body = readCloser(body.String())
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusBadRequest {
		f.refused.Add(1)
	}
	return resp, err
}

// TestMinIO_Checksums: bytes that were damaged on the way are refused by the server and sent again. Without the checksum they would be kept.
func TestMinIO_Checksums(t *testing.T) {
	f := new(flip)
	cfg := onMinIO(miniotest.Start(t))
	cfg.Transport = f
	s := mustOpen(t, cfg)
	body := digits(5000)

	f.left.Store(2)
	if err := s.Put(t.Context(), "twice", body); err != nil || f.refused.Load() != 2 {
		t.Errorf("damaged twice: %v, refused %d times", err, f.refused.Load())
	}
	if got, err := s.Get(t.Context(), "twice", 0, -1, nil); err != nil || !bytes.Equal(got, body) {
		t.Errorf("what is there: %d bytes, %v", len(got), err)
	}

	f.left.Store(1 << 30)
	err := s.Put(t.Context(), "always", body)
	if !errors.Is(err, store.ErrUnavailable) || code(err) != "XAmzContentChecksumMismatch" {
		t.Errorf("damaged each time: %v", err)
	}
	if _, err := s.Stat(t.Context(), "always"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}

	f.left.Store(0)
	cfg.Compat = NoChecksum
	unchecked := mustOpen(t, cfg)
	f.left.Store(1)
	if err := unchecked.Put(t.Context(), "unchecked", body); err != nil {
		t.Errorf("without a checksum: %v", err)
	}
	if got, err := s.Get(t.Context(), "unchecked", 0, -1, nil); err != nil || bytes.Equal(got, body) {
		t.Errorf("the damage is gone, so it was no damage: %v", err)
	}
}

// TestMinIO_Throttled: a server that takes one request at a time says so to the others, and they wait and try again.
func TestMinIO_Throttled(t *testing.T) {
	var throttled atomic.Int64
	cfg := onMinIO(miniotest.Start(t, "MINIO_API_REQUESTS_MAX=1", "MINIO_API_REQUESTS_DEADLINE=10ms"))
	cfg.Transport = answered(func(status int) {
		if status == http.StatusTooManyRequests {
			throttled.Add(1)
		}
	})
	s := mustOpen(t, cfg)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			name, body := fmt.Sprint("throttled/", i), digits(1<<20)
			for err := s.Put(t.Context(), name, body); err != nil; err = s.Put(t.Context(), name, body) {
				if !errors.Is(err, store.ErrThrottled) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	page, err := s.List(t.Context(), "throttled/", "", 0)
	if err != nil || len(page.Objects) != 16 || throttled.Load() == 0 {
		t.Errorf("%d objects, %v, %d requests throttled", len(page.Objects), err, throttled.Load())
	}
	t.Logf("16 puts, %d requests throttled", throttled.Load())
}

// answered is a transport that tells the status of each answer.
type answered func(status int)

func (tell answered) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		tell(resp.StatusCode)
	}
	return resp, err
}

// TestMinIO_Region: a wrong region is found out and the bucket's own is used.
func TestMinIO_Region(t *testing.T) {
	cfg := onMinIO(miniotest.Start(t))
	cfg.Region = "us-west-2"
	s := mustOpen(t, cfg)
	if err := s.Put(t.Context(), "a", []byte("bytes")); err != nil {
		t.Error(err)
	}
	if c := s.client.Load(); !c.adopted || c.region != server.Region {
		t.Errorf("region %s, named by the service: %v", c.region, c.adopted)
	}
}

// TestMinIO_KilledInMidAnswer: the server is killed while large objects are read and put, and started again. A read gives the object's bytes or
// a typed error, and what was put is there, whole.
func TestMinIO_KilledInMidAnswer(t *testing.T) {
	killable := miniotest.Start(t)
	s := mustOpen(t, onMinIO(killable))
	large := digits(32 << 20)
	if err := s.Put(t.Context(), "large", large); err != nil {
		t.Fatal(err)
	}
	var killed atomic.Bool
	var gets, broken, puts atomic.Int64
	underWay := make(chan struct{}, 100)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for last := false; !last; {
				last = killed.Load() // once more after that
				underWay <- struct{}{}
				got, err := s.Get(t.Context(), "large", 0, -1, nil)
				switch {
				case err == nil && bytes.Equal(got, large):
					gets.Add(1)
				case errors.Is(err, store.ErrUnavailable):
					broken.Add(1)
				default:
					t.Errorf("%d bytes, %v", len(got), err)
				}
				name := fmt.Sprint("put/", puts.Add(1))
				for err = s.Put(t.Context(), name, large[:1<<20]); err != nil; err = s.Put(t.Context(), name, large[:1<<20]) {
					if !errors.Is(err, store.ErrUnavailable) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range 3 {
		for range 6 {
			<-underWay
		}
		killable.Kill()
		if err := killable.Restart(t.Context()); err != nil {
			t.Error(err)
			break
		}
	}
	killed.Store(true)
	wg.Wait()
	page, err := s.List(t.Context(), "put/", "", 0)
	if err != nil || int64(len(page.Objects)) != puts.Load() {
		t.Errorf("%d objects of %d, %v", len(page.Objects), puts.Load(), err)
	}
	for _, o := range page.Objects {
		if got, err := s.Get(t.Context(), o.Name, 0, -1, nil); err != nil || !bytes.Equal(got, large[:1<<20]) {
			t.Errorf("%s: %d bytes, %v", o.Name, len(got), err)
		}
	}
	t.Logf("over three crashes: %d reads whole, %d reported as broken off, %d puts", gets.Load(), broken.Load(), puts.Load())
}
