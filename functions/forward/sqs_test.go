package forward_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/varvelog/varve/functions/forward/queue"
)

// fakeSQS is SQS behind its real client: it keeps the rules that forward relies on, and goes wrong as it is told.
type fakeSQS struct {
	fifo bool
	max  int // bytes of a message; 0: 262144

	// befalls says what becomes of the n-th request, from 1: "", "dropped", "lost" (applied, no answer), "500", "throttled", "denied", "odd answer",
	// "half an answer". Requests are under way side by side.
	befalls func(n int) string
	// refuses says why a message is refused by itself, "" not.
	refuses func(body string) string
	// spoils tells whether a request with this message is refused as a whole.
	spoils func(body string) bool

	mu       sync.Mutex
	n        int
	sizes    []int // of the requests
	accepted []entry
	tried    []string // bodies, in the order in which they were looked at
	ids      map[string]bool
}

type entry struct {
	Id, MessageBody                        string
	MessageGroupId, MessageDeduplicationId string
}

func (f *fakeSQS) queue() *queue.Queue {
	url := "https://sqs.eu-central-1.amazonaws.com/1/q"
	if f.fifo {
		url += ".fifo"
	}
	client := sqs.New(sqs.Options{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), HTTPClient: f})
	return queue.New(client, url)
}

func (f *fakeSQS) Do(r *http.Request) (*http.Response, error) {
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	answer := func(status int, what any) (*http.Response, error) {
		b, _ := json.Marshal(what)
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, nil
	}
	fail := func(status int, code string) (*http.Response, error) {
		return answer(status, map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": "told to"})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	max := f.max
	if max == 0 {
		max = 262144
	}
	switch target := r.Header.Get("X-Amz-Target"); target {
	case "AmazonSQS.GetQueueAttributes":
		return answer(200, map[string]any{"Attributes": map[string]string{"MaximumMessageSize": fmt.Sprint(max)}})
	case "AmazonSQS.SendMessageBatch":
	default:
		return nil, fmt.Errorf("unknown target %q", target)
	}
	var in struct{ Entries []entry }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	f.n++
	f.sizes = append(f.sizes, len(in.Entries))
	what := ""
	if n := f.n; f.befalls != nil {
		f.mu.Unlock() // it may take its time
		what = f.befalls(n)
		f.mu.Lock()
	}
	switch what {
	case "dropped":
		return nil, errors.New("connection reset")
	case "500":
		return fail(500, "InternalFailure")
	case "throttled":
		return fail(400, "RequestThrottled")
	case "denied":
		return fail(403, "AccessDenied")
	}
	total, ids, spoilt := 0, map[string]bool{}, false
	for _, e := range in.Entries {
		total += len(e.MessageBody)
		ids[e.Id] = true
		spoilt = spoilt || f.spoils != nil && f.spoils(e.MessageBody)
	}
	if total > max || len(in.Entries) > 10 || len(in.Entries) == 0 || len(ids) != len(in.Entries) || spoilt {
		return fail(400, "InvalidParameterValue")
	}
	result := f.take(in.Entries)
	switch ok := result["Successful"]; {
	case what == "lost":
		return nil, errors.New("connection reset")
	case what == "odd answer" && len(ok) > 0:
		ok[0]["Id"] = "17"
	case what == "half an answer" && len(ok) > 0:
		result["Successful"] = ok[1:]
	}
	return answer(200, result)
}

// take takes messages in.
func (f *fakeSQS) take(all []entry) map[string][]map[string]any {
	result := map[string][]map[string]any{"Successful": {}, "Failed": {}}
	for _, e := range all {
		why := ""
		if f.refuses != nil {
			why = f.refuses(e.MessageBody)
		}
		f.tried = append(f.tried, e.MessageBody)
		if f.fifo != (e.MessageGroupId != "" && e.MessageDeduplicationId != "") {
			why = "MissingParameter"
		}
		if !sendable(e.MessageBody) {
			why = "InvalidMessageContents"
		}
		if why != "" {
			result["Failed"] = append(result["Failed"], map[string]any{"Id": e.Id, "Code": why, "Message": "told to", "SenderFault": true})
			continue
		}
		sum := md5.Sum([]byte(e.MessageBody))
		result["Successful"] = append(result["Successful"], map[string]any{"Id": e.Id, "MessageId": e.Id, "MD5OfMessageBody": hex.EncodeToString(sum[:])})
		if f.fifo && f.ids[e.MessageDeduplicationId] {
			continue
		}
		if f.ids == nil {
			f.ids = map[string]bool{}
		}
		f.ids[e.MessageDeduplicationId] = true
		f.accepted = append(f.accepted, e)
	}
	return result
}

// sendable tells whether SQS takes all characters of a body.
func sendable(body string) bool {
	return !strings.ContainsFunc(body, func(r rune) bool {
		return r != '\t' && r != '\n' && r != '\r' && (r < 0x20 || r > 0xd7ff && r < 0xe000 || r == 0xfffe || r == 0xffff)
	})
}

var _ aws.HTTPClient = (*fakeSQS)(nil)

// values are the values of the records in the queue, in its order.
func (f *fakeSQS) values() (values []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.accepted {
		values = append(values, valueOf(e.MessageBody))
	}
	return values
}

func valueOf(body string) string {
	var r struct{ Value string }
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return err.Error()
	}
	return r.Value
}
