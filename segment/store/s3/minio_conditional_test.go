package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/segment/store"
)

// race runs n attempts at once and returns how many succeeded, and the status of each other one.
func race(n int, try func(i int) error) (winner, won int, statuses []int) {
	errs := make([]error, n)
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			errs[i] = try(i)
		})
	}
	start.Done()
	done.Wait()
	for i, err := range errs {
		if err == nil {
			winner, won = i, won+1
		} else {
			statuses = append(statuses, status(err))
		}
	}
	return winner, won, statuses
}

// TestMinIO_ConditionalPuts: of sixteen conditional puts at once, each by a client of its own, one creates the object; the others are told 412,
// and their bytes are nowhere.
func TestMinIO_ConditionalPuts(t *testing.T) {
	s := miniotest.Start(t)
	var clients []*minio.Core
	for range 16 {
		c, err := s.Client()
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for round := range 20 {
		name := fmt.Sprint("race/", round)
		winner, won, statuses := race(len(clients), func(i int) error {
			var opts minio.PutObjectOptions
			opts.SetMatchETagExcept("*")
			body := fmt.Sprintf("%05d", i)
			_, err := clients[i].PutObject(t.Context(), miniotest.Bucket, name, strings.NewReader(body), int64(len(body)), "", "", opts)
			return err
		})
		if won != 1 || len(statuses) != 15 {
			t.Fatalf("%s: %d puts succeeded", name, won)
		}
		for _, status := range statuses {
			if status != http.StatusPreconditionFailed {
				t.Fatalf("%s: a put was told %d", name, status)
			}
		}
		wantObject(t, clients[0], name, fmt.Sprintf("%05d", winner))
	}
}

func wantObject(t *testing.T, c *minio.Core, name, want string) {
	t.Helper()
	body, _, _, err := c.GetObject(t.Context(), miniotest.Bucket, name, minio.GetObjectOptions{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer body.Close()
	got := new(bytes.Buffer)
	if _, err := got.ReadFrom(body); err != nil || got.String() != want {
		t.Fatalf("%s: %d bytes, %v, want %d bytes", name, got.Len(), err, len(want))
	}
}

// TestMinIO_ConditionalCompletion: of eight uploads of several parts at once to one name, each by a store of its own, one creates the object; the
// others and whoever comes later are told that it exists, and no upload is left open.
func TestMinIO_ConditionalCompletion(t *testing.T) {
	server := miniotest.Start(t)
	cfg := onMinIO(server)
	cfg.Prefix = "large"
	var stores []*Store
	for range 8 {
		stores = append(stores, mustOpen(t, cfg))
	}
	for round := range 3 {
		name := fmt.Sprint("race/", round)
		body := func(i int) []byte { return append(digits(store.MinPartBytes), fmt.Sprintf("%d of %d", i, round)...) }
		put := func(i int) error {
			_, err := stores[i].PutParts(t.Context(), name, inParts(body(i)))
			if err != nil && !errors.Is(err, store.ErrExists) {
				t.Errorf("%s: %v", name, err)
			}
			return err
		}
		winner, won, _ := race(len(stores), put)
		if won != 1 {
			t.Fatalf("%s: %d uploads succeeded", name, won)
		}
		if put((winner+1)%len(stores)) == nil {
			t.Errorf("%s: a later upload succeeded", name)
		}
		if got, err := stores[0].Get(t.Context(), name, 0, -1, nil); err != nil || !bytes.Equal(got, body(winner)) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		wantNoUpload(t, stores[0], name)
	}
}

// wantNoUpload fails if an upload of that name is open.
func wantNoUpload(t *testing.T, s *Store, name string) {
	t.Helper()
	open, err := s.client.Load().ListMultipartUploads(t.Context(), miniotest.Bucket, s.prefix+name, "", "", "", 10)
	if err != nil || len(open.Uploads) != 0 {
		t.Errorf("%s: uploads left open: %+v, %v", name, open.Uploads, err)
	}
}

// TestMinIO_LostCompletion: MinIO makes the object, and its answer is lost on the way. What it says to the repetition is settled by the mark.
func TestMinIO_LostCompletion(t *testing.T) {
	for _, compat := range []Compat{0, NoChecksum, NoConditionalPut} {
		cfg := onMinIO(miniotest.Start(t))
		cfg.Compat = compat
		cfg.Prefix = fmt.Sprint("lost", uint8(compat))
		var lost atomic.Int32
		cfg.Transport = exchange(func(r *http.Request) (*http.Response, error) {
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err == nil && r.Method == http.MethodPost && r.URL.Query().Has("uploadId") && lost.Add(1) == 1 {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				return nil, errReset
			}
			return resp, err
		})
		st := mustOpen(t, cfg)
		size, err := st.PutParts(t.Context(), "a", inParts(threeParts))
		if err != nil || size != int64(len(threeParts)) || lost.Load() < 1 {
			t.Errorf("%v: %d, %v, lost %d", compat, size, err, lost.Load())
		}
		if got, err := st.Get(t.Context(), "a", 0, -1, nil); err != nil || !bytes.Equal(got, threeParts) {
			t.Errorf("%v: %d bytes, %v", compat, len(got), err)
		}
		wantNoUpload(t, st, "a")
	}
}

type exchange func(*http.Request) (*http.Response, error)

func (f exchange) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
