package sdk_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/varvelog/varve/localdev/server"
	"github.com/varvelog/varve/sdk"
)

// The tests of this file are of what is on the wire: signatures, tokens, redirects, answers without end.

// about answers GET /v1.
func about(w http.ResponseWriter, more string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"service":"fetch","log_id":"00","version":1%s}`, more)
}

// signedBy tells whether the request has the signature that AWS's own signer gives it, for a region and the service lambda.
func signedBy(r *http.Request, keys aws.Credentials, region string) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	got := r.Header.Get("Authorization")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return err
	}
	_, list, _ := strings.Cut(got, "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	again, err := http.NewRequest(r.Method, "https://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(list, ";") {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(context.Background(), keys, again, hex.EncodeToString(sum[:]), "lambda", region, at); err != nil {
		return err
	}
	if want := again.Header.Get("Authorization"); got != want {
		return fmt.Errorf("signature %q, want %q", got, want)
	}
	for _, name := range []string{"Varve-Producer-Id", "Varve-Producer-Sequence", "X-Amz-Security-Token"} {
		if r.Header.Get(name) != "" && !strings.Contains(list, strings.ToLower(name)) {
			return fmt.Errorf("%s is not signed", name)
		}
	}
	return nil
}

// Every request of a log that is produced to and read carries a signature that AWS's signer comes to as well: for the region of the host's name or of the query, with
// the credentials of the default chain, the session's token among what is signed.
func TestRemote_Signatures(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	t.Setenv("AWS_SESSION_TOKEN", "session-of-the-test")
	t.Setenv("VARVE_TOKEN", "not-to-be-sent")
	keys := aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret-of-the-test", SessionToken: "session-of-the-test"}
	for _, c := range []struct{ url, region string }{
		{"https://abc.lambda-url.eu-central-1.on.aws", "eu-central-1"},
		{"https://abc.lambda-url.eu-central-1.on.aws/?region=us-west-2", "us-west-2"},
		{"https://log.example.com/stage?region=ap-south-1", "ap-south-1"},
	} {
		w := newWorld(t)
		near := w.open()
		w.create(near, sdk.NewTopic{Name: "t", Partitions: 2})
		h, checked := newHop(t, near), atomic.Int64{}
		handler := h.handler
		h.handler = http.StripPrefix(map[bool]string{true: "/stage"}[strings.Contains(c.url, "/stage")], http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(rw, r)
		}))
		checking := roundTripper(func(r *http.Request) (*http.Response, error) {
			body := []byte{}
			if r.Body != nil {
				body, _ = io.ReadAll(r.Body)
			}
			seen := r.Clone(r.Context())
			seen.Host, seen.Body = r.URL.Host, io.NopCloser(bytes.NewReader(body))
			if err := signedBy(seen, keys, c.region); err != nil {
				t.Errorf("%s %s: %v", r.Method, r.URL, err)
			}
			checked.Add(1)
			r.Body = io.NopCloser(bytes.NewReader(body))
			return h.RoundTrip(r)
		})
		log, err := sdk.Open(ctx, c.url, sdk.WithTransport(checking))
		w.must(err)
		p := w.producer(log)
		w.must(p.ProduceSync(ctx, rec("t", "a"), rec("t", "b")).Err())
		w.must(p.Close(ctx))
		r, err := log.NewReader(ctx, "t", sdk.To(sdk.Latest))
		w.must(err)
		if got := readAll(t, r); len(got[0])+len(got[1]) != 2 {
			t.Errorf("read %v", got)
		}
		if n := checked.Load(); n < 6 {
			t.Errorf("%d requests", n)
		}
		w.must(log.Close())
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A machine whose clock is off is refused once, and signs by the service's clock from then on. Whoever is refused for good is told so, typed, and not what was sent.
func TestRemote_Refused(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	synctest.Test(t, func(t *testing.T) {
		f, refused := newFar(t), 0
		f.create(f.near, sdk.NewTopic{Name: "t"})
		skewed := roundTripper(func(r *http.Request) (*http.Response, error) {
			service := time.Now().Add(20 * time.Minute)
			if at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err != nil || service.Sub(at).Abs() > 5*time.Minute {
				refused++
				resp := canned(r, 403, "", `{"Message":"Signature expired"}`)
				resp.Header.Set("Date", service.UTC().Format(http.TimeFormat))
				return resp, nil
			}
			return f.RoundTrip(r)
		})
		log, err := sdk.Open(ctx, "https://x.lambda-url.eu-west-1.on.aws", sdk.WithTransport(skewed))
		f.must(err)
		p := f.producer(log)
		f.must(p.ProduceSync(ctx, rec("t", "a")).Err())
		f.must(p.Close(ctx))
		if refused != 1 {
			t.Errorf("refused %d times", refused)
		}
		denies := false
		denying := roundTripper(func(r *http.Request) (*http.Response, error) {
			if denies {
				return canned(r, 403, "", `{"Message":"Forbidden"}`), nil
			}
			return f.RoundTrip(r)
		})
		log, err = sdk.Open(ctx, "https://x.lambda-url.eu-west-1.on.aws", sdk.WithTransport(denying))
		f.must(err)
		p = f.producer(log)
		f.must(p.ProduceSync(ctx, rec("t", "a")).Err())
		denies = true
		start := time.Now()
		err = p.ProduceSync(ctx, rec("t", "b")).Err()
		var answered *sdk.RemoteError
		if !errors.Is(err, sdk.ErrDenied) || !errors.As(err, &answered) || answered.Status != 403 || sdk.OutcomeOf(err) != sdk.NotApplied || time.Since(start) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		f.must(p.Close(ctx))
		if _, err := log.Admin().ListTopics(ctx); !errors.Is(err, sdk.ErrDenied) || contains(err, "secret-of-the-test") {
			t.Errorf("list: %v", err)
		}
	})
}

// A token comes from the environment and goes to the server; a wrong one is an error that does not show it; and it goes to no other host that an answer names.
func TestRemote_Tokens(t *testing.T) {
	w := newWorld(t)
	near := w.open()
	w.create(near, sdk.NewTopic{Name: "t"})
	s, err := server.Start(near, server.Options{Token: "the-token"})
	w.must(err)
	t.Cleanup(func() { s.Close(ctx) })
	t.Setenv("VARVE_TOKEN", "the-token")
	log, err := sdk.Open(ctx, s.URL())
	w.must(err)
	p := w.producer(log)
	w.must(p.ProduceSync(ctx, rec("t", "over a socket")).Err())
	w.must(p.Close(ctx))
	w.must(log.Close())
	for _, wrong := range []string{"the-wrong-token", ""} {
		t.Setenv("VARVE_TOKEN", wrong)
		if _, err := sdk.Open(ctx, s.URL()); !errors.Is(err, sdk.ErrDenied) || wrong != "" && contains(err, wrong) {
			t.Errorf("token %q: %v", wrong, err)
		}
	}
	t.Setenv("VARVE_TOKEN", "line\nbreak")
	if _, err := sdk.Open(ctx, s.URL()); !errors.Is(err, sdk.ErrInvalid) || contains(err, "break") {
		t.Errorf("a token that is none: %v", err)
	}

	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere.Add(1); about(w, "") }))
	t.Cleanup(other.Close)
	naming := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		about(w, fmt.Sprintf(`,"produce_url":%q`, other.URL))
	}))
	t.Cleanup(naming.Close)
	t.Setenv("VARVE_TOKEN", "the-token")
	var field *sdk.FieldError
	if _, err := sdk.Open(ctx, naming.URL); !errors.As(err, &field) || elsewhere.Load() != 0 {
		t.Errorf("%d requests elsewhere; %v", elsewhere.Load(), err)
	}
	log, err = sdk.Open(ctx, naming.URL+"?produce="+other.URL)
	w.must(err)
	w.must(log.Close())
}

// Redirects are not followed, by requests of any kind: what is sent is for the host that was named.
func TestRemote_Redirects(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere.Add(1); about(w, "") }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.RedirectHandler(other.URL, status))
		_, err := sdk.Open(ctx, s.URL)
		var answered *sdk.RemoteError
		if !errors.As(err, &answered) || answered.Status != status || !contains(err, "redirect") {
			t.Errorf("%d: %v", status, err)
		}
		s.Close()
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests followed", n)
	}
}

// An answer without end is given up, whether or not it says how long it is.
func TestRemote_GiganticAnswers(t *testing.T) {
	for _, announced := range []bool{false, true} {
		var written atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1" {
				about(w, "")
				return
			}
			if announced {
				w.Header().Set("Content-Length", strconv.Itoa(1<<40))
			}
			for chunk := make([]byte, 1<<20); r.Context().Err() == nil; written.Add(1) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}))
		log, err := sdk.Open(ctx, s.URL)
		check(t, err)
		within, cancel := context.WithCancel(ctx)
		requests := &onceThen{cancel: cancel}
		log.Close()
		log, err = sdk.Open(ctx, s.URL, sdk.WithHooks(requests))
		check(t, err)
		_, err = log.Admin().ListTopics(within)
		if !errors.Is(err, sdk.ErrUnreachable) || !contains(err, "too long") || written.Load() > 64 {
			t.Errorf("announced %v: %d MiB; %v", announced, written.Load(), err)
		}
		log.Close()
		s.Close()
	}
}

// onceThen cancels after the first request that failed: the next attempts would fare no better.
type onceThen struct{ cancel context.CancelFunc }

func (o *onceThen) OnRequest(e sdk.RequestEvent) {
	if e.Err != nil {
		o.cancel()
	}
}

func TestRemote_URLs(t *testing.T) {
	t.Setenv("VARVE_TOKEN", "")
	for url, valid := range map[string]string{
		"http://example.com":                                        "http:// on this machine only",
		"http://10.0.0.1:8080":                                      "http:// on this machine only",
		"https://user:pass@x.lambda-url.eu-west-1.on.aws":           "without credentials",
		"https://x.lambda-url.eu-west-1.on.aws?token=abc":           "without credentials",
		"https://x.lambda-url.eu-west-1.on.aws?X-Amz-Signature=abc": "without credentials",
		"https://x.lambda-url.eu-west-1.on.aws?produce=http://a.b":  "http:// on this machine only",
		"https://x.lambda-url.eu-west-1.on.aws?produce=ftp://a.b":   "https://HOST",
		"https://x.lambda-url.eu-west-1.on.aws?regoin=x":            "one of produce, profile, region",
		"https://x.lambda-url.eu-west-1.on.aws#x":                   "none",
		"https://example.com":                                       "VARVE_TOKEN",
		"https://evil-lambda-url.eu-west-1.on.aws.example.com":      "VARVE_TOKEN",
		"http://localhost:1?profile=p":                              "only together with region",
		"https://":                                                  "https://HOST",
	} {
		_, err := sdk.Open(ctx, url)
		var field *sdk.FieldError
		if !errors.As(err, &field) || !strings.Contains(field.Valid, valid) || contains(err, "abc") || contains(err, "pass") && !strings.Contains(url, "host:1") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := sdk.Open(ctx, "http://localhost:1", sdk.WithCreateTable()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a table over HTTP: %v", err)
	}
}
