package compact_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func TestReclass(t *testing.T) {
	const day = 24 * time.Hour
	of := func(class segment.Class, rows []*metadata.Row) []*metadata.Row {
		for i, r := range rows {
			r.Segment = segment.NewID(epoch, class, segment.Archived, uint64(i), segment.ID{})
		}
		return rows
	}
	empty := times(2, 0)
	mixed := of(7, times(6, 1000))
	of(30, mixed[2:4])
	topic := func(keep time.Duration, policy string) *metadata.Topic {
		return &metadata.Topic{Config: metadata.TopicConfig{CleanupPolicy: policy, Retention: keep}}
	}
	for name, c := range map[string]struct {
		rows  []*metadata.Row
		topic *metadata.Topic
		age   time.Duration
		due   [][2]int
		want  string
	}{
		"of the topic's class":  {of(7, times(3, 1000)), topic(7*day, "delete"), day, nil, "[]"},
		"kept for longer now":   {of(7, times(3, 1000)), topic(30*day, "delete"), day, nil, "[[0 1] [1 2] [2 3]]"},
		"some of them":          {mixed, topic(30*day, "delete"), day, nil, "[[0 1] [1 2] [4 5] [5 6]]"},
		"merged anyway":         {mixed, topic(30*day, "delete"), day, [][2]int{{1, 3}, {4, 6}}, "[[0 1] [1 3] [4 6]]"},
		"kept for ever now":     {of(7, times(1, 1000)), topic(-1, "delete"), day, nil, "[[0 1]]"},
		"compacted now":         {of(7, times(1, 1000)), topic(7*day, "compact"), day, nil, "[[0 1]]"},
		"kept for shorter now":  {of(30, times(3, 1000)), topic(7*day, "delete"), day, nil, "[]"},
		"longer within a class": {of(7, times(3, 1000)), topic(7*day, "delete"), day, nil, "[]"},
		"expired":               {of(7, times(3, 1000)), topic(30*day, "delete"), 8 * day, nil, "[]"},
		"nothing is left":       {empty, topic(30*day, "delete"), day, nil, "[]"},
	} {
		if got := fmt.Sprint(compact.Reclass(c.due, c.rows, c.topic, epoch.Add(c.age))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
