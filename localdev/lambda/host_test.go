package lambda_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/varvelog/varve/localdev/lambda"
	"github.com/varvelog/varve/metadata"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asked is what functions ask the test: each question is on the channel until it is answered.
type asked chan chan string

// bench is a host of the tiny function, and its URL.
type bench struct {
	*lambda.Host
	t     *testing.T
	url   string
	asked asked
	beats chan struct{} // has one after each that came
}

func newBench(t *testing.T, tiny string, f lambda.Function) *bench {
	t.Helper()
	b := &bench{t: t, asked: make(asked), beats: make(chan struct{}, 1)}
	asks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/beat" {
			select {
			case b.beats <- struct{}{}:
			default:
			}
			return
		}
		c := make(chan string)
		select {
		case b.asked <- c:
			select {
			case s := <-c:
				io.WriteString(w, s)
			case <-r.Context().Done():
			}
		case <-r.Context().Done():
		}
	}))
	var err error
	f.Program, err = os.Executable()
	must(t, err)
	f.Env = append(f.Env, "TINY="+tiny, "ASK="+asks.URL)
	if f.Timeout == 0 {
		f.Timeout = 5 * time.Minute
	}
	b.Host, err = lambda.New(f)
	must(t, err)
	front := httptest.NewServer(b.Host)
	b.url = front.URL
	t.Cleanup(func() {
		must(t, b.Close())
		if n := len(b.PIDs()); n > 0 {
			t.Errorf("%d processes live after Close", n)
		}
		front.Close()
		asks.CloseClientConnections()
		asks.Close()
	})
	return b
}

