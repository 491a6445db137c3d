package local_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// badBody is a body that is refused.
type badBody struct {
	name, body, contentType string
	status                  int
	code                    string
}

func badRecords(t testing.TB) []badBody {
	j, b := wire.JSONType, wire.BatchesType
	frame := func(partition int32, batch []byte) string { return string(wire.AppendFrame(nil, partition, batch)) }
	one := batch(t, segment.None, segment.Record{Value: []byte("v")})
	change := func(at int, to byte) []byte {
		c := bytes.Clone(one)
		c[at] = to
		return c
	}
	var zeros []segment.Record
	for range 60 / raceShare {
		zeros = append(zeros, segment.Record{Value: make([]byte, 1<<20)})
	}
	bomb := batch(t, segment.Zstd, zeros...)
	var tiny []segment.Record
	for range wire.MaxRecords + 1 {
		tiny = append(tiny, segment.Record{})
	}
	return []badBody{
		{"7 MB", strings.Repeat("x", 7<<20), j, 413, wire.TooLarge},
		{"7 MB of frames", strings.Repeat("x", 7<<20), b, 413, wire.TooLarge},
		{"text", "hello", "text/plain", 415, wire.UnsupportedType},
		{"no type", "{}", "", 415, wire.UnsupportedType},
		{"a broken type", "{}", "application/json; =", 415, wire.UnsupportedType},
		{"nothing", "", j, 400, wire.BadRequest},
		{"no object", "[]", j, 400, wire.BadRequest},
		{"null", "null", j, 400, wire.BadRequest},
		{"an empty object", "{}", j, 400, wire.BadRequest},
		{"no records", `{"records":[]}`, j, 400, wire.BadRequest},
		{"records that are no array", `{"records":{}}`, j, 400, wire.BadRequest},
		{"records twice", `{"records":[{}],"records":[{}]}`, j, 400, wire.BadRequest},
		{"another field", `{"records":[{}],"acks":1}`, j, 400, wire.BadRequest},
		{"cut off", `{"records":[{}`, j, 400, wire.BadRequest},
		{"cut off in a record", `{"records":[{"value":"`, j, 400, wire.BadRecord},
		{"more after it", `{"records":[{}]} {}`, j, 400, wire.BadRequest},
		{"a record that is no object", `{"records":[1]}`, j, 400, wire.BadRecord},
		{"a name of a megabyte", `{"records":[{"` + strings.Repeat("k", 1<<20) + `":1}]}`, j, 400, wire.BadRecord},
		{"only a null record", `{"records":[null]}`, j, 400, wire.BadRecord},
		{"a null record", `{"records":[{},null,{"value":1}]}`, j, 400, wire.BadRecord},
		{"a field that is mistyped", `{"records":[{},{"valeu":"x"}]}`, j, 400, wire.BadRecord},
		{"a field in capitals", `{"records":[{"Value":"x"}]}`, j, 400, wire.BadRecord},
		{"a field twice", `{"records":[{"value":"x","value":"y"}]}`, j, 400, wire.BadRecord},
		{"a partition twice, once escaped", `{"records":[{"partition":1,"\u0070artition":2}]}`, j, 400, wire.BadRecord},
		{"records in capitals", `{"Records":[{}]}`, j, 400, wire.BadRequest},
		{"a time after 9999", `{"records":[{"timestamp":253402300800000}]}`, j, 400, wire.BadRecord},
		{"a time past every number", `{"records":[{"timestamp":9223372036854775808}]}`, j, 400, wire.BadRecord},
		{"a negative partition", `{"records":[{"partition":-1}]}`, j, 400, wire.BadRecord},
		{"a partition that is no number", `{"records":[{"partition":"1"}]}`, j, 400, wire.BadRecord},
		{"a partition past every number", `{"records":[{"partition":99999999999999999999}]}`, j, 400, wire.BadRecord},
		{"bytes that are not UTF-8", "{\"records\":[{\"value\":\"\xff\"}]}", j, 400, wire.BadRecord},
		{"half a character", `{"records":[{"value":"\ud800"}]}`, j, 400, wire.BadRecord},
		{"bad base64", `{"records":[{"value_base64":"%"}]}`, j, 400, wire.BadRecord},
		{"deep", `{"records":[` + strings.Repeat(`[`, 100_000), j, 400, wire.BadRecord},
		{"too many records", `{"records":[` + strings.Repeat(`{},`, wire.MaxRecords) + `{}]}`, j, 413, wire.TooLarge},
		{"a record over the topic's limit", `{"records":[{"value":"` + strings.Repeat("x", 5<<18) + `"}]}`, j, 413, wire.TooLarge},
		{"a time before 1970", `{"records":[{"timestamp":-5000}]}`, j, 400, wire.BadRecord},
		{"no frames", "", b, 400, wire.BadRequest},
		{"half a frame", "\x00\x00", b, 400, wire.BadRequest},
		{"a frame that is too long", "\x00\x00\x00\x00\xff\xff\xff\xff", b, 400, wire.BadRequest},
		{"a frame of partition -2", frame(-2, one), b, 400, wire.BadRequest},
		{"an empty batch", frame(0, nil), b, 400, wire.BadRecord},
		{"more than a batch", frame(0, append(bytes.Clone(one), 0)), b, 400, wire.BadRecord},
		{"less than a batch", frame(0, one[:len(one)-1]), b, 400, wire.BadRecord},
		{"another magic", frame(0, change(16, 1)), b, 400, wire.BadRecord},
		{"a wrong checksum", frame(0, change(17, one[17]+1)), b, 400, wire.BadRecord},
		{"a transaction", frame(0, change(22, 1<<4)), b, 400, wire.BadRecord},
		{"a good and a bad batch", frame(0, one) + frame(0, change(17, one[17]+1)), b, 400, wire.BadRecord},
		{"tens of MiB of zeros", frame(0, bomb), b, 413, wire.TooLarge},
		{"too many records in batches", frame(0, batch(t, segment.Zstd, tiny...)), b, 413, wire.TooLarge},
		{"5 MiB in two batches", frame(0, batch(t, segment.Zstd, zeros[:3]...)) + frame(1, batch(t, segment.Zstd, zeros[:2]...)), b, 413, wire.TooLarge},
	}
}

