package s3

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/segment/store"
)

// A link is made without a request, for this range of this object and so long.
func TestPresign(t *testing.T) {
	svc := newService(t)
	s := svc.open(func(*Config) {})
	before := time.Now()
	link, err := s.PresignGet(t.Context(), "keep/intake/00/a", 10, 5, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if len(svc.requests) != 0 || !strings.HasSuffix(u.Path, "/log/keep/intake/00/a") || link.Range != "bytes=10-14" || q.Get("X-Amz-Expires") != "60" || q.Get("X-Amz-SignedHeaders") != "host;range" ||
		link.Expires.Before(before.Add(time.Minute)) || link.Expires.After(time.Now().Add(time.Minute)) {
		t.Errorf("%d requests, %+v", len(svc.requests), link)
	}
	for _, bad := range []struct {
		name     string
		off, n   int64
		lifetime time.Duration
		want     error
	}{
		{"../a", 0, 1, time.Minute, store.ErrBadName}, {"a", -1, 1, time.Minute, store.ErrShort}, {"a", 0, 0, time.Minute, store.ErrShort},
		{"a", 0, 1, store.MaxLinkLifetime + 1, store.ErrShort}, {"a", 0, 1, time.Millisecond, store.ErrShort},
	} {
		if _, err := s.PresignGet(t.Context(), bad.name, bad.off, bad.n, bad.lifetime); !errors.Is(err, bad.want) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestMinIO_Presign: who has a link, and no rights, gets the range that it is for, and nothing else by it.
func TestMinIO_Presign(t *testing.T) {
	cfg := onMinIO(miniotest.Start(t))
	cfg.Prefix = "log"
	s := mustOpen(t, cfg)
	for _, name := range []string{"a", "b"} {
		if err := s.Put(t.Context(), name, digits(100)); err != nil {
			t.Fatal(err)
		}
	}
	link, err := s.PresignGet(t.Context(), "a", 23, 5, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	use := func(change func(*http.Request)) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", link.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Range", link.Range)
		change(r)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(b)
	}
	defer http.DefaultClient.CloseIdleConnections()
	if status, b := use(func(*http.Request) {}); status != http.StatusPartialContent || b != "34567" {
		t.Errorf("%d: %s", status, b)
	}
	for name, change := range map[string]func(*http.Request){
		"another range":  func(r *http.Request) { r.Header.Set("Range", "bytes=0-99") },
		"no range":       func(r *http.Request) { r.Header.Del("Range") },
		"another object": func(r *http.Request) { r.URL.Path = strings.TrimSuffix(r.URL.Path, "a") + "b" },
		"a list":         func(r *http.Request) { r.URL.Path = "/" + miniotest.Bucket + "/" },
		"longer": func(r *http.Request) {
			q := r.URL.Query()
			q.Set("X-Amz-Expires", "3600")
			r.URL.RawQuery = q.Encode()
		},
		"another method": func(r *http.Request) { r.Method = "DELETE" },
	} {
		// S3 says 403 to each; MinIO says 400 where a signed header is missing.
		if status, b := use(change); status != http.StatusForbidden && (status != http.StatusBadRequest || !strings.Contains(b, "<Code>AccessDenied</Code>")) {
			t.Errorf("%s: %d: %s", name, status, b)
		}
	}
}