func (b *bench) get(path string) (int, string) {
	b.t.Helper()
	r, err := http.Get(b.url + path)
	must(b.t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must(b.t, err)
	return r.StatusCode, string(body)
}

// As many processes as there are requests at a time, and no more.
func TestScaleOut(t *testing.T) {
	b := newBench(t, "url", lambda.Function{Concurrency: 4})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if status, body := b.get("/ask"); status != 200 || body != "go" {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	var waiting []chan string
	for range 4 {
		waiting = append(waiting, <-b.asked)
	}
	// They are busy: there is no room for a fifth.
	if status, body := b.get("/pid"); status != 429 || !strings.Contains(body, "Rate Exceeded") {
		t.Errorf("%d %s", status, body)
	}
	for _, c := range waiting {
		c <- "go"
	}
	all.Wait()
	if b.Started() != 4 {
		t.Errorf("%d processes for 4 requests at a time", b.Started())
	}
	for range 8 { // one after the other: whether a process is free again already is not told by its answer
		if status, _ := b.get("/pid"); status != 200 && status != 429 {
			t.Errorf("status %d", status)
		}
	}
	if b.Started() != 4 {
		t.Errorf("%d processes", b.Started())
	}
}

// The first piece arrives before the function has written the second.
func TestStreams(t *testing.T) {
	b := newBench(t, "url", lambda.Function{})
	r, err := http.Get(b.url + "/stream")
	must(t, err)
	defer r.Body.Close()
	first := make([]byte, 6)
	_, err = io.ReadFull(r.Body, first)
	must(t, err)
	c := <-b.asked
	c <- ""
	rest, err := io.ReadAll(r.Body)
	must(t, err)
	if r.StatusCode != 202 || string(first)+string(rest) != "first second" {
		t.Errorf("%d %q %q", r.StatusCode, first, rest)
	}
	if _, body := b.get("/large"); len(body) != 20<<20 {
		t.Errorf("%d bytes of a large response", len(body))
	}
}

func TestEvents(t *testing.T) {
	b := newBench(t, "url", lambda.Function{Concurrency: 1, Freeze: true})
	for _, c := range []struct{ kind, body string }{{"application/json", `{"ä":1}`}, {"application/octet-stream", "\x00\xff"}, {"text/plain", "\xff"}, {"", ""}} {
		var r *http.Response
		for r == nil || r.StatusCode == 429 { // the process may not be free yet
			request, err := http.NewRequest("PUT", b.url+"/a%2Fb/c?x=1&y=%20&x=2", strings.NewReader(c.body))
			must(t, err)
			request.Header.Set("Content-Type", c.kind)
			request.Header.Set("X-Echo", "echo")
			request.Header.Set("Cookie", "c=3; d=4")
			r, err = http.DefaultClient.Do(request)
			must(t, err)
			defer r.Body.Close()
		}
		var got struct {
			Method, URL, Cookie string
			Body                []byte
		}
		must(t, json.NewDecoder(r.Body).Decode(&got))
		if got.Method != "PUT" || got.URL != "/a%2Fb/c?x=1&y=%20&x=2" || string(got.Body) != c.body || got.Cookie != "c=3; d=4" || r.Header.Get("X-Echo") != "echo" {
			t.Errorf("%s: %+v %v", c.kind, got, r.Header)
		}
		if cookies := r.Header.Values("Set-Cookie"); strings.Join(cookies, " ") != "a=1 b=2" {
			t.Errorf("cookies %q", cookies)
		}
	}
	r, err := http.Post(b.url, "text/plain", io.LimitReader(zeros{}, 7<<20))
	must(t, err)
	r.Body.Close()
	if r.StatusCode != 413 {
		t.Errorf("a body of 7 MiB: %d", r.StatusCode)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestPlain(t *testing.T) {
	b := newBench(t, "plain", lambda.Function{})
	got, err := b.Invoke(t.Context(), []byte(`{"a":"b"}`))
	must(t, err)
	var out struct {
		Got      map[string]string
		Deadline time.Time
		Other    string
	}
	must(t, json.Unmarshal(got, &out))
	if out.Got["a"] != "b" || out.Deadline.IsZero() || out.Other != "" {
		t.Errorf("%s", got)
	}
	var failed *lambda.FunctionError
	if _, err := b.Invoke(t.Context(), []byte(`{"fail":"on purpose"}`)); !errors.As(err, &failed) || failed.Message != "on purpose" {
		t.Errorf("%v", err)
	}
	if _, err := b.Invoke(t.Context(), make([]byte, lambda.MaxRequest+1)); !errors.Is(err, lambda.ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// A process that hangs is killed at its time-out, one that ends fails its request; the next request has another process.
func TestTimeoutsAndExits(t *testing.T) {
	var out lockedBuffer
	b := newBench(t, "url", lambda.Function{Timeout: 3 * time.Second, Output: &out}) // long enough to start on a busy machine
	if status, body := b.get("/hang"); status != 504 || b.Started() != 1 {
		t.Errorf("%d %s, %d processes", status, body, b.Started())
	}
	b.Close()
	if !strings.Contains(out.String(), "hangs") {
		t.Errorf("the process printed %q", out.String())
	}
	b = newBench(t, "url", lambda.Function{})
	if status, body := b.get("/exit"); status != 502 {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := b.get("/pid"); status != 200 || b.Started() != 2 {
		t.Errorf("%d, %d processes", status, b.Started())
	}
	// One that ends in the midst of its response breaks the connection, and is not taken for one that is whole.
	r, err := http.Get(b.url + "/half")
	must(t, err)
	defer r.Body.Close()
	c := <-b.asked
	c <- ""
	if got, err := io.ReadAll(r.Body); err == nil {
		t.Errorf("half a response is read as %q", got)
	}
	b = newBench(t, "no init", lambda.Function{})
	if status, body := b.get("/"); status != 502 {
		t.Errorf("%d %s", status, body)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A process is stopped from the end of its response to its next request, and so is all that it has left running.
func TestFreezes(t *testing.T) {
	b := newBench(t, "url", lambda.Function{Concurrency: 1, Freeze: true})
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here, to see whether a process is stopped")
	}
	_, pid := b.get("/later")
	state := func() string {
		s, err := os.ReadFile("/proc/" + pid + "/stat")
		must(t, err)
		_, after, _ := strings.Cut(string(s), ") ")
		return after[:1]
	}
	for state() != "T" {
		time.Sleep(time.Millisecond)
	}
	if status, again := b.get("/pid"); status != 200 || again != pid || b.Started() != 1 {
		t.Errorf("%d: process %s after %s", status, again, pid)
	}
	for state() != "T" {
		time.Sleep(time.Millisecond)
	}
	// While it answers it runs, and so does what it has left behind.
	done := make(chan struct{})
	go func() {
		defer close(done)
		if status, body := b.get("/ask"); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}()
	c := <-b.asked
	for range 3 {
		<-b.beats
	}
	c <- ""
	<-done
}

func TestSigned(t *testing.T) {
	s := &lambda.Signer{AccessKey: "AKID", SecretKey: "secret", Region: "eu-central-1"}
	b := newBench(t, "url", lambda.Function{Signed: s})
	send := func(secret, service string, at time.Time, change func(*http.Request)) int {
		body := []byte("body")
		r, err := http.NewRequest("POST", b.url+"/a%2Fb?b=2&a=1", bytes.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", "text/plain")
		sum := sha256.Sum256(body)
		must(t, v4.NewSigner().SignHTTP(context.Background(), aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: secret, SessionToken: "token"}, r, hex.EncodeToString(sum[:]), service, "eu-central-1", at))
		if change != nil {
			change(r)
		}
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		answer.Body.Close()
		return answer.StatusCode
	}
	now := time.Now()
	if got := send("secret", "lambda", now, nil); got != 200 {
		t.Errorf("a signed request: %d", got)
	}
	for name, got := range map[string]int{
		"another secret":  send("other", "lambda", now, nil),
		"another service": send("secret", "s3", now, nil),
		"an hour ago":     send("secret", "lambda", now.Add(-time.Hour), nil),
		"another body": send("secret", "lambda", now, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader("ydob"))
		}),
		"another path":  send("secret", "lambda", now, func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/other", "" }),
		"another query": send("secret", "lambda", now, func(r *http.Request) { r.URL.RawQuery = "a=1" }),
		"another token": send("secret", "lambda", now, func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "x") }),
		"no signature":  send("secret", "lambda", now, func(r *http.Request) { r.Header.Del("Authorization") }),
		"a bearer":      send("secret", "lambda", now, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }),
	} {
		if got != 403 {
			t.Errorf("%s: %d", name, got)
		}
	}
	if b.Started() != 1 {
		t.Errorf("%d processes: what is refused starts none", b.Started())
	}
}

func TestConfig(t *testing.T) {
	for _, f := range []lambda.Function{{}, {Program: "x", Timeout: time.Hour}, {Program: "x", Concurrency: -1}} {
		if _, err := lambda.New(f); !errors.Is(err, metadata.ErrInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	h, err := lambda.New(lambda.Function{Program: t.TempDir() + "/nothing"})
	must(t, err)
	if _, err := h.Invoke(t.Context(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	must(t, h.Close())
	if _, err := h.Invoke(t.Context(), nil); !errors.Is(err, lambda.ErrClosed) {
		t.Errorf("%v", err)
	}
}
