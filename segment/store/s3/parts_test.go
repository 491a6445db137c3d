package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/segment/store"
)

// inParts returns the body in parts of the least size.
func inParts(body []byte) func() ([]byte, error) {
	return func() ([]byte, error) {
		if len(body) == 0 {
			return nil, io.EOF
		}
		n := min(len(body), store.MinPartBytes)
		part := body[:n]
		body = body[n:]
		return part, nil
	}
}

// isStep tells which step of an upload a request is.
func isStep(r *request, step string) bool {
	q := r.URL.Query()
	switch step {
	case "begin":
		return q.Has("uploads")
	case "part":
		return q.Has("partNumber")
	case "complete":
		return r.Method == http.MethodPost && q.Has("uploadId")
	case "abort":
		return r.Method == http.MethodDelete && q.Has("uploadId")
	case "look":
		return r.Method == http.MethodHead
	}
	return false
}

var (
	threeParts = digits(2*store.MinPartBytes + 33)
	twoParts   = threeParts[:store.MinPartBytes+33] // where it does not matter how many
)

// steps are the requests for threeParts without trouble, the parts in order.
var steps = []string{"POST /bucket/log/a begin", "PUT /bucket/log/a part 1", "PUT /bucket/log/a part 2", "PUT /bucket/log/a part 3", "POST /bucket/log/a complete"}

// TestPutPartsRequests: what an upload sends, which the service checks for signatures and checksums; one part is an ordinary put, and none an empty one.
func TestPutPartsRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		st := s.open(nil)
		if size, err := st.PutParts(t.Context(), "a", inParts(threeParts)); err != nil || size != int64(len(threeParts)) || !bytes.Equal(s.objects["/bucket/log/a"], threeParts) {
			t.Errorf("%d, %v", size, err)
		}
		slices.SortStableFunc(s.requests[1:4], func(a, b *request) int { return strings.Compare(a.URL.RawQuery, b.URL.RawQuery) })
		s.expect(steps...)
		for i, r := range s.requests {
			if i > 0 && i < 4 && (r.Header.Get(checksumHeader) == "" || r.Header.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD") {
				t.Errorf("part %d: %v", i, r.Header)
			}
			if (r.Header.Get("If-None-Match") == "*") != (i == 4) {
				t.Errorf("%s %s: condition %q", r.Method, r.URL, r.Header.Get("If-None-Match"))
			}
		}
		s.requests = nil
		for name, body := range map[string][]byte{"one": digits(7), "none": nil} {
			if size, err := st.PutParts(t.Context(), name, inParts(body)); err != nil || size != int64(len(body)) || !bytes.Equal(s.objects["/bucket/log/"+name], body) {
				t.Errorf("%s: %d, %v", name, size, err)
			}
		}
		if len(s.requests) != 2 || s.begun != 1 {
			t.Errorf("%d requests, %d uploads", len(s.requests), s.begun)
		}
	})
}

// trouble is what happens to one request of a step: it is refused, or the answer of the service is lost.
var troubles = map[string]func(next func() *http.Response) (*http.Response, error){
	"lost before": func(func() *http.Response) (*http.Response, error) { return nil, errReset },
	"lost after": func(next func() *http.Response) (*http.Response, error) {
		next()
		return nil, errReset
	},
	"500": func(func() *http.Response) (*http.Response, error) { return say(500, "InternalError"), nil },
	"error within 200": func(func() *http.Response) (*http.Response, error) {
		return say(200, "InternalError"), nil
	},
	"slow down": func(func() *http.Response) (*http.Response, error) { return say(503, "SlowDown"), nil },
	"conflict": func(func() *http.Response) (*http.Response, error) {
		return say(409, "ConditionalRequestConflict"), nil
	},
	"expired": func(func() *http.Response) (*http.Response, error) { return say(400, "ExpiredToken"), nil },
}

