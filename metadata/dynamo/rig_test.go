package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment"
)

// rig is a table on an engine whose next calls a test may spoil.
type rig struct {
	*testing.T
	ctx   context.Context
	table *dynamo.Table
	raw   *sdk.Client // past the adapter, and past the faults

	mu     sync.Mutex
	faults []engine.Fault // of the next calls
	seen   []string       // operations that reached the engine, faulted or not
	calls  []metadata.Call
	// arrived, if set, is called for each request, with mu held.
	arrived func()
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, ctx: t.Context()}
	c := onEngine(t, engine.Options{Hook: r.hook})
	r.table = fresh(t, dynamo.Config{AWS: c, OnCall: r.called})
	r.raw = sdk.NewFromConfig(c)
	return r
}

func (r *rig) hook(_ context.Context, c engine.Call) (f engine.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, c.Op)
	if r.arrived != nil {
		r.arrived()
	}
	if len(r.faults) > 0 {
		f, r.faults = r.faults[0], r.faults[1:]
	}
	return f
}

func (r *rig) called(c metadata.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

// next spoils the next calls and forgets the past ones.
func (r *rig) next(faults ...engine.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults, r.seen, r.calls = faults, nil, nil
}

// requests is how many have reached the engine since next.
func (r *rig) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) is(err, condition error) *metadata.Error {
	r.Helper()
	var e *metadata.Error
	if !errors.Is(err, condition) || !errors.As(err, &e) {
		r.Fatalf("got %v, want %v", err, condition)
	}
	return e
}

func topic(name string, lanes ...metadata.LaneID) *metadata.Topic {
	return &metadata.Topic{Name: name, ID: segment.TopicID(fmt.Sprintf("%012d", len(name))), Version: 1, Partitions: 64 * len(lanes), LaneWidth: 64, Lanes: lanes,
		Partitioner: "murmur2", History: []metadata.Growth{{Version: 1, Partitions: 64 * len(lanes)}}, Config: metadata.DefaultTopicConfig(), Classes: []segment.Class{7}}
}

func (r *rig) lane(name metadata.LaneID) metadata.LaneID {
	r.Helper()
	r.ok(r.table.CreateTopic(r.ctx, topic("topic-of-"+string(name), name), segment.ID{}))
	return name
}

func (r *rig) head(lane metadata.LaneID) *metadata.Head {
	r.Helper()
	h, err := r.table.Head(r.ctx, lane, metadata.Strong)
	r.ok(err)
	return h
}

func (r *rig) put(it map[string]types.AttributeValue) {
	r.Helper()
	_, err := r.raw.PutItem(r.ctx, &sdk.PutItemInput{TableName: aws.String("varve"), Item: it})
	r.ok(err)
}

func (r *rig) item(k metadata.Key) map[string]types.AttributeValue {
	r.Helper()
	out, err := r.raw.GetItem(r.ctx, &sdk.GetItemInput{TableName: aws.String("varve"), Key: map[string]types.AttributeValue{"pk": str(k.PK), "sk": str(k.SK)}})
	r.ok(err)
	return out.Item
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

var born = time.UnixMilli(1_790_000_000_000)

// entry has n records in each slot; its id comes from the number.
func entry(number uint64, n int32, slots ...metadata.Slot) metadata.Entry {
	e := metadata.Entry{ID: segment.NewID(born.Add(time.Duration(number)*time.Millisecond), 7, segment.InBucket, number, segment.ID{}), Start: 64}
	for _, s := range slots {
		e.Slots = append(e.Slots, metadata.SlotEntry{Slot: s, Count: n, Bytes: 340 * n, MaxTime: e.ID.Time().UnixMilli() - int64(s)*3})
	}
	return e
}

func commitTo(h *metadata.Head, entries ...metadata.Entry) metadata.Commit {
	return metadata.Commit{Lane: h.Lane, Entries: entries, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, len(entries))}
}

// script is an HTTP client that answers what a test says, and counts.
type script struct {
	mu     sync.Mutex
	count  int
	answer func(n int, req *http.Request) (*http.Response, error)
}

func (s *script) Do(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	n := s.count
	s.count++
	s.mu.Unlock()
	return s.answer(n, req)
}

func (s *script) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// reply is an answer of the service with the right checksum.
func reply(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{"X-Amz-Crc32": {fmt.Sprint(crc32.ChecksumIEEE([]byte(body)))}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}, nil
}

func refusal(code string) string {
	return `{"__type":"com.amazonaws.dynamodb.v20120810#` + code + `","message":"so it is"}`
}

func scripted(t testing.TB, answer func(n int, req *http.Request) (*http.Response, error)) (*dynamo.Table, *script) {
	s := &script{answer: answer}
	return openTable(t, dynamo.Config{AWS: local(s)}), s
}

// operation is the name of the operation that a request asks for.
func operation(req *http.Request) string {
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	return op
}
