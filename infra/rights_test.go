package infra_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/s3"
)

// cloud is an S3 and a DynamoDB in this process that look at who asks: each role is given what its policy allows, and "admin" everything. It keeps what was
// allowed and what was not.
type cloud struct {
	t       *testing.T
	engine  *dynamodb.Engine
	objects http.Handler
	// What befalls calls that are allowed. They are set while nothing is under way.
	fault       func(role string, c dynamodb.Call) dynamodb.Fault
	uploadFails bool
	refuses     bool // the queue, each message

	mu       sync.Mutex
	rules    []byte // the bucket's, as they were put
	policies map[string]*policy
	used     map[string]map[string]bool // policy -> "statement action" and "statement action key pattern"
	denied   []string
}

const admin = "admin"

func newCloud(t *testing.T) *cloud {
	c := &cloud{t: t, policies: map[string]*policy{}, used: map[string]map[string]bool{}}
	for _, f := range policies {
		c.policies[f], c.used[f] = loadPolicy(t, f), map[string]bool{}
	}
	backend := s3mem.New()
	check(t, backend.CreateBucket("bucket"))
	c.objects = gofakes3.New(backend).Server()
	engine, err := dynamodb.New(dynamodb.Options{Hook: c.onCall})
	check(t, err)
	c.engine = engine
	t.Cleanup(func() { check(t, engine.Close()) })
	return c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// as is the driver of the log under a role's rights.
func (c *cloud) as(role string) sdk.Driver { return roleDriver{c, role} }

type roleDriver struct {
	*cloud
	role string
}

func (roleDriver) Schemes() []string { return []string{"cloud"} }

func (d roleDriver) Open(ctx context.Context, _ *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	keys := credentials.NewStaticCredentialsProvider("id", "secret", "")
	table, err := dynamo.Open(dynamo.Config{AWS: aws.Config{Region: "eu-central-1", Credentials: keys, HTTPClient: d, BaseEndpoint: aws.String("http://dynamodb")}, TableName: "varve", Env: o.Env, OnCall: o.OnTable})
	if err == nil && o.CreateTable {
		err = table.EnsureTable(ctx)
	}
	if err != nil {
		return sdk.Backend{}, err
	}
	bucket, err := s3.Open(ctx, s3.Config{Bucket: "bucket", Prefix: "log", Endpoint: "http://s3", Region: "eu-central-1", Credentials: keys, Transport: d, Env: o.Env})
	if err != nil {
		return sdk.Backend{}, err
	}
	return sdk.Backend{Table: table, Store: store.Observe(bucket, o.Env, o.OnStore), Lifecycle: bucket, Presigner: bucket, Bucket: "bucket", Prefix: "log", SmallSegments: 4000, Close: bucket.Close}, nil
}

// open opens the log under a role's rights.
func (c *cloud) open(role string, more ...sdk.Option) *sdk.Log {
	c.t.Helper()
	l, err := sdk.Open(c.t.Context(), "cloud://log", append(more, sdk.WithDriver(c.as(role)))...)
	if err != nil {
		c.t.Fatalf("%s opens the log: %v", role, err)
	}
	return l
}

// may looks up what is needed in the role's policy, and notes the outcome.
func (c *cloud) may(role string, needs ...need) bool {
	if role == admin {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range needs {
		found := false
		for _, name := range policiesOf(role) {
			for i := range c.policies[name].Statement {
				if s := &c.policies[name].Statement[i]; s.allows(n) {
					found = true
					c.note(name, s, n)
				}
			}
		}
		if !found {
			c.denied = append(c.denied, role+": "+n.String())
			return false
		}
	}
	return true
}

// policiesOf are the policies that a role has.
func policiesOf(role string) []string {
	if role == deadLetters {
		return []string{"forward", deadLetters}
	}
	return []string{role}
}

// note notes what of a statement was used.
func (c *cloud) note(name string, s *statement, n need) {
	c.used[name][s.Sid+" "+n.Action] = true
	for _, pattern := range s.keys() {
		if slices.ContainsFunc(n.Keys, func(k string) bool { return like(pattern, k) }) {
			c.used[name][s.Sid+" "+n.Action+" "+pattern] = true
		}
	}
	for _, pattern := range s.Resource {
		if like(pattern, n.Resource) {
			c.used[name][s.Sid+" "+pattern] = true
		}
	}
}

type roleKey struct{}

// Do makes the driver the table's client, as which it tells the hook who asks; and the queue's.
func (d roleDriver) Do(r *http.Request) (*http.Response, error) {
	if action, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS."); ok {
		return d.sqs(r, action)
	}
	return d.engine.Do(r.WithContext(context.WithValue(r.Context(), roleKey{}, d.role)))
}

func (c *cloud) onCall(ctx context.Context, call dynamodb.Call) dynamodb.Fault {
	role, _ := ctx.Value(roleKey{}).(string)
	if !c.may(role, tableNeeds(call)...) {
		return dynamodb.Fault{Skip: true, Reply: &dynamodb.Error{Code: "AccessDeniedException", Message: "not authorized to perform " + call.Op, Status: http.StatusBadRequest}}
	}
	if c.fault != nil {
		return c.fault(role, call)
	}
	return dynamodb.Fault{}
}

// tableNeeds are the rights that a call of DynamoDB asks for: a transaction for those of its actions, and none of its own.
func tableNeeds(call dynamodb.Call) (needs []need) {
	if call.Op != "TransactWriteItems" {
		n := need{Action: "dynamodb:" + call.Op, Resource: places["table"]}
		for _, k := range call.Keys {
			n.Keys = append(n.Keys, k.Partition)
		}
		return []need{n}
	}
	var body struct{ TransactItems []map[string]json.RawMessage }
	if json.Unmarshal(call.Body, &body) != nil || len(body.TransactItems) != len(call.Keys) {
		return []need{{Action: "an unreadable transaction"}}
	}
	actions := map[string]string{"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
	for i, item := range body.TransactItems {
		for kind := range item {
			needs = append(needs, need{"dynamodb:" + actions[kind], places["table"], []string{call.Keys[i].Partition}})
		}
	}
	return needs
}

// RoundTrip makes the driver the bucket's transport. A missing object is one that may not be seen, for who may not list.
func (d roleDriver) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		body = b
	}
	if !d.may(d.role, bucketNeeds(r, body)...) {
		return answer(r, http.StatusForbidden, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"), nil
	}
	if failed := d.failUpload(r); failed != nil {
		return failed, nil
	}
	if r.URL.Query().Has("lifecycle") {
		return d.lifecycle(r, body), nil
	}
	in := r.Clone(r.Context())
	in.Body, in.RequestURI = io.NopCloser(bytes.NewReader(body)), r.URL.RequestURI()
	in.Header.Set("Content-Length", strconv.Itoa(len(body)))
	recorder := httptest.NewRecorder()
	d.objects.ServeHTTP(recorder, in)
	w := recorder.Result()
	w.Request = r
	if missing := w.StatusCode == http.StatusNotFound && (r.Method == http.MethodGet || r.Method == http.MethodHead); missing && !d.may(d.role, need{"s3:ListBucket", places["bucket"], nil}) {
		return answer(r, http.StatusForbidden, "<Error><Code>AccessDenied</Code></Error>"), nil
	}
	return w, nil
}

func answer(r *http.Request, status int, body string) *http.Response {
	if r.Method == http.MethodHead {
		body = ""
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/xml"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}

// lifecycle keeps the bucket's rules, which the server does not.
func (c *cloud) lifecycle(r *http.Request, body []byte) *http.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Method == http.MethodPut:
		c.rules = body
		return answer(r, http.StatusOK, "")
	case c.rules == nil:
		return answer(r, http.StatusNotFound, "<Error><Code>NoSuchLifecycleConfiguration</Code></Error>")
	}
	return answer(r, http.StatusOK, string(c.rules))
}

// bucketNeeds are the rights that a request to S3 asks for.
func bucketNeeds(r *http.Request, body []byte) (needs []need) {
	key, inBucket := strings.CutPrefix(r.URL.Path, "/bucket/")
	object, bucket, q := places["bucket"]+"/"+key, places["bucket"], r.URL.Query()
	if !inBucket || key == "" {
		switch {
		case r.Method == http.MethodPost && q.Has("delete"):
			var list struct {
				Object []struct{ Key string }
			}
			if xml.Unmarshal(body, &list) != nil || len(list.Object) == 0 {
				return []need{{Action: "an unreadable deletion"}}
			}
			for _, o := range list.Object {
				needs = append(needs, need{"s3:DeleteObject", bucket + "/" + o.Key, nil})
			}
			return needs
		case q.Has("lifecycle"):
			return []need{{map[string]string{http.MethodGet: "s3:GetLifecycleConfiguration", http.MethodPut: "s3:PutLifecycleConfiguration", http.MethodDelete: "s3:PutLifecycleConfiguration"}[r.Method], bucket, nil}}
		case r.Method == http.MethodGet && q.Has("list-type"):
			return []need{{"s3:ListBucket", bucket, nil}}
		}
		return []need{{"s3:?" + r.Method + " " + r.URL.RawQuery, bucket, nil}}
	}
	action := map[string]string{http.MethodPut: "s3:PutObject", http.MethodPost: "s3:PutObject", http.MethodGet: "s3:GetObject", http.MethodHead: "s3:GetObject", http.MethodDelete: "s3:DeleteObject"}[r.Method]
	if r.Method == http.MethodDelete && q.Has("uploadId") {
		action = "s3:AbortMultipartUpload"
	}
	return []need{{action, object, nil}}
}

// Every function's own code does its work within its role, through the real clients; and there is nothing in a role's policy that this work has not used, down
// to the pattern of a key: what is not needed is not given.
func TestRolesAreWhatTheFunctionsNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.story()
		for _, d := range slices.Compact(sorted(c.denied)) {
			// The store tries to put an object when it is opened, to see whether the service refuses a second one; who may not is a reader.
			if !strings.Contains(d, "s3:PutObject on "+places["objects"]+"/.selftest/") {
				t.Error("denied: " + d)
			}
		}
		for _, f := range policies {
			for _, unused := range c.unused(f) {
				t.Errorf("%s.json: nothing has used %s", f, unused)
			}
		}
	})
}

