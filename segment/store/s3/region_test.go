package s3

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/segment/store"
)

// signedFor is the region that a request is signed for.
func signedFor(r *request) string {
	return authorization.FindStringSubmatch(r.Header.Get("Authorization"))[3]
}

var allOps = []store.Op{store.OpPut, store.OpGet, store.OpStat, store.OpList, store.OpDelete}

// TestBR43_WrongRegionIsAdopted: the bucket is elsewhere, said in each of the ways in which services say it.
func TestBR43_WrongRegionIsAdopted(t *testing.T) {
	for name, refuse := range map[string]func(head bool) *http.Response{
		"301 with a header and no location": func(bool) *http.Response { return say(301, "", "x-amz-bucket-region", "eu-west-1") },
		"301 with a body":                   func(bool) *http.Response { return say(301, "PermanentRedirect", "x-amz-bucket-region", "eu-west-1") },
		"400 naming the region": func(head bool) *http.Response {
			if head { // which has no body
				return say(400, "", "x-amz-bucket-region", "eu-west-1")
			}
			return say(400, "AuthorizationHeaderMalformed", "Region", "eu-west-1")
		},
		"403 naming the region": func(bool) *http.Response { return say(403, "", "x-amz-bucket-region", "eu-west-1") },
	} {
		for _, op := range allOps {
			bubble(t, func(t *testing.T, s *service) {
				s.objects["/bucket/log/a"] = []byte("x")
				s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
					if signedFor(r) != "eu-west-1" {
						return refuse(r.Method == http.MethodHead), nil
					}
					return next(), nil
				}
				st := s.open(nil)
				if err := callOf(t.Context(), st, op); err != nil {
					t.Errorf("%s, %s: %v", name, op, err)
				}
				wrong := 0
				for _, r := range s.requests {
					if signedFor(r) != "eu-west-1" {
						wrong++
					}
				}
				if wrong != 1 || len(s.requests) < 2 || signedFor(s.requests[0]) != "eu-north-1" || signedFor(s.requests[1]) != "eu-west-1" {
					t.Errorf("%s, %s: %d requests to the wrong region of %q", name, op, wrong, s.did())
				}
				s.requests = nil
				if _, err := st.Stat(t.Context(), "a"); op != store.OpDelete && err != nil || len(s.requests) != 1 {
					t.Errorf("%s, %s: the region is not remembered: %v, %d requests", name, op, err, len(s.requests))
				}
			})
		}
	}
}

// TestBR43_WrongRegionStays: no region is said, or another one each time. At most two tries, and the error names them.
func TestBR43_WrongRegionStays(t *testing.T) {
	for _, op := range allOps {
		bubble(t, func(t *testing.T, s *service) {
			s.answer = func(int, *request, func() *http.Response) (*http.Response, error) { return say(301, ""), nil }
			st := s.open(nil)
			err := callOf(t.Context(), st, op)
			if !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), `"bucket"`) || !strings.Contains(err.Error(), `"eu-north-1"`) || len(s.requests) != 1 {
				t.Errorf("%s, no region: %v, %d requests", op, err, len(s.requests))
			}
			s.answer = func(_ int, r *request, _ func() *http.Response) (*http.Response, error) {
				return say(301, "", "x-amz-bucket-region", signedFor(r)+"x"), nil
			}
			s.requests = nil
			err = callOf(t.Context(), st, op)
			if !errors.Is(err, store.ErrConfig) || len(s.requests) != 2 {
				t.Errorf("%s, ever another: %v, %d requests", op, err, len(s.requests))
			}
			for _, region := range []string{`"eu-north-1"`, `"eu-north-1x"`, `"eu-north-1xx"`} {
				if !strings.Contains(err.Error(), region) {
					t.Errorf("%v does not name %s", err, region)
				}
			}
		})
	}
}

// TestBR43_ManyAtOnce: sixteen callers learn of the region at the same moment.
func TestBR43_ManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if signedFor(r) != "eu-west-1" {
				return say(301, "", "x-amz-bucket-region", "eu-west-1"), nil
			}
			return next(), nil
		}
		st := s.open(nil)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				if err := st.Put(t.Context(), string('a'+rune(i)), nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// TestBR43_PathStyle: where the bucket goes, in every kind of request.
func TestBR43_PathStyle(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		host   string
		path   string
	}{
		{"Amazon", func(c *Config) { c.Endpoint = "" }, "bucket.s3.eu-north-1.amazonaws.com", "/log/"},
		{"Amazon, path style", func(c *Config) { c.Endpoint, c.Compat = "", PathStyle }, "s3.eu-north-1.amazonaws.com", "/bucket/log/"},
		{"Amazon, dots", func(c *Config) { c.Endpoint, c.Bucket = "", "my.log.bucket" }, "s3.eu-north-1.amazonaws.com", "/my.log.bucket/log/"},
		{"another", func(*Config) {}, "s3.test", "/bucket/log/"},
		{"another, dots", func(c *Config) { c.Bucket, c.Endpoint = "my.log.bucket", "https://s3.test:9000" }, "s3.test:9000", "/my.log.bucket/log/"},
		{"another, virtual host", func(c *Config) { c.Compat = VirtualHost }, "bucket.s3.test", "/log/"},
		{"no prefix", func(c *Config) { c.Prefix = "" }, "s3.test", "/bucket/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *service) {
				st := s.open(c.change)
				for _, op := range allOps {
					callOf(t.Context(), st, op)
				}
				if err := st.Delete(t.Context(), "b", "c"); err != nil {
					t.Error(err)
				}
				bucket := strings.TrimSuffix(strings.TrimSuffix(c.path, "log/"), "/") + "/"
				for i, r := range s.requests {
					want := c.path + "a"
					if i == 3 || i == 5 { // list, several deletes
						want = bucket
					}
					if r.URL.Host != c.host || r.URL.Path != want {
						t.Errorf("%s %s, want host %s, path %s", r.Method, r.URL, c.host, want)
					}
				}
				if len(s.requests) != 6 {
					t.Errorf("%q", s.did())
				}
			})
		})
	}
}

