package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/segment/store"
)

func digits(n int) []byte {
	return bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
}

// cut makes an answer's body break off after n bytes with err.
func cut(resp *http.Response, n int, err error) *http.Response {
	body, _ := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:min(n, len(body))]), failingReader{err}))
	return resp
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// TestBR39_ShortBody: 100 bytes are announced, 5 come. The rest is asked for from byte 5 on.
func TestBR39_ShortBody(t *testing.T) {
	for _, end := range []error{io.ErrUnexpectedEOF, errReset, io.EOF} {
		for _, length := range []string{"100", "5", ""} { // as it should be; as it is; not said
			bubble(t, func(t *testing.T, s *service) {
				s.objects["/bucket/log/a"] = digits(150)
				s.answer = func(n int, _ *request, next func() *http.Response) (*http.Response, error) {
					resp := next()
					if n == 1 {
						resp = cut(resp, 5, end)
						resp.Header.Set("Content-Length", length)
						if length == "" {
							resp.Header.Del("Content-Length")
						}
					}
					return resp, nil
				}
				var seen []byte // of both answers, each byte once
				got, err := s.open(nil).GetStream(t.Context(), "a", 20, 100, nil, func(b []byte) { seen = append(seen, b[len(seen):]...) })
				if err != nil || !bytes.Equal(got, digits(150)[20:120]) || !bytes.Equal(seen, got) {
					t.Errorf("%v, length %q: %q, seen %q, %v", end, length, got, seen, err)
				}
				s.expect("GET /bucket/log/a bytes=20-119", "GET /bucket/log/a bytes=25-119")
			})
		}
	}
}

// TestBR39_ShortBodyToTheEnd is the same for a read without an end.
func TestBR39_ShortBodyToTheEnd(t *testing.T) {
	for _, off := range []int64{0, 20} {
		bubble(t, func(t *testing.T, s *service) {
			s.objects["/bucket/log/a"] = digits(100)
			s.answer = func(n int, _ *request, next func() *http.Response) (*http.Response, error) {
				if n < 3 {
					return cut(next(), 5, errReset), nil
				}
				return next(), nil
			}
			got, err := s.open(nil).Get(t.Context(), "a", off, -1, nil)
			if err != nil || !bytes.Equal(got, digits(100)[off:]) {
				t.Errorf("from %d: %q, %v", off, got, err)
			}
		})
	}
}

// TestBR39_ShortForEver: a bounded number of attempts, then an error; never what came as a success.
func TestBR39_ShortForEver(t *testing.T) {
	for _, perAnswer := range []int{0, 5} {
		bubble(t, func(t *testing.T, s *service) {
			s.objects["/bucket/log/a"] = digits(100)
			s.answer = func(_ int, _ *request, next func() *http.Response) (*http.Response, error) {
				return cut(next(), perAnswer, io.EOF), nil
			}
			got, err := s.open(nil).Get(t.Context(), "a", 0, 100, nil)
			if got != nil || !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrShort) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q, %v", got, err)
			}
			if len(s.requests) != maxAttempts {
				t.Errorf("%d requests", len(s.requests))
			}
		})
	}
}

// TestBR39_OnTheWire is the case as it is told, on a real connection: closed cleanly, and reset.
func TestBR39_OnTheWire(t *testing.T) {
	for _, reset := range []bool{false, true} {
		s := newService(t)
		s.objects["/bucket/log/a"] = digits(100)
		var broken atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/a") || broken.Add(1) > 1 {
				s.ServeHTTP(w, r)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(conn, "HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Range: bytes 0-99/100\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n01234")
			if reset {
				conn.(*net.TCPConn).SetLinger(0)
			}
			conn.Close()
		}))
		defer server.Close()
		st, err := Open(t.Context(), Config{Bucket: "bucket", Prefix: "log", Endpoint: server.URL, Credentials: static})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if got, err := st.Get(t.Context(), "a", 0, 100, nil); err != nil || !bytes.Equal(got, digits(100)) {
			t.Errorf("reset %v: %q, %v", reset, got, err)
		}
		if broken.Load() < 2 {
			t.Errorf("reset %v: the broken answer was not asked for", reset)
		}
	}
}

