package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/varvelog/varve/functions/ingest"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/logtest"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store/fault"
)

// bench is a log with a topic t of four partitions, and a handler.
type bench struct {
	*logtest.World
	log     *sdk.Log
	handler *ingest.Handler
	told    []ingest.Failure
}

func newBench(t *testing.T, c ingest.Config) *bench {
	b := &bench{World: logtest.New(t)}
	b.log = b.Open()
	b.Create(b.log, sdk.NewTopic{Name: "t", Partitions: 4, Config: map[string]string{"max.message.bytes": "1000"}})
	c.Env, c.Tell = env.System(), func(f ingest.Failure) { b.told = append(b.told, f) }
	var err error
	b.handler, err = ingest.New(b.log, c)
	b.Must(err)
	return b
}

// handle handles a batch within the time, and returns the ids that it names.
func (b *bench) handle(within time.Duration, all ...events.SQSMessage) ([]string, error) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := b.handler.Handle(ctx, events.SQSEvent{Records: all})
	failed := []string{}
	for _, f := range r.BatchItemFailures {
		failed = append(failed, f.ItemIdentifier)
	}
	return failed, err
}

const plainARN, fifoARN = "arn:aws:sqs:eu-central-1:1:q", "arn:aws:sqs:eu-central-1:1:q.fifo"

func plain(id, body string) events.SQSMessage {
	return events.SQSMessage{MessageId: id, Body: body, EventSourceARN: plainARN, Attributes: map[string]string{"SentTimestamp": "1700000000123"}}
}

func fifo(id, group, body string) events.SQSMessage {
	m := plain(id, body)
	m.EventSourceARN = fifoARN
	m.Attributes["MessageGroupId"] = group
	return m
}

func with(m events.SQSMessage, name, kind, value string) events.SQSMessage {
	if m.MessageAttributes == nil {
		m.MessageAttributes = map[string]events.SQSMessageAttribute{}
	}
	m.MessageAttributes[name] = events.SQSMessageAttribute{DataType: kind, StringValue: &value}
	return m
}

func flat(all [][]string) (values []string) {
	for _, of := range all {
		values = append(values, of...)
	}
	slices.Sort(values)
	return values
}

func TestABatchIsOneFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ingest.Config{Topic: "t"})
		defer b.log.Close()
		var all []events.SQSMessage
		for i := range 200 {
			all = append(all, plain(fmt.Sprint("id", i), fmt.Sprint("body", i)))
		}
		for turn := range 3 {
			b.Counts()
			failed, err := b.handle(time.Minute, all...)
			if err != nil || len(failed) > 0 {
				t.Fatal(failed, err)
			}
			table, objects, kinds := b.Counts()
			if table > 3 || objects != 1 { // the topic's row, the first time the head, the commit
				t.Errorf("turn %d: %d requests to the table, %d to the store: %s", turn, table, objects, kinds)
			}
		}
		if n := len(flat(b.Values(b.log, "t"))); n != 600 {
			t.Errorf("%d records of 600", n)
		}
	})
}

// BR-48: nothing of ours runs when the handler has returned, not even the spill that every eighth commit brings about, however slow the table is.
func TestBR48_NothingRunsAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ingest.Config{Topic: "t"})
		defer b.log.Close()
		b.OnTable = func(dynamodb.Call) dynamodb.Fault {
			time.Sleep(20 * time.Millisecond)
			return dynamodb.Fault{}
		}
		chunks := 0
		for i := range 20 {
			if failed, err := b.handle(time.Minute, plain("1", fmt.Sprint(i))); err != nil || len(failed) > 0 {
				t.Fatal(failed, err)
			}
			_, _, kinds := b.Counts()
			chunks += strings.Count(kinds, "PutItem")
			time.Sleep(time.Hour)
			synctest.Wait()
			if table, objects, kinds := b.Counts(); table+objects > 0 {
				t.Errorf("after the handler had returned: %s", kinds)
			}
		}
		if chunks < 2 {
			t.Errorf("%d spills: the test shows nothing", chunks)
		}
	})
}

func TestWhatBecomesOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ingest.Config{Topic: "other", TopicAttribute: "topic", KeyAttribute: "key"})
		defer b.log.Close()
		m := with(with(with(with(fifo("the-id", "g", "body"), "topic", "String", "t"), "key", "String.mine", "k"), "n", "Number", "17"), "empty", "String", "")
		m.MessageAttributes["b"] = events.SQSMessageAttribute{DataType: "Binary", BinaryValue: []byte{0, 255}}
		m.Attributes["SequenceNumber"], m.Attributes["MessageDeduplicationId"], m.Attributes["AWSTraceHeader"] = "42", "d", "Root=1"
		m.Attributes["ApproximateReceiveCount"] = "3"
		if failed, err := b.handle(time.Minute, m); err != nil || len(failed) > 0 {
			t.Fatal(failed, err, b.told)
		}
		r := slices.Concat(b.Records(b.log, "t")...)[0]
		headers := ""
		for _, h := range r.Headers {
			headers += fmt.Sprintf("%s=%x ", h.Key, h.Value)
		}
		want := fmt.Sprintf("b=00ff empty= n=%x sqs-message-id=%x sqs-message-group-id=%x sqs-message-deduplication-id=%x sqs-sequence-number=%x sqs-trace-header=%x ",
			"17", "the-id", "g", "d", "42", "Root=1")
		if string(r.Key) != "k" || string(r.Value) != "body" || r.Timestamp.UnixMilli() != 1700000000123 || headers != want {
			t.Errorf("%+v\n got %s\nwant %s", r, headers, want)
		}
	})
}

// Messages that can never be appended are named, so that the queue's redrive policy takes them away; the others are appended.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ingest.Config{Topic: "t", TopicAttribute: "topic"})
		defer b.log.Close()
		noValue := plain("no-value", "x")
		noValue.MessageAttributes = map[string]events.SQSMessageAttribute{"a": {DataType: "String"}}
		list := plain("list", "x")
		list.MessageAttributes = map[string]events.SQSMessageAttribute{"a": {DataType: "String.List", StringListValues: []string{"x"}}}
		all := []events.SQSMessage{plain("good1", "1"), plain("large", strings.Repeat("x", 1001)), with(plain("unknown", "x"), "topic", "String", "nowhere"),
			with(plain("unknown2", "x"), "topic", "String", "nowhere"), with(plain("name", "x"), "topic", "String", "no topic/at all"),
			with(plain("number", "x"), "topic", "Number", "1"), noValue, list, with(plain("odd", "x"), "a", "Date", "x"), plain("good2", "2")}
		b.Counts()
		failed, err := b.handle(time.Minute, all...)
		want := []string{"large", "unknown", "unknown2", "name", "number", "no-value", "list", "odd"}
		if err != nil || !slices.Equal(failed, want) {
			t.Errorf("%v, %v; want %v", failed, err, want)
		}
		if table, _, kinds := b.Counts(); table > 4 { // two topics' rows, one of which there is not; the head; the commit
			t.Errorf("%s: a topic that there is not is asked for once", kinds)
		}
		for _, f := range b.told {
			if !f.Poison || f.Error == "" {
				t.Errorf("told of %+v", f)
			}
		}
		if got := flat(b.Values(b.log, "t")); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("appended: %v", got)
		}
		// A batch of nothing but poison is no failure of the function's.
		if failed, err := b.handle(time.Minute, all[1:9]...); err != nil || len(failed) != 8 {
			t.Error(failed, err)
		}
	})
}

// BR-50 as the queue sees it: of a group nothing is appended behind what was not, and what is named comes again, in order.
func TestBR50_FIFOKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ingest.Config{Topic: "t"})
		defer b.log.Close()
		var all []events.SQSMessage
		for i := range 5 {
			body := fmt.Sprint("a", i+1)
			if i == 2 {
				body = strings.Repeat("x", 1001)
			}
			all = append(all, fifo(fmt.Sprint("a", i+1), "a", body), fifo(fmt.Sprint("b", i+1), "b", fmt.Sprint("b", i+1)))
		}
		failed, err := b.handle(time.Minute, all...)
		if err != nil || !slices.Equal(failed, []string{"a3", "a4", "a5"}) {
			t.Fatal(failed, err)
		}
		// After the redrive policy has taken a3 away the rest comes again.
		if failed, err := b.handle(time.Minute, all[6], all[8]); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
		for p, values := range b.Values(b.log, "t") {
			a := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v[0] != 'a' })
			if !slices.IsSorted(a) {
				t.Errorf("partition %d: %v", p, values)
			}
		}
		if got := flat(b.Values(b.log, "t")); !slices.Equal(got, []string{"a1", "a2", "a4", "a5", "b1", "b2", "b3", "b4", "b5"}) {
			t.Errorf("appended: %v", got)
		}
	})
}