var badCommits = []badBody{
	{"7 MB", strings.Repeat("x", 7<<20), wire.JSONType, 413, wire.TooLarge},
	{"frames", "", wire.BatchesType, 415, wire.UnsupportedType},
	{"nothing", "", wire.JSONType, 400, wire.BadRequest},
	{"an array", "[]", wire.JSONType, 400, wire.BadRequest},
	{"no topic", `{"offsets":[{"partition":0,"offset":0}]}`, wire.JSONType, 400, wire.BadRequest},
	{"a bad topic", `{"topic":"../t","offsets":[{"partition":0,"offset":0}]}`, wire.JSONType, 400, wire.BadRequest},
	{"an unknown topic", `{"topic":"nosuch","offsets":[{"partition":0,"offset":0}]}`, wire.JSONType, 404, wire.UnknownTopic},
	{"no partition", `{"topic":"t","offsets":[{"offset":0}]}`, wire.JSONType, 400, wire.BadRequest},
	{"no offset", `{"topic":"t","offsets":[{"partition":0}]}`, wire.JSONType, 400, wire.BadRequest},
	{"null for an offset", `{"topic":"t","offsets":[null]}`, wire.JSONType, 400, wire.BadRequest},
	{"metadata that is no UTF-8", `{"topic":"t","offsets":[{"partition":0,"offset":0,"metadata":"` + "\xff" + `"}]}`, wire.JSONType, 400, wire.BadRequest},
	{"no offsets", `{"topic":"t","offsets":[]}`, wire.JSONType, 400, wire.BadRequest},
	{"another field", `{"topic":"t","offsets":[{"partition":0,"offset":0}],"force":true}`, wire.JSONType, 400, wire.BadRequest},
	{"a field in capitals", `{"topic":"t","offsets":[{"partition":0,"offset":0,"Offset":1}]}`, wire.JSONType, 400, wire.BadRequest},
	{"a field twice", `{"topic":"t","offsets":[{"partition":0,"partition":1,"offset":0}]}`, wire.JSONType, 400, wire.BadRequest},
	{"more after it", `{"topic":"t","offsets":[{"partition":0,"offset":0}]}{}`, wire.JSONType, 400, wire.BadRequest},
	{"a partition twice", `{"topic":"t","offsets":[{"partition":0,"offset":0},{"partition":0,"offset":0}]}`, wire.JSONType, 400, wire.BadRequest},
	{"a partition that is not there", `{"topic":"t","offsets":[{"partition":4,"offset":0}]}`, wire.JSONType, 404, wire.UnknownPartition},
	{"a negative partition", `{"topic":"t","offsets":[{"partition":-1,"offset":0}]}`, wire.JSONType, 404, wire.UnknownPartition},
	{"a negative offset", `{"topic":"t","offsets":[{"partition":0,"offset":-1}]}`, wire.JSONType, 400, wire.BadRequest},
	{"an offset past the end", `{"topic":"t","offsets":[{"partition":0,"offset":7}]}`, wire.JSONType, 416, wire.OffsetOutOfRange},
	{"an expected offset that is none", `{"topic":"t","offsets":[{"partition":0,"offset":0,"expected":-2}]}`, wire.JSONType, 400, wire.BadRequest},
	{"long metadata", `{"topic":"t","offsets":[{"partition":0,"offset":0,"metadata":"` + strings.Repeat("x", 300) + `"}]}`, wire.JSONType, 400, wire.BadRequest},
	{"too many", `{"topic":"t","offsets":[` + strings.Repeat(`{"partition":0,"offset":0},`, wire.MaxCommits) + `{"partition":0,"offset":0}]}`, wire.JSONType, 400, wire.BadRequest},
}

