package archive_test

import (
	"context"
	"errors"
	"testing"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/mem"
)

// listed answers with these rows, and after the first look at them with a state.
type listed struct {
	archive.Table
	rows  []*metadata.Row
	state *metadata.State
}

func (l listed) State(context.Context, metadata.LaneID, metadata.Consistency) (*metadata.State, error) {
	return l.state, nil
}

func (l listed) Row(context.Context, segment.TopicID, int, int64, metadata.Consistency) (*metadata.Row, error) {
	return nil, metadata.ErrNoRow
}

func (l listed) Rows(_ context.Context, _ segment.TopicID, _ int, from, to int64, limit int, _ metadata.Consistency) (rows []*metadata.Row, more bool, err error) {
	for _, r := range l.rows {
		if r.Base >= from && r.Base < to && len(rows) < limit {
			rows = append(rows, r)
		}
	}
	return rows, false, nil
}

// Rows that do not reach from the log start to the archived offset without a gap are an alarm.
func TestRowsAreWithoutGaps(t *testing.T) {
	rows := func(bounds ...int64) (l listed) {
		for i := 0; i < len(bounds); i += 2 {
			l.rows = append(l.rows, &metadata.Row{Topic: topicID, Base: bounds[i], End: bounds[i+1]})
		}
		return l
	}
	topic := &metadata.Topic{Name: "t", ID: topicID, Partitions: 1, LaneWidth: 1, Lanes: []metadata.LaneID{"lane"}}
	for name, c := range map[string]struct {
		rows       listed
		start, end int64
		want       int // rows; -1 is an alarm
	}{
		"all":            {rows(0, 10, 10, 20), 0, 20, 2},
		"nothing":        {rows(), 0, 0, 0},
		"all expired":    {rows(), 20, 20, 0},
		"from the start": {rows(0, 10, 10, 20, 20, 30), 12, 30, 2},
		"first missing":  {rows(10, 20), 0, 20, -1},
		"second missing": {rows(0, 10, 20, 30), 0, 30, -1},
		"last missing":   {rows(0, 10), 0, 20, -1},
		"none":           {rows(), 0, 20, -1},
		"overlap":        {rows(0, 12, 10, 20), 0, 20, -1},
	} {
		c.rows.state = &metadata.State{Starts: metadata.Offsets{c.start}, Ends: metadata.Offsets{c.end}}
		got, err := archive.Rows(t.Context(), c.rows, topic, 0, c.rows.state)
		alarm := errors.As(err, new(*archive.AlarmError))
		if alarm != (c.want < 0) || !alarm && (err != nil || len(got) != c.want) {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
		}
	}
}

// Whoever stood still after reading the state, while the log start moved and the sweep came, finds no alarm but the rows from the log start on.
func TestRowsAfterASweep(t *testing.T) {
	topic := &metadata.Topic{Name: "t", ID: topicID, Partitions: 1, LaneWidth: 1, Lanes: []metadata.LaneID{"lane"}}
	l := listed{rows: []*metadata.Row{{Topic: topicID, Base: 10, End: 20}}, state: &metadata.State{Starts: metadata.Offsets{10}, Ends: metadata.Offsets{20}}}
	if got, err := archive.Rows(t.Context(), l, topic, 0, &metadata.State{Ends: metadata.Offsets{20}}); err != nil || len(got) != 1 {
		t.Errorf("%d rows, %v", len(got), err)
	}
	l.rows, l.state = nil, &metadata.State{Starts: metadata.Offsets{20}, Ends: metadata.Offsets{20}}
	if got, err := archive.Rows(t.Context(), l, topic, 0, &metadata.State{Ends: metadata.Offsets{20}}); err != nil || len(got) != 0 {
		t.Errorf("%d rows, %v", len(got), err)
	}
}

// Batches hands over what a row has, whatever the sizes, and says what is not as the row says.
func TestBatches(t *testing.T) {
	objects := mem.New()
	s := spec(0, 8)
	var want [][]byte
	rows, _, err := archive.Write(t.Context(), env.System(), objects, s, func(w *archive.Writer) error {
		check(t, w.Begin(run(0, 100, 5000)))
		for i, size := range []int{10, 3 << 20, 10, 9 << 20, 30 << 10, 10} {
			b := batch(t, 100+int64(i)*100, 2, size)
			want = append(want, b)
			check(t, w.Add(b, archive.UnknownTime, 0))
		}
		return nil
	})
	check(t, err)
	read := func(change func(*metadata.Row)) (n int, err error) {
		row := rows[0]
		change(&row)
		err = archive.Batches(t.Context(), objects, &row, func(b []byte) error {
			if n < len(want) && string(b) != string(want[n]) {
				t.Errorf("batch %d has %d bytes, want %d", n, len(b), len(want[n]))
			}
			n++
			return nil
		})
		return n, err
	}
	if n, err := read(func(*metadata.Row) {}); n != len(want) || err != nil {
		t.Fatalf("%d batches, %v", n, err)
	}
	for name, c := range map[string]struct {
		change func(*metadata.Row)
		want   error
	}{
		"count":     {func(r *metadata.Row) { r.Count++ }, metadata.ErrCorrupt},
		"cut off":   {func(r *metadata.Row) { r.Bytes-- }, metadata.ErrCorrupt},
		"shifted":   {func(r *metadata.Row) { r.Start++ }, metadata.ErrCorrupt},
		"end":       {func(r *metadata.Row) { r.End = 500 }, metadata.ErrCorrupt},
		"base":      {func(r *metadata.Row) { r.Base = 101 }, metadata.ErrCorrupt},
		"too long":  {func(r *metadata.Row) { r.Bytes += 1 << 30 }, store.ErrShort},
		"elsewhere": {func(r *metadata.Row) { r.Topic = "ba9876543210" }, store.ErrNotExist},
	} {
		if _, err := read(c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
