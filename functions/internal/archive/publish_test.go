package archive_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment"
)

// table is a table that loses the answers to publications as a test says.
type table struct {
	metadata.Table
	before, after []error // of the next calls: not sent, and sent
	sent          int
}

func (t *table) Publish(ctx context.Context, p *metadata.Publication) error {
	t.sent++
	if err := pop(&t.before); err != nil {
		return err
	}
	err := t.Table.Publish(ctx, p)
	if lost := pop(&t.after); lost != nil {
		return lost
	}
	return err
}

func pop(errs *[]error) (err error) {
	if len(*errs) > 0 {
		err, *errs = (*errs)[0], (*errs)[1:]
	}
	return err
}

type world struct {
	testing.TB
	table *table
	topic *metadata.Topic
	ids   uint64
}

func newWorld(t testing.TB) *world {
	engine, err := dynamodb.New(dynamodb.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, engine.Close()) })
	config := aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: engine}
	opened, err := dynamo.Open(dynamo.Config{AWS: config, TableName: "varve", Env: env.System()})
	check(t, err)
	check(t, opened.EnsureTable(t.Context()))
	w := &world{TB: t, table: &table{Table: opened}, topic: &metadata.Topic{Name: "topic", ID: topicID, Version: 1, Partitions: 4, LaneWidth: 2, Lanes: []metadata.LaneID{"a", "b"}, Partitioner: "murmur2",
		History: []metadata.Growth{{Version: 1, Partitions: 4}}, Classes: []segment.Class{7}, Config: metadata.DefaultTopicConfig()}}
	check(t, opened.CreateTopic(t.Context(), w.topic, segment.ID{}))
	return w
}

func (w *world) id() segment.ID {
	w.ids++
	return segment.NewID(born, 7, segment.Archived, w.ids, segment.ID{})
}

func row(partition int, base, end int64, id segment.ID) metadata.Row {
	return metadata.Row{Topic: topicID, Partition: partition, Base: base, End: end, Count: end - base, Segment: id, Start: 16, Bytes: 100, First: born, Last: born}
}

// compacted is a publication of the orders [from, from+8) of lane b, ten offsets of each partition.
func (w *world) compacted(from int64) *metadata.Publication {
	id, n := w.id(), from/8*10
	return &metadata.Publication{Lane: "b", ID: id, From: from, To: from + 8, Ends: map[metadata.Slot]int64{0: n + 10, 1: n + 10}, Put: []metadata.Row{row(2, n, n+10, id), row(3, n, n+10, id)}}
}

// TestPublishSettles: whatever becomes of the answers, what was applied is reported as published, and what was not as what it is.
func TestPublishSettles(t *testing.T) {
	lost := fmt.Errorf("lost: %w", metadata.ErrUnavailable)
	refused := fmt.Errorf("refused: %w", metadata.ErrChanged)
	for name, c := range map[string]struct {
		before, after []error
		want          error
		applied       bool
		sent          int
	}{
		"answered":                    {nil, nil, nil, true, 1},
		"applied, answer lost":        {nil, []error{lost}, nil, true, 1},
		"applied, refused when again": {nil, []error{refused}, nil, true, 1},
		"lost once":                   {[]error{lost}, nil, nil, true, 2},
		"lost, then applied and lost": {[]error{lost}, []error{lost}, nil, true, 2},
		"lost for good":               {[]error{lost, lost, lost}, nil, metadata.ErrOutcomeUnknown, false, 3},
		"denied":                      {[]error{metadata.ErrDenied}, nil, metadata.ErrDenied, false, 1},
	} {
		w := newWorld(t)
		w.table.before, w.table.after = c.before, c.after
		p := w.compacted(0)
		err := archive.Publish(t.Context(), env.System(), w.table, w.topic, p)
		if !errors.Is(err, c.want) || w.table.sent != c.sent {
			t.Errorf("%s: sent %d times, %v", name, w.table.sent, err)
		}
		state, err := w.table.State(t.Context(), "b", metadata.Strong)
		check(t, err)
		if applied := state.Archived == 8; applied != c.applied {
			t.Errorf("%s: archived up to %d", name, state.Archived)
		}
	}
}

// Publications that leave nothing for the sweep are settled by their rows and by the state.
func TestPublishSettlesWithoutWorkList(t *testing.T) {
	w := newWorld(t)
	check(t, archive.Publish(t.Context(), env.System(), w.table, w.topic, w.compacted(0)))
	empty := func(base, end int64) metadata.Row {
		return metadata.Row{Topic: topicID, Partition: 2, Base: base, End: end, First: born, Last: born}
	}
	old, err := w.table.Row(t.Context(), topicID, 2, 0, metadata.Strong)
	check(t, err)
	id := w.id()
	check(t, archive.Publish(t.Context(), env.System(), w.table, w.topic,
		&metadata.Publication{Lane: "b", ID: id, From: 8, To: 8, Replace: []metadata.Row{*old}, Left: []segment.ID{old.Segment}, Put: []metadata.Row{empty(0, 5), empty(5, 10)}}))
	for _, p := range []*metadata.Publication{
		{Lane: "b", ID: w.id(), From: 8, To: 8, Replace: []metadata.Row{empty(0, 5), empty(5, 10)}, Put: []metadata.Row{empty(0, 10)}},
	} {
		w.table.sent, w.table.before = 0, []error{metadata.ErrUnavailable}
		w.table.after = []error{metadata.ErrUnavailable}
		check(t, archive.Publish(t.Context(), env.System(), w.table, w.topic, p))
		if w.table.sent != 2 {
			t.Errorf("sent %d times", w.table.sent)
		}
	}
}

