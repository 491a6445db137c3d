package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/varvelog/varve/functions/local"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/localdev/logtest"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// site is both services over a log in memory.
type site struct {
	t       testing.TB
	world   *logtest.World
	log     *sdk.Log
	handler http.Handler
}

// newSite makes one with a topic "t" of 4 partitions.
func newSite(t testing.TB, opts ...sdk.Option) *site {
	w := logtest.New(t)
	s := &site{t: t, world: w, log: w.Open(opts...)}
	w.Create(s.log, sdk.NewTopic{Name: "t", Partitions: 4})
	s.serve(local.Options{})
	return s
}

func (s *site) serve(o local.Options) {
	service := local.New(s.log, o)
	s.handler = service
	s.t.Cleanup(func() {
		if s.world != nil {
			s.world.OnTable, s.world.OnStore = nil, nil
		}
		if err := service.Close(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
}

// exchange is a request and its answer.
type exchange struct {
	method, target string
	header         http.Header
	body           []byte
	status         int
	answer         http.Header
	answered       []byte
}

// exchanges are those of all tests, to be compared with the description.
var exchanges struct {
	sync.Mutex
	list []*exchange
}

func keep(x *exchange) *exchange {
	exchanges.Lock()
	defer exchanges.Unlock()
	exchanges.list = append(exchanges.list, x)
	return x
}

// do sends a request straight to the handler. Headers are "Name: value".
func (s *site) do(method, target, body string, headers ...string) *exchange {
	s.t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(body))
	return s.send(r, body, headers...)
}

func (s *site) send(r *http.Request, body string, headers ...string) *exchange {
	s.t.Helper()
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return keep(&exchange{r.Method, r.URL.String(), r.Header, []byte(body), w.Code, w.Header(), w.Body.Bytes()})
}

const (
	asJSON    = "Content-Type: " + wire.JSONType
	asBatches = "Content-Type: " + wire.BatchesType
	toBatches = "Accept: " + wire.BatchesType
)

// want reads the answer into v, which has to have the status.
func (s *site) want(x *exchange, status int, v any) {
	s.t.Helper()
	if x.status != status {
		s.t.Fatalf("%s %s: %d, want %d: %s", x.method, x.target, x.status, status, x.answered)
	}
	if v != nil {
		if err := json.Unmarshal(x.answered, v); err != nil {
			s.t.Fatalf("%s %s: %v: %s", x.method, x.target, err, x.answered)
		}
	}
}

// fails wants an error of the status and code.
func (s *site) fails(x *exchange, status int, code string) *wire.Error {
	s.t.Helper()
	var f wire.Failure
	s.want(x, status, &f)
	if f.Error == nil || f.Error.Code != code || f.Error.Message == "" {
		s.t.Fatalf("%s %s: %s, want code %s", x.method, x.target, x.answered, code)
	}
	return f.Error
}

// produce appends values to a partition.
func (s *site) produce(topic string, partition int, values ...string) {
	s.t.Helper()
	var records []string
	for _, v := range values {
		records = append(records, fmt.Sprintf(`{"partition":%d,"value":%q}`, partition, v))
	}
	var p wire.Produced
	s.want(s.do("POST", "/v1/topics/"+topic+"/records", `{"records":[`+strings.Join(records, ",")+`]}`, asJSON), 200, &p)
	for _, r := range p.Results {
		if r.Error != nil {
			s.t.Fatal(r.Error)
		}
	}
}

// batch is records as one batch.
func batch(t testing.TB, codec segment.Codec, records ...segment.Record) []byte {
	t.Helper()
	var b segment.BatchBuilder
	for i := range records {
		if err := b.Append(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	encoded, _, err := b.Finish(nil, segment.BatchOptions{Codec: codec})
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// description is docs/openapi.yaml, and what holds requests and answers against it.
var description = sync.OnceValues(func() (libopenapi.Document, error) {
	b, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		return nil, err
	}
	return libopenapi.NewDocument(b)
})

// operations are the operations of the description by "METHOD path", with the statuses that each has.
func operations(t testing.TB) map[string]map[string]bool {
	t.Helper()
	d, err := description()
	if err != nil {
		t.Fatal(err)
	}
	model, err := d.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]bool{}
	for path, item := range model.Model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			statuses := map[string]bool{}
			for status := range op.Responses.Codes.FromOldest() {
				statuses[status] = true
			}
			all[strings.ToUpper(method)+" "+path] = statuses
		}
	}
	return all
}

// operation is which of them the exchange is, "" for none.
func operation(all map[string]map[string]bool, x *exchange) string {
	path, _, _ := strings.Cut(x.target, "?")
	got := strings.Split(path, "/")
	for name := range all {
		method, path, _ := strings.Cut(name, " ")
		want := strings.Split(path, "/")
		ok := method == x.method && len(got) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = strings.HasPrefix(want[i], "{") || want[i] == got[i]
		}
		if ok {
			return name
		}
	}
	return ""
}

// compare holds an exchange against the description: the answer, and the request if it was taken.
func compare(v validator.Validator, x *exchange) (problems []string) {
	if len(x.body)+len(x.answered) > 1<<20 && x.status < 300 {
		return nil // as many records as can be take the validator seconds, and say no more than a few
	}
	request := httptest.NewRequest(x.method, x.target, bytes.NewReader(x.body))
	request.Header = x.header
	answer := &http.Response{StatusCode: x.status, Header: x.answer, Body: io.NopCloser(bytes.NewReader(x.answered)), Request: request}
	tell := func(what, message, reason string) {
		problems = append(problems, fmt.Sprintf("%s %s: %d: %s: %s %s; %s", x.method, x.target, x.status, what, message, reason, clip(x.answered)))
	}
	if x.status < 300 {
		if ok, errs := v.ValidateHttpRequestSync(request); !ok {
			for _, e := range errs {
				tell("request", e.Message, e.Reason)
				for _, s := range e.SchemaValidationErrors {
					tell("request", s.Reason, s.FieldPath)
				}
			}
		}
	}
	if ok, errs := v.ValidateHttpResponse(request, answer); !ok {
		for _, e := range errs {
			tell("answer", e.Message, e.Reason)
			for _, s := range e.SchemaValidationErrors {
				tell("answer", s.Reason, s.FieldPath)
			}
		}
	}
	return problems
}

func clip(b []byte) string { return string(b[:min(len(b), 300)]) }
