package s3

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/segment/store"
)

var errReset = errors.New("connection reset by peer")

// bubble runs f with a service of its own in virtual time.
func bubble(t *testing.T, f func(t *testing.T, s *service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newService(t)) })
}

// TestPutRequest is what one put sends: one plain PUT, conditional, checksummed, signed (which the service checks).
func TestPutRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		store := s.open(nil)
		for _, body := range [][]byte{[]byte("hello"), nil, bytes.Repeat([]byte{7}, 20<<20)} {
			s.requests = nil
			if err := store.Put(t.Context(), "a/"+string('a'+rune(len(body)%7)), body); err != nil {
				t.Fatal(err)
			}
			r := s.requests[0]
			if len(s.requests) != 1 || r.Method != http.MethodPut || r.Header.Get("If-None-Match") != "*" || r.Header.Get(checksumHeader) != crc32c(body) ||
				r.Header.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD" || !bytes.Equal(r.body, body) || r.ContentLength != int64(len(body)) {
				t.Errorf("%d requests; %s %v, %d bytes", len(s.requests), r.Method, r.Header, len(r.body))
			}
		}
	})
}

// TestBR07b_OwnPutLooksLikeAnothers: the object was stored, the answer lost, and the retry is told that it exists.
func TestBR07b_OwnPutLooksLikeAnothers(t *testing.T) {
	lost := func(n int, _ *request, next func() *http.Response) (*http.Response, error) {
		resp := next()
		if n == 1 {
			return nil, errReset
		}
		return resp, nil
	}
	settled := []string{"PUT /bucket/log/a", "PUT /bucket/log/a", "HEAD /bucket/log/a", "GET /bucket/log/a"}
	bubble(t, func(t *testing.T, s *service) {
		s.answer = lost
		if err := s.open(nil).Put(t.Context(), "a", []byte("mine")); err != nil {
			t.Errorf("same bytes there: %v", err)
		}
		s.expect(settled...)
	})
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(n int, r *request, next func() *http.Response) (*http.Response, error) {
			if n == 1 {
				s.objects["/bucket/log/a"] = []byte("same") // somebody else's, while our own put is lost
				return nil, errReset
			}
			return next(), nil
		}
		if err := s.open(nil).Put(t.Context(), "a", []byte("mine")); !errors.Is(err, store.ErrExists) {
			t.Errorf("other bytes of the same length: %v", err)
		}
		s.expect(settled...)
	})
	bubble(t, func(t *testing.T, s *service) {
		s.objects["/bucket/log/a"] = []byte("longer")
		if err := s.open(nil).Put(t.Context(), "a", []byte("mine")); !errors.Is(err, store.ErrExists) {
			t.Errorf("other length: %v", err)
		}
		s.expect("PUT /bucket/log/a", "HEAD /bucket/log/a")
	})
}

// TestBR07b_Conflict: 409 is no "exists", whatever its code; the put is repeated.
func TestBR07b_Conflict(t *testing.T) {
	for _, code := range []string{"ConditionalRequestConflict", "OperationAborted", ""} {
		bubble(t, func(t *testing.T, s *service) {
			s.answer = func(n int, _ *request, next func() *http.Response) (*http.Response, error) {
				if n <= 2 {
					return say(http.StatusConflict, code), nil
				}
				return next(), nil
			}
			if err := s.open(nil).Put(t.Context(), "a", []byte("mine")); err != nil {
				t.Errorf("%q: %v", code, err)
			}
			s.expect("PUT /bucket/log/a", "PUT /bucket/log/a", "PUT /bucket/log/a")
		})
	}
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(int, *request, func() *http.Response) (*http.Response, error) {
			return say(http.StatusConflict, "ConditionalRequestConflict"), nil
		}
		err := s.open(nil).Put(t.Context(), "a", []byte("mine"))
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrExists) || code(err) != "ConditionalRequestConflict" {
			t.Errorf("for ever: %v", err)
		}
	})
}

// TestPutSettlesThroughTrouble: the questions that settle a put fail, and the object vanishes in between.
func TestPutSettlesThroughTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(n int, r *request, next func() *http.Response) (*http.Response, error) {
			switch resp := next(); n {
			case 1:
				return nil, errReset
			case 3: // HEAD
				return say(http.StatusServiceUnavailable, ""), nil
			case 6: // GET
				return nil, errReset
			case 8: // HEAD: somebody has deleted it
				delete(s.objects, "/bucket/log/a")
				return say(http.StatusNotFound, ""), nil
			default:
				return resp, nil
			}
		}
		if err := s.open(nil).Put(t.Context(), "a", []byte("mine")); err != nil {
			t.Error(err)
		}
		s.expect("PUT /bucket/log/a", "PUT /bucket/log/a", "HEAD /bucket/log/a", "PUT /bucket/log/a", "HEAD /bucket/log/a", "GET /bucket/log/a",
			"PUT /bucket/log/a", "HEAD /bucket/log/a", "PUT /bucket/log/a")
		if string(s.objects["/bucket/log/a"]) != "mine" {
			t.Errorf("in the bucket: %q", s.objects["/bucket/log/a"])
		}
	})
}

