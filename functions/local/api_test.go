package local_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// TestAPI plays what docs/openapi.yaml describes, holds every request and answer against it, and sees to it that nothing of it was left out.
func TestAPI(t *testing.T) {
	played := 0
	scenarios := []struct {
		name string
		play func(*testing.T)
	}{
		{"Answers", answers}, {"Plan", plan}, {"Refusals", refusals}, {"Bodies", bodies}, {"Guards", guards}, {"Damage", damage}, {"Troubles", troubles},
		{"Once", onceOverHTTP}, {"Conditions", conditionsOverHTTP}, {"Together", togetherOverHTTP}, {"Groups", groups}, {"Members", members}, {"Ranges", ranges}, {"Longest", longest},
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			played++
			s.play(t)
		})
	}
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	all := operations(t)
	left := map[string]bool{}
	for name, statuses := range all {
		for status := range statuses {
			left[name+" "+status] = true
		}
	}
	seen := map[string]int{} // the race detector compares the first of each operation and status, and a share of the others
	for _, x := range exchanges.list {
		op := compare(t, d, x, seen)
		if op == "" {
			continue
		}
		if status := fmt.Sprint(x.status); !all[op][status] {
			t.Errorf("%s %s: %d is not described: %s", x.method, x.target, x.status, clip(x.answered))
		} else {
			delete(left, op+" "+status)
		}
	}
	if played == len(scenarios) {
		for status := range left {
			t.Errorf("%s is described and was not seen", status)
		}
	}
	t.Logf("%d requests compared", len(exchanges.list))
}

// samples are one request of each operation that works on a site whose partition 0 of "t" has records.
var samples = []struct {
	op, target, body string
	headers          []string
	status           int
}{
	{"GET", "/v1", "", nil, 200},
	{"POST", "/v1/producers", "", nil, 201},
	{"GET", "/v1/topics", "", nil, 200},
	{"GET", "/v1/topics/t", "", nil, 200},
	{"POST", "/v1/topics/t/records", `{"records":[{"partition":0,"value":"v"}]}`, []string{asJSON}, 200},
	{"POST", "/v1/records", `{"records":[{"topic":"t","partition":0,"value":"v"}]}`, []string{asJSON}, 200},
	{"GET", "/v1/topics/t/records?from=0:0", "", nil, 200},
	{"GET", "/v1/topics/t/offsets", "", nil, 200},
	{"GET", "/v1/topics/t/partitions/0/offsets?time=2001-01-01T00:00:00Z", "", nil, 200},
	{"GET", "/v1/topics/t/partitions/0/records?offset=0", "", nil, 200},
	{"GET", "/v1/topics/t/partitions/0/plan?offset=0", "", nil, 501},
	{"GET", "/v1/groups", "", nil, 200},
	{"GET", "/v1/groups/g?start=latest", "", nil, 200},
	{"GET", "/v1/groups/g/offsets?topic=t", "", nil, 200},
	{"POST", "/v1/groups/g/offsets", `{"topic":"t","offsets":[{"partition":0,"offset":1}]}`, []string{asJSON}, 200},
	{"POST", "/v1/groups/m/members/a", `{"action":"join","session":"0123456789abcdef","session_timeout_ms":45000,"topics":["t"]}`, []string{asJSON}, 200},
	{"GET", "/v1/groups/m/members/a", "", nil, 200},
	{"GET", "/v1/groups/m/state", "", nil, 200},
	{"PUT", "/v1/groups/m/plan", aPlan, []string{asJSON}, 200},
	{"POST", "/v1/groups/m/lanes/0123456789ab", `{"leases":[{"slot":0,"from":"","to":"1.0123456789abcdef"}]}`, []string{asJSON}, 200},
	{"POST", "/v1/groups/m/moves", `{"token":"x","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1.0123456789abcdef","from":null,"to":1}]}]}`, []string{asJSON}, 200},
}

// aPlan is the body of a first plan, by which nobody reads anything.
var aPlan = fmt.Sprintf(`{"generation":1,"packed":%q}`, base64.StdEncoding.EncodeToString(metadata.AppendPlan(nil, &metadata.Plan{Generation: 1, Members: []metadata.PlanMember{{Name: "a", Session: "0123456789abcdef"}}})))

