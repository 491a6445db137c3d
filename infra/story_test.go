package infra_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/varvelog/varve/functions/fetch"
	"github.com/varvelog/varve/functions/forward"
	"github.com/varvelog/varve/functions/forward/queue"
	"github.com/varvelog/varve/functions/ingest"
	"github.com/varvelog/varve/functions/monitor"
	"github.com/varvelog/varve/functions/produce"
	"github.com/varvelog/varve/functions/schedule"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// story is some days of a log, in virtual time, in which every function meets all that it has to do: lanes that spill and fall idle, small and large segments,
// keys, groups, answers that are lost, objects that a rule was faster to delete, and topics that change, expire and are deleted.
func (c *cloud) story() {
	t, ctx := c.t, c.t.Context()
	c.rules = []byte("<LifecycleConfiguration>" + uploadsRule + deletedRule + "</LifecycleConfiguration>")
	owner := c.open(admin, sdk.WithCreateTable())
	defer owner.Close()
	topic := func(name string, config map[string]string) {
		t.Helper()
		_, err := owner.Admin().CreateTopic(ctx, sdk.NewTopic{Name: name, Partitions: 2, Config: config})
		check(t, err)
	}
	topic("flights", map[string]string{"retention.ms": days(3)})
	topic("messages", map[string]string{"retention.ms": days(3)})
	topic("prices", map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"})
	topic("gone", nil)
	topic("bulk", nil)
	topic("odd", nil)
	topic("dead", nil)

	// Half an hour of writing and reading: heads spill, keys come, nothing is compacted yet.
	for range 9 {
		c.produces("flights", 10_000)
		c.ingests("messages", 5_000)
		c.produces("prices", 100)
	}
	c.ingests("messages", 10)
	c.produces("gone", 10)
	c.together("bulk", "gone")
	for range 7 { // more than goes into one part of an upload
		check(t, appendTo(ctx, owner, "bulk", 1_000_000))
	}
	c.repeats("flights", 10_000)
	c.repeats("prices", 10)
	c.unsettled("produce", func() { c.produces("flights", 10_000) })
	c.unsettled("ingest", func() { c.ingests("messages", 5_000) })
	c.reads("flights", 20)
	c.reads("prices", 18)
	c.forwards("forward", "copies", "flights")
	c.forwards("forward", "copies", "prices")
	c.forwards("forward", "passing", "gone")
	c.refuses = true
	for i := range 5 {
		c.produces("odd", 10+10_000*(i/4))
	}
	c.forwards(deadLetters, "refused", "odd")
	c.refuses = false
	c.monitors()

	// Compaction, of which first an upload fails and then the answer to a publication is lost; and of keys.
	time.Sleep(2 * time.Hour)
	c.uploadFails = true
	if err := c.job("compact", schedule.Compact); err == nil {
		t.Error("compaction went well although its upload failed")
	}
	c.uploadFails = false
	c.fault = losePublication()
	c.mustDo("compact", schedule.Compact)
	c.fault = nil
	c.produces("flights", 10_000)
	c.produces("prices", 10_000)
	time.Sleep(2 * time.Hour)
	c.mustDo("compact", schedule.Compact)
	c.reads("flights", 22)
	c.forwards("forward", "late", "flights")
	c.monitors()

	// What was compacted is superseded a day later. A topic is deleted, another's change dies on the way.
	time.Sleep(26 * time.Hour)
	c.produces("flights", 10_000)
	c.produces("prices", 10_000)
	time.Sleep(2 * time.Hour)
	c.mustDo("compact", schedule.Compact)
	check(t, owner.Admin().DeleteTopic(ctx, "gone"))
	c.fault = func(role string, call dynamodb.Call) dynamodb.Fault {
		if role == admin && call.Op == "UpdateItem" && strings.HasPrefix(call.Keys[0].Partition, "L#") {
			return dynamodb.ServerError()
		}
		return dynamodb.Fault{}
	}
	if _, err := owner.Admin().AlterTopic(ctx, "messages", sdk.Alteration{Config: map[string]string{"retention.ms": days(2)}}); err == nil {
		t.Error("the change reached its lanes although they failed")
	}
	c.fault = nil
	c.mustDo("retain", schedule.Retain)
	c.mustDo("sweep", schedule.Sweep)

	for _, rule := range []string{uploadsRule, deletedRule, "<ID>varve-r3d-", "<ID>varve-r7d-", "<ID>varve-keep-"} {
		if !strings.Contains(string(c.rules), rule) {
			t.Errorf("retain has left no %s in %s", rule, c.rules)
		}
	}

	// All expires, half of it in the archive and half not, and objects go by the bucket's rules before anybody has moved a log start.
	for range 9 {
		c.produces("flights", 10_000)
	}
	c.ingests("messages", 5_000)
	time.Sleep(96 * time.Hour)
	c.expire("r3d/")
	c.produces("flights", 10_000)
	c.reads("flights", 2)
	c.forwards("forward", "later", "flights")
	c.mustDo("retain", schedule.Retain)
	c.mustDo("sweep", schedule.Sweep)
	time.Sleep(2 * time.Hour)
	c.mustDo("sweep", schedule.Sweep)
	if left, err := owner.Backend().Table.Gone(ctx); err != nil || len(left) > 0 {
		t.Errorf("%d deleted topics are left: %v", len(left), err)
	}

	// A request is repeated when its object is gone.
	id := c.producer()
	c.once(id, "flights", 10_000)
	c.expire("r3d/intake/")
	c.once(id, "flights", 10_000)

	// Damage, which is told from a right that is missing.
	c.produces("flights", 10_000)
	c.expire("r3d/intake/")
	time.Sleep(2 * time.Hour)
	for range 20 { // each looks at one partition of a lane, by chance, for rows that are old enough to be merged
		if err := c.job("compact", schedule.Compact); err == nil || strings.Contains(err.Error(), "AccessDenied") {
			t.Errorf("compaction of an object that is gone: %v", err)
		}
	}
}

// The rules that Terraform sets, as S3 gives them back.
const (
	uploadsRule = "<Rule><ID>uploads</ID><Filter><Prefix>log/</Prefix></Filter><Status>Enabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>"
	deletedRule = "<Rule><ID>deleted</ID><Filter><Prefix>log/</Prefix></Filter><Status>Enabled</Status><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration><NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration></Rule>"
)

func days(n int) string { return fmt.Sprint(n * 24 * 3600 * 1000) }

// losePublication loses the answer to a publication, and fails what it is repeated by until the adapter gives up: whether it was applied has to be looked up.
func losePublication() func(string, dynamodb.Call) dynamodb.Fault {
	var token string
	return func(role string, call dynamodb.Call) dynamodb.Fault {
		if role != "compact" || call.Op != "TransactWriteItems" {
			return dynamodb.Fault{}
		}
		switch now := tokenOf(call); token {
		case "":
			token = now
			return dynamodb.AnswerLost()
		case now:
			return dynamodb.ServerError()
		}
		return dynamodb.Fault{}
	}
}

func tokenOf(call dynamodb.Call) string {
	var body struct{ ClientRequestToken string }
	_ = json.Unmarshal(call.Body, &body) // the engine has read it
	return body.ClientRequestToken
}

// unsettled loses a commit of the role, while others go on and spill what it would be in: it has to look for it in chunks.
func (c *cloud) unsettled(role string, do func()) {
	c.t.Helper()
	lost := false
	c.fault = func(of string, call dynamodb.Call) dynamodb.Fault {
		if of != role || call.Op != "UpdateItem" || !strings.HasPrefix(call.Keys[0].Partition, "L#") || lost {
			return dynamodb.Fault{}
		}
		lost = true
		owner := c.open(admin)
		defer owner.Close()
		for range 9 {
			for _, topic := range []string{"flights", "messages"} {
				check(c.t, appendTo(c.t.Context(), owner, topic, 5_000))
			}
		}
		return dynamodb.Dropped()
	}
	do()
	c.fault = nil
	if !lost {
		c.t.Error("no answer was lost")
	}
}

// expire deletes what begins with a prefix, as a lifecycle rule does.
func (c *cloud) expire(prefix string) {
	c.t.Helper()
	owner := c.open(admin)
	defer owner.Close()
	page, err := owner.Backend().Store.List(c.t.Context(), prefix, "", 0)
	check(c.t, err)
	if len(page.Objects) == 0 {
		c.t.Errorf("nothing begins with %s", prefix)
	}
	for _, o := range page.Objects {
		check(c.t, owner.Backend().Store.Delete(c.t.Context(), o.Name))
	}
}

func (c *cloud) within(role string, do func(context.Context, *sdk.Log) error) error {
	l := c.open(role)
	return errors.Join(do(c.t.Context(), l), l.Close())
}

func (c *cloud) must(role string, do func(context.Context, *sdk.Log) error) {
	c.t.Helper()
	if err := c.within(role, do); err != nil {
		c.t.Errorf("%s: %v", role, err)
	}
}

func (c *cloud) produces(topic string, size int) {
	c.t.Helper()
	c.must("produce", func(ctx context.Context, l *sdk.Log) error { return produceTo(ctx, l, topic, size) })
}

// produceTo appends two records, one of which has a key, as a client over HTTPS does.
func produceTo(ctx context.Context, l *sdk.Log, topic string, size int) error {
	h := produce.New(l, produce.Options{}).Handler()
	if err := ask(ctx, h, http.MethodGet, "/v1/topics/"+topic, nil, nil); err != nil {
		return err
	}
	if err := ask(ctx, h, http.MethodGet, "/v1/topics", nil, nil); err != nil {
		return err
	}
	return ask(ctx, h, http.MethodPost, "/v1/topics/"+topic+"/records", map[string]any{"records": []any{
		map[string]any{"value": noise(size)}, map[string]any{"key": "k", "value": noise(size)},
	}}, nil)
}

// together appends to two topics, all or none.
func (c *cloud) together(topics ...string) {
	c.t.Helper()
	var records []any
	for _, topic := range topics {
		records = append(records, map[string]any{"topic": topic, "key": "k", "value": noise(100)})
	}
	c.must("produce", func(ctx context.Context, l *sdk.Log) error {
		return ask(ctx, produce.New(l, produce.Options{}).Handler(), http.MethodPost, "/v1/records", map[string]any{"records": records}, nil)
	})
}

// repeats sends a request of a producer with an id, and the same again, which is answered from what the log has of the first.
func (c *cloud) repeats(topic string, size int) {
	c.t.Helper()
	id := c.producer()
	if first, again := c.once(id, topic, size), c.once(id, topic, size); first == 0 && again == 0 || again != first {
		c.t.Errorf("a request was appended at offset %d, its repetition at %d", first, again)
	}
}

// producer is the id of a new one.
func (c *cloud) producer() (id string) {
	c.t.Helper()
	var answer struct {
		ID string `json:"producer_id"`
	}
	c.must("produce", func(ctx context.Context, l *sdk.Log) error {
		return ask(ctx, produce.New(l, produce.Options{}).Handler(), http.MethodPost, "/v1/producers", nil, &answer)
	})
	return answer.ID
}

// once sends the first request of a producer; -1 is an offset that is not known any more.
func (c *cloud) once(id, topic string, size int) (offset int64) {
	c.t.Helper()
	var answer struct {
		Results []struct{ Offset *int64 }
	}
	c.must("produce", func(ctx context.Context, l *sdk.Log) error {
		body := map[string]any{"records": []any{map[string]any{"partition": 1, "value": noise(size)}}}
		h := func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Varve-Producer-Id", id)
			r.Header.Set("Varve-Producer-Sequence", "1")
			produce.New(l, produce.Options{}).Handler().ServeHTTP(w, r)
		}
		return ask(ctx, http.HandlerFunc(h), http.MethodPost, "/v1/topics/"+topic+"/records", body, &answer)
	})
	if len(answer.Results) == 1 && answer.Results[0].Offset != nil {
		return *answer.Results[0].Offset
	}
	return -1
}