// TestPutPartsThroughTrouble: each step fails once, in each way, and the object comes into being all the same, once.
func TestPutPartsThroughTrouble(t *testing.T) {
	for _, step := range []string{"begin", "part", "complete"} {
		for what, trouble := range troubles {
			if what == "error within 200" && step == "part" {
				continue // an answer to a part has no body
			}
			t.Run(step+", "+what, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *service) {
					var hit atomic.Bool
					s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
						if isStep(r, step) && hit.CompareAndSwap(false, true) {
							return trouble(next)
						}
						return next(), nil
					}
					size, err := s.open(nil).PutParts(t.Context(), "a", inParts(twoParts))
					if err != nil || size != int64(len(twoParts)) || !bytes.Equal(s.objects["/bucket/log/a"], twoParts) {
						t.Errorf("%d, %v", size, err)
					}
					left := 0
					if step == "begin" && what == "lost after" {
						left = 1 // nobody has heard its id
					}
					if !hit.Load() || len(s.uploads) != left {
						t.Errorf("hit %v, open uploads: %d", hit.Load(), len(s.uploads))
					}
				})
			})
		}
	}
}

// TestPutPartsFails: a step fails for good. No object is left, and no open upload.
func TestPutPartsFails(t *testing.T) {
	for _, step := range []string{"begin", "part", "complete"} {
		for what, answer := range map[string]func() (*http.Response, error){
			"no answer": func() (*http.Response, error) { return nil, errReset },
			"denied":    func() (*http.Response, error) { return say(403, "AccessDenied"), nil },
		} {
			bubble(t, func(t *testing.T, s *service) {
				s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
					if isStep(r, step) {
						return answer()
					}
					return next(), nil
				}
				size, err := s.open(nil).PutParts(t.Context(), "a", inParts(twoParts))
				var e *store.Error
				if size != 0 || !errors.As(err, &e) || e.Name != "a" || !errors.Is(err, map[string]error{"no answer": store.ErrUnavailable, "denied": store.ErrDenied}[what]) {
					t.Errorf("%s, %s: %d, %v", step, what, size, err)
				}
				if s.objects["/bucket/log/a"] != nil || len(s.uploads) != 0 {
					t.Errorf("%s, %s: object of %d bytes, %d open uploads", step, what, len(s.objects["/bucket/log/a"]), len(s.uploads))
				}
			})
		}
	}
}

// TestPutPartsSettlesACompletion: the completion's answer is lost, and somebody else's object is there, or nothing is.
func TestPutPartsSettlesACompletion(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if isStep(r, "complete") && s.objects["/bucket/log/a"] == nil {
				s.objects["/bucket/log/a"] = twoParts // the same bytes, but not our upload's
				return nil, errReset
			}
			return next(), nil
		}
		if _, err := s.open(nil).PutParts(t.Context(), "a", inParts(twoParts)); !errors.Is(err, store.ErrExists) {
			t.Errorf("another's: %v", err)
		}
		if len(s.uploads) != 0 {
			t.Error("the upload is left open")
		}
	})
	bubble(t, func(t *testing.T, s *service) {
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if isStep(r, "complete") {
				s.uploads = map[string]*open{} // a lifecycle rule has ended it
			}
			return next(), nil
		}
		if _, err := s.open(nil).PutParts(t.Context(), "a", inParts(twoParts)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the upload is gone: %v", err)
		}
	})
}

