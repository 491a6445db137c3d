package monitor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/monitor"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/logtest"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
)

func produce(w *logtest.World, log *sdk.Log, topic string, partition, n int) {
	w.T.Helper()
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))
	w.Must(err)
	for i := range n {
		w.Must(p.ProduceSync(context.Background(), &sdk.Record{Topic: topic, Partition: partition, Value: fmt.Append(nil, i)}).Err())
	}
	w.Must(p.Close(context.Background()))
}

// consume reads a topic as a group, until n records have come, and commits them.
func consume(w *logtest.World, log *sdk.Log, group, topic string, n int) {
	w.T.Helper()
	c, err := log.NewConsumer(context.Background(), group, []string{topic}, sdk.ManualCommit())
	w.Must(err)
	for n > 0 {
		fetches, err := c.Poll(context.Background())
		w.Must(err)
		for _, f := range fetches {
			n -= len(f.Records)
		}
	}
	w.Must(c.Commit(context.Background()))
	w.Must(c.Close(context.Background()))
}

func measure(w *logtest.World, log *sdk.Log) *monitor.Report {
	w.T.Helper()
	r, err := monitor.Run(context.Background(), log.Backend().Table, env.System())
	w.Must(err)
	return r
}

func TestMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := logtest.New(t)
		log := w.Open()
		defer log.Close()
		w.Create(log, sdk.NewTopic{Name: "t", Partitions: 3, LaneWidth: 2, Config: map[string]string{"retention.ms": fmt.Sprint((10 * time.Hour).Milliseconds())}})
		w.Create(log, sdk.NewTopic{Name: "quiet", Partitions: 1})
		produce(w, log, "t", 0, 5)
		produce(w, log, "t", 2, 3)
		consume(w, log, "g", "t", 8)
		time.Sleep(time.Hour)
		produce(w, log, "t", 0, 2)
		time.Sleep(time.Hour)
		produce(w, log, "t", 2, 30) // spills

		r := measure(w, log)
		if len(r.Groups) != 1 || len(r.Topics) != 2 || r.Swept {
			t.Fatalf("%+v", r)
		}
		g := r.Groups[0]
		if g.Group != "g" || g.Topic != "t" || g.Lag != 30 || g.Age < time.Hour || g.Age > time.Hour+time.Minute || math.Abs(g.Used-0.1) > 0.01 || g.Lost != 0 {
			t.Errorf("group %+v: the lag is the largest, and so is the age, of another partition", g)
		}
		if q := r.Topics[0]; q.Topic != "quiet" || q.Unarchived != 0 || q.Oldest != 0 || q.Unspilled != 0 || q.EpochRaises != 0 {
			t.Errorf("%+v", q)
		}
		if x := r.Topics[1]; x.Unarchived != 40 || x.Oldest < 2*time.Hour || x.Oldest > 2*time.Hour+time.Minute || x.Unspilled < 1 || x.Unspilled >= 33 { // when a spill comes is chance
			t.Errorf("%+v", x)
		}

		// An outcome that had to be settled leaves a raised epoch behind, and is counted by the hook.
		counts := &monitor.Counts{}
		hooked := w.Open(sdk.WithHooks(counts))
		defer hooked.Close()
		n := 0
		w.OnTable = func(c dynamodb.Call) dynamodb.Fault {
			if logtest.IsCommit(c) {
				switch n++; n {
				case 1:
					return dynamodb.Throttle()
				case 2:
					return dynamodb.Dropped()
				}
			}
			return dynamodb.Fault{}
		}
		produce(w, hooked, "quiet", 0, 1)
		w.OnTable = nil
		if r := measure(w, log); r.Topics[0].EpochRaises != 1 {
			t.Errorf("%+v", r.Topics[0])
		}
		var out bytes.Buffer
		w.Must(counts.Write(&out, time.Now(), "bucket/prefix", "produce"))
		w.Must(counts.Write(&out, time.Now(), "bucket/prefix", "produce")) // there is nothing new
		if lines := parse(t, out.Bytes()); len(lines) != 1 || lines[0]["UnknownOutcomes"] != 1.0 || lines[0]["UnsettledOutcomes"] != 0.0 || lines[0]["Throttles"] != 1.0 {
			t.Errorf("%s", out.Bytes())
		}

		// What was archived is no backlog, but is behind all the same; what was expired before it was read is lost.
		_, err := compact.Run(t.Context(), log.Backend().Table, log.Backend().Store, compact.Options{All: true, Env: env.System()})
		w.Must(err)
		_, err = sweep.Run(t.Context(), log.Backend().Table, log.Backend().Store, sweep.Options{Env: env.System()})
		w.Must(err)
		_, err = log.Admin().DeleteRecords(t.Context(), "t", 2, 20)
		w.Must(err)
		time.Sleep(time.Hour)
		r = measure(w, log)
		if x := r.Topics[1]; x.Unarchived != 0 || x.Oldest != 0 {
			t.Errorf("%+v", x)
		}
		if g := r.Groups[0]; g.Lag != 13 || g.Lost != 17 || g.Age < 3*time.Hour || g.Age > 3*time.Hour+time.Minute { // in the archive the age is that of the extent's first
			t.Errorf("%+v", g)
		}
		if !r.Swept || r.Floor < 2*time.Hour || r.Floor > 2*time.Hour+time.Minute {
			t.Errorf("floor %v", r.Floor)
		}
		for _, line := range written(t, r) {
			checkLine(t, line)
		}
	})
}

