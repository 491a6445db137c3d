package monitor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Namespace is that of all metrics.
const Namespace = "varve"

// Dimensions. A partition is never one: each value of a dimension makes metrics that are paid for, and there are too many partitions.
const (
	ByLog      = "Log"
	ByTopic    = "Topic"
	ByGroup    = "Group"
	ByFunction = "Function"
)

// Metrics.
const (
	Lag           = "Lag"                  // records; by log the largest, by group and topic that of the partition that is furthest behind
	LagAge        = "LagAge"               // seconds, likewise
	RetentionUsed = "RetentionUsed"        // share of the retention time, likewise: an alarm at 0.5 has half of it left to act in
	Lost          = "Lost"                 // records, likewise
	Backlog       = "CompactionBacklog"    // commits; by log and by topic
	BacklogAge    = "CompactionBacklogAge" // seconds
	Spill         = "SpillBacklog"         // commits in the fullest head, of 64
	EpochRaises   = "EpochRaises"          // since the topics were created: what counts is its rate
	FloorAge      = "FloorAge"             // seconds; by log; an hour behind a sweep
	Unknown       = "UnknownOutcomes"      // of a function, since its last line
	Unsettled     = "UnsettledOutcomes"    // those of them that could not be found out
	Throttles     = "Throttles"
)

// Limits of one line.
const (
	MaxMetrics    = 100
	MaxDimensions = 30
)

// value is one metric's.
type value struct {
	name, unit string
	is         float64
}

// dimension is one dimension's.
type dimension struct{ name, is string }

// writeLine writes metrics as one line of CloudWatch's embedded metric format, or as several if there are more than one may have.
func writeLine(w io.Writer, at time.Time, by []dimension, values ...value) error {
	if len(by) > MaxDimensions {
		return fmt.Errorf("%d dimensions, at most %d fit on a line", len(by), MaxDimensions)
	}
	for part := range slices.Chunk(values, MaxMetrics) {
		line, err := embed(at, by, part)
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

type directive struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []metric
}

type metric struct{ Name, Unit string }

func embed(at time.Time, by []dimension, values []value) ([]byte, error) {
	d := directive{Namespace: Namespace, Dimensions: [][]string{{}}, Metrics: []metric{}}
	line := map[string]any{}
	for _, x := range by {
		d.Dimensions[0] = append(d.Dimensions[0], x.name)
		line[x.name] = x.is
	}
	for _, v := range values {
		d.Metrics = append(d.Metrics, metric{v.name, v.unit})
		line[v.name] = v.is
	}
	line["_aws"] = map[string]any{"Timestamp": at.UnixMilli(), "CloudWatchMetrics": []directive{d}}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(line)
	return b.Bytes(), err
}

// Write writes the report: a line for the log, which alarms can watch without knowing its topics and groups, one for each topic, one for each group and topic.
func (r *Report) Write(w io.Writer) error {
	log := []dimension{{ByLog, r.Log}}
	var t Topic
	for _, x := range r.Topics {
		t.Unarchived, t.Oldest = t.Unarchived+x.Unarchived, max(t.Oldest, x.Oldest)
		t.Unspilled, t.EpochRaises = max(t.Unspilled, x.Unspilled), t.EpochRaises+x.EpochRaises
	}
	var g Group
	for _, x := range r.Groups {
		g.Lag, g.Age, g.Used, g.Lost = max(g.Lag, x.Lag), max(g.Age, x.Age), max(g.Used, x.Used), max(g.Lost, x.Lost)
	}
	whole := append(t.values(), g.values()...)
	if r.Swept {
		whole = append(whole, value{FloorAge, "Seconds", r.Floor.Seconds()})
	}
	if err := writeLine(w, r.At, log, whole...); err != nil {
		return err
	}
	for _, t := range r.Topics {
		if err := writeLine(w, r.At, append(log[:1:1], dimension{ByTopic, t.Topic}), t.values()...); err != nil {
			return err
		}
	}
	for _, g := range r.Groups {
		if err := writeLine(w, r.At, append(log[:1:1], dimension{ByGroup, g.Group}, dimension{ByTopic, g.Topic}), g.values()...); err != nil {
			return err
		}
	}
	return nil
}

func (t *Topic) values() []value {
	return []value{{Backlog, "Count", float64(t.Unarchived)}, {BacklogAge, "Seconds", t.Oldest.Seconds()}, {Spill, "Count", float64(t.Unspilled)},
		{EpochRaises, "Count", float64(t.EpochRaises)}}
}

func (g *Group) values() []value {
	return []value{{Lag, "Count", float64(g.Lag)}, {LagAge, "Seconds", g.Age.Seconds()}, {RetentionUsed, "None", g.Used}, {Lost, "Count", float64(g.Lost)}}
}