// answers: each operation, and what comes back.
func answers(t *testing.T) {
	s := newSite(t)
	s.produce("t", 0, "a", "b")
	s.want(s.do("POST", "/v1/groups/g/offsets", `{"topic":"t","offsets":[{"partition":0,"offset":0,"metadata":"m"}]}`, asJSON), 200, nil)
	for _, x := range samples {
		s.want(s.do(x.op, x.target, x.body, x.headers...), x.status, nil)
	}
	var produced wire.Produced
	body := `{"records":[{"key":"k","value":"1"},{"value_base64":"/w==","partition":3,"headers":[{"name":"h","value":null}],"timestamp":"2001-01-31T08:00:00Z"},{"partition":9},{"key":"k","value":"2"}]}`
	s.want(s.do("POST", "/v1/topics/t/records", body, asJSON), 200, &produced)
	if r := produced.Results; len(r) != 4 || r[2].Error.Code != wire.UnknownPartition || *r[2].Error.Record != 2 || *r[0].Partition != *r[3].Partition || *r[3].Offset != *r[0].Offset+1 || *r[1].Offset != 0 {
		t.Errorf("%+v", produced)
	}
	var fetched struct {
		Records    []sdk.Record
		Next       int64 `json:"next_offset"`
		Start, End int64
	}
	s.want(s.do("GET", "/v1/topics/t/partitions/3/records?offset=0", ""), 200, &fetched)
	if len(fetched.Records) == 0 || fetched.Next != int64(len(fetched.Records)) || fetched.End != fetched.Next {
		t.Fatalf("%+v", fetched)
	}
	if r := fetched.Records[0]; !bytes.Equal(r.Value, []byte{0xff}) || r.Key != nil || r.Timestamp.UnixMilli() != 980928000000 || len(r.Headers) != 1 || r.Headers[0].Value != nil || r.Partition != 3 {
		t.Errorf("%+v", r)
	}
	var at wire.OffsetAt
	s.want(s.do("GET", "/v1/topics/t/partitions/0/offsets?time=32503680000000", ""), 200, &at)
	if at.Offset != nil || at.End == nil || *at.End < 3 {
		t.Errorf("%+v", at)
	}
	var topic wire.Topic
	s.want(s.do("GET", "/v1/topics/t", ""), 200, &topic)
	if len(topic.Partitions) != 4 || topic.Partitions[3].Lane == "" || topic.Config["retention.ms"] == "" || topic.Partitioner != "murmur2" {
		t.Errorf("%+v", topic)
	}
	batchesBack(s)
}

