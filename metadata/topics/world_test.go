package topics

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment"
)

// newTable is an empty table on the engine in memory. In a synctest bubble its time is virtual.
func newTable(t *testing.T) metadata.Table { return newFaultyTable(t, nil) }

func newFaultyTable(t *testing.T, hook dynamodb.Hook) metadata.Table {
	t.Helper()
	engine, err := dynamodb.New(dynamodb.Options{Hook: hook})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	table, err := dynamo.Open(dynamo.Config{
		AWS:       aws.Config{Region: "us-east-1", Credentials: credentials{}, HTTPClient: engine, BaseEndpoint: aws.String("http://engine")},
		TableName: "topics", Env: env.System(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := table.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return table
}

type credentials struct{}

func (credentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "x", SecretAccessKey: "x"}, nil
}

// errCrashed is what a process sees that is no more.
var errCrashed = errors.New("crashed")

// fault is what happens at one write of a process.
type fault struct {
	at      int  // which write, from 0
	applied bool // before it goes wrong
	err     error
	forever bool // and at every write after it, which are not applied
}

func (f fault) String() string {
	when := "before"
	if f.applied {
		when = "after"
	}
	return fmt.Sprintf("%v %s write %d", f.err, when, f.at)
}

// process is a table as one process sees it.
type process struct {
	metadata.Table
	fault  fault
	writes []string
}

func (p *process) step(name string, do func() error) error {
	n := len(p.writes)
	p.writes = append(p.writes, name)
	if p.fault.err == nil || n < p.fault.at || n > p.fault.at && !p.fault.forever {
		return do()
	}
	if n == p.fault.at && p.fault.applied {
		if err := do(); err != nil {
			return err
		}
	}
	return p.fault.err
}

func (p *process) CreateTopic(ctx context.Context, t *metadata.Topic, floor segment.ID) error {
	return p.step("CreateTopic", func() error { return p.Table.CreateTopic(ctx, t, floor) })
}

func (p *process) ReplaceTopic(ctx context.Context, t *metadata.Topic, firstNew int, floor segment.ID) error {
	return p.step("ReplaceTopic", func() error { return p.Table.ReplaceTopic(ctx, t, firstNew, floor) })
}

func (p *process) SetHeadConfig(ctx context.Context, lane metadata.LaneID, version int64, class segment.Class) error {
	return p.step("SetHeadConfig", func() error { return p.Table.SetHeadConfig(ctx, lane, version, class) })
}

func (p *process) SetStateConfig(ctx context.Context, lane metadata.LaneID, version int64, class segment.Class) error {
	return p.step("SetStateConfig", func() error { return p.Table.SetStateConfig(ctx, lane, version, class) })
}

func (p *process) DeleteTopic(ctx context.Context, t *metadata.Topic, g *metadata.GoneTopic) error {
	return p.step("DeleteTopic", func() error { return p.Table.DeleteTopic(ctx, t, g) })
}

func (p *process) DeleteHead(ctx context.Context, lane metadata.LaneID) error {
	return p.step("DeleteHead", func() error { return p.Table.DeleteHead(ctx, lane) })
}

func (p *process) DeleteLaneRest(ctx context.Context, lane metadata.LaneID) (done bool, err error) {
	err = p.step("DeleteLaneRest", func() (err error) {
		done, err = p.Table.DeleteLaneRest(ctx, lane)
		return err
	})
	return done, err
}

func (p *process) PutGone(ctx context.Context, g *metadata.GoneTopic) error {
	return p.step("PutGone", func() error { return p.Table.PutGone(ctx, g) })
}

func (p *process) DeleteGone(ctx context.Context, id segment.TopicID) error {
	return p.step("DeleteGone", func() error { return p.Table.DeleteGone(ctx, id) })
}

// crashes are a crash before and after each of n writes.
func crashes(n int) (fs []fault) {
	for at := range n {
		fs = append(fs, fault{at: at, err: errCrashed, forever: true}, fault{at: at, err: errCrashed, forever: true, applied: true})
	}
	return fs
}

// doubts are an unknown outcome of each of n writes, applied or not.
func doubts(n int) (fs []fault) {
	for at := range n {
		for _, err := range []error{metadata.ErrOutcomeUnknown, metadata.ErrUnavailable} {
			fs = append(fs, fault{at: at, err: err}, fault{at: at, err: err, applied: true})
		}
	}
	return fs
}

func keeper(table Table) *Keeper { return New(table, env.System()) }

func mustCreate(t *testing.T, table Table, name string, partitions, width int) *metadata.Topic {
	t.Helper()
	topic, err := keeper(table).Create(t.Context(), Spec{Name: name, Partitions: partitions, LaneWidth: width, Config: metadata.DefaultTopicConfig()})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

func row(t *testing.T, table Table, name string) *metadata.Topic {
	t.Helper()
	topic, err := table.Topic(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// whole checks that the topic is of one piece: every lane there, every head at the row's version and class.
func whole(t *testing.T, table metadata.Table, name string) *metadata.Topic {
	t.Helper()
	topic := row(t, table, name)
	for _, lane := range topic.Lanes {
		head, err := table.Head(t.Context(), lane, metadata.Strong)
		if err != nil {
			t.Fatal(err)
		}
		if head.ConfigVersion != topic.Version || head.Class != topic.Class() {
			t.Errorf("lane %s is at version %d, class %s; the row at %d, %s", lane, head.ConfigVersion, head.Class, topic.Version, topic.Class())
		}
		state, err := table.State(t.Context(), lane, metadata.Strong)
		if err != nil {
			t.Fatal(err)
		}
		if topic.Version > 1 && (state.Version != topic.Version || state.Class != topic.Class()) {
			t.Errorf("the state of lane %s is at version %d, class %s; the row at %d, %s", lane, state.Version, state.Class, topic.Version, topic.Class())
		}
	}
	return topic
}

// gone checks that nothing of the lanes is in the table.
func gone(t *testing.T, table metadata.Table, lanes []metadata.LaneID) {
	t.Helper()
	for _, lane := range lanes {
		if _, err := table.Head(t.Context(), lane, metadata.Strong); !errors.Is(err, metadata.ErrNoLane) {
			t.Errorf("lane %s: head: %v", lane, err)
		}
		if _, err := table.State(t.Context(), lane, metadata.Strong); !errors.Is(err, metadata.ErrNoState) {
			t.Errorf("lane %s: state: %v", lane, err)
		}
		if chunks, _, err := table.Chunks(t.Context(), lane, 0, 1<<40, 10, metadata.Strong); err != nil || len(chunks) > 0 {
			t.Errorf("lane %s: %d chunks, %v", lane, len(chunks), err)
		}
	}
}

// spilled puts a chunk into the lane, as a spill does.
func spilled(t *testing.T, table metadata.Table, lane metadata.LaneID, first int64) {
	t.Helper()
	c := &metadata.Chunk{Lane: lane, First: first}
	for i := range int64(metadata.ChunkOrders) {
		id := segment.NewID(time.Now(), segment.ClassFor(0), segment.InBucket, uint64(first+i), segment.ID{})
		c.Entries = append(c.Entries, metadata.Entry{ID: id, Order: first + i, Slots: []metadata.SlotEntry{{Count: 1, Bytes: 100}}})
	}
	if err := table.PutChunk(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}