// TestPublishLoses: lost, stale, gone and alarm are told apart, and change nothing.
func TestPublishLoses(t *testing.T) {
	w := newWorld(t)
	late, stale := w.compacted(0), w.compacted(8)
	check(t, archive.Publish(t.Context(), env.System(), w.table, w.topic, w.compacted(0)))
	if err := archive.Publish(t.Context(), env.System(), w.table, w.topic, late); !errors.Is(err, metadata.ErrChanged) {
		t.Error(err)
	}
	if w.table.sent != 1 {
		t.Error("what is lost already was sent")
	}
	// One that another overtakes between its look at the state and its transaction.
	e := env.System()
	e.Pause = func(at env.Point) {
		if at == env.BeforePublish {
			check(t, w.table.Table.Publish(t.Context(), w.compacted(8)))
		}
	}
	if err := archive.Publish(t.Context(), e, w.table, w.topic, w.compacted(8)); !errors.Is(err, metadata.ErrChanged) || errors.As(err, new(*metadata.StaleError)) {
		t.Error(err)
	}
	stale.From, stale.To = 16, 24
	for i := range stale.Put {
		stale.Put[i].Base, stale.Put[i].End = 20, 30
	}
	stale.Ends = map[metadata.Slot]int64{0: 30, 1: 30}
	check(t, w.table.RaiseStateFloor(t.Context(), "b", w.id()))
	if err := archive.Publish(t.Context(), env.System(), w.table, w.topic, stale); !errors.As(err, new(*metadata.StaleError)) {
		t.Error(err)
	}
	gap := w.compacted(16)
	gap.Put[0].Base++
	gap.Put[0].Count--
	var alarm *archive.AlarmError
	if err := archive.Publish(t.Context(), env.System(), w.table, w.topic, gap); !errors.As(err, &alarm) || !strings.Contains(err.Error(), "partition 2") {
		t.Error(err)
	}
	state, err := w.table.State(t.Context(), "b", metadata.Strong)
	check(t, err)
	if state.Archived != 16 || state.Ends[0] != 20 {
		t.Errorf("%+v", state)
	}
	gone := w.compacted(16)
	_, err = w.table.DeleteLaneRest(t.Context(), "b")
	check(t, err)
	if err := archive.Publish(t.Context(), env.System(), w.table, w.topic, gone); !errors.Is(err, metadata.ErrNoState) {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	topic := &metadata.Topic{Name: "topic", ID: topicID, Partitions: 4, LaneWidth: 2, Lanes: []metadata.LaneID{"a", "b"}}
	state := &metadata.State{Lane: "b", Ends: metadata.Offsets{100, 50}, Starts: metadata.Offsets{0, 70}}
	id := segment.NewID(born, 7, segment.Archived, 1, segment.ID{})
	r := func(partition int, spans ...int64) (rows []metadata.Row) {
		for i := 0; i < len(spans); i += 2 {
			rows = append(rows, row(partition, spans[i], spans[i+1], id))
		}
		return rows
	}
	ends := func(a, b int64) map[metadata.Slot]int64 { return map[metadata.Slot]int64{0: a, 1: b} }
	for name, c := range map[string]struct {
		put, replace []metadata.Row
		ends         map[metadata.Slot]int64
		sound        bool
	}{
		"nothing":                {nil, nil, nil, true},
		"follows":                {r(2, 100, 120), nil, ends(120, 50), true},
		"follows in two":         {r(2, 110, 120, 100, 110), nil, ends(120, 50), true},
		"short":                  {r(2, 100, 119), nil, ends(120, 50), false},
		"long":                   {r(2, 100, 121), nil, ends(120, 50), false},
		"no end":                 {r(2, 100, 120), nil, nil, false},
		"no row":                 {nil, nil, ends(120, 50), false},
		"gap":                    {r(2, 100, 110, 111, 120), nil, ends(120, 50), false},
		"overlap":                {r(2, 100, 110, 109, 120), nil, ends(120, 50), false},
		"begins late":            {r(2, 101, 120), nil, ends(120, 50), false},
		"begins early":           {r(2, 99, 120), nil, ends(120, 50), false},
		"goes back":              {nil, nil, ends(99, 50), false},
		"below the start":        {r(3, 70, 80), nil, ends(100, 80), true},
		"at an extent below it":  {r(3, 60, 80), nil, ends(100, 80), true},
		"all below the start":    {nil, nil, ends(100, 60), true},
		"beyond the start":       {r(3, 71, 80), nil, ends(100, 80), false},
		"none beyond the start":  {nil, nil, ends(100, 71), false},
		"replaces":               {r(2, 0, 30), r(2, 0, 10, 10, 30), nil, true},
		"replaces and follows":   {r(2, 0, 120), r(2, 0, 100), ends(120, 50), true},
		"replaces too little":    {r(2, 0, 29), r(2, 0, 10, 10, 30), nil, false},
		"replaces with a gap":    {r(2, 0, 9, 10, 30), r(2, 0, 10, 10, 30), nil, false},
		"replaces two apart":     {r(2, 0, 10, 20, 30), r(2, 0, 10, 20, 30), nil, true},
		"bridges a row":          {r(2, 0, 30), r(2, 0, 10, 20, 30), nil, false},
		"replaces nothing":       {r(2, 0, 10), nil, nil, false},
		"another lane":           {r(1, 0, 10), r(1, 0, 10), nil, false},
		"a partition it has not": {r(4, 0, 10), r(4, 0, 10), nil, false},
	} {
		err := archive.Check(state, topic, &metadata.Publication{Lane: "b", ID: id, Put: c.put, Replace: c.replace, Ends: c.ends})
		if (err == nil) != c.sound || err != nil && !errors.As(err, new(*archive.AlarmError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
