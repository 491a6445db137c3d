package lambda_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/varvelog/varve/functions/environment"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/lambda"
	"github.com/varvelog/varve/localdev/minio"
	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// The tests of this file build the real functions and run them on a real MinIO and the DynamoDB engine behind a socket. `make test-lambda` runs them.

// Variables that say so: VARVE_LAMBDA, and where AWS's own runtime interface emulator is.
const runVariable, emulatorVariable = "VARVE_LAMBDA", "VARVE_RIE"

const maxBinary = 25 << 20

// system is a log on MinIO and the engine, and the functions' binaries.
type system struct {
	t        testing.TB
	binaries string
	minio    *minio.Server
	engine   *httptest.Server
	url      string
	log      *sdk.Log

	mu       sync.Mutex
	requests []request // to the engine
}

// request is one that the engine has got.
type request struct {
	at time.Time
	op string
}

var built struct {
	sync.Once
	dir string
	err error
}

// binaries builds the functions, once for all tests.
func binaries(t testing.TB) string {
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "varve-lambda-"); built.err != nil {
			return
		}
		for name := range environment.Of {
			c := exec.Command("go", "build", "-trimpath", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", filepath.Join(built.dir, name), "github.com/varvelog/varve/functions/"+name+"/lambda")
			c.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := c.CombinedOutput(); err != nil {
				built.err = fmt.Errorf("build %s: %w: %s", name, err, out)
				return
			}
		}
	})
	must(t, built.err)
	return built.dir
}

func newSystem(t testing.TB) *system {
	if os.Getenv(runVariable) == "" {
		t.Skipf("the functions' real binaries are not run here: `make test-lambda` does (%s=1)", runVariable)
	}
	s := &system{t: t, binaries: binaries(t), minio: miniotest.Start(t)}
	miniotest.RootEnvironment(t, s.minio)
	engine, err := dynamodb.New(dynamodb.Options{})
	must(t, err)
	s.engine = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		s.requests = append(s.requests, request{time.Now(), op})
		s.mu.Unlock()
		engine.ServeHTTP(w, r)
	}))
	s.url = s.minio.LogURL(miniotest.Bucket, "functions", "varve", s.engine.URL)
	s.log, err = sdk.Open(t.Context(), s.url, sdk.WithCreateTable())
	must(t, err)
	t.Cleanup(func() {
		s.log.Close()
		s.engine.Close()
		engine.Close()
	})
	return s
}

func (s *system) create(topic string, partitions int) {
	s.t.Helper()
	_, err := s.log.Admin().CreateTopic(s.t.Context(), sdk.NewTopic{Name: topic, Partitions: partitions})
	must(s.t, err)
}

// env is the environment of a function.
func (s *system) env(more ...string) []string {
	access, secret := s.minio.Credentials()
	return append([]string{environment.Log + "=" + s.url, "AWS_ACCESS_KEY_ID=" + access, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_REGION=" + minio.Region,
		"AWS_EC2_METADATA_DISABLED=true"}, more...)
}

// host runs a function.
func (s *system) host(name string, f lambda.Function, more ...string) *lambda.Host {
	s.t.Helper()
	f.Name, f.Program, f.Env = name, filepath.Join(s.binaries, name), s.env(more...)
	if f.Timeout == 0 {
		f.Timeout = 5 * time.Minute
	}
	if f.Output == nil {
		f.Output = &tests{t: s.t, name: name}
	}
	h, err := lambda.New(f)
	must(s.t, err)
	s.t.Cleanup(func() { h.Close() })
	return h
}

// tests prints what functions print.
type tests struct {
	t    testing.TB
	name string
}

func (w *tests) Write(b []byte) (int, error) {
	w.t.Logf("%s printed: %s", w.name, bytes.TrimSpace(b))
	return len(b), nil
}