// TestBR39_Ranges: answers whose range is not the one that was asked for.
func TestBR39_Ranges(t *testing.T) {
	for _, c := range []struct {
		name, contentRange string
		status             int
		body               []byte
		want               error // nil: bytes 10 to 19
	}{
		{"another start", "bytes 0-9/100", 206, digits(10), store.ErrUnavailable},
		{"a smaller object", "bytes 10-14/15", 206, digits(100)[10:15], store.ErrShort},
		{"no sense", "bytes 10", 206, digits(100)[10:20], store.ErrUnavailable},
		{"no range at all", "", 200, digits(100), store.ErrConfig},
		{"more than asked for", "bytes 10-99/100", 206, digits(100)[10:], nil},
		{"total not known", "bytes 10-19/*", 206, digits(100)[10:20], nil},
		{"total absurd", "bytes 10-19/9223372036854775807", 206, digits(100)[10:20], nil},
		{"total beyond 63 bits", "bytes 10-19/99999999999999999999", 206, digits(100)[10:20], store.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *service) {
				s.answer = func(_ int, _ *request, next func() *http.Response) (*http.Response, error) {
					resp := say(c.status, "", "Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT", "Content-Length", fmt.Sprint(len(c.body)))
					if c.contentRange != "" {
						resp.Header.Set("Content-Range", c.contentRange)
					}
					resp.Body = io.NopCloser(bytes.NewReader(c.body))
					return resp, nil
				}
				got, err := s.open(nil).Get(t.Context(), "a", 10, 10, nil)
				if !errors.Is(err, c.want) || c.want == nil && !bytes.Equal(got, digits(100)[10:20]) || c.want != nil && got != nil {
					t.Errorf("%q, %v; want %v", got, err, c.want)
				}
			})
		})
	}
}

// TestAbsurdLength: a length that is claimed, not sent, takes no memory.
func TestAbsurdLength(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(n int, _ *request, _ func() *http.Response) (*http.Response, error) {
			if n > 1 {
				return nil, errReset
			}
			resp := say(200, "", "Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT", "Content-Length", "9000000000000000000")
			resp.Body = io.NopCloser(strings.NewReader("tiny"))
			return resp, nil
		}
		if got, err := s.open(nil).Get(t.Context(), "a", 0, -1, nil); got != nil || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestRangeRefused: 416 is what S3 says of a range after the end, which may be the right end.
func TestRangeRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.objects["/bucket/log/a"] = digits(10)
		st := s.open(nil)
		if got, err := st.Get(t.Context(), "a", 10, -1, nil); err != nil || len(got) != 0 {
			t.Errorf("from the end: %q, %v", got, err)
		}
		s.expect("GET /bucket/log/a bytes=10-", "HEAD /bucket/log/a")
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return say(416, "InvalidRange"), nil
			}
			return next(), nil
		}
		for _, n := range []int64{3, -1} {
			if _, err := st.Get(t.Context(), "a", 2, n, nil); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("a range that is there is refused: %v", err)
			}
		}
	})
}

func TestContentRange(t *testing.T) {
	for s, want := range map[string]contentRange{
		"bytes 0-4/100": {0, 4, 100}, "bytes 0-0/1": {0, 0, 1}, "bytes 5-9/*": {5, 9, -1}, "bytes 0-9223372036854775806/9223372036854775807": {0, 9223372036854775806, 9223372036854775807},
	} {
		if got, err := parseContentRange(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "bytes", "bytes ", "bytes 0-4", "bytes */100", "bytes 4-0/100", "bytes 0-100/100", "bytes -1-4/100", "bytes 0-4/-1", "bytes +0-4/100", "items 0-4/100", "bytes 0-4/100/2", "bytes 0-4/99999999999999999999", "bytes 0-4/ 100"} {
		if got, err := parseContentRange(s); !errors.Is(err, errBroken) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

// FuzzContentRange: whatever a server says, the range is sound or refused, and printing it gives it back.
func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-4/100", "bytes 5-9/*", "bytes 4-0/1", "bytes 0-0/0", "bytes 00-01/02", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseContentRange(s)
		if err != nil {
			return
		}
		if r.first < 0 || r.last < r.first || r.total >= 0 && r.last >= r.total {
			t.Fatalf("%q: %+v", s, r)
		}
		total := "*"
		if r.total >= 0 {
			total = fmt.Sprint(r.total)
		}
		if again, err := parseContentRange(fmt.Sprintf("bytes %d-%d/%s", r.first, r.last, total)); err != nil || again != r {
			t.Fatalf("%q: %+v, again %+v, %v", s, r, again, err)
		}
	})
}