// ask sends a request to a handler, and reads the answer, if it is wanted. What is not a success is an error.
func ask(ctx context.Context, h http.Handler, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(b))
	r.Header.Set("Content-Type", "application/json")
	if body == nil {
		r = httptest.NewRequestWithContext(ctx, method, path, nil)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	switch {
	case w.Code/100 != 2:
		return fmt.Errorf("%s %s: %d: %s", method, path, w.Code, w.Body)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(w.Body.Bytes(), answer)
}

// appendTo appends two records, one of which has a key.
func appendTo(ctx context.Context, l *sdk.Log, topic string, size int) error {
	p, err := l.NewProducer()
	if err != nil {
		return err
	}
	value := []byte(noise(size))
	return errors.Join(p.ProduceSync(ctx, &sdk.Record{Topic: topic, Value: value}, &sdk.Record{Topic: topic, Key: []byte("k"), Value: value}).Err(), p.Close(ctx))
}

func (c *cloud) ingests(topic string, size int) {
	c.t.Helper()
	c.must("ingest", func(ctx context.Context, l *sdk.Log) error { return ingestTo(ctx, l, topic, size) })
}

// ingestTo appends a queue's messages.
func ingestTo(ctx context.Context, l *sdk.Log, topic string, size int) error {
	h, err := ingest.New(l, ingest.Config{Topic: topic, KeyAttribute: "key", Env: env.System()})
	if err != nil {
		return err
	}
	text := "k"
	answer, err := h.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{
		{MessageId: "1", Body: noise(size), MessageAttributes: map[string]events.SQSMessageAttribute{"key": {DataType: "String", StringValue: &text}}},
		{MessageId: "2", Body: noise(size)},
	}})
	if err == nil && len(answer.BatchItemFailures) > 0 {
		err = fmt.Errorf("messages failed: %v", answer.BatchItemFailures)
	}
	return err
}