// call sends a request with a JSON body, if any, and reads the JSON that is answered.
func call(t testing.TB, method, url string, headers map[string]string, body any) (status int, answer map[string]any) {
	t.Helper()
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		must(t, err)
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequest(method, url, in)
	must(t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	out, err := http.DefaultClient.Do(r)
	must(t, err)
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	must(t, err)
	if err := json.Unmarshal(b, &answer); err != nil {
		t.Fatalf("%s %s: %d %s", method, url, out.StatusCode, b)
	}
	return out.StatusCode, answer
}

func records(values ...string) map[string]any {
	var all []map[string]any
	for _, v := range values {
		all = append(all, map[string]any{"key": v, "value": v})
	}
	return map[string]any{"records": all}
}

// values are all values of a topic, sorted.
func (s *system) values(topic string) (all []string) {
	s.t.Helper()
	r, err := s.log.NewReplay(s.t.Context(), topic, sdk.ReplayParallel(1))
	must(s.t, err)
	must(s.t, r.Run(s.t.Context(), func(_ context.Context, f sdk.Fetch) error {
		for _, r := range f.Records {
			all = append(all, string(r.Value))
		}
		return nil
	}))
	slices.Sort(all)
	return all
}

func sqsEvent(t testing.TB, bodies ...string) []byte {
	t.Helper()
	var e events.SQSEvent
	for i, body := range bodies {
		e.Records = append(e.Records, events.SQSMessage{MessageId: fmt.Sprint("id", i), Body: body, EventSourceARN: "arn:aws:sqs:eu-central-1:1:q",
			Attributes: map[string]string{"SentTimestamp": "1700000000000"}})
	}
	b, err := json.Marshal(e)
	must(t, err)
	return b
}

// The functions as they are deployed, one after another: what one appends another reads, and a reader of the SDK's finds all of it once.
func TestLambda_Functions(t *testing.T) {
	s := newSystem(t)
	s.create("t", 4)
	for name := range environment.Of {
		info, err := os.Stat(filepath.Join(s.binaries, name))
		must(t, err)
		t.Logf("%s: %.1f MB", name, float64(info.Size())/1e6)
		if info.Size() >= maxBinary {
			t.Errorf("%s has %d bytes, fewer than %d are allowed", name, info.Size(), maxBinary)
		}
	}
	produce := miniotest.Serve(t, s.host("produce", lambda.Function{}))
	fetch := miniotest.Serve(t, s.host("fetch", lambda.Function{}, environment.ProduceURL+"="+produce))
	var want []string

	// Eight clients at a time, so several processes; a request that is repeated, to any of them, applies once.
	status, id := call(t, "POST", produce+"/v1/producers", nil, nil)
	if status != 201 {
		t.Fatalf("%d %v", status, id)
	}
	var all sync.WaitGroup
	for i := range 8 {
		values := []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}
		want = append(want, values...)
		all.Go(func() {
			if status, a := call(t, "POST", produce+"/v1/topics/t/records", nil, records(values...)); status != 200 {
				t.Errorf("%d %v", status, a)
			}
		})
	}
	all.Wait()
	once := map[string]string{"Varve-Producer-Id": id["producer_id"].(string), "Varve-Producer-Sequence": "1"}
	for i := range 3 {
		status, a := call(t, "POST", produce+"/v1/topics/t/records", once, records("once"))
		if repeated, _ := a["repeated"].(bool); status != 200 || repeated != (i > 0) {
			t.Errorf("%d: %d %v", i, status, a)
		}
	}
	want = append(want, "once")

	ingest := s.host("ingest", lambda.Function{}, environment.Topic+"=t")
	got, err := ingest.Invoke(t.Context(), sqsEvent(t, "m1", "m2", strings.Repeat("x", 2<<20)))
	must(t, err)
	if string(got) != `{"batchItemFailures":[{"itemIdentifier":"id2"}]}` {
		t.Errorf("ingest: %s", got)
	}
	want = append(want, "m1", "m2")

	var read []string
	for p := range 4 {
		status, a := call(t, "GET", fmt.Sprintf("%s/v1/topics/t/partitions/%d/records?offset=0", fetch, p), nil, nil)
		if status != 200 {
			t.Fatalf("%d %v", status, a)
		}
		for _, r := range a["records"].([]any) {
			read = append(read, r.(map[string]any)["value"].(string))
		}
	}
	slices.Sort(read)
	slices.Sort(want)
	if !slices.Equal(read, want) || !slices.Equal(s.values("t"), want) {
		t.Errorf("fetched %v, read %v, want %v", read, s.values("t"), want)
	}

	// Enough that compaction does not wait for more.
	s.create("large", 2)
	p, err := s.log.NewProducer(sdk.WithCompression(segment.None), sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	must(t, err)
	chance := rand.NewChaCha8([32]byte{})
	for range 80 { // whole chunks only, so some stay
		value := make([]byte, 1<<20-200)
		chance.Read(value)
		must(t, p.ProduceSync(t.Context(), &sdk.Record{Topic: "large", Value: value}).Err())
	}
	must(t, p.Close(t.Context()))
	before := s.values("large")
	// What a function prints has been read when its host is closed, and perhaps not when it answers.
	var out lockedBuffer
	compact := s.host("compact", lambda.Function{Output: &out})
	_, err = compact.Invoke(t.Context(), []byte("{}"))
	must(t, err)
	must(t, compact.Close())
	if !strings.Contains(out.String(), `"job":"compact","what":"`) {
		t.Errorf("compact printed %s", out.String())
	}
	t.Logf("compact: %s", out.String())
	if !slices.Equal(s.values("large"), before) {
		t.Error("compaction has changed what is read")
	}
	for _, name := range []string{"retain", "sweep"} {
		_, err := s.host(name, lambda.Function{}).Invoke(t.Context(), []byte("{}"))
		must(t, err)
	}
	if floor, err := s.log.Backend().Table.Floor(t.Context()); err != nil || floor.IsZero() {
		t.Errorf("the sweep has raised no floor: %v %v", floor, err)
	}
	out = lockedBuffer{}
	monitor := s.host("monitor", lambda.Function{Output: &out})
	_, err = monitor.Invoke(t.Context(), []byte("{}"))
	must(t, err)
	must(t, monitor.Close())
	if lines := strings.Count(out.String(), `"Log":"`+miniotest.Bucket+`/functions"`); lines != 3 { // the log, two topics
		t.Errorf("monitor printed %s", out.String())
	}
}

// BR-48 with real processes: produce is stopped between requests, and each time all its connections are closed meanwhile, MinIO's by a crash of MinIO. What it answers
// after that is appended, once.
func TestLambda_BR48_Thaw(t *testing.T) {
	s := newSystem(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here, to see whether a process is stopped")
	}
	s.create("t", 1)
	h := s.host("produce", lambda.Function{Freeze: true, Concurrency: 1})
	url := miniotest.Serve(t, h)
	var want []string
	for i := range 6 {
		value := fmt.Sprint("v", i)
		for status := 429; status == 429; { // until the process has asked for its next event
			var a map[string]any
			// Too large to be kept in the table, so that the bucket is asked too.
			if status, a = call(t, "POST", url+"/v1/topics/t/records", nil, records(value+strings.Repeat("x", 10_000))); status != 200 && status != 429 {
				t.Fatalf("%d: %d %v", i, status, a)
			}
		}
		want = append(want, value)
		for !stopped(t, h) {
			time.Sleep(time.Millisecond)
		}
		s.engine.CloseClientConnections()
		s.minio.Kill()
		must(t, s.minio.Restart(t.Context()))
	}
	if h.Started() != 1 {
		t.Errorf("%d processes", h.Started())
	}
	got := s.values("t")
	for i := range got {
		got[i] = strings.TrimRight(got[i], "x")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// stopped tells whether the one process of a host is.
func stopped(t testing.TB, h *lambda.Host) bool {
	t.Helper()
	for _, pid := range h.PIDs() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		must(t, err)
		if _, after, _ := strings.Cut(string(b), ") "); after[:1] != "T" {
			return false
		}
	}
	return true
}

// AWS's own runtime interface emulator runs the same binaries: each function once, one call at a time, as more end it.
func TestLambda_Emulator(t *testing.T) {
	emulator := os.Getenv(emulatorVariable)
	if os.Getenv(runVariable) != "" && emulator == "" {
		t.Skipf("AWS's runtime interface emulator is not here: %s names it", emulatorVariable)
	}
	s := newSystem(t)
	s.create("t", 1)
	urlEvent := func(method, path, query string, body any) []byte {
		e := events.LambdaFunctionURLRequest{Version: "2.0", RawPath: path, RawQueryString: query, Headers: map[string]string{"content-type": "application/json", "host": "x.lambda-url.aws"}}
		e.RequestContext.DomainName, e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = "x.lambda-url.aws", method, path
		if body != nil {
			b, err := json.Marshal(body)
			must(t, err)
			e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(b), true
		}
		b, err := json.Marshal(e)
		must(t, err)
		return b
	}
	for _, c := range []struct {
		name  string
		event []byte
		more  []string
		want  string
	}{
		{"produce", urlEvent("POST", "/v1/topics/t/records", "", records("p1")), nil, `"offset":0`},
		{"ingest", sqsEvent(t, "m1"), []string{environment.Topic + "=t"}, `{"batchItemFailures":[]}`},
		{"fetch", urlEvent("GET", "/v1/topics/t/partitions/0/records", "offset=0", nil), nil, `"value":"m1"`},
		{"compact", []byte("{}"), nil, ""},
		{"sweep", []byte("{}"), nil, ""},
	} {
		got := s.emulate(emulator, c.name, c.event, c.more...)
		if !strings.Contains(got, c.want) || strings.Contains(got, "errorMessage") || strings.Contains(got, `"statusCode":5`) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if got := s.values("t"); !slices.Equal(got, []string{"m1", "p1"}) {
		t.Errorf("%v", got)
	}
}

// emulate runs a function under the emulator for one call.
func (s *system) emulate(emulator, name string, event []byte, more ...string) string {
	t := s.t
	t.Helper()
	front, api := freeAddress(t), freeAddress(t)
	c := exec.Command(emulator, "--runtime-interface-emulator-address", front, "--runtime-api-address", api, filepath.Join(s.binaries, name))
	c.Env = append(s.env(more...), "AWS_LAMBDA_FUNCTION_TIMEOUT=120", "AWS_LAMBDA_FUNCTION_NAME="+name, "PATH=/usr/bin:/bin")
	var said lockedBuffer
	c.Stdout, c.Stderr = &said, &said
	must(t, c.Start())
	defer func() {
		c.Process.Kill()
		c.Wait()
	}()
	for { // until it listens
		conn, err := net.Dial("tcp", front)
		if err == nil {
			conn.Close()
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(said.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	r, err := http.Post("http://"+front+"/2015-03-31/functions/function/invocations", "application/json", bytes.NewReader(event))
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, said.String())
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	must(t, err)
	if r.StatusCode != 200 {
		t.Fatalf("%s: %d %s\n%s", name, r.StatusCode, b, said.String())
	}
	return string(b)
}

// freeAddress is an address on which nobody listens now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// How long a first request takes, and of what that is made up: medians of twenty processes. The first request to the table is the earliest that is seen of what a
// process does; before that it is started, and sets up the SDKs. Init reads the log's identity, and no table.
func TestLambda_ColdStart(t *testing.T) {
	s := newSystem(t)
	s.create("t", 4)
	const turns = 20
	parts := map[string][]time.Duration{}
	names := []string{"start to first request to the table", "first request to ready", "event to first byte", "whole"}
	var seen lambda.Invocation
	for i := range turns {
		s.mu.Lock()
		s.requests = nil
		s.mu.Unlock()
		h := s.host("produce", lambda.Function{Tell: func(x lambda.Invocation) { seen = x }})
		front := httptest.NewServer(h)
		start := time.Now()
		status, a := call(t, "POST", front.URL+"/v1/topics/t/records", nil, records(fmt.Sprint("v", i)))
		if status != 200 || !seen.Cold {
			t.Fatalf("%d %v %+v", status, a, seen)
		}
		s.mu.Lock()
		first := s.requests[0].at.Sub(start)
		ready := start.Add(seen.Init)
		for _, r := range s.requests {
			if r.at.Before(ready) && r.op != "GetItem" {
				t.Errorf("init asked for %s", r.op)
			}
			if r.op == "Scan" || r.op == "Query" {
				t.Errorf("%s", r.op)
			}
		}
		if i == 0 {
			var init, event []string
			for _, r := range s.requests {
				if r.at.Before(ready) {
					init = append(init, r.op)
				} else {
					event = append(event, r.op)
				}
			}
			t.Logf("requests to the table: init %v, event %v", init, event)
		}
		s.mu.Unlock()
		for j, d := range []time.Duration{first, seen.Init - first, seen.Run, seen.Init + seen.Run} {
			parts[names[j]] = append(parts[names[j]], d)
		}
		front.Close()
		must(t, h.Close())
	}
	for _, name := range names {
		slices.Sort(parts[name])
		t.Logf("cold start of produce, median of %d: %-36s %6.1f ms (%.1f to %.1f)", turns, name, ms(parts[name][turns/2]), ms(parts[name][0]), ms(parts[name][turns-1]))
	}
	if got := s.values("t"); len(got) != turns {
		t.Errorf("%d records", len(got))
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
