package s3

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/varvelog/varve/segment/store"
)

func TestParseCompat(t *testing.T) {
	for c := range Compat(1 << len(compatNames)) {
		got, err := ParseCompat(c.String())
		if both := PathStyle | VirtualHost; c&both == both {
			if !errors.Is(err, store.ErrConfig) {
				t.Errorf("%q: %v", c, err)
			}
		} else if err != nil || got != c {
			t.Errorf("%q: %v, %v", c, got, err)
		}
	}
	if c, err := ParseCompat("no-checksum,nonsense"); !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "nonsense") || !strings.Contains(err.Error(), "no-conditional-put") {
		t.Errorf("%v, %v", c, err)
	}
}

// lookalike is what a service does that is not quite S3: it refuses requests, and may be blind to the condition.
type lookalike struct {
	refuse func(r *request) *http.Response
	blind  bool
}

func (l lookalike) on(s *service) {
	s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
		if l.refuse != nil {
			if resp := l.refuse(r); resp != nil {
				return resp, nil
			}
		}
		if l.blind {
			r.Header.Del("If-None-Match")
		}
		return next(), nil
	}
}

func noChecksums(r *request) *http.Response {
	for header := range r.Header {
		if strings.HasPrefix(strings.ToLower(header), "x-amz-checksum") || strings.HasPrefix(strings.ToLower(header), "x-amz-sdk-checksum") {
			return say(400, "InvalidArgument")
		}
	}
	return nil
}

func noConditions(r *request) *http.Response {
	if r.Header.Get("If-None-Match") != "" {
		return say(501, "NotImplemented")
	}
	return nil
}

func neither(r *request) *http.Response {
	if resp := noChecksums(r); resp != nil {
		return resp
	}
	return noConditions(r)
}

func pathOnly(r *request) *http.Response {
	if strings.HasPrefix(r.URL.Host, "bucket.") {
		return say(404, "NoSuchBucket")
	}
	return nil
}

// TestBR40_SelfTestNamesTheSetting: Open finds what a look-alike cannot do, and says which setting it needs; with
// that setting it opens.
func TestBR40_SelfTestNamesTheSetting(t *testing.T) {
	for _, c := range []struct {
		name string
		like lookalike
		has  Compat
		need Compat
	}{
		{"S3", lookalike{}, 0, 0},
		{"refuses checksums", lookalike{refuse: noChecksums}, 0, NoChecksum},
		{"refuses conditions", lookalike{refuse: noConditions}, 0, NoConditionalPut},
		{"ignores conditions", lookalike{blind: true}, 0, NoConditionalPut},
		{"refuses both", lookalike{refuse: neither}, 0, NoChecksum | NoConditionalPut},
		{"refuses both, one known", lookalike{refuse: neither}, NoChecksum, NoConditionalPut},
		{"ignores conditions, refuses checksums", lookalike{refuse: noChecksums, blind: true}, 0, NoChecksum | NoConditionalPut},
		{"answers path style only", lookalike{refuse: pathOnly}, VirtualHost, PathStyle},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, there := range []bool{false, true} { // a test object from an earlier Open
				bubble(t, func(t *testing.T, s *service) {
					if there {
						s.objects["/bucket/log/"+c.has.selfTestName()] = selfTestBody
					}
					c.like.on(s)
					cfg := Config{Bucket: "bucket", Prefix: "log", Endpoint: "http://s3.test", Region: "eu-north-1", Credentials: static, Transport: s, Compat: c.has}
					opensOnlyWith(t, cfg, c.need)
					cfg.Compat = c.has&^VirtualHost | c.need
					putsOnce(t, cfg)
				})
			}
		})
	}
}

// opensOnlyWith fails unless Open asks for just these settings.
func opensOnlyWith(t *testing.T, cfg Config, need Compat) {
	_, err := Open(t.Context(), cfg)
	var needs *CompatError
	switch {
	case need == 0 && err != nil:
		t.Fatal(err)
	case need != 0 && (!errors.As(err, &needs) || !errors.Is(err, store.ErrConfig)):
		t.Fatalf("%v, want a *CompatError", err)
	case need != 0 && (needs.Need != need || !strings.Contains(err.Error(), need.String())):
		t.Errorf("%v needs %q, want %q", err, needs.Need, need)
	}
}

// putsOnce fails unless a store can be opened that creates objects and overwrites none.
func putsOnce(t *testing.T, cfg Config) {
	st, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("with the setting: %v", err)
	}
	for _, body := range [][]byte{[]byte("x"), nil} {
		name := "a" + string(body)
		if err := errors.Join(st.Put(t.Context(), name, body), st.Put(t.Context(), name, body)); err != nil {
			t.Errorf("put with the setting: %v", err)
		}
		if err := st.Put(t.Context(), name, []byte("other")); !errors.Is(err, store.ErrExists) {
			t.Errorf("put of other bytes with the setting: %v", err)
		}
	}
}