// written is what a report writes, parsed.
func written(t *testing.T, r *monitor.Report) []map[string]any {
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	return parse(t, out.Bytes())
}

func parse(t *testing.T, b []byte) (lines []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(b) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, m)
	}
	return lines
}

// checkLine checks a line against the embedded metric format: what the directive names is there, and within the format's bounds.
func checkLine(t *testing.T, line map[string]any) {
	t.Helper()
	b, _ := json.Marshal(line["_aws"])
	var aws struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	}
	if err := json.Unmarshal(b, &aws); err != nil {
		t.Fatal(err)
	}
	if len(aws.CloudWatchMetrics) != 1 || aws.Timestamp == 0 {
		t.Fatalf("%s", b)
	}
	d := aws.CloudWatchMetrics[0]
	if d.Namespace != "varve" || len(d.Dimensions) != 1 || len(d.Dimensions[0]) > monitor.MaxDimensions || len(d.Metrics) == 0 || len(d.Metrics) > monitor.MaxMetrics {
		t.Errorf("%s", b)
	}
	for _, name := range d.Dimensions[0] {
		if name != monitor.ByLog && name != monitor.ByTopic && name != monitor.ByGroup && name != monitor.ByFunction {
			t.Errorf("dimension %q", name)
		}
		if s, ok := line[name].(string); !ok || s == "" {
			t.Errorf("dimension %s is %v", name, line[name])
		}
	}
	for _, m := range d.Metrics {
		if _, ok := line[m.Name].(float64); !ok || m.Unit != "Count" && m.Unit != "Seconds" && m.Unit != "None" {
			t.Errorf("metric %s in %s is %v", m.Name, m.Unit, line[m.Name])
		}
	}
	if n := len(line); n != 1+len(d.Dimensions[0])+len(d.Metrics) {
		t.Errorf("%d members: %v", n, line)
	}
}

// However many partitions a topic has there is one line for it, one for each group that reads it, and one for the log; the log's has the worst of all.
func TestLines(t *testing.T) {
	r := &monitor.Report{Log: "b/p", At: time.UnixMilli(1), Swept: true, Floor: time.Minute}
	for i := range 3 {
		r.Topics = append(r.Topics, monitor.Topic{Topic: fmt.Sprint("t", i), Unarchived: int64(10 * i), Oldest: time.Duration(i) * time.Second, Unspilled: int64(i), EpochRaises: 1})
		for j := range 2 {
			r.Groups = append(r.Groups, monitor.Group{Group: fmt.Sprint("g", j), Topic: fmt.Sprint("t", i), Lag: int64(i + j), Used: float64(i) / 4})
		}
	}
	lines := written(t, r)
	if len(lines) != 1+3+6 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		checkLine(t, line)
	}
	if whole := lines[0]; whole[monitor.Lag] != 3.0 || whole[monitor.RetentionUsed] != 0.5 || whole[monitor.Backlog] != 30.0 || whole[monitor.BacklogAge] != 2.0 ||
		whole[monitor.Spill] != 2.0 || whole[monitor.EpochRaises] != 3.0 || whole[monitor.FloorAge] != 60.0 || whole[monitor.ByLog] != "b/p" || whole[monitor.ByTopic] != nil {
		t.Errorf("%v", whole)
	}
	if r.Swept = false; written(t, r)[0][monitor.FloorAge] != nil {
		t.Error("a log without a floor has an age of it")
	}
}

