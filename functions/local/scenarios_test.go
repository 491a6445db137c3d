package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/local"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// damage: an object that is missing, and a topic that is gone.
func damage(t *testing.T) {
	s := newSite(t)
	s.produce("t", 0, "a")
	objects := s.log.Backend().Store
	page, err := objects.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page.Objects {
		if o.Name != "varve.json" {
			if err := objects.Delete(t.Context(), o.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.produce("t", 1, "b")
	s.fails(s.do("GET", "/v1/topics/t/partitions/0/records?offset=0", ""), 500, wire.Corrupt)
	if e := s.fails(s.do("GET", "/v1/topics/t/records?from=0:0", ""), 500, wire.Corrupt); e.Topic != "t" || *e.Partition != 0 {
		t.Errorf("%+v", e)
	}
	x := s.do("GET", "/v1/topics/t/records?from=0:0,1:0", "") // there is something else to be returned
	if s.want(x, 200, nil); x.answer.Get(wire.PositionsHeader) != "0:0:0:1,1:1:0:1" {
		t.Error(x.answer)
	}

	s.world.Create(s.log, sdk.NewTopic{Name: "gone", Partitions: 1})
	s.produce("gone", 0, "a")
	s.want(s.do("GET", "/v1/topics/gone/partitions/0/records?offset=0", ""), 200, nil)
	if err := s.log.Admin().DeleteTopic(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	s.fails(s.do("POST", "/v1/topics/gone/records", `{"records":[{"value":"v"}]}`, asJSON), 410, wire.TopicGone)
	s.fails(s.do("POST", "/v1/topics/gone/records", `{"records":[{"value":"v"}]}`, asJSON), 404, wire.UnknownTopic)
	s.fails(s.do("GET", "/v1/topics/gone/partitions/0/records?offset=0", ""), 404, wire.UnknownTopic)
	s.world.Create(s.log, sdk.NewTopic{Name: "gone", Partitions: 1})
	s.fails(s.do("POST", "/v1/topics/gone/records", `{"records":[{"value":"v"}]}`, asJSON, wire.TopicIDHeader+": 0123456789ab"), 410, wire.TopicGone)
	s.produce("gone", 0, "new")
	if x := s.do("GET", "/v1/topics/gone/partitions/0/records?offset=0", ""); !strings.Contains(string(x.answered), "new") {
		t.Errorf("%s", x.answered)
	}
}

// troubles: the table refuses for too much, and does not answer. Virtual time, since it is tried again for a while.
func troubles(t *testing.T) {
	for status, fault := range map[int]dynamodb.Fault{429: dynamodb.Throttle(), 503: {Skip: true, Reply: dynamodb.ErrConnectionLost}} {
		synctest.Test(t, func(t *testing.T) {
			d := newLinking(t)
			s := siteOn(t, d)
			for _, x := range samples {
				trouble := func(dynamodb.Call) dynamodb.Fault { return fault }
				d.onTable.Store(&trouble)
				answer := s.do(x.op, x.target, x.body, x.headers...)
				code := map[int]string{429: wire.Throttled, 503: wire.Unavailable}[status]
				for _, of := range []string{wire.UnknownOutcome, wire.NotAppended} { // its commit was sent, or could not be for as long as there was time
					if strings.Contains(string(answer.answered), `"`+of+`"`) {
						code = of
					}
				}
				if e := s.fails(answer, status, code); e.Retriable == (code == wire.UnknownOutcome) || e.RetryAfter == nil || answer.answer.Get("Retry-After") == "" {
					t.Errorf("%s %s: %v, %+v", x.op, x.target, answer.answer, e)
				}
				d.onTable.Store(nil)
				if x.op == "GET" && strings.Contains(x.target, "/groups/") {
					continue
				}
				s.produce("t", 0, "a")
				want := x.status
				if want == 501 {
					want = 200
				}
				s.want(s.do(x.op, x.target, x.body, x.headers...), want, nil)
			}
		})
	}
}

// ranges: offsets that are not there, waits, and how much comes.
func ranges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		for i := range 10 {
			s.produce("t", 0, fmt.Sprint(i), strings.Repeat("x", 1000))
		}
		if _, err := s.log.Admin().DeleteRecords(t.Context(), "t", 0, 5); err != nil {
			t.Fatal(err)
		}
		for target, code := range map[string]string{
			"/v1/topics/t/partitions/0/records?offset=4": wire.OffsetExpired, "/v1/topics/t/partitions/0/records?offset=21": wire.OffsetOutOfRange,
			"/v1/topics/t/records?from=0:4": wire.OffsetExpired, "/v1/topics/t/records?from=1:0,0:21": wire.OffsetOutOfRange,
		} {
			if e := s.fails(s.do("GET", target, ""), 416, code); *e.Start != 5 || *e.End != 20 || *e.Partition != 0 || e.Topic != "t" {
				t.Errorf("%s: %+v", target, e)
			}
		}
		next, got := int64(5), 0
		for steps := 0; next < 20; steps++ {
			var f struct {
				Records []sdk.Record
				Next    int64 `json:"next_offset"`
			}
			x := s.do("GET", fmt.Sprintf("/v1/topics/t/partitions/0/records?offset=%d&max_bytes=1500", next), "")
			s.want(x, 200, &f)
			if len(f.Records) == 0 || f.Records[0].Offset != next || len(x.answered) > 2500 || steps > 20 {
				t.Fatalf("at %d: %s", next, x.answered)
			}
			got, next = got+len(f.Records), f.Next
		}
		if got != 15 {
			t.Errorf("%d records", got)
		}
		waits(s)
	})
}

// longest: a record that is too long for an answer in JSON.
func longest(t *testing.T) {
	s := newSite(t)
	body := wire.AppendFrame(nil, 0, batch(t, segment.Zstd, segment.Record{Timestamp: 5, Value: bytes.Repeat([]byte{1}, 1<<20-100)}))
	s.want(s.do("POST", "/v1/topics/t/records", string(body), asBatches), 200, nil)
	e := s.fails(s.do("GET", "/v1/topics/t/partitions/0/records?offset=0", ""), 413, wire.TooLarge)
	if *e.Offset != 0 || *e.Size < *e.Limit || e.Retriable {
		t.Errorf("%+v", e)
	}
}

// waits: a request that waits answers when there is something, or when its time is over.
func waits(s *site) {
	start := time.Now()
	var f struct {
		Records []sdk.Record
		Next    int64 `json:"next_offset"`
		End     int64
	}
	s.want(s.do("GET", "/v1/topics/t/partitions/1/records?offset=0&wait=7s", ""), 200, &f)
	if took := time.Since(start); len(f.Records) != 0 || f.Next != 0 || took < 7*time.Second || took > 8*time.Second {
		s.t.Errorf("%+v after %v", f, took)
	}
	for _, target := range []string{"/v1/topics/t/partitions/1/records?offset=0&wait=1h", "/v1/topics/t/records?wait=1h&from=0:20,2:0,1:0"} {
		start, n := time.Now(), len(s.world.Values(s.log, "t")[1])
		target = strings.Replace(strings.Replace(target, "offset=0", fmt.Sprint("offset=", n), 1), "1:0", fmt.Sprint("1:", n), 1)
		go func() {
			time.Sleep(3 * time.Second)
			s.produce("t", 3, "another partition of the lane")
			time.Sleep(3 * time.Second)
			s.produce("t", 1, "it")
		}()
		x := s.do("GET", target, "", "Accept: "+wire.BatchesType)
		s.want(x, 200, nil)
		if took := time.Since(start); len(x.answered) == 0 || took < 6*time.Second || took > 9*time.Second {
			s.t.Errorf("%s: %d bytes after %v: %v", target, len(x.answered), took, x.answer)
		}
		synctest.Wait()
	}
	for _, left := range []time.Duration{10 * time.Second, time.Second, 50 * time.Millisecond} { // a function's time
		ctx, cancel := context.WithTimeout(context.Background(), left)
		start := time.Now()
		s.want(s.send(httptest.NewRequestWithContext(ctx, "GET", "/v1/topics/t/partitions/2/records?offset=0&wait=1h", nil), ""), 200, nil)
		if took := time.Since(start); took > left*3/4 {
			s.t.Errorf("with %v left it took %v", left, took)
		}
		cancel()
	}
	gone, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Second, cancel)
	s.fails(s.send(httptest.NewRequestWithContext(gone, "GET", "/v1/topics/t/partitions/2/records?offset=0&wait=1h", nil), ""), 503, wire.Unavailable)
}

