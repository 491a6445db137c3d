package s3

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/segment/store"
)

// theirs are rules of somebody else's, with much that this package knows nothing of.
const theirs = `<?xml version="1.0" encoding="UTF-8"?>
<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule><ID>two moves</ID><Filter><Prefix>a/</Prefix></Filter><Status>Enabled</Status>` +
	`<Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition><Transition><Days>90</Days><StorageClass>GLACIER</StorageClass></Transition></Rule>` +
	`<Rule><ID>old form</ID><Prefix>b/</Prefix><Status>Disabled</Status><Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration></Rule>` +
	`<Rule><ID>tagged</ID><Filter><And><Prefix>c/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And></Filter><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>` +
	`<Rule><ID>versions</ID><Filter></Filter><Status>Enabled</Status><NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration><SomethingNew a="1"/></Rule></LifecycleConfiguration>`

// rulesOf is a service with a lifecycle configuration.
type rulesOf struct {
	objects *service
	t       *testing.T
	text    string
	sizes   string
	code    string // refuses with
	status  int
	methods []string
}

// RoundTrip answers requests about the configuration, and lets the others through to a service that knows objects.
func (s *rulesOf) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := r.URL.Query()["lifecycle"]; !ok {
		return s.objects.RoundTrip(r)
	}
	s.methods = append(s.methods, r.Method)
	if r.URL.Query().Get("X-Amz-Signature") == "" || r.URL.Query().Get("X-Amz-Security-Token") != "token" {
		s.t.Errorf("%s %s is not signed", r.Method, r.URL)
	}
	reply := func(status int, body string) (*http.Response, error) {
		h := http.Header{}
		if s.sizes != "" {
			h.Set("x-amz-transition-default-minimum-object-size", s.sizes)
		}
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	switch {
	case s.code != "":
		return reply(s.status, "<Error><Code>"+s.code+"</Code><Message>said on purpose</Message></Error>")
	case r.Method == http.MethodGet && s.text == "":
		return reply(http.StatusNotFound, "<Error><Code>NoSuchLifecycleConfiguration</Code></Error>")
	case r.Method == http.MethodGet:
		return reply(http.StatusOK, s.text)
	case r.Method == http.MethodDelete:
		s.text, s.sizes = "", ""
		return reply(http.StatusNoContent, "")
	}
	if r.Header.Get("Content-Md5") == "" || !strings.Contains(r.URL.Query().Get("X-Amz-SignedHeaders"), "content-md5") {
		s.t.Error("the service wants the body's MD5, signed")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.text, s.sizes = string(body), r.Header.Get("x-amz-transition-default-minimum-object-size")
	return reply(http.StatusOK, "")
}

func (s *rulesOf) open() *Store {
	s.objects = newService(s.t)
	return s.objects.open(func(c *Config) { c.Transport = s })
}

func TestRulesKeepWhatTheyDoNotKnow(t *testing.T) {
	s := &rulesOf{t: t, text: theirs, sizes: "varies_by_storage_class"}
	client := s.open()
	rules, err := client.Rules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range rules.List {
		rules.List[i].Raw = ""
	}
	if want := []store.Rule{
		{ID: "two moves", Prefix: "a/", Enabled: true, Moves: []store.Move{{Days: 30, To: "STANDARD_IA"}, {Days: 90, To: "GLACIER"}}},
		{ID: "old form", Prefix: "b/", Date: "2030-01-01T00:00:00.000Z"},
		{ID: "tagged", Prefix: "c/", Enabled: true, Days: 1, Tagged: true, More: true},
		{ID: "versions", Enabled: true, More: true},
	}; !reflect.DeepEqual(rules.List, want) {
		t.Errorf("\n got %+v\nwant %+v", rules.List, want)
	}
	rules, err = client.Rules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours := store.Rule{ID: "varve-r7d", Prefix: "log/r7d/", Enabled: true, Days: 8, Abort: 1, Moves: []store.Move{{Days: 5, To: "GLACIER_IR"}}}
	rules.List = append(rules.List, ours)
	if err := client.SetRules(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	body := strings.TrimPrefix(theirs, `<?xml version="1.0" encoding="UTF-8"?>`+"\n")
	if kept := strings.TrimSuffix(body, "</LifecycleConfiguration>"); !strings.HasPrefix(s.text, kept) || s.sizes != "varies_by_storage_class" {
		t.Errorf("rules of others are not as they were, sizes %q:\n%s", s.sizes, s.text)
	}
	rules, err = client.Rules(t.Context())
	if err != nil || len(rules.List) != 5 {
		t.Fatal(rules, err)
	}
	rules.List[4].Raw = ""
	if !reflect.DeepEqual(rules.List[4], ours) {
		t.Errorf("\n got %+v\nwant %+v", rules.List[4], ours)
	}
	if err := client.SetRules(t.Context(), &store.Rules{}); err != nil || s.text != "" {
		t.Error(err, s.text)
	}
	if rules, err = client.Rules(t.Context()); err != nil || len(rules.List) != 0 {
		t.Error(rules, err)
	}
}

func TestRulesErrors(t *testing.T) { synctest.Test(t, testRulesErrors) }

func testRulesErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
		asked  int
	}{
		{http.StatusForbidden, "AccessDenied", store.ErrDenied, 1},
		{http.StatusBadRequest, "MalformedXML", store.ErrConfig, 1},
		{http.StatusNotImplemented, "NotImplemented", store.ErrConfig, 1},
		{http.StatusServiceUnavailable, "SlowDown", store.ErrThrottled, 5},
	} {
		s := &rulesOf{t: t, status: c.status, code: c.code}
		client := s.open()
		_, err := client.Rules(t.Context())
		var e *store.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Code != c.code || len(s.methods) != c.asked {
			t.Errorf("%s: %v, asked %v", c.code, err, s.methods)
		}
		s.methods = nil
		if err := client.SetRules(t.Context(), &store.Rules{List: []store.Rule{{ID: "x"}}}); !errors.Is(err, c.want) || len(s.methods) != c.asked {
			t.Errorf("%s: %v, asked %v", c.code, err, s.methods)
		}
	}
	s := &rulesOf{t: t, text: "<LifecycleConfiguration><Rule>"}
	if _, err := s.open().Rules(t.Context()); !errors.Is(err, store.ErrConfig) {
		t.Error(err)
	}
}

// Nothing that comes from a service panics.
func FuzzRules(f *testing.F) {
	f.Add([]byte(theirs))
	f.Add([]byte("<LifecycleConfiguration><Rule><Expiration><Days>x"))
	f.Fuzz(func(t *testing.T, body []byte) {
		rules, err := decodeRules(body)
		if err != nil {
			return
		}
		text, err := encodeRules(rules)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules.List {
			if !bytes.Contains(text, []byte(r.Raw)) {
				t.Errorf("%q is lost", r.Raw)
			}
		}
	})
}