// TestBR41_RetrySendsTheBody: every attempt sends the same bytes under the same headers.
func TestBR41_RetrySendsTheBody(t *testing.T) {
	for _, trouble := range []struct {
		status int
		code   string
	}{{0, ""}, {503, "SlowDown"}, {503, "ServiceUnavailable"}, {500, "InternalError"}, {429, ""}, {408, ""}, {400, "RequestTimeout"}, {400, "BadDigest"}, {502, ""}} {
		bubble(t, func(t *testing.T, s *service) {
			s.answer = func(n int, _ *request, next func() *http.Response) (*http.Response, error) {
				if n > 2 {
					return next(), nil
				}
				if trouble.status == 0 {
					return nil, errReset
				}
				return say(trouble.status, trouble.code), nil
			}
			body := bytes.Repeat([]byte("body"), 1000)
			if err := s.open(nil).Put(t.Context(), "a", body); err != nil {
				t.Error(err)
			}
			if len(s.requests) != 3 {
				t.Fatalf("%d requests", len(s.requests))
			}
			for _, r := range s.requests {
				if !bytes.Equal(r.body, body) || r.Header.Get(checksumHeader) != crc32c(body) || r.Header.Get("If-None-Match") != "*" {
					t.Errorf("%d bytes, %v", len(r.body), r.Header)
				}
			}
		})
	}
}

func code(err error) string {
	var e *store.Error
	errors.As(err, &e)
	return e.Code
}

// TestBR41_ForEver: a fixed number of attempts, a bounded time, and an error that shows what the service said.
func TestBR41_ForEver(t *testing.T) {
	for _, c := range []struct {
		status            int
		code              string
		want              error
		attempts          int
		shortest, longest time.Duration
	}{
		{503, "SlowDown", store.ErrThrottled, 5, 3 * time.Second, 7 * time.Second},
		{503, "ServiceUnavailable", store.ErrUnavailable, 5, 375 * time.Millisecond, 2 * time.Second},
		{500, "InternalError", store.ErrUnavailable, 5, 375 * time.Millisecond, 2 * time.Second},
		{403, "AccessDenied", store.ErrDenied, 1, 0, 0},
		{404, "NoSuchBucket", store.ErrConfig, 1, 0, 0},
		{501, "NotImplemented", store.ErrConfig, 1, 0, 200 * time.Millisecond},
		{400, "InvalidArgument", store.ErrConfig, 1, 0, 0},
		{403, "InvalidObjectState", store.ErrConfig, 1, 0, 0},
		{400, "XAmzContentChecksumMismatch", store.ErrUnavailable, 5, 375 * time.Millisecond, 2 * time.Second},
	} {
		bubble(t, func(t *testing.T, s *service) {
			s.answer = func(int, *request, func() *http.Response) (*http.Response, error) { return say(c.status, c.code), nil }
			st := s.open(nil)
			for _, op := range []store.Op{store.OpPut, store.OpGet, store.OpList, store.OpDelete} {
				s.requests = nil
				start := time.Now()
				err := callOf(t.Context(), st, op)
				took := time.Since(start)
				var e *store.Error
				if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Code != c.code || e.Op != op || !strings.Contains(err.Error(), "said on purpose") {
					t.Errorf("%s: %v, want %v with code %s", op, err, c.want, c.code)
				}
				if len(s.requests) != c.attempts || took < c.shortest || took > c.longest {
					t.Errorf("%s %s: %d requests in %v, want %d in %v to %v", op, c.code, len(s.requests), took, c.attempts, c.shortest, c.longest)
				}
			}
		})
	}
}

func callOf(ctx context.Context, s *Store, op store.Op) (err error) {
	switch op {
	case store.OpPut:
		err = s.Put(ctx, "a", []byte("x"))
	case store.OpGet:
		_, err = s.Get(ctx, "a", 0, 1, nil)
	case store.OpStat:
		_, err = s.Stat(ctx, "a")
	case store.OpList:
		_, err = s.List(ctx, "a", "", 0)
	case store.OpDelete:
		err = s.Delete(ctx, "a")
	}
	return err
}

// TestBR41_NobodyElseWaits: while one put backs off, others go on.
func TestBR41_NobodyElseWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/slow") {
				return say(503, "SlowDown"), nil
			}
			return next(), nil
		}
		st := s.open(nil)
		failed := make(chan error)
		go func() { failed <- st.Put(t.Context(), "slow", []byte("x")) }()
		synctest.Wait()
		start := time.Now()
		for _, name := range []string{"a", "b", "c"} {
			if err := st.Put(t.Context(), name, []byte("x")); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("puts of others took %v", took)
		}
		if err := <-failed; !errors.Is(err, store.ErrThrottled) {
			t.Error(err)
		}
	})
}

// TestNoAnswer: each attempt has a limit that grows with the size, and the caller's own comes first.
func TestNoAnswer(t *testing.T) {
	stall := func(_ int, r *request, _ func() *http.Response) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	bubble(t, func(t *testing.T, s *service) {
		s.answer = stall
		st := s.open(nil)
		for _, c := range []struct {
			size          int
			least, longer time.Duration
		}{{10, 5 * answerTime, 5*answerTime + 2*time.Second}, {20 << 20, 5 * 30 * time.Second, 5*30*time.Second + 2*time.Second}} {
			start := time.Now()
			err := st.Put(t.Context(), "a", make([]byte, c.size))
			took := time.Since(start)
			if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || took < c.least || took > c.longer {
				t.Errorf("%d bytes: %v after %v", c.size, err, took)
			}
		}
	})
	bubble(t, func(t *testing.T, s *service) {
		s.answer = stall
		st := s.open(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := st.Put(ctx, "a", nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestDeadlineKeepsWhatWasSaid: the caller's time ends in a wait between attempts, or in a later attempt.
func TestDeadlineKeepsWhatWasSaid(t *testing.T) {
	for _, stallFrom := range []int{2, 100} {
		bubble(t, func(t *testing.T, s *service) {
			s.answer = func(n int, r *request, _ func() *http.Response) (*http.Response, error) {
				if n >= stallFrom {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return say(503, "SlowDown"), nil
			}
			st := s.open(nil)
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			err := st.Put(ctx, "a", nil)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrThrottled) || code(err) != "SlowDown" {
				t.Error(err)
			}
		})
	}
}