// groups: what is committed, by whom, and in which order.
func groups(t *testing.T) {
	s := newSite(t)
	s.world.Create(s.log, sdk.NewTopic{Name: "wide", Partitions: 4, LaneWidth: 2})
	for p := range 4 {
		s.produce("wide", p, "a", "b", "c", "d", "e")
	}
	commit := func(offsets string) *exchange {
		return s.do("POST", "/v1/groups/g/offsets", `{"topic":"wide","offsets":[`+offsets+`]}`, asJSON)
	}
	committed := func() string {
		var g wire.GroupOffsets
		s.want(s.do("GET", "/v1/groups/g/offsets?topic=wide", ""), 200, &g)
		list := ""
		for _, o := range g.Offsets {
			list += fmt.Sprintf("%d:%d%s ", o.Partition, o.Offset, o.Metadata)
		}
		return list
	}
	s.want(commit(`{"partition":0,"offset":2,"expected":null,"metadata":"x"},{"partition":3,"offset":1}`), 200, nil)
	s.want(commit(`{"partition":0,"offset":2,"expected":null,"metadata":"x"}`), 200, nil) // a repeat
	if got := committed(); got != "0:2x 3:1 " {
		t.Error(got)
	}
	if e := s.fails(commit(`{"partition":0,"offset":1}`), 409, wire.OffsetLower); *e.Committed != 2 || *e.Partition != 0 || e.Retriable {
		t.Errorf("%+v", e)
	}
	if e := s.fails(commit(`{"partition":0,"offset":3,"expected":1}`), 409, wire.OffsetChanged); *e.Committed != 2 {
		t.Errorf("%+v", e)
	}
	s.fails(commit(`{"partition":2,"offset":3,"expected":0}`), 409, wire.OffsetChanged)
	s.fails(commit(`{"partition":1,"offset":4},{"partition":0,"offset":1}`), 409, wire.OffsetLower) // all of the lane or none
	if got := committed(); got != "0:2x 3:1 " {
		t.Error(got)
	}
	s.want(commit(`{"partition":1,"offset":4},{"partition":0,"offset":3,"expected":2}`), 200, nil)
	if got := committed(); got != "0:3 1:4 3:1 " {
		t.Error(got)
	}
	// A member takes over where the requests were, and while it lives they are refused.
	c, err := s.log.NewConsumer(t.Context(), "g", []string{"wide"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]int64{}
	for n := 0; n < 2+1+5+4; {
		fetches, err := c.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fetches {
			for _, r := range f.Records {
				if _, seen := got[f.Partition]; !seen {
					got[f.Partition] = r.Offset
				}
				n++
			}
		}
	}
	if fmt.Sprint(got) != "map[0:3 1:4 2:0 3:1]" {
		t.Error(got)
	}
	if e := s.fails(commit(`{"partition":2,"offset":1}`), 409, wire.GroupActive); len(e.Members) != 1 {
		t.Errorf("%+v", e)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(commit(`{"partition":2,"offset":5}`), 200, nil)
}

// members: what members of a group do, and what is refused since it is not as they were told.
func members(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		const other = "vvvvvvvvvvvvvvvv"
		act := func(body string) *exchange { return s.do("POST", "/v1/groups/g/members/a", body, asJSON) }
		join := func(session, before string) *exchange {
			return act(fmt.Sprintf(`{"action":"join","session":%q,"before":%q,"session_timeout_ms":45000,"topics":["t"],"client":"c"}`, session, before))
		}
		s.fails(s.do("GET", "/v1/groups/g/members/a", ""), 404, wire.UnknownMember)
		s.fails(s.do("PUT", "/v1/groups/g/plan", aPlan, asJSON), 404, wire.UnknownGroup)
		s.fails(s.do("POST", "/v1/groups/g/lanes/0123456789ab", `{"leases":[{"slot":5,"from":"","to":"1.`+other+`"}]}`, asJSON), 404, wire.UnknownGroup)
		s.fails(act(`{"action":"beat","session":"`+aSession+`"}`), 404, wire.UnknownMember)
		s.want(join(aSession, ""), 200, nil)
		s.fails(join(other, ""), 409, wire.Changed)
		s.want(act(`{"action":"beat","session":"`+aSession+`"}`), 200, nil)
		s.want(act(`{"action":"watched","session":"`+aSession+`","beat":1,"quiet_ms":0,"more_ms":700}`), 200, nil)
		s.fails(act(`{"action":"bury","session":"`+aSession+`","beat":1,"quiet_ms":0}`), 409, wire.Changed)
		var m wire.GroupMember
		s.want(s.do("GET", "/v1/groups/g/members/a", ""), 200, &m)
		if m.Beat != 1 || m.QuietMs != 700 || m.Client != "c" || m.TimeoutMs != 45000 {
			t.Errorf("%+v", m)
		}
		s.want(join(other, aSession), 200, nil)
		s.fails(act(`{"action":"beat","session":"`+aSession+`"}`), 409, wire.Fenced)
		s.want(act(`{"action":"leave","session":"`+aSession+`"}`), 200, nil) // not any more its own
		s.want(s.do("PUT", "/v1/groups/g/plan", aPlan, asJSON), 200, nil)
		s.want(s.do("PUT", "/v1/groups/g/plan", strings.Replace(aPlan, ":1,", ":2,", 1), asJSON), 200, nil)
		s.fails(s.do("PUT", "/v1/groups/g/plan", strings.Replace(aPlan, ":1,", ":4,", 1), asJSON), 409, wire.Changed)

		lane := func(done bool, body string) wire.LaneAnswer {
			t.Helper()
			var a wire.LaneAnswer
			s.want(s.do("POST", "/v1/groups/g/lanes/0123456789ab", body, asJSON), 200, &a)
			if a.Done != done || a.Lane.Lane != "0123456789ab" {
				t.Errorf("%s: %+v", body, a)
			}
			return a
		}
		claim := `{"leases":[{"slot":5,"from":"","to":"1.` + other + `"}]}`
		lane(true, claim)
		lane(true, claim) // it is as it should be
		lane(false, `{"leases":[{"slot":5,"from":"","to":"1.`+aSession+`"}]}`)
		lane(true, `{"offsets":[{"slot":5,"lease":"1.`+other+`","first":true,"offset":7,"metadata":"n"}]}`)
		a := lane(false, `{"offsets":[{"slot":5,"lease":"1.`+other+`","offset":6}]}`)
		if len(a.Lane.Slots) != 1 || *a.Lane.Slots[0].Offset != 7 || a.Lane.Slots[0].Metadata != "n" || a.Lane.Slots[0].AtMs == 0 || a.Lane.Slots[0].Lease != "1."+other {
			t.Errorf("%+v", a.Lane)
		}
		moves := func(token string, from, to int, done bool) {
			t.Helper()
			body := fmt.Sprintf(`{"token":%q,"at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":5,"lease":"1.%s","from":%d,"to":%d}]}]}`, token, other, from, to)
			var a wire.MovesAnswer
			if s.want(s.do("POST", "/v1/groups/g/moves", body, asJSON), 200, &a); a.Done != done || done != (a.Lane == nil) {
				t.Errorf("%s: %+v", body, a)
			}
		}
		moves("first", 7, 9, true)
		time.Sleep(time.Second) // of virtual time: commits have another one by now
		moves("first", 7, 9, true)
		x := s.do("POST", "/v1/groups/g/moves", `{"token":"first","at_ms":5,"lanes":[{"lane":"0123456789ab","moves":[{"slot":5,"lease":"1.`+other+`","from":9,"to":11}]}]}`, asJSON)
		s.fails(x, 400, wire.BadRequest)
		moves("second", 7, 9, false)
		var state wire.GroupState
		s.want(s.do("GET", "/v1/groups/g/state", ""), 200, &state)
		if state.Plan.Generation != 2 || len(state.Members) != 1 || state.Members[0].Session != other || len(state.Lanes) != 1 || *state.Lanes[0].Slots[0].Offset != 9 {
			t.Errorf("%+v", state)
		}
		topics := make([]string, 1000)
		for i := range topics {
			topics[i] = fmt.Sprintf("%0240d", i)
		}
		for i := range 26 { // a quarter of a megabyte each
			s.want(s.do("POST", fmt.Sprintf("/v1/groups/large/members/m%d", i), fmt.Sprintf(`{"action":"join","session":%q,"session_timeout_ms":45000,"topics":["%s"]}`, other, strings.Join(topics, `","`)), asJSON), 200, nil)
		}
		s.fails(s.do("GET", "/v1/groups/large/state", ""), 413, wire.TooLarge)
		for _, bad := range []string{"..", ".", "a%2fb", "%00", "a%20b"} {
			s.fails(s.do("GET", "/v1/groups/"+bad+"/state", ""), 400, wire.BadRequest)
			s.fails(s.do("GET", "/v1/groups/g/members/"+bad, ""), 400, wire.BadRequest)
			s.fails(s.do("POST", "/v1/groups/g/lanes/"+bad, claim, asJSON), 400, wire.BadRequest)
		}
	})
}