// badBodies are what no operation with a body in JSON takes, and others that this one does not.
func badBodies(others ...string) []badBody {
	bad := []badBody{{"7 MB", strings.Repeat("x", 7<<20), wire.JSONType, 413, wire.TooLarge}, {"frames", "", wire.BatchesType, 415, wire.UnsupportedType}}
	for i, body := range append([]string{"", "[]", "{}", "{", `{"nonsense":1}`, "\xff", strings.Repeat("[", 100_000)}, others...) {
		bad = append(bad, badBody{fmt.Sprint("body ", i), body, wire.JSONType, 400, wire.BadRequest})
	}
	return bad
}

const aSession = "0123456789abcdef"

var (
	badActions = badBodies(
		`{"action":"jump","session":"`+aSession+`"}`,
		`{"action":"beat"}`,
		`{"action":"beat","session":"short"}`,
		`{"action":"beat","session":"0123456789ABCDEF"}`,
		`{"action":"beat","session":"`+aSession+`","session":"`+aSession+`"}`,
		`{"action":"beat","Session":"`+aSession+`"}`,
		`{"action":"join","session":"`+aSession+`"}`,
		`{"action":"join","session":"`+aSession+`","session_timeout_ms":999,"topics":["t"]}`,
		`{"action":"join","session":"`+aSession+`","session_timeout_ms":9223372036854775807,"topics":["t"]}`,
		`{"action":"join","session":"`+aSession+`","session_timeout_ms":45000,"topics":["../t"]}`,
		`{"action":"join","session":"`+aSession+`","session_timeout_ms":45000,"topics":["t"],"beat":9223372036854775807}`,
		`{"action":"join","session":"`+aSession+`","session_timeout_ms":45000,"topics":["t"],"quiet_ms":1}`,
		`{"action":"watched","session":"`+aSession+`","more_ms":-1}`,
		`{"action":"watched","session":"`+aSession+`","more_ms":86400001}`,
		`{"action":"bury","session":"`+aSession+`","beat":-1}`,
		`{"action":"leave","session":"`+aSession+`"} {}`,
	)
	badPlans = badBodies(`{"generation":0,"packed":""}`, `{"generation":1,"packed":"%"}`, `{"generation":1,"packed":"AAAA"}`, `{"generation":1}`)
	badLanes = badBodies(
		`{"leases":[],"offsets":[]}`,
		`{"leases":[{"slot":64,"from":"","to":"1.`+aSession+`"}]}`,
		`{"leases":[{"slot":-1,"from":"","to":"1.`+aSession+`"}]}`,
		`{"leases":[{"slot":0,"from":"","to":"2.`+aSession+`"}]}`,
		`{"leases":[{"slot":0,"from":"","to":"1.nobody"}]}`,
		`{"leases":[{"slot":0,"from":"","to":"1.`+aSession+`"},{"slot":0,"from":"","to":"1.`+aSession+`"}]}`,
		`{"offsets":[{"slot":0,"lease":"","offset":1}]}`,
		`{"offsets":[{"slot":0,"lease":"1.`+aSession+`","offset":-1}]}`,
		`{"offsets":[{"slot":0,"lease":"1.`+aSession+`","offset":1,"metadata":"`+strings.Repeat("x", 300)+`"}]}`,
		`{"leases":[{"slot":0,"from":"","to":"1.`+aSession+`"}],"offsets":[{"slot":0,"lease":"1.`+aSession+`","offset":1}]}`,
	)
	badMoves = badBodies(
		`{"token":"","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1.`+aSession+`","from":null,"to":1}]}]}`,
		`{"token":"`+strings.Repeat("x", 37)+`","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1.`+aSession+`","from":null,"to":1}]}]}`,
		`{"token":"x","at_ms":5,"lanes":[]}`,
		`{"token":"x","lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1.`+aSession+`","from":null,"to":1}]}]}`,
		`{"token":"x","at_ms":-1,"lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1.`+aSession+`","from":null,"to":1}]}]}`,
		`{"token":"x","at_ms":9223372036854775807,"lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1.`+aSession+`","from":null,"to":1}]}]}`,
		`{"token":"x","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[]}]}`,
		`{"token":"x","at_ms":5,"lanes":[{"lane":"../456789ab","moves":[{"slot":0,"lease":"1.`+aSession+`","from":null,"to":1}]}]}`,
		`{"token":"x","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":64,"lease":"1.`+aSession+`","from":null,"to":1}]}]}`,
		`{"token":"x","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1","from":null,"to":1}]}]}`,
		`{"token":"x","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":0,"lease":"1.`+aSession+`","from":-2,"to":1}]}]}`,
	)
)