// TestSelfTestCost: what an Open sends, the first time and later, and that it leaves one object, listed by nobody.
func TestSelfTestCost(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		const object = "/bucket/log/.selftest/0"
		cfg := Config{Bucket: "bucket", Prefix: "log", Endpoint: "http://s3.test", Region: "eu-north-1", Credentials: static, Transport: s}
		for _, want := range [][]string{{"PUT " + object, "PUT " + object, "GET " + object + " bytes=1-4"}, {"PUT " + object, "GET " + object + " bytes=1-4"}} {
			s.requests = nil
			st, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			s.expect(want...)
			if page, err := st.List(t.Context(), "", "", 0); err != nil || len(page.Objects) != 0 || page.More {
				t.Errorf("%+v, %v", page, err)
			}
		}
		if len(s.objects) != 1 {
			t.Errorf("%d objects", len(s.objects))
		}
	})
}

// TestOpenFailures: who may not write can open for reading; every other trouble is told as what it is.
func TestOpenFailures(t *testing.T) {
	for _, c := range []struct {
		answer *http.Response
		want   error
	}{
		{say(403, "AccessDenied"), nil},
		{say(403, "InvalidAccessKeyId"), store.ErrDenied},
		{say(403, "SignatureDoesNotMatch"), store.ErrDenied},
		{say(404, "NoSuchBucket"), store.ErrConfig},
		{say(503, "SlowDown"), store.ErrThrottled},
		{say(500, "InternalError"), store.ErrUnavailable},
		{nil, store.ErrUnavailable},
	} {
		bubble(t, func(t *testing.T, s *service) {
			s.answer = func(int, *request, func() *http.Response) (*http.Response, error) {
				if c.answer == nil {
					return nil, errReset
				}
				return say(c.answer.StatusCode, codeOf(c.answer)), nil
			}
			_, err := Open(t.Context(), Config{Bucket: "bucket", Endpoint: "http://s3.test", Credentials: static, Transport: s})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if len(s.requests) > 10 {
				t.Errorf("%d requests", len(s.requests))
			}
		})
	}
	bubble(t, func(t *testing.T, s *service) {
		s.objects["/bucket/.selftest/0"] = []byte("something else, longer than the range that is read of it")
		if _, err := Open(t.Context(), Config{Bucket: "bucket", Endpoint: "http://s3.test", Credentials: static, Transport: s}); !errors.Is(err, store.ErrConfig) || errors.As(err, new(*CompatError)) {
			t.Errorf("the test object reads as something else: %v", err)
		}
	})
}

func codeOf(r *http.Response) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = readCloser(string(body))
	_, rest, _ := strings.Cut(string(body), "<Code>")
	code, _, _ := strings.Cut(rest, "<")
	return code
}

// plain is a look-alike that refuses checksums, chunked signing, trailers and puts without a length.
func plain(r *request) *http.Response {
	if r.Method == http.MethodPut && (len(r.TransferEncoding) > 0 || r.Header.Get("Content-Length") == "") {
		return say(411, "MissingContentLength")
	}
	if r.Header.Get("X-Amz-Decoded-Content-Length") != "" || strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") || r.Header.Get("Trailer") != "" {
		return say(400, "XAmzContentSHA256Mismatch")
	}
	return noChecksums(r)
}

// onTheWire serves s on a real connection. The server's own header of a request shows whether it came with a length.
func onTheWire(t *testing.T, s *service, secure bool) (cfg Config) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 {
			r.Header.Set("Content-Length", "known")
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	transport := newTransport(4).(*http.Transport)
	if secure {
		server.StartTLS()
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	} else {
		server.Start()
	}
	t.Cleanup(transport.CloseIdleConnections)
	return Config{Bucket: "bucket", Prefix: "log", Endpoint: server.URL, Credentials: static, Transport: transport}
}

// TestBR40_EveryWritePath: with one setting every put passes, over HTTP and over HTTPS, the empty one too.
func TestBR40_EveryWritePath(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := newService(t)
		lookalike{refuse: plain}.on(s)
		cfg := onTheWire(t, s, secure)
		opensOnlyWith(t, cfg, NoChecksum)
		cfg.Compat = NoChecksum
		st, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string][]byte{"varve.json": []byte("{}"), "empty": nil, "a/large": bytes.Repeat([]byte{1}, 4<<20)} {
			if err := st.Put(t.Context(), name, body); err != nil {
				t.Errorf("TLS %v, %s: %v", secure, name, err)
			}
			if got, err := st.Get(t.Context(), name, 0, -1, nil); err != nil || !bytes.Equal(got, body) {
				t.Errorf("TLS %v, %s: %d bytes, %v", secure, name, len(got), err)
			}
		}
	}
}

// TestUnknownCertificate: it is no use to repeat that, and the error says what it is.
func TestUnknownCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of the client
	server.StartTLS()
	defer server.Close()
	u, _ := url.Parse(server.URL)
	st, err := newStore(t.Context(), Config{Bucket: "bucket", Endpoint: "https://" + u.Host, Credentials: static})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Put(t.Context(), "a", nil); !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}