// onceOverHTTP: a request with producer id and sequence is applied once.
func onceOverHTTP(t *testing.T) {
	s := newSite(t)
	s.world.Create(s.log, sdk.NewTopic{Name: "wide", Partitions: 4, LaneWidth: 2})
	var id wire.Producer
	s.want(s.do("POST", "/v1/producers", ""), 201, &id)
	send := func(topic, sequence, records string) *exchange {
		return s.do("POST", "/v1/topics/"+topic+"/records", `{"records":[`+records+`]}`, asJSON, wire.ProducerIDHeader+": "+id.ID, wire.SequenceHeader+": "+sequence)
	}
	for _, bad := range [][]string{{wire.ProducerIDHeader + ": 1"}, {wire.SequenceHeader + ": 1"}, {wire.ProducerIDHeader + ": 0", wire.SequenceHeader + ": 1"},
		{wire.ProducerIDHeader + ": -1", wire.SequenceHeader + ": 1"}, {wire.ProducerIDHeader + ": 1", wire.SequenceHeader + ": 0"},
		{wire.ProducerIDHeader + ": x", wire.SequenceHeader + ": 1"}, {wire.ProducerIDHeader + ": 99999999999999999999", wire.SequenceHeader + ": 1"},
		{wire.ProducerIDHeader + ": 1", wire.ProducerIDHeader + ": 2", wire.SequenceHeader + ": 1"}} {
		s.fails(s.do("POST", "/v1/topics/t/records", `{"records":[{"partition":0}]}`, append(bad, asJSON)...), 400, wire.BadRequest)
	}
	if e := s.fails(send("t", "1", `{"key":"k"},{"value":"v"}`), 400, wire.BadRequest); *e.Record != 1 {
		t.Errorf("%+v", e)
	}
	s.fails(send("wide", "1", `{"partition":0},{"partition":3}`), 400, wire.BadRequest)
	s.fails(send("t", "1", `{"partition":0},{"partition":4}`), 404, wire.UnknownPartition)
	var first, again wire.Produced
	s.want(send("t", "1", `{"key":"k","value":"a"},{"partition":2,"value":"b"}`), 200, &first)
	s.want(send("t", "1", `{"key":"k","value":"a"},{"partition":2,"value":"b"}`), 200, &again)
	a, _ := json.Marshal(first.Results)
	b, _ := json.Marshal(again.Results)
	if first.Repeated || !again.Repeated || string(a) != string(b) {
		t.Errorf("%+v, then %+v", first, again)
	}
	if e := s.fails(send("t", "3", `{"partition":0}`), 409, wire.SequenceGap); e.Expected == nil || *e.Expected != 2 || e.Retriable {
		t.Errorf("%+v", e)
	}
	if got := s.world.Values(s.log, "t"); len(got[0])+len(got[1])+len(got[2])+len(got[3]) != 2 {
		t.Errorf("%v", got)
	}
	for n := 2; n <= 8; n++ {
		s.want(send("t", fmt.Sprint(n), `{"partition":0}`), 200, nil)
	}
	s.want(send("t", "1", `{"key":"k","value":"a"},{"partition":2,"value":"b"}`), 200, &again)
	if !again.Repeated || again.OffsetsKnown == nil || again.Results[0].Offset != nil {
		t.Errorf("%+v", again)
	}
}