// A group whose messages go to different lanes is appended one after the other, so that a commit that fails keeps back what is behind it there too.
func TestBR50_AGroupInSeveralLanes(t *testing.T) {
	for _, fail := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, ingest.Config{TopicAttribute: "topic"})
			defer b.log.Close()
			b.Create(b.log, sdk.NewTopic{Name: "u", Partitions: 1})
			var commits []string
			b.OnTable = func(c dynamodb.Call) dynamodb.Fault {
				if !logtest.IsCommit(c) {
					return dynamodb.Fault{}
				}
				commits = append(commits, c.Keys[0].Partition)
				if fail && len(commits) > 1 && c.Keys[0].Partition != commits[0] {
					return dynamodb.Throttle()
				}
				return dynamodb.Fault{}
			}
			failed, err := b.handle(10*time.Second, with(fifo("1", "g", "1"), "topic", "String", "t"), with(fifo("2", "g", "2"), "topic", "String", "u"),
				with(fifo("3", "g", "3"), "topic", "String", "t"))
			b.OnTable = nil
			got := append(flat(b.Values(b.log, "t")), flat(b.Values(b.log, "u"))...)
			switch {
			case !fail && (err != nil || len(failed) > 0 || len(commits) != 3 || commits[0] != commits[2] || commits[1] == commits[0] || len(got) != 3):
				t.Error(failed, err, commits, got)
			case fail && (err != nil || !slices.Equal(failed, []string{"2", "3"}) || !slices.Equal(got, []string{"1"})):
				t.Error(failed, err, commits, got)
			}
		})
	}
}

// Each request of an invocation fails, is applied in vain, or gets no answer for ever: what is not named is in the log, what is named comes again, and all of it is
// there in the end, each once unless the outcome was not known.
func TestFaults(t *testing.T) {
	for _, kind := range []string{"dropped", "lost answer", "500", "throttled for good", "no answer for good", "put dropped", "put lost answer", "put denied for good"} {
		for at := range 4 {
			t.Run(fmt.Sprint(kind, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, ingest.Config{Topic: "t"})
					defer b.log.Close()
					var n atomic.Int32
					hit := func() bool { i := int(n.Add(1)) - 1; return i == at || i >= at && strings.HasSuffix(kind, "for good") }
					b.OnTable = func(dynamodb.Call) dynamodb.Fault {
						if strings.HasPrefix(kind, "put") || !hit() {
							return dynamodb.Fault{}
						}
						switch kind {
						case "dropped":
							return dynamodb.Dropped()
						case "lost answer":
							return dynamodb.AnswerLost()
						case "500":
							return dynamodb.Fault{Reply: dynamodb.InternalServerError()}
						case "throttled for good":
							return dynamodb.Throttle()
						}
						return dynamodb.Fault{Reply: dynamodb.ErrNoAnswer}
					}
					b.OnStore = func(fault.Call) fault.Fault {
						if !strings.HasPrefix(kind, "put") || !hit() {
							return fault.Fault{}
						}
						if kind == "put lost answer" {
							return fault.Fault{Kind: fault.LostAfter}
						}
						return fault.Fault{Kind: fault.LostBefore}
					}
					var all []events.SQSMessage
					for i := range 6 {
						all = append(all, fifo(fmt.Sprint(i), fmt.Sprint("g", i%2), fmt.Sprint(i%2, " ", i)))
					}
					start := time.Now()
					failed, err := b.handle(20*time.Second, all...)
					if took := time.Since(start); took > 20*time.Second {
						t.Errorf("it took %v", took)
					}
					b.OnTable, b.OnStore = nil, nil
					if err != nil { // the whole batch comes again
						failed = nil
						for _, m := range all {
							failed = append(failed, m.MessageId)
						}
					}
					before := flat(b.Values(b.log, "t"))
					for _, m := range all {
						if !slices.Contains(failed, m.MessageId) && !slices.Contains(before, m.Body) {
							t.Errorf("message %s was not named and is not in the log", m.MessageId)
						}
					}
					again := slices.DeleteFunc(slices.Clone(all), func(m events.SQSMessage) bool { return !slices.Contains(failed, m.MessageId) })
					if failed, err := b.handle(20*time.Second, again...); err != nil || len(failed) > 0 {
						t.Fatal(failed, err)
					}
					for p, values := range b.Values(b.log, "t") {
						seen := map[string]bool{}
						first := slices.DeleteFunc(slices.Clone(values), func(v string) bool { was := seen[v]; seen[v] = true; return was })
						slices.SortStableFunc(first, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
						if !slices.IsSorted(first) {
							t.Errorf("partition %d: %v", p, values)
						}
						if len(first) != len(values) && !strings.Contains(kind, "answer") && kind != "500" {
							t.Errorf("partition %d: %v: twice", p, values)
						}
					}
					if got := flat(b.Values(b.log, "t")); len(slices.Compact(got)) != 6 {
						t.Errorf("in the end: %v", got)
					}
				})
			})
		}
	}
}