// A log in which nothing waits costs two requests for each lane, one for each group, and five: however many partitions it has, and however long it is.
func TestIdleCosts(t *testing.T) {
	for _, records := range []int{1, 100} {
		synctest.Test(t, func(t *testing.T) {
			w := logtest.New(t)
			log := w.Open()
			defer log.Close()
			const topics, lanes, groups = 2, 3, 2
			for i := range topics {
				name := fmt.Sprint("t", i)
				w.Create(log, sdk.NewTopic{Name: name, Partitions: 8 * lanes, LaneWidth: 8})
				for p := range lanes {
					produce(w, log, name, 8*p, records)
				}
				for g := range groups {
					consume(w, log, fmt.Sprint("g", g), name, lanes*records)
				}
			}
			_, err := compact.Run(t.Context(), log.Backend().Table, log.Backend().Store, compact.Options{All: true, Env: env.System()})
			w.Must(err)
			w.Counts()
			r := measure(w, log)
			table, objects, kinds := w.Counts()
			t.Logf("%d records: %s", records, kinds)
			if want := topics*lanes*2 + groups + 5; table > want || objects > 0 {
				t.Errorf("%d requests to the table, want at most %d; %d to the store", table, want, objects)
			}
			if len(r.Groups) != topics*groups {
				t.Errorf("%d groups and topics measured", len(r.Groups))
			}
			for _, g := range r.Groups {
				if g.Lag != 0 {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

// A lane that cannot be read does not keep the others from being measured, and a topic that is deleted meanwhile is no error.
func TestWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := logtest.New(t)
		log := w.Open()
		defer log.Close()
		w.Create(log, sdk.NewTopic{Name: "a", Partitions: 1})
		w.Create(log, sdk.NewTopic{Name: "b", Partitions: 1})
		b := log.Backend().Table
		rows, _, err := b.Topics(t.Context(), "", 10)
		w.Must(err)
		w.OnTable = func(c dynamodb.Call) dynamodb.Fault {
			if c.Op == "GetItem" && c.Keys[0].Partition == "L#"+string(rows[0].Lanes[0]) {
				return dynamodb.ServerError()
			}
			return dynamodb.Fault{}
		}
		r, err := monitor.Run(t.Context(), b, env.System())
		if err == nil || len(r.Topics) != 1 || r.Topics[0].Topic != "b" {
			t.Errorf("%+v, %v", r, err)
		}
		w.OnTable = nil
		gone, err := monitor.Run(t.Context(), deleting{b, log}, env.System())
		if err != nil || len(gone.Topics) != 1 {
			t.Errorf("%+v, %v", gone, err)
		}
	})
}

// deleting deletes topic a when topics have been listed.
type deleting struct {
	metadata.Table
	log *sdk.Log
}

func (d deleting) Topics(ctx context.Context, after string, limit int) ([]*metadata.Topic, bool, error) {
	all, more, err := d.Table.Topics(ctx, after, limit)
	if len(all) == 2 {
		d.log.Admin().DeleteTopic(ctx, "a")
	}
	return all, more, err
}

var _ sdk.RequestHook = (*monitor.Counts)(nil)
var _ sdk.SettleHook = (*monitor.Counts)(nil)

func TestCountsThrottlingOfBoth(t *testing.T) {
	c := &monitor.Counts{}
	c.OnRequest(sdk.RequestEvent{Err: fmt.Errorf("x: %w", metadata.ErrThrottled)})
	c.OnRequest(sdk.RequestEvent{Err: fmt.Errorf("x: %w", store.ErrThrottled)})
	c.OnRequest(sdk.RequestEvent{Err: fmt.Errorf("x")})
	c.OnSettle(sdk.SettleEvent{Branch: "unknown"})
	var out bytes.Buffer
	if err := c.Write(&out, time.UnixMilli(5), "b/p", "ingest"); err != nil {
		t.Fatal(err)
	}
	line := parse(t, out.Bytes())[0]
	checkLine(t, line)
	if line[monitor.Throttles] != 2.0 || line[monitor.Unknown] != 1.0 || line[monitor.Unsettled] != 1.0 {
		t.Errorf("%v", line)
	}
}