// conditionsOverHTTP: a request is applied only where its partition ends as it says, and has that fencing token.
func conditionsOverHTTP(t *testing.T) {
	s := newSite(t)
	var id wire.Producer
	s.want(s.do("POST", "/v1/producers", ""), 201, &id)
	once := []string{asJSON, wire.ProducerIDHeader + ": " + id.ID, wire.SequenceHeader + ": 1"}
	send := func(records string, headers ...string) *exchange {
		return s.do("POST", "/v1/topics/t/records", `{"records":[`+records+`]}`, append(headers, once...)...)
	}
	for _, bad := range [][]string{{wire.IfEndHeader + ": -1"}, {wire.IfEndHeader + ": x"}, {wire.IfTokenHeader + ": 0"}, {wire.IfEndHeader + ": 0", wire.IfEndHeader + ": 0"}} {
		s.fails(send(`{"partition":1}`, bad...), 400, wire.BadRequest)
	}
	for _, h := range []string{wire.IfEndHeader + ": 0", wire.IfEndHeader + ": ", wire.IfTokenHeader + ": "} {
		s.fails(s.do("POST", "/v1/topics/t/records", `{"records":[{"partition":1}]}`, asJSON, h), 400, wire.BadRequest)
	}
	if e := s.fails(send(`{"partition":1},{"partition":0}`, wire.IfEndHeader+": 0"), 400, wire.BadRequest); e.Record == nil || *e.Record != 1 {
		t.Errorf("%+v", e)
	}
	if err := s.log.Admin().SetFence(context.Background(), "t", 1, 0, 7); err != nil {
		t.Fatal(err)
	}
	for _, headers := range [][]string{{wire.IfEndHeader + ": 3", wire.IfTokenHeader + ": 7"}, {wire.IfEndHeader + ": 0", wire.IfTokenHeader + ": 6"}} {
		e := s.fails(send(`{"partition":1,"value":"x"}`, headers...), 412, wire.ConditionFailed)
		if *e.End != 0 || *e.Token != 7 || *e.Partition != 1 || e.Topic != "t" || e.Retriable {
			t.Errorf("%+v", e)
		}
	}
	for n := range 2 {
		var told wire.Produced
		s.want(send(`{"partition":1,"value":"a"},{"partition":1,"value":"b"}`, wire.IfEndHeader+": 0", wire.IfTokenHeader+": 7"), 200, &told)
		if told.Repeated != (n > 0) || *told.Results[1].Offset != 1 {
			t.Errorf("%+v", told)
		}
	}
	if got := s.world.Values(s.log, "t")[1]; len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// togetherOverHTTP: records of several topics are appended all or none.
func togetherOverHTTP(t *testing.T) {
	s := newSite(t)
	s.world.Create(s.log, sdk.NewTopic{Name: "u", Partitions: 2, LaneWidth: 1})
	var topic wire.Topic
	s.want(s.do("GET", "/v1/topics/u", ""), 200, &topic)
	send := func(body string) *exchange { return s.do("POST", "/v1/records", body, asJSON) }
	var told wire.Produced
	s.want(send(fmt.Sprintf(`{"topics":[{"name":"u","topic_id":%q}],"records":[{"topic":"u","partition":1,"value":"a"},{"topic":"t","key":"k","value":"b"},{"topic":"u","partition":1,"value":"c"}]}`, topic.ID)), 200, &told)
	if r := told.Results; len(r) != 3 || *r[0].Partition != 1 || *r[0].Offset != 0 || *r[1].Offset != 0 || *r[2].Offset != 1 || told.OffsetsKnown != nil {
		t.Errorf("%+v", told)
	}
	for _, h := range []string{wire.IfEndHeader + ": 0", wire.IfTokenHeader + ": ", wire.ProducerIDHeader + ": 1", wire.SequenceHeader + ": 1", wire.TopicIDHeader + ": x"} {
		s.fails(s.do("POST", "/v1/records", `{"records":[{"topic":"u"}]}`, asJSON, h), 400, wire.BadRequest)
	}
	s.fails(send(`{"records":[{"topic":"u","value":"x"},{"topic":"u","partition":2}]}`), 404, wire.UnknownPartition)
	s.fails(send(`{"records":[{"topic":"u","value":"x"},{"topic":"nosuch"}]}`), 404, wire.UnknownTopic)
	s.fails(send(`{"records":[{"topic":"u","value":"x"}],"topics":[{"name":"t","topic_id":"another"}]}`), 410, wire.TopicGone)
	if e := s.fails(send(`{"records":[{"topic":"u","value":"x"},{"topic":"u","value":"`+strings.Repeat("x", 5<<18)+`"}]}`), 413, wire.TooLarge); e.Limit == nil {
		t.Errorf("%+v", e)
	}
	if got := s.world.Values(s.log, "u"); len(got[0]) != 0 || len(got[1]) != 2 {
		t.Errorf("%v", got)
	}
}

// Of requests that wait for records only so many do; further ones are answered at once, with what there is.
func TestMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.serve(local.Options{MaxWaiting: 2})
		read := func(target string) (took time.Duration) {
			start := time.Now()
			s.want(s.do("GET", target, "", toBatches), 200, nil)
			return time.Since(start)
		}
		const one, several = "/v1/topics/t/partitions/1/records?offset=0&wait=10s", "/v1/topics/t/records?from=1:0&wait=10s"
		var waiting sync.WaitGroup
		for _, target := range []string{one, several} {
			waiting.Go(func() {
				if took := read(target); took < 10*time.Second {
					t.Errorf("%s waited for %v", target, took)
				}
			})
		}
		synctest.Wait()
		for _, target := range []string{one, several} {
			if took := read(target); took > 0 {
				t.Errorf("a third that waits, %s, is answered after %v", target, took)
			}
		}
		s.produce("t", 0, "a")
		if took := read("/v1/topics/t/partitions/0/records?offset=0&wait=10s"); took > 0 {
			t.Errorf("one that need not wait is answered after %v", took)
		}
		waiting.Wait()
		if took := read(one); took < 10*time.Second {
			t.Errorf("when the others have gone one waits for %v", took)
		}
	})
}

