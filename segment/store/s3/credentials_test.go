package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/segment/store"
)

// issuer gives out credentials that hold for a time, and knows until when each one does.
type issuer struct {
	life  time.Duration
	delay time.Duration // until it answers
	mu    sync.Mutex
	fail  error
	until map[string]time.Time // by access key
}

func (i *issuer) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if i.delay > 0 {
		select {
		case <-time.After(i.delay):
		case <-ctx.Done():
			return aws.Credentials{}, ctx.Err()
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fail != nil {
		return aws.Credentials{}, i.fail
	}
	key := fmt.Sprintf("KEY%d", len(i.until))
	i.until[key] = time.Now().Add(i.life)
	return aws.Credentials{AccessKeyID: key, SecretAccessKey: "secret", SessionToken: "token-of-" + key, CanExpire: true, Expires: i.until[key]}, nil
}

func (i *issuer) set(fail error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fail = fail
}

func (i *issuer) given() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.until)
}

// guard refuses requests whose credentials are over, as S3 does, and counts those.
func (i *issuer) guard(s *service, refused *int) {
	s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		key := authorization.FindStringSubmatch(r.Header.Get("Authorization"))[1]
		if until := i.until[key]; !time.Now().Before(until) || r.Header.Get("X-Amz-Security-Token") != "token-of-"+key {
			*refused++
			return say(400, "ExpiredToken"), nil
		}
		return next(), nil
	}
}

// TestBR42_CredentialsExpire: a run of ten minutes with credentials that hold for one, straight from the provider
// and through the SDK's cache, which gives out what it has until that is over.
func TestBR42_CredentialsExpire(t *testing.T) {
	for _, cached := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *service) {
			i := &issuer{life: time.Minute, until: map[string]time.Time{}}
			var source aws.CredentialsProvider = i
			if cached {
				source = aws.NewCredentialsCache(i)
			}
			st := s.open(func(c *Config) { c.Credentials = source })
			refused := 0
			i.guard(s, &refused)
			puts := 0
			for start := time.Now(); time.Since(start) < 10*time.Minute; puts++ {
				if err := st.Put(t.Context(), fmt.Sprint(puts), []byte("x")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(1700 * time.Millisecond)
			}
			if refused > 0 || len(s.requests) != puts {
				t.Errorf("%d puts, %d requests, %d of them with credentials that were over", puts, len(s.requests), refused)
			}
			if n := i.given(); n < 10 || n > 14 {
				t.Errorf("renewed %d times in ten minutes", n)
			}
		})
	}
}

// TestBR42_MultipartUpload: an upload of ten parts, half a minute apart, with credentials that hold for one minute: none is refused, none is lost.
func TestBR42_MultipartUpload(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		i := &issuer{life: time.Minute, until: map[string]time.Time{}}
		st := s.open(func(c *Config) { c.Credentials = aws.NewCredentialsCache(i) })
		refused, body := 0, digits(9*store.MinPartBytes+1)
		i.guard(s, &refused)
		next := inParts(body)
		size, err := st.PutParts(t.Context(), "a", func() ([]byte, error) {
			time.Sleep(30 * time.Second)
			return next()
		})
		if err != nil || size != int64(len(body)) || !bytes.Equal(s.objects["/bucket/log/a"], body) || len(s.uploads) != 0 {
			t.Errorf("%d, %v, %d open uploads", size, err, len(s.uploads))
		}
		if n := i.given(); refused > 0 || len(s.requests) != 12 || n < 5 || n > 8 {
			t.Errorf("%d requests, %d refused, renewed %d times", len(s.requests), refused, n)
		}
	})
}

// TestBR42_ExpiredTokenEarly: the service calls the token expired before its time, to sixteen callers at once. It
// is renewed once, and every put succeeds with one more request.
func TestBR42_ExpiredTokenEarly(t *testing.T) {
	for _, code := range []string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"} {
		bubble(t, func(t *testing.T, s *service) {
			i := &issuer{life: time.Hour, until: map[string]time.Time{}}
			st := s.open(func(c *Config) { c.Credentials = aws.NewCredentialsCache(i) })
			s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
				if authorization.FindStringSubmatch(r.Header.Get("Authorization"))[1] == "KEY0" {
					return say(400, code), nil
				}
				return next(), nil
			}
			var wg sync.WaitGroup
			for n := range 16 {
				wg.Go(func() {
					if err := st.Put(t.Context(), fmt.Sprint(n), []byte("x")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if i.given() != 2 || len(s.objects) != 17 {
				t.Errorf("%s: given %d times, %d objects", code, i.given(), len(s.objects))
			}
		})
	}
}

// TestBR42_ExpiredForEver: new credentials are called expired too. One renewal, then the error.
func TestBR42_ExpiredForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		i := &issuer{life: time.Hour, until: map[string]time.Time{}}
		st := s.open(func(c *Config) { c.Credentials = i })
		s.answer = func(int, *request, func() *http.Response) (*http.Response, error) {
			return say(400, "ExpiredToken"), nil
		}
		err := st.Put(t.Context(), "a", nil)
		if !errors.Is(err, store.ErrDenied) || code(err) != "ExpiredToken" || len(s.requests) != 2 || i.given() != 2 {
			t.Errorf("%v, %d requests, given %d times", err, len(s.requests), i.given())
		}
	})
}