// noise is text that does not compress to nothing.
func noise(size int) string {
	r, b := rand.New(rand.NewPCG(1, uint64(size))), make([]byte, size)
	for i := range b {
		b[i] = byte('!' + r.IntN('~'-'!'))
	}
	return string(b)
}

func (c *cloud) reads(topic string, atLeast int) {
	c.t.Helper()
	c.must("fetch", func(ctx context.Context, l *sdk.Log) error { return readAll(ctx, l, topic, atLeast) })
}

// readAll asks what a client over HTTPS can ask, reads a topic to its end, and commits that.
func readAll(ctx context.Context, l *sdk.Log, topic string, atLeast int) error {
	h := fetch.New(l, fetch.Options{}).Handler()
	if err := ask(ctx, h, http.MethodGet, "/v1/topics", nil, nil); err != nil {
		return err
	}
	var bounds struct {
		Partitions []struct {
			Partition int   `json:"partition"`
			Start     int64 `json:"start"`
			End       int64 `json:"end"`
		} `json:"partitions"`
	}
	if err := ask(ctx, h, http.MethodGet, "/v1/topics/"+topic+"/offsets", nil, &bounds); err != nil {
		return err
	}
	n := 0
	commit := []any{}
	for _, p := range bounds.Partitions {
		at := fmt.Sprintf("/v1/topics/%s/partitions/%d/", topic, p.Partition)
		if err := ask(ctx, h, http.MethodGet, at+"offsets?time=2001-01-01T00:00:00Z", nil, nil); err != nil {
			return err
		}
		read, err := readPartition(ctx, h, at, p.Start, p.End)
		if n += read; err != nil {
			return err
		}
		commit = append(commit, map[string]any{"partition": p.Partition, "offset": p.End})
	}
	if n < atLeast {
		return fmt.Errorf("%d records were read, at least %d are there", n, atLeast)
	}
	if err := ask(ctx, h, http.MethodPost, "/v1/groups/clients/offsets", map[string]any{"topic": topic, "offsets": commit}, nil); err != nil {
		return err
	}
	if err := ask(ctx, h, http.MethodGet, "/v1/groups/clients/offsets?topic="+topic, nil, nil); err != nil {
		return err
	}
	return askAsMember(ctx, h, topic)
}

