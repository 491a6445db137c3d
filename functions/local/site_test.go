package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

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

// description is docs/openapi.yaml, which is checked for its own rules, and what finds an operation in it.
type description struct {
	*openapi3.T
	routers.Router
}

var described = sync.OnceValues(func() (d description, err error) {
	openapi3filter.RegisterBodyDecoder(wire.BatchesType, openapi3filter.FileBodyDecoder)
	loader := openapi3.NewLoader()
	if d.T, err = loader.LoadFromFile("../../docs/openapi.yaml"); err != nil {
		return d, err
	}
	if err := d.T.Validate(loader.Context); err != nil {
		return d, err
	}
	d.Router, err = gorillamux.NewRouter(d.T)
	return d, err
})

// operations are the operations of the description by "METHOD path", with the statuses that each has.
func operations(t testing.TB) map[string]map[string]bool {
	t.Helper()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]bool{}
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			statuses := map[string]bool{}
			for status := range op.Responses.Map() {
				statuses[status] = true
			}
			all[method+" "+path] = statuses
		}
	}
	return all
}

// compare holds an exchange against the description: the answer, and the request if it was taken. It returns which of the operations it is, "" for none.
func compare(t testing.TB, d description, x *exchange, seen map[string]int) string {
	t.Helper()
	request := httptest.NewRequest(x.method, x.target, bytes.NewReader(x.body))
	request.Header = x.header
	route, values, err := d.FindRoute(request)
	if err != nil {
		return "" // no such path, no such method
	}
	name := route.Method + " " + route.Path
	if len(x.body)+len(x.answered) > 1<<20 && x.status < 300 {
		return name // as many records as can be take the validator seconds, and say no more than a few
	}
	alike := name + " " + strconv.Itoa(x.status)
	if seen[alike]++; seen[alike] > 8 && seen[alike]%raceShare > 0 {
		return name
	}
	in := &openapi3filter.RequestValidationInput{Request: request, PathParams: values, Route: route,
		Options: &openapi3filter.Options{MultiError: true, IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if x.status < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), in); err != nil {
			t.Errorf("%s %s: %d: request: %v; %s", x.method, x.target, x.status, err, clip(x.answered))
		}
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: x.status, Header: x.answer, Options: in.Options}
	if err := openapi3filter.ValidateResponse(t.Context(), answer.SetBodyBytes(x.answered)); err != nil {
		t.Errorf("%s %s: %d: answer: %v; %s", x.method, x.target, x.status, err, clip(x.answered))
	}
	return name
}

func clip(b []byte) string { return string(b[:min(len(b), 300)]) }