func TestConfig(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Bucket = "" },
		func(c *Config) { c.Bucket = "UPPER" },
		func(c *Config) { c.Bucket = "a/b" },
		func(c *Config) { c.Prefix = "/a" },
		func(c *Config) { c.Prefix = "a//b" },
		func(c *Config) { c.Prefix = "a/../b" },
		func(c *Config) { c.Prefix = "a b" },
		func(c *Config) { c.Prefix = "a\x00" },
		func(c *Config) { c.Prefix = "é" },
		func(c *Config) { c.Prefix = strings.Repeat("a", 600) },
		func(c *Config) { c.Endpoint = "s3.test" },
		func(c *Config) { c.Endpoint = "ftp://s3.test" },
		func(c *Config) { c.Endpoint = "https://s3.test/path" },
		func(c *Config) { c.Endpoint = "https://user:secret@s3.test" },
		func(c *Config) { c.Compat = PathStyle | VirtualHost },
	} {
		s := newService(t)
		cfg := Config{Bucket: "bucket", Prefix: "log", Endpoint: "http://s3.test", Region: "eu-north-1", Credentials: static, Transport: s}
		change(&cfg)
		var e *store.Error
		if _, err := Open(t.Context(), cfg); !errors.Is(err, store.ErrConfig) || !errors.As(err, &e) || e.Op != store.OpOpen || len(s.requests) > 0 {
			t.Errorf("%+v: %v, %d requests", cfg, err, len(s.requests))
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// TestEveryPrefixRune: what a prefix may hold is escaped, signed and read back alike.
func TestEveryPrefixRune(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		st := s.open(func(c *Config) { c.Prefix = strings.Trim(prefixRunes, "/") + "/env=Prod(1)" })
		if err := st.Put(t.Context(), "a/b", []byte("x")); err != nil {
			t.Error(err)
		}
		if got, err := st.Get(t.Context(), "a/b", 0, -1, nil); err != nil || string(got) != "x" {
			t.Errorf("%q, %v", got, err)
		}
		if page, err := st.List(t.Context(), "a/", "a/a", 0); err != nil || pageNames(page) != "a/b" {
			t.Errorf("%+v, %v", page, err)
		}
		if err := st.Delete(t.Context(), "a/b", "a/c"); err != nil || len(s.objects) != 1 {
			t.Errorf("%v, %d objects", err, len(s.objects))
		}
	})
}

// BR-43, multipart: every request of an upload goes to the host and the region that the others go to.
func TestBR43_PartsPathStyleAndRegion(t *testing.T) {
	for host, change := range map[string]func(*Config){
		"s3.test":        func(*Config) {},
		"bucket.s3.test": func(c *Config) { c.Compat = VirtualHost },
	} {
		bubble(t, func(t *testing.T, s *service) {
			st := s.open(change)
			if _, err := st.PutParts(t.Context(), "a", inParts(threeParts)); err != nil {
				t.Fatal(err)
			}
			for _, r := range s.requests {
				if r.URL.Host != host || !strings.HasSuffix(r.URL.Path, "/log/a") {
					t.Errorf("%s %s, want host %s", r.Method, r.URL, host)
				}
			}
			if len(s.requests) != 5 {
				t.Errorf("%q", s.did())
			}
		})
	}
	for _, step := range []string{"begin", "part", "complete"} {
		bubble(t, func(t *testing.T, s *service) {
			var moved atomic.Bool // parts are sent at once
			s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
				if isStep(r, step) {
					moved.Store(true)
				}
				if moved.Load() && signedFor(r) != "eu-west-1" {
					return say(301, "", "x-amz-bucket-region", "eu-west-1"), nil
				}
				return next(), nil
			}
			if _, err := s.open(nil).PutParts(t.Context(), "a", inParts(threeParts)); err != nil {
				t.Errorf("%s: %v %q", step, err, s.did())
			}
			if len(s.uploads) != 0 {
				t.Errorf("%s: %d uploads are left", step, len(s.uploads))
			}
		})
	}
}