// TestBR42_RenewalFails: while the old credentials hold they are used; after that it is a typed error, until the
// provider is well again.
func TestBR42_RenewalFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		i := &issuer{life: time.Minute, until: map[string]time.Time{}}
		st := s.open(func(c *Config) { c.Credentials = i })
		refused := 0
		i.guard(s, &refused)
		down := errors.New("metadata service is down")
		i.set(down)
		for second := range 90 {
			err := st.Put(t.Context(), fmt.Sprint(second), nil)
			switch {
			case second < 60 && err != nil:
				t.Errorf("second %d: %v", second, err)
			case second >= 60 && (!errors.Is(err, store.ErrDenied) || !errors.Is(err, store.ErrNoCredentials) || !errors.Is(err, down)):
				t.Errorf("second %d: %v", second, err)
			}
			time.Sleep(time.Second)
		}
		if refused > 0 || len(s.requests) != 60 {
			t.Errorf("%d requests, %d refused", len(s.requests), refused)
		}
		i.set(nil)
		if err := st.Put(t.Context(), "well", nil); err != nil {
			t.Error(err)
		}
	})
}

// TestBR42_SlowRenewal: who still has credentials that hold does not wait; who has none waits, each with a deadline
// of its own, and a caller who leaves does not fail the others.
func TestBR42_SlowRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		i := &issuer{life: time.Minute, until: map[string]time.Time{}}
		st := s.open(func(c *Config) { c.Credentials = i })
		i.delay = 5 * time.Second
		time.Sleep(50 * time.Second) // in the window, not over
		go st.Put(t.Context(), "renews", nil)
		synctest.Wait()
		start := time.Now()
		if err := st.Put(t.Context(), "a", nil); err != nil || time.Since(start) != 0 {
			t.Errorf("with credentials that hold: %v after %v", err, time.Since(start))
		}
		time.Sleep(time.Hour) // over
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			if err := st.Put(impatient, "b", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the one who renews, and leaves: %v", err)
			}
		}()
		synctest.Wait()
		start = time.Now()
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				if err := st.Put(t.Context(), fmt.Sprint("c", n), nil); err != nil {
					t.Errorf("those who wait: %v", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 6*time.Second || i.given() != 3 {
			t.Errorf("waited %v, given %d times", took, i.given())
		}
	})
}

// TestDefaultChain: keys, region and endpoint come from the AWS configuration; a profile is honoured.
func TestDefaultChain(t *testing.T) {
	home := t.TempDir()
	shared := "[default]\naws_access_key_id=DEFAULTKEY\naws_secret_access_key=secret\n[work]\naws_access_key_id=WORKKEY\naws_secret_access_key=secret\n"
	conf := "[default]\nregion=eu-west-3\n[profile work]\nregion=ap-south-1\nendpoint_url=http://s3.work\n"
	for name, content := range map[string]string{"credentials": shared, "config": conf} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(home, "credentials"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(home, "config"))
	for _, name := range []string{"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		profile, env    string
		key, region, at string
	}{
		{"", "", "DEFAULTKEY", "eu-west-3", "bucket.s3.eu-west-3.amazonaws.com"},
		{"work", "", "WORKKEY", "ap-south-1", "s3.work"},
		{"", "ENVKEY", "ENVKEY", "eu-west-3", "bucket.s3.eu-west-3.amazonaws.com"},
	} {
		t.Setenv("AWS_ACCESS_KEY_ID", c.env)
		t.Setenv("AWS_SECRET_ACCESS_KEY", map[bool]string{true: "secret"}[c.env != ""])
		s := newService(t)
		if _, err := Open(t.Context(), Config{Bucket: "bucket", Profile: c.profile, Transport: s}); err != nil {
			t.Fatal(err)
		}
		r := s.requests[0]
		if auth := authorization.FindStringSubmatch(r.Header.Get("Authorization")); auth[1] != c.key || auth[3] != c.region || r.URL.Host != c.at {
			t.Errorf("profile %q: key %s, region %s, host %s; want %+v", c.profile, auth[1], auth[3], r.URL.Host, c)
		}
	}
	if _, err := Open(t.Context(), Config{Bucket: "bucket", Profile: "nobody", Transport: newService(t)}); !errors.Is(err, store.ErrConfig) {
		t.Errorf("unknown profile: %v", err)
	}
}