// A record whose JSON is longer than an answer may be is refused, with where it is; the records before it are answered, and as a batch it is too.
func TestLargestAnswers(t *testing.T) {
	s := newSite(t)
	s.world.Create(s.log, sdk.NewTopic{Name: "large", Partitions: 1, Config: map[string]string{"max.message.bytes": "4194304"}})
	send := func(values ...[]byte) {
		var body []byte
		for _, v := range values {
			body = wire.AppendFrame(body, 0, batch(t, segment.Zstd, segment.Record{Timestamp: 5, Value: v}))
		}
		s.want(s.do("POST", "/v1/topics/large/records", string(body), asBatches), 200, nil)
	}
	const limit = 6291556 // of Lambda, for what is not streamed
	most := wire.MaxInflated - 100
	binary := bytes.Repeat([]byte{0xff}, most)
	send(binary)
	send([]byte("small"), bytes.Repeat([]byte{1}, 1<<20)) // each byte as six
	var f struct {
		Records []sdk.Record
		Next    int64 `json:"next_offset"`
	}
	x := s.do("GET", "/v1/topics/large/partitions/0/records?offset=0&max_bytes=4194304", "")
	s.want(x, 200, &f)
	if len(f.Records) != 1 || !bytes.Equal(f.Records[0].Value, binary) || len(x.answered) > limit {
		t.Errorf("%d records in %d bytes", len(f.Records), len(x.answered))
	}
	s.want(s.do("GET", "/v1/topics/large/partitions/0/records?offset=1", ""), 200, &f)
	if len(f.Records) != 1 || string(f.Records[0].Value) != "small" || f.Next != 2 {
		t.Errorf("%d records, next is %d", len(f.Records), f.Next)
	}
	if e := s.fails(s.do("GET", "/v1/topics/large/partitions/0/records?offset=2", ""), 413, wire.TooLarge); *e.Offset != 2 || *e.Size < *e.Limit || e.Retriable {
		t.Errorf("%+v", e)
	}
	x = s.do("GET", "/v1/topics/large/records?from=0:0&max_bytes=4194304", "")
	if s.want(x, 200, nil); len(x.answered) > limit || x.answer.Get(wire.PositionsHeader) != "0:3:0:3" {
		t.Errorf("%d bytes, %v", len(x.answered), x.answer)
	}
	// as many errors as there can be
	x = s.do("POST", "/v1/topics/t/records", `{"records":[`+strings.Repeat(`{"partition":99},`, wire.MaxRecords-1)+`{"partition":99}]}`, asJSON)
	var failure wire.Failure
	if s.want(x, 404, &failure); len(failure.Results) != wire.MaxRecords || len(x.answered) > limit {
		t.Errorf("%d results in %d bytes", len(failure.Results), len(x.answered))
	}
	if last := failure.Results[wire.MaxRecords-1].Error; last.Code != wire.UnknownPartition || *last.Record != wire.MaxRecords-1 || last.Message == "" {
		t.Errorf("%+v", last)
	}
}