// BR-48: with next to no time left nothing is begun, and with little left nothing is called appended that is not.
func TestBR48_LittleTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ingest.Config{Topic: "t"})
		defer b.log.Close()
		b.Counts()
		if _, err := b.handle(120*time.Millisecond, plain("1", "1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if table, objects, kinds := b.Counts(); table+objects > 0 {
			t.Errorf("begun: %s", kinds)
		}
		slow := 150 * time.Millisecond
		b.OnStore = func(fault.Call) fault.Fault { return fault.Fault{Delay: slow} }
		start := time.Now()
		if failed, err := b.handle(200*time.Millisecond, plain("1", "1"), plain("2", "2")); err == nil {
			t.Errorf("named %v", failed)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Hour)
		if got := flat(b.Values(b.log, "t")); len(got) > 0 {
			t.Errorf("appended after it was called failed: %v", got)
		}
		slow = 20 * time.Millisecond
		if failed, err := b.handle(200*time.Millisecond, plain("1", "1")); err != nil || len(failed) > 0 {
			t.Error(failed, err)
		}
	})
}

// When the topic to which all goes is not there, or the table does not answer, the function has failed, not the messages.
func TestTheLogsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ingest.Config{Topic: "missing"})
		defer b.log.Close()
		if failed, err := b.handle(time.Minute, plain("1", "1")); !errors.Is(err, sdk.ErrUnknownTopic) || len(failed) > 0 {
			t.Error(failed, err)
		}
		if len(b.told) != 1 || b.told[0].Poison {
			t.Errorf("told of %+v", b.told)
		}
	})
}

func TestConfig(t *testing.T) {
	w := logtest.New(t)
	log := w.Open()
	defer log.Close()
	for _, c := range []ingest.Config{{}, {Topic: "no topic/at all"}, {TopicAttribute: "a", KeyAttribute: "a"}, {Topic: "t", Margin: -1}} {
		var field *metadata.FieldError
		if _, err := ingest.New(log, c); !errors.As(err, &field) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Whatever an event holds, nothing panics, and every message is either in the log or named.
func FuzzHandle(f *testing.F) {
	f.Add([]byte(`{"Records":[{"messageId":"1","body":"x","eventSourceARN":"a.fifo","attributes":{"MessageGroupId":"g","SentTimestamp":"-1"},"messageAttributes":{"topic":{"dataType":"String","stringValue":"u"},"k":{"dataType":"Binary","binaryValue":"AA=="}}}]}`))
	f.Add([]byte(`{"Records":[{},{"messageAttributes":{"":{"dataType":""}}}]}`))
	w := logtest.New(f)
	log := w.Open()
	f.Cleanup(func() { log.Close() })
	w.Create(log, sdk.NewTopic{Name: "t", Partitions: 2})
	h, err := ingest.New(log, ingest.Config{Topic: "t", TopicAttribute: "topic", KeyAttribute: "k", Env: env.System()})
	w.Must(err)
	f.Fuzz(func(t *testing.T, b []byte) {
		var e events.SQSEvent
		if json.Unmarshal(b, &e) != nil || len(e.Records) > 100 {
			return
		}
		r, err := h.Handle(t.Context(), e)
		if err == nil && len(r.BatchItemFailures) > len(e.Records) {
			t.Errorf("%d named of %d", len(r.BatchItemFailures), len(e.Records))
		}
	})
}