// TestPutPartsBounded: while no part is answered, PartsInFlight have been asked for; each answer makes room for one more.
func TestPutPartsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		release := make(chan struct{})
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if isStep(r, "part") {
				<-release
			}
			return next(), nil
		}
		st := s.open(nil)
		const parts = 9
		part := digits(store.MinPartBytes)
		var asked atomic.Int32
		done := make(chan error)
		go func() {
			_, err := st.PutParts(t.Context(), "a", func() ([]byte, error) {
				if asked.Add(1) > parts {
					return nil, io.EOF
				}
				return part, nil
			})
			done <- err
		}()
		for answered := range parts {
			synctest.Wait()
			if got, want := int(asked.Load()), min(answered+store.PartsInFlight, parts+1); got != want {
				t.Fatalf("%d parts answered: %d asked for, want %d", answered, got, want)
			}
			release <- struct{}{}
		}
		if err := <-done; err != nil || len(s.objects["/bucket/log/a"]) != parts*len(part) {
			t.Errorf("%v, %d bytes", err, len(s.objects["/bucket/log/a"]))
		}
	})
}

// TestPutPartsCancelled: the caller leaves while parts are on their way. The upload is aborted all the same.
func TestPutPartsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		ctx, cancel := context.WithCancel(t.Context())
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if isStep(r, "part") {
				cancel()
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return next(), nil
		}
		_, err := s.open(nil).PutParts(ctx, "a", inParts(twoParts))
		if !errors.Is(err, context.Canceled) || len(s.uploads) != 0 || s.objects["/bucket/log/a"] != nil {
			t.Errorf("%v, %d open uploads", err, len(s.uploads))
		}
	})
}

// TestBR40_MultipartPath: with the settings, uploads pass a look-alike that refuses checksums and conditions, over HTTP and HTTPS, and overwrite nothing.
func TestBR40_MultipartPath(t *testing.T) {
	refuse := func(r *request) *http.Response {
		if resp := plain(r); resp != nil {
			return resp
		}
		return noConditions(r)
	}
	for _, secure := range []bool{false, true} {
		s := newService(t)
		lookalike{refuse: refuse}.on(s)
		cfg := onTheWire(t, s, secure)
		opensOnlyWith(t, cfg, NoChecksum|NoConditionalPut)
		cfg.Compat = NoChecksum | NoConditionalPut
		st, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string][]byte{"none": nil, "one": digits(9), "three": threeParts} {
			if _, err := st.PutParts(t.Context(), name, inParts(body)); err != nil {
				t.Errorf("TLS %v, %s: %v", secure, name, err)
			}
			if got, err := st.Get(t.Context(), name, 0, -1, nil); err != nil || !bytes.Equal(got, body) {
				t.Errorf("TLS %v, %s: %d bytes, %v", secure, name, len(got), err)
			}
			if _, err := st.PutParts(t.Context(), name, inParts(slices.Repeat([]byte("x"), store.MinPartBytes+1))); !errors.Is(err, store.ErrExists) {
				t.Errorf("TLS %v, %s again: %v", secure, name, err)
			}
		}
		if len(s.uploads) != 0 {
			t.Errorf("%d uploads are left open", len(s.uploads))
		}
	}
	bubble(t, func(t *testing.T, s *service) { // a completion without a condition whose answer is lost
		var hit atomic.Bool
		s.answer = func(_ int, r *request, next func() *http.Response) (*http.Response, error) {
			if resp := next(); !isStep(r, "complete") || !hit.CompareAndSwap(false, true) {
				return resp, nil
			}
			return nil, errReset
		}
		if _, err := s.open(func(c *Config) { c.Compat = NoConditionalPut }).PutParts(t.Context(), "a", inParts(threeParts)); err != nil {
			t.Error(err)
		}
	})
}

// TestPutPartsObserved: the requests that an upload is billed for are counted.
func TestPutPartsObserved(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		var calls []string
		st := store.Observe(s.open(nil), s.open(nil).cfg.Env, func(c store.Call) {
			calls = append(calls, fmt.Sprintf("%s %s %d bytes %d requests %v", c.Op, c.Name, c.Bytes, c.Requests, c.Err))
		})
		if _, err := st.PutParts(t.Context(), "a", inParts(threeParts)); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("put a %d bytes 5 requests <nil>", len(threeParts)); len(calls) != 1 || calls[0] != want {
			t.Errorf("%q, want %q", calls, want)
		}
	})
}
