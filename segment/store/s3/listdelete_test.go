package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/segment/store"
)

func pageNames(p store.Page) string {
	var names []string
	for _, o := range p.Objects {
		names = append(names, o.Name)
	}
	return strings.Join(names, " ")
}

// TestBR35_EmptyTruncatedPage: a page with nothing in it that says that there is more is followed.
func TestBR35_EmptyTruncatedPage(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		s.objects["/bucket/log/a/1"], s.objects["/bucket/log/a/2"] = nil, nil
		s.answer = func(n int, r *request, next func() *http.Response) (*http.Response, error) {
			if n == 1 {
				resp := say(200, "")
				resp.Body = readCloser("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>log/a/1</NextContinuationToken></ListBucketResult>")
				return resp, nil
			}
			return next(), nil
		}
		page, err := s.open(nil).List(t.Context(), "a/", "", 0)
		if err != nil || pageNames(page) != "a/2" || page.More {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// TestForeignKeys: keys under the prefix that are none of ours are passed over, and a page of them ends too.
func TestForeignKeys(t *testing.T) {
	bubble(t, func(t *testing.T, s *service) {
		for _, key := range []string{"a/1", "a/2", "a/UPPER", "a/", "a/.x", "b c", "é"} {
			s.objects["/bucket/log/"+key] = nil
		}
		s.objects["/bucket/logbook/a"] = nil
		st := s.open(nil)
		page, err := st.List(t.Context(), "", "", 0)
		if err != nil || pageNames(page) != "a/1 a/2" || page.More {
			t.Errorf("%+v, %v", page, err)
		}
		var all []string
		last, pages := "", 0
		for more := true; more; pages++ {
			page, err := st.List(t.Context(), "", last, 2)
			if err != nil || pages > 10 {
				t.Fatal(page, err)
			}
			all, last, more = append(all, strings.Fields(pageNames(page))...), page.Last, page.More
		}
		if !slices.Equal(all, []string{"a/1", "a/2"}) {
			t.Errorf("in pages of 2: %q", all)
		}
	})
}

// TestBR35_FromIsNotHonoured: a service that ignores where a list is to start would be listed for ever.
func TestBR35_FromIsNotHonoured(t *testing.T) {
	for _, keys := range [][]string{{"log/a/1", "log/a/3"}, {"log/a/3", "log/a/2"}, {"log/b"}, {"other/a/3"}} {
		bubble(t, func(t *testing.T, s *service) {
			s.answer = func(int, *request, func() *http.Response) (*http.Response, error) {
				body := "<ListBucketResult>"
				for _, k := range keys {
					body += "<Contents><Key>" + k + "</Key></Contents>"
				}
				resp := say(200, "")
				resp.Body = readCloser(body + "</ListBucketResult>")
				return resp, nil
			}
			if page, err := s.open(nil).List(t.Context(), "a/", "a/2", 0); !errors.Is(err, store.ErrConfig) || len(page.Objects) > 0 {
				t.Errorf("%q: %+v, %v", keys, page, err)
			}
		})
	}
}

// TestListIsNeverCutSilently: no answer, half an answer or a cancelled one is an error, not the end of the list.
func TestListIsNeverCutSilently(t *testing.T) {
	for _, broken := range []func(*http.Response) (*http.Response, error){
		func(r *http.Response) (*http.Response, error) { return cut(r, 120, errReset), nil },
		func(r *http.Response) (*http.Response, error) { return cut(r, 0, errReset), nil },
		func(*http.Response) (*http.Response, error) { return nil, errReset },
	} {
		bubble(t, func(t *testing.T, s *service) {
			s.objects["/bucket/log/a"], s.objects["/bucket/log/b"] = nil, nil
			s.answer = func(n int, _ *request, next func() *http.Response) (*http.Response, error) {
				if n == 1 {
					return broken(next())
				}
				return next(), nil
			}
			st := s.open(nil)
			if page, err := st.List(t.Context(), "", "", 0); err != nil || pageNames(page) != "a b" {
				t.Errorf("once: %+v, %v", page, err)
			}
			s.answer = func(_ int, _ *request, next func() *http.Response) (*http.Response, error) { return broken(next()) }
			if page, err := st.List(t.Context(), "", "", 0); !errors.Is(err, store.ErrUnavailable) || len(page.Objects) > 0 {
				t.Errorf("for ever: %+v, %v", page, err)
			}
		})
	}
	bubble(t, func(t *testing.T, s *service) {
		for i := range 1500 {
			s.objects[fmt.Sprintf("/bucket/log/%04d", i)] = nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		s.answer = func(_ int, _ *request, next func() *http.Response) (*http.Response, error) {
			resp := next()
			resp.Body = readCloser("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>log/0001</NextContinuationToken></ListBucketResult>")
			cancel() // between two pages of one call
			return resp, nil
		}
		if page, err := s.open(nil).List(ctx, "", "", 0); !errors.Is(err, context.Canceled) || len(page.Objects) > 0 {
			t.Errorf("cancelled: %+v, %v", page, err)
		}
	})
}

// TestDeleteBelievesOnlyTheAnswer: a key that the answer does not call deleted is left, whatever else it says.
func TestDeleteBelievesOnlyTheAnswer(t *testing.T) {
	const deleted, failed = "<Deleted><Key>log/%s</Key></Deleted>", "<Error><Key>log/%s</Key><Code>%s</Code><Message>no</Message></Error>"
	for _, c := range []struct {
		name, first string
		want        string // keys of the second request, "" for none
		then        error  // if every answer is like the first
		left        string
	}{
		{"left out", fmt.Sprintf(deleted, "a") + fmt.Sprintf(deleted, "c"), "b", store.ErrUnavailable, "b"},
		{"nothing in it", "", "a b c", store.ErrUnavailable, "a"},
		{"internal error", fmt.Sprintf(deleted, "a") + fmt.Sprintf(failed, "b", "InternalError") + fmt.Sprintf(deleted, "c"), "b", store.ErrUnavailable, "b"},
		{"an error that the library passes over", fmt.Sprintf(deleted, "a") + fmt.Sprintf(failed, "c", "InvalidArgument"), "b c", store.ErrUnavailable, "b"},
		{"denied", fmt.Sprintf(deleted, "a") + fmt.Sprintf(failed, "c", "AccessDenied"), "", store.ErrDenied, "b"},
		{"not there", fmt.Sprintf(deleted, "a") + fmt.Sprintf(failed, "b", "NoSuchKey") + fmt.Sprintf(deleted, "c"), "", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *service) {
				forEver := true
				s.answer = func(n int, r *request, next func() *http.Response) (*http.Response, error) {
					switch {
					case r.Method == http.MethodPost && (n == 1 || forEver):
						return &http.Response{StatusCode: 200, Header: http.Header{}, Body: readCloser("<DeleteResult>" + c.first + "</DeleteResult>")}, nil
					case forEver:
						return say(500, "InternalError"), nil
					}
					return next(), nil
				}
				st := s.open(nil)
				err := st.Delete(t.Context(), "a", "b", "c")
				var e *store.Error
				if !errors.Is(err, c.then) || err != nil && (!errors.As(err, &e) || e.Name != c.left) {
					t.Errorf("for ever: %v, want %v of %s", err, c.then, c.left)
				}
				forEver, s.requests = false, nil
				if err := st.Delete(t.Context(), "a", "b", "c"); err != nil && c.then != store.ErrDenied {
					t.Errorf("once: %v", err)
				}
				if got := secondDelete(s); got != c.want {
					t.Errorf("the second request deletes %q, want %q", got, c.want)
				}
			})
		})
	}
}

func secondDelete(s *service) string {
	if len(s.requests) < 2 {
		return ""
	}
	r := s.requests[1]
	if r.Method == http.MethodDelete {
		return strings.TrimPrefix(r.URL.Path, "/bucket/log/")
	}
	var names []string
	for _, part := range strings.Split(string(r.body), "<Key>log/")[1:] {
		name, _, _ := strings.Cut(part, "<")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