// batchesBack: batches of every codec go in, and come out as what they were.
func batchesBack(s *site) {
	s.world.Create(s.log, sdk.NewTopic{Name: "b", Partitions: 2})
	var body []byte
	n := 0
	for _, codec := range []segment.Codec{segment.None, segment.Gzip, segment.Snappy, segment.LZ4, segment.Zstd} {
		body = wire.AppendFrame(body, 1, batch(s.t, codec, segment.Record{Timestamp: 1000 + int64(n), Value: bytes.Repeat([]byte{byte(n)}, 1000)}, segment.Record{Timestamp: -1, Key: []byte{}}))
		n += 2
	}
	body = wire.AppendFrame(body, wire.ByKey, batch(s.t, segment.None, segment.Record{Timestamp: 5, Key: []byte("k"), Value: []byte("by key")}))
	var produced wire.Produced
	s.want(s.do("POST", "/v1/topics/b/records", string(body), asBatches), 200, &produced)
	if len(produced.Results) != n+1 {
		s.t.Fatalf("%+v", produced)
	}
	x := s.do("GET", "/v1/topics/b/records?from=1:3,0:0&max_bytes=99999", "")
	s.want(x, 200, nil)
	var decoder segment.Decoder
	got := map[int32][]segment.Record{}
	if err := wire.Frames(x.answered, func(p int32, batch []byte) (err error) {
		got[p], err = decoder.Decode(batch, 0, got[p])
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	skipped := slices.DeleteFunc(got[1], func(r segment.Record) bool { return r.Offset < 3 })
	if len(skipped)+len(got[0]) != n+1-3 || skipped[0].Offset != 3 || skipped[0].Key == nil || skipped[0].Value != nil || skipped[1].Timestamp != 1004 || !bytes.Equal(skipped[1].Value, bytes.Repeat([]byte{4}, 1000)) {
		s.t.Errorf("%+v", skipped)
	}
	if at := x.answer.Get(wire.PositionsHeader); at != "1:10:0:10,0:1:0:1" && at != "1:11:0:11,0:0:0:0" {
		s.t.Error(at)
	}
	x = s.do("GET", "/v1/topics/b/partitions/1/records?offset=0&max_bytes=1", "", toBatches)
	s.want(x, 200, nil)
	if x.answer.Get(wire.NextHeader) == "0" || x.answer.Get(wire.StartHeader) != "0" || len(x.answered) == 0 {
		s.t.Errorf("%v", x.answer)
	}
}

// plan: who follows the links, and takes what is inline, has the records.
func plan(t *testing.T) {
	driver := newLinking(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	driver.url = "http://" + listener.Addr().String()
	bucket := &http.Server{Handler: driver}
	go bucket.Serve(listener)
	defer bucket.Close()
	s := siteOn(t, driver)
	for i := range 3 {
		s.produce("t", 1, fmt.Sprint(i), "x")
	}
	small, err := s.log.NewProducer(sdk.WithSmallSegments(4000), sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	if err := small.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Partition: 1, Value: []byte("inline")}).Err(); err != nil {
		t.Fatal(err)
	}
	small.Close(t.Context())
	var p wire.Plan
	s.want(s.do("GET", "/v1/topics/t/partitions/1/plan?offset=3", ""), 200, &p)
	if len(p.Extents) != 3 || p.Next != 7 || p.Start != 0 || p.End != 7 || p.Extents[0].BaseOffset != 2 {
		t.Fatalf("%+v", p)
	}
	var values []string
	for _, e := range p.Extents {
		b := e.Inline
		if b == nil {
			request, _ := http.NewRequestWithContext(t.Context(), "GET", e.URL, nil)
			for name, value := range e.Headers {
				request.Header.Set(name, value)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			b, _ = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		if int64(len(b)) != e.Bytes || !e.Relative {
			t.Errorf("%d bytes, %+v", len(b), e)
		}
		var decoder segment.Decoder
		records, err := decoder.Decode(b, e.BaseOffset, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			values = append(values, fmt.Sprint(r.Offset, string(r.Value)))
		}
	}
	if got := fmt.Sprint(values); got != "[21 3x 42 5x 6inline]" {
		t.Error(got)
	}
	s.want(s.do("GET", "/v1/topics/t/partitions/1/plan?offset=0&max_bytes=1", ""), 200, &p)
	if len(p.Extents) != 1 || p.Next != 2 {
		t.Errorf("%+v", p)
	}
	s.fails(s.do("GET", "/v1/topics/t/partitions/1/plan?offset=9", ""), 416, wire.OffsetOutOfRange)
	s.fails(s.do("GET", "/v1/topics/t/partitions/4/plan?offset=0", ""), 404, wire.UnknownPartition)
	s.fails(s.do("GET", "/v1/topics/nosuch/partitions/1/plan?offset=0", ""), 404, wire.UnknownTopic)
	http.DefaultClient.CloseIdleConnections()
}

// refusals: what every operation refuses.
func refusals(t *testing.T) {
	s := newSite(t)
	s.produce("t", 0, "a")
	long := strings.Repeat("x", 300)
	for _, x := range samples {
		path, query, _ := strings.Cut(x.target, "?")
		s.fails(s.do(x.op, path+"?"+query+"&nonsense=1", x.body, x.headers...), 400, wire.BadRequest)
		s.fails(s.do(x.op, path+"?%zz", x.body, x.headers...), 400, wire.BadRequest)
		if x.op == "GET" {
			s.fails(s.do(x.op, x.target, "a body"), 400, wire.BadRequest)
		}
		allow := s.do("DELETE", x.target, "")
		if s.fails(allow, 405, wire.MethodNotAllowed); !strings.Contains(allow.answer.Get("Allow"), x.op) {
			t.Error(allow.answer)
		}
		if strings.Contains(path, "/t") && strings.HasPrefix(path, "/v1/topics/t") {
			for _, bad := range []string{"..", ".", "%2e%2e", "a%2fb", "..%2f..", "%00", "a%20b", "%c3%a4", long, "t%0d%0aX"} {
				at := strings.Replace(x.target, "/topics/t", "/topics/"+bad, 1)
				s.fails(s.do(x.op, at, x.body, x.headers...), 400, wire.BadRequest)
			}
			if x.status != 501 {
				s.fails(s.do(x.op, strings.Replace(x.target, "/topics/t", "/topics/nosuch", 1), x.body, x.headers...), 404, wire.UnknownTopic)
			}
		}
		for _, bad := range []string{"-1", "4294967296", "x", "+1", "1e3", "0x1", ""} {
			if at := strings.Replace(x.target, "/partitions/0", "/partitions/"+url.PathEscape(bad), 1); at != x.target {
				if s.do(x.op, at, "").status != 400 {
					t.Errorf("%s is taken", at)
				}
			}
		}
		if at := strings.Replace(x.target, "/partitions/0", "/partitions/4", 1); at != x.target && x.status != 501 {
			s.fails(s.do(x.op, at, ""), 404, wire.UnknownPartition)
		}
	}
	for _, path := range []string{"/", "/v2", "/v1/", "//v1", "/v1/topics/t/records/", "/v1/../v1", "/v1/topics/t/partitions/0", "/v1/%zz"} {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: path}, Header: http.Header{}}
		s.fails(s.send(r.WithContext(t.Context()), ""), 404, wire.NotFound)
	}
	for _, bad := range []string{"offset=", "offset=-1", "offset=9223372036854775808", "offset=1.5", "offset=0&offset=1", "offset=0&max_bytes=0", "offset=0&max_bytes=-5",
		"offset=0&max_bytes=99999999999999999999", "offset=0&wait=-1s", "offset=0&wait=5", "offset=0&wait=x", "max_bytes=1", ""} {
		s.fails(s.do("GET", "/v1/topics/t/partitions/0/records?"+bad, ""), 400, wire.BadRequest)
	}
	many := strings.TrimSuffix(strings.Repeat("0:0,", 300), ",")
	for _, bad := range []string{"", "0", "0:", ":0", "0:0,", "0:-1", "-1:0", "0:0,0:1", "0:0:0", "a:b", many} {
		s.fails(s.do("GET", "/v1/topics/t/records?from="+bad, ""), 400, wire.BadRequest)
	}
	s.fails(s.do("GET", "/v1/topics/t/records?from=4:0", ""), 404, wire.UnknownPartition)
	s.fails(s.do("GET", "/v1/topics/nosuch/partitions/0/plan?offset=0", ""), 501, wire.NotSupported)
	for _, bad := range []string{"", "time=", "time=yesterday", "time=2001-01-01", "time=1&time=2"} {
		s.fails(s.do("GET", "/v1/topics/t/partitions/0/offsets?"+bad, ""), 400, wire.BadRequest)
	}
	for _, accept := range []string{"text/html", "application/json;q=0", "nonsense/", "*/*;q=0"} {
		s.fails(s.do("GET", "/v1/topics/t/partitions/0/records?offset=0", "", "Accept: "+accept), 406, wire.NotAcceptable)
		s.fails(s.do("GET", "/v1/topics/t/records?from=0:0", "", "Accept: "+accept), 406, wire.NotAcceptable)
	}
	for _, accept := range []string{"*/*", "text/html, application/json;q=0.5", "application/*"} {
		s.want(s.do("GET", "/v1/topics/t/partitions/0/records?offset=0", "", "Accept: "+accept), 200, nil)
	}
	s.fails(s.do("GET", "/v1/groups/nosuch/offsets?topic=t", ""), 404, wire.UnknownGroup)
	s.fails(s.do("GET", "/v1/groups/nosuch", ""), 404, wire.UnknownGroup)
	for _, bad := range []string{"/v1/groups/g?start=middle", "/v1/groups?after=..", "/v1/groups?after=", "/v1/topics?after=a%2fb", "/v1/topics?after=a&after=b"} {
		s.fails(s.do("GET", bad, ""), 400, wire.BadRequest)
	}
	s.fails(s.do("GET", "/v1/groups/g/offsets?topic=nosuch", ""), 404, wire.UnknownTopic)
	for _, bad := range []string{"..", "a%2fb", long} {
		s.fails(s.do("GET", "/v1/groups/"+bad+"/offsets?topic=t", ""), 400, wire.BadRequest)
		s.fails(s.do("POST", "/v1/groups/"+bad+"/offsets", `{"topic":"t","offsets":[{"partition":0,"offset":0}]}`, asJSON), 400, wire.BadRequest)
	}
	if got := s.world.Values(s.log, "t"); len(got[0])+len(got[1])+len(got[2])+len(got[3]) != 1 {
		t.Errorf("something was appended: %v", got)
	}
}