// askAsMember does what a member of a group does who has the group for itself: joins, takes a lease, commits, gives it back, and leaves.
func askAsMember(ctx context.Context, h http.Handler, topic string) error {
	var t struct {
		Partitions []struct {
			Lane string `json:"lane"`
		} `json:"partitions"`
	}
	var state struct {
		Lanes []struct {
			Lane  string `json:"lane"`
			Slots []struct {
				Lease string `json:"lease"`
			} `json:"slots"`
		} `json:"lanes"`
	}
	err := errors.Join(ask(ctx, h, http.MethodGet, "/v1/topics/"+topic, nil, &t), ask(ctx, h, http.MethodGet, "/v1/groups/members/state", nil, &state))
	if err != nil || len(t.Partitions) == 0 {
		return err
	}
	const session, member = "0123456789abcdef", "/v1/groups/members/members/a"
	lane, before, epoch := t.Partitions[0].Lane, "", 0
	for _, l := range state.Lanes {
		if l.Lane == lane && len(l.Slots) > 0 {
			before = l.Slots[0].Lease
			fmt.Sscan(before, &epoch)
		}
	}
	held, released := fmt.Sprintf("%d.%s", epoch+1, session), fmt.Sprint(epoch+1)
	at := "/v1/groups/members/lanes/" + lane
	for _, step := range []struct {
		method, target string
		body           map[string]any
	}{
		{http.MethodPost, member, map[string]any{"action": "join", "session": session, "session_timeout_ms": 30000, "topics": []string{topic}}},
		{http.MethodPost, member, map[string]any{"action": "beat", "session": session}},
		{http.MethodGet, member, nil},
		{http.MethodPost, at, map[string]any{"leases": []any{map[string]any{"slot": 0, "from": before, "to": held}}}},
		{http.MethodPost, at, map[string]any{"offsets": []any{map[string]any{"slot": 0, "lease": held, "first": epoch == 0, "offset": 0}}}},
		{http.MethodPost, at, map[string]any{"leases": []any{map[string]any{"slot": 0, "from": held, "to": released}}}},
		{http.MethodPost, member, map[string]any{"action": "leave", "session": session}},
	} {
		var body any
		if step.body != nil {
			body = step.body
		}
		if err := ask(ctx, h, step.method, step.target, body, nil); err != nil {
			return err
		}
	}
	return nil
}