// unused is what of a role's policy was not needed, apart from what Lambda itself does in its name.
func (c *cloud) unused(role string) (list []string) {
	for _, s := range c.policies[role].Statement {
		if outside[s.Sid] {
			continue
		}
		for _, a := range s.Action {
			if !c.used[role][s.Sid+" "+a] {
				list = append(list, fmt.Sprintf("%s: %s", s.Sid, a))
			}
		}
		for _, pattern := range s.keys() {
			used := func(a string) bool { return c.used[role][s.Sid+" "+a+" "+pattern] }
			switch unused := slices.DeleteFunc(slices.Clone(s.Action), used); {
			case len(unused) == len(s.Action), len(unused) > 0 && !reading(s.Action): // a key may be read by one of two ways
				list = append(list, fmt.Sprintf("%s: %s of key %s", s.Sid, unused, pattern))
			}
		}
		for _, r := range s.Resource {
			if !c.used[role][s.Sid+" "+r] {
				list = append(list, fmt.Sprintf("%s: resource %s", s.Sid, r))
			}
		}
	}
	return list
}

func reading(actions texts) bool {
	return !slices.ContainsFunc(actions, func(a string) bool { return a != "dynamodb:GetItem" && a != "dynamodb:Query" })
}

// outside are the statements for what is not done by the function's own code: Lambda writes its logs, sends its failures, reads its queue.
var outside = map[string]bool{"Logs": true, "Failures": true, "Source": true}