var badTogether = badBodies(
	`{"records":[]}`, `{"records":[{}]}`, `{"records":[{"topic":""}]}`, `{"records":[{"topic":"../t"}]}`, `{"topics":[]}`,
	`{"records":[{"topic":"t"}],"topics":{}}`, `{"records":[{"topic":"t"}],"topics":[{"name":"t","name":"t"}]}`, `{"records":[{"topic":"t"}],"topics":[{"Name":"t"}]}`,
	`{"records":[{"topic":"t"}],"topics":[{"name":"../t","topic_id":"x"}]}`, `{"records":[{"topic":"t"}],"topics":[1]}`, `{"records":[{"topic":"t"}],"topics":[{"name":"t"}]}`, `{"topics":[],"topics":[],"records":[{"topic":"t"}]}`,
	`{"records":[{"topic":"t"}],"topics":[`+strings.Repeat(`{"name":"t","topic_id":"x"},`, wire.MaxListed)+`{"name":"t","topic_id":"x"}]}`,
	`{"records":[{"topic":"t"}],"records":[{"topic":"t"}]}`, `{"records":[{"topic":"t"}]} {}`, `{"records":[{"topic":"t"}],"topics":`,
	`{"records":[{"topic":"t"},{"topic":"short"}]}`,
)

// bodies: what a body can be that it should not, and that nothing of it is done.
func bodies(t *testing.T) {
	s := newSite(t)
	s.world.Create(s.log, sdk.NewTopic{Name: "short", Partitions: 1, Config: map[string]string{"retention.ms": "3600000"}})
	for _, x := range []struct {
		method, path string
		bad          []badBody
	}{
		{"POST", "/v1/topics/t/records", badRecords(t)}, {"POST", "/v1/records", badTogether}, {"POST", "/v1/groups/g/offsets", badCommits}, {"POST", "/v1/groups/g/members/a", badActions},
		{"PUT", "/v1/groups/g/plan", badPlans}, {"POST", "/v1/groups/g/lanes/0123456789ab", badLanes}, {"POST", "/v1/groups/g/moves", badMoves},
	} {
		for _, b := range x.bad {
			t.Run(b.name, func(t *testing.T) {
				at := *s
				at.t = t
				var headers []string
				if b.contentType != "" {
					headers = append(headers, "Content-Type: "+b.contentType)
				}
				e := at.fails(at.do(x.method, x.path, b.body, headers...), b.status, b.code)
				if e.Retriable || len(e.Message) > 1000 {
					t.Errorf("%+v", e)
				}
				if strings.HasPrefix(b.name, "a field ") && (e.Field != "field" || e.Value == "" || e.Valid == "") {
					t.Errorf("it does not name the field: %+v", e)
				}
				// without a length, as a stream of chunks comes
				r := httptest.NewRequestWithContext(context.Background(), x.method, x.path, io.MultiReader(strings.NewReader(b.body)))
				r.ContentLength = -1
				at.fails(at.send(r, b.body, headers...), b.status, b.code)
			})
		}
		s.fails(s.do(x.method, x.path, "{}", asJSON, "Content-Encoding: gzip"), 415, wire.UnsupportedType)
		s.fails(s.send(httptest.NewRequestWithContext(context.Background(), x.method, x.path, io.MultiReader(strings.NewReader("{"), broken{})), "", asJSON), 400, wire.BadRequest)
	}
	s.fails(s.do("POST", "/v1/producers", "{}"), 400, wire.BadRequest)
	if got := s.world.Values(s.log, "t"); len(got[0])+len(got[1])+len(got[2])+len(got[3]) != 0 {
		t.Errorf("something was appended: %v", got)
	}
	if list, err := s.log.Admin().ListGroups(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("a group was made: %v, %v", list, err)
	}
	// as much as can be
	s.world.Create(s.log, sdk.NewTopic{Name: "large", Partitions: 1, Config: map[string]string{"max.message.bytes": "4194304"}})
	var produced wire.Produced
	s.want(s.do("POST", "/v1/topics/large/records", fmt.Sprintf(`{"records":[{"value":"%s"}]}`, strings.Repeat("x", 4<<20-28)), asJSON), 200, &produced)
	if produced.Results[0].Error != nil {
		t.Error(produced.Results[0].Error)
	}
	s.want(s.do("POST", "/v1/topics/large/records", `{"records":[`+strings.Repeat(`{},`, wire.MaxRecords-1)+`{}]}`, asJSON), 200, &produced)
	if len(produced.Results) != wire.MaxRecords {
		t.Error(len(produced.Results))
	}
}

// broken is a body that breaks off.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
