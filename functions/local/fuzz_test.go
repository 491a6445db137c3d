package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/segment"
)

// fuzzBody sends bodies to a site: whatever they are, the answer is JSON, a 4xx says why, and nothing is the service's fault.
func fuzzBody(f *testing.F, method, path, contentType string, check func(*testing.T, []byte, *httptest.ResponseRecorder)) {
	s := newSite(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequestWithContext(context.Background(), method, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code == 200 {
			check(t, body, w)
			return
		}
		var failure wire.Failure
		if err := json.Unmarshal(w.Body.Bytes(), &failure); err != nil || failure.Error == nil || failure.Error.Code == "" || failure.Error.Message == "" || w.Code >= 500 || w.Code < 400 {
			t.Fatalf("%d: %v: %s", w.Code, err, w.Body)
		}
	})
}

// produced checks that there is a result for each record.
func produced(count func([]byte) (int, error)) func(*testing.T, []byte, *httptest.ResponseRecorder) {
	return func(t *testing.T, body []byte, w *httptest.ResponseRecorder) {
		n, err := count(body)
		var p wire.Produced
		if failed := json.Unmarshal(w.Body.Bytes(), &p); failed != nil || err != nil || n != len(p.Results) {
			t.Fatalf("%d records, %v: %v: %s", n, err, failed, w.Body)
		}
	}
}

func FuzzRecords(f *testing.F) {
	for _, b := range badRecords(f) {
		if b.contentType == wire.JSONType && len(b.body) < 1000 {
			f.Add([]byte(b.body))
		}
	}
	f.Add([]byte(`{"records":[{"key":"k","value":"v"},{"key_base64":"/w==","partition":3,"timestamp":"2001-01-31T08:00:00Z","headers":[{"name":"h","value":null}]},{}]}`))
	f.Add([]byte(` { "records" : [ {"partition":null,"topic":"x","offset":7,"timestamp":5} ] } `))
	fuzzBody(f, "POST", "/v1/topics/t/records", wire.JSONType, produced(func(body []byte) (int, error) {
		var request struct{ Records []json.RawMessage }
		err := json.Unmarshal(body, &request)
		return len(request.Records), err
	}))
}

func FuzzTogether(f *testing.F) {
	for _, b := range badTogether {
		if len(b.body) < 1000 {
			f.Add([]byte(b.body))
		}
	}
	f.Add([]byte(`{"topics":[],"records":[{"topic":"t","key":"k","value":"v"},{"topic":"t","partition":3}]}`))
	fuzzBody(f, "POST", "/v1/records", wire.JSONType, produced(func(body []byte) (int, error) {
		var request struct{ Records []json.RawMessage }
		err := json.Unmarshal(body, &request)
		return len(request.Records), err
	}))
}

func FuzzFrames(f *testing.F) {
	for _, b := range badRecords(f) {
		if b.contentType == wire.BatchesType && len(b.body) < 1000 {
			f.Add([]byte(b.body))
		}
	}
	for _, codec := range []segment.Codec{segment.None, segment.Gzip, segment.Snappy, segment.LZ4, segment.Zstd} {
		b := batch(f, codec, segment.Record{Timestamp: 5, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 200)}, segment.Record{Timestamp: -1, Headers: []segment.Header{{Key: "h"}}})
		f.Add(wire.AppendFrame(wire.AppendFrame(nil, wire.ByKey, b), 3, b))
	}
	fuzzBody(f, "POST", "/v1/topics/t/records", wire.BatchesType, produced(func(body []byte) (n int, err error) {
		err = wire.Frames(body, func(_ int32, batch []byte) error {
			h, err := segment.ParseBatchHeader(batch)
			n += int(h.Count)
			return err
		})
		return n, err
	}))
}

func FuzzCommit(f *testing.F) {
	for _, b := range badCommits {
		if len(b.body) < 1000 {
			f.Add([]byte(b.body))
		}
	}
	f.Add([]byte(`{"topic":"t","offsets":[{"partition":0,"offset":0,"expected":null,"metadata":"m"},{"partition":3,"offset":0,"expected":0}]}`))
	fuzzBody(f, "POST", "/v1/groups/g/offsets", wire.JSONType, func(t *testing.T, body []byte, w *httptest.ResponseRecorder) {
		var request wire.Commit
		if err := json.NewDecoder(io.LimitReader(bytes.NewReader(body), wire.MaxBody)).Decode(&request); err != nil || request.Topic != "t" {
			t.Fatalf("%v, %+v", err, request)
		}
	})
}

// fuzzMembers fuzzes an operation of members, from what it refuses and what it takes.
func fuzzMembers(f *testing.F, method, path string, bad []badBody) {
	for _, b := range bad {
		if len(b.body) < 1000 {
			f.Add([]byte(b.body))
		}
	}
	for _, x := range samples {
		if x.target == path && x.op == method {
			f.Add([]byte(x.body))
		}
	}
	fuzzBody(f, method, path, wire.JSONType, func(t *testing.T, body []byte, _ *httptest.ResponseRecorder) {
		if !json.Valid(body) {
			t.Fatal("it took what is no JSON")
		}
	})
}

func FuzzMember(f *testing.F) { fuzzMembers(f, "POST", "/v1/groups/m/members/a", badActions) }
func FuzzPlan(f *testing.F)   { fuzzMembers(f, "PUT", "/v1/groups/m/plan", badPlans) }
func FuzzLane(f *testing.F)   { fuzzMembers(f, "POST", "/v1/groups/m/lanes/0123456789ab", badLanes) }
func FuzzMoves(f *testing.F)  { fuzzMembers(f, "POST", "/v1/groups/m/moves", badMoves) }
