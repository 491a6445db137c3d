package topics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func TestCreate(t *testing.T) {
	table := newTable(t)
	topic := mustCreate(t, table, "orders", 100, 0)
	if len(topic.Lanes) != 2 || topic.LaneWidth != 64 || topic.Version != 1 || topic.Partitioner != "murmur2" {
		t.Errorf("%+v", topic)
	}
	if h := topic.History; len(h) != 1 || h[0] != (metadata.Growth{Version: 1, Partitions: 100}) {
		t.Errorf("history %v", h)
	}
	if err := topic.ID.Validate(); err != nil {
		t.Error(err)
	}
	if got := whole(t, table, "orders"); got.ID != topic.ID || got.Class().String() != "r7d" {
		t.Errorf("%+v", got)
	}
	if _, err := keeper(table).Create(t.Context(), Spec{Name: "orders", Partitions: 1}); !errors.Is(err, metadata.ErrTopicExists) {
		t.Errorf("a second one: %v", err)
	}
}

func TestCreateSettlesUnknownOutcomes(t *testing.T) {
	for _, f := range doubts(1) {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(t)
				p := &process{Table: table, fault: f}
				topic := mustCreate(t, p, "orders", 3, 1)
				if len(p.writes) != 2 {
					t.Errorf("writes: %v", p.writes)
				}
				if got := whole(t, table, "orders"); got.ID != topic.ID {
					t.Errorf("created %s, the row says %s", topic.ID, got.ID)
				}
			})
		})
	}
}

// A name that was taken while the outcome was unknown is not taken for ours.
func TestCreateLosesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		p := &process{Table: table, fault: fault{err: metadata.ErrOutcomeUnknown}}
		k := keeper(&taken{process: p, t: t})
		if _, err := k.Create(t.Context(), Spec{Name: "orders", Partitions: 3}); !errors.Is(err, metadata.ErrTopicExists) {
			t.Errorf("%v", err)
		}
		if got := whole(t, table, "orders"); got.Partitions != 7 {
			t.Errorf("%+v", got)
		}
	})
}

// taken has another process create the topic after the first attempt.
type taken struct {
	*process
	t *testing.T
}

func (p *taken) CreateTopic(ctx context.Context, topic *metadata.Topic, floor segment.ID) error {
	err := p.process.CreateTopic(ctx, topic, floor)
	if len(p.writes) == 1 {
		mustCreate(p.t, p.Table, topic.Name, 7, 0)
	}
	return err
}

// A floor that is raised between its read and the transaction refuses it; the next attempt has the new one, and other ids.
func TestCreateUnderAMovingFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &staleFloor{process: &process{Table: newTable(t)}}
		topic := mustCreate(t, p, "orders", 3, 0)
		if len(p.ids) != 2 || p.ids[0] == p.ids[1] || topic.ID != p.ids[1] {
			t.Errorf("attempts with ids %v, created %s", p.ids, topic.ID)
		}
		whole(t, p.Table, "orders")
	})
}

// The first attempt is under way for minutes. Meanwhile a later one creates the topic, and it is deleted. When the first arrives at last it must not bring the topic
// back. The states of its lanes, which stay through the grace, refuse it.
func TestCreateArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrive, attempts := make(chan struct{}), 0
		start := time.Now()
		table := newFaultyTable(t, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Op != "TransactWriteItems" || time.Since(start) > 25*time.Second { // all attempts of one call to the adapter
				return dynamodb.Fault{}
			}
			if attempts++; attempts > 1 {
				return dynamodb.Dropped()
			}
			return dynamodb.AppliedLate(func(context.Context) { <-arrive })
		})
		topic := mustCreate(t, table, "orders", 2, 1)
		if err := keeper(table).Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		close(arrive)
		synctest.Wait()
		if got, err := table.Topic(t.Context(), "orders"); !errors.Is(err, metadata.ErrUnknownTopic) {
			t.Errorf("the deleted topic is back: %+v, %v", got, err)
		}
		clean(t, table)
		gone(t, table, topic.Lanes)
	})
}

// An attempt that was applied is known as ours also when the next one is told that the floor moved.
func TestCreateAppliedThenChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &changedLater{process: &process{Table: newTable(t), fault: fault{applied: true, err: metadata.ErrOutcomeUnknown}}}
		topic := mustCreate(t, p, "orders", 3, 0)
		if got := whole(t, p.Table, "orders"); got.ID != topic.ID || p.attempts != 2 {
			t.Errorf("%d attempts; created %s, the row says %s", p.attempts, topic.ID, got.ID)
		}
	})
}

type changedLater struct {
	*process
	attempts int
}

func (p *changedLater) CreateTopic(ctx context.Context, topic *metadata.Topic, floor segment.ID) error {
	if p.attempts++; p.attempts > 1 {
		return metadata.ErrChanged
	}
	return p.process.CreateTopic(ctx, topic, floor)
}

type staleFloor struct {
	*process
	reads int
	ids   []segment.TopicID
}

func (p *staleFloor) Floor(ctx context.Context) (segment.ID, error) {
	if p.reads++; p.reads == 1 {
		return segment.NewID(segment.ID{}.Time().Add(1e9), segment.Keep, segment.InBucket, 1, segment.ID{}), nil
	}
	return p.Table.Floor(ctx)
}

func (p *staleFloor) CreateTopic(ctx context.Context, topic *metadata.Topic, floor segment.ID) error {
	p.ids = append(p.ids, topic.ID)
	return p.process.CreateTopic(ctx, topic, floor)
}

func TestSpecValidate(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string // field
	}{
		{Spec{Name: "a/b", Partitions: 1}, "topic name"},
		{Spec{Name: "t", Partitions: 0}, "partitions"},
		{Spec{Name: "t", Partitions: 49*64 + 1}, "partitions"},
		{Spec{Name: "t", Partitions: 49*8 + 1, LaneWidth: 8}, "partitions"},
		{Spec{Name: "t", Partitions: 1, LaneWidth: 65}, "partitions per lane"},
		{Spec{Name: "t", Partitions: 1, LaneWidth: -1}, "partitions per lane"},
		{Spec{Name: "t", Partitions: 49 * 8, LaneWidth: 8}, ""},
		{Spec{Name: strings.Repeat("t", 249), Partitions: 49 * 64}, ""},
	} {
		err := c.spec.Validate()
		var f *metadata.FieldError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &f) || f.Field != c.want) {
			t.Errorf("%+v: %v, want an error about %q", c.spec, err, c.want)
		}
	}
	table := newTable(t)
	mustCreate(t, table, "most", 49, 1)
	if got := whole(t, table, "most"); len(got.Lanes) != 49 {
		t.Errorf("%d lanes", len(got.Lanes))
	}
}