// readPartition reads the records of a partition, and asks for links to them.
func readPartition(ctx context.Context, h http.Handler, at string, offset, end int64) (n int, err error) {
	for offset < end {
		var page struct {
			Records []json.RawMessage `json:"records"`
			Next    int64             `json:"next_offset"`
		}
		if err := ask(ctx, h, http.MethodGet, fmt.Sprintf("%splan?offset=%d", at, offset), nil, nil); err != nil && !strings.Contains(err.Error(), ": 416: ") {
			return n, err
		}
		switch err := ask(ctx, h, http.MethodGet, fmt.Sprintf("%srecords?offset=%d&max_bytes=4000000", at, offset), nil, &page); {
		case err != nil && strings.Contains(err.Error(), ": 416: "):
			offset++ // a rule was faster than the log start
			continue
		case err != nil:
			return n, err
		case page.Next <= offset:
			return n, fmt.Errorf("%s: the page at %d goes on at %d", at, offset, page.Next)
		}
		n, offset = n+len(page.Records), page.Next
	}
	return n, nil
}

// forwards sends to the queue what a group has still to read.
func (c *cloud) forwards(role, group, topic string) {
	c.t.Helper()
	c.must(role, func(ctx context.Context, l *sdk.Log) error {
		o := forward.Options{Group: group, Topics: []string{topic}, Within: time.Minute, Env: env.System()}
		if role == deadLetters {
			o.DeadLetters, o.Attempts = "dead", 1
		}
		client := sqs.New(sqs.Options{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: roleDriver{c, role}})
		return forwardTo(ctx, l, client, "https://sqs.eu-central-1.amazonaws.com/123456789012/varve-queue", o)
	})
}

func forwardTo(ctx context.Context, l *sdk.Log, client *sqs.Client, url string, o forward.Options) error {
	r, err := forward.Run(ctx, l, queue.New(client, url), o)
	if err == nil && r.Sent+r.Dead == 0 {
		err = errors.New("nothing was sent")
	}
	return err
}

// sqs takes all messages, or refuses all.
func (d roleDriver) sqs(r *http.Request, action string) (*http.Response, error) {
	right := action
	if action == "SendMessageBatch" {
		right = "SendMessage"
	}
	if !d.may(d.role, need{"sqs:" + right, places["queue"], nil}) {
		return answer(r, http.StatusForbidden, `{"__type":"com.amazonaws.sqs#AccessDenied"}`), nil
	}
	var in struct {
		Entries []struct{ Id, MessageBody string }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	taken, refused := []map[string]any{}, []map[string]any{}
	for _, e := range in.Entries {
		if d.refuses {
			refused = append(refused, map[string]any{"Id": e.Id, "Code": "InvalidMessageContents", "SenderFault": true})
			continue
		}
		taken = append(taken, map[string]any{"Id": e.Id, "MessageId": e.Id, "MD5OfMessageBody": fmt.Sprintf("%x", md5.Sum([]byte(e.MessageBody)))})
	}
	b, err := json.Marshal(map[string]any{"Successful": taken, "Failed": refused, "Attributes": map[string]string{"MaximumMessageSize": "1048576"}})
	return answer(r, http.StatusOK, string(b)), err
}

func (c *cloud) monitors() {
	c.t.Helper()
	c.must("monitor", func(ctx context.Context, l *sdk.Log) error {
		_, err := monitor.Run(ctx, l.Backend().Table, env.System())
		return err
	})
}

// job runs a scheduled function's job.
func (c *cloud) job(role string, do schedule.Job) error {
	return c.within(role, func(ctx context.Context, l *sdk.Log) error { return runJob(ctx, l, do) })
}

func runJob(ctx context.Context, l *sdk.Log, do schedule.Job) (err error) {
	for _, e := range do(ctx, l.Backend(), env.System(), 10*time.Minute) {
		err = errors.Join(err, e.Err)
	}
	return err
}

func (c *cloud) mustDo(role string, do schedule.Job) {
	c.t.Helper()
	if err := c.job(role, do); err != nil {
		c.t.Errorf("%s: %v", role, err)
	}
}

// failUpload refuses to complete an upload in parts.
func (c *cloud) failUpload(r *http.Request) *http.Response {
	if c.uploadFails && r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
		return answer(r, http.StatusBadRequest, "<Error><Code>InvalidPart</Code></Error>")
	}
	return nil
}
