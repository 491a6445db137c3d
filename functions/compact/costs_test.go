package compact_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// lay puts n segments of one record for each of 64 partitions where commits and spills would have put them, without sending those.
func (w *world) lay(t *metadata.Topic, n int) {
	w.Helper()
	k := int64(metadata.ChunkOrders)
	var bases, maxima metadata.Offsets
	c := &metadata.Chunk{Lane: t.Lanes[0]}
	open := new(segment.BatchBuilder)
	born := w.env.Now().Add(-old)
	b := segment.NewBuilder(segment.Intake, w.log)
	for i := range int64(n) {
		id := segment.NewID(born.Add(time.Duration(i)*time.Millisecond/4), t.Class(), segment.InBucket, uint64(i), segment.ID{})
		b.Reset(segment.Intake, w.log)
		e := metadata.Entry{ID: id, Order: i, Start: int64(b.Size())}
		for p := range t.Partitions {
			open.Reset()
			check(w, open.Append(&segment.Record{Timestamp: id.Time().UnixMilli(), Value: []byte{byte(p), byte(i), byte(i >> 8)}}))
			info, err := b.AddOpen(segment.ExtentMeta{Lane: string(c.Lane), Slot: uint8(p), Topic: t.ID, Partition: int32(p)}, open, segment.DefaultBatchOptions())
			check(w, err)
			e.Slots = append(e.Slots, metadata.SlotEntry{Slot: metadata.Slot(p), Count: 1, Bytes: int32(info.Length), MaxTime: info.MaxTime})
		}
		body, _, err := b.Finish()
		check(w, err)
		check(w, w.objects.Put(w.Context(), segment.IntakeName(id), body))
		if c.Entries = append(c.Entries, e); int64(len(c.Entries)) == k {
			maxima = metadata.MaxTimes(maxima, c.Entries)
			c.MaxTimes = maxima
			check(w, w.table.PutChunk(w.Context(), c))
			bases = c.Ends()
			c = &metadata.Chunk{Lane: c.Lane, First: c.First + k, Bases: bases}
		}
	}
	set, values := "SET g = :n, s = :n", map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: fmt.Sprint(n)}}
	for p := range t.Partitions {
		set += fmt.Sprintf(", p%d = :n", p)
	}
	key := metadata.HeadKey(t.Lanes[0])
	_, err := w.raw.UpdateItem(w.Context(), &client.UpdateItemInput{TableName: aws.String("varve"), UpdateExpression: &set, ExpressionAttributeValues: values,
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key.PK}, "sk": &types.AttributeValueMemberS{Value: key.SK}}})
	check(w, err)
}

// TestCosts counts what docs/design.md states as formulas, at 10,000 intake segments of one lane with 64 partitions (400 under the race detector), one small
// record for each: one GET a segment, one PUT, one transaction, one row a partition; and the storage it takes.
func TestCosts(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 64)
	n := longHistory
	w.lay(topic, n)
	before := w.objects.Size()
	clear(w.calls)
	o := &objects{Store: w.objects}
	report, err := compact.Run(t.Context(), w.table, o, compact.Options{Env: w.env})
	check(t, err)
	chunks := (n/8 + 31) / 32 // pages of 32
	want := map[string]int{
		"Identity": 1, "EraMark": 1, "Topics": 1,
		"State":   4, // survey, step, publication, merges
		"Head":    2, // survey, step
		"Topic":   2, // step, merges
		"Chunk":   1, // survey
		"Chunks":  chunks,
		"Rows":    1, // merges: a sample
		"Publish": 1,
	}
	calls := maps.Clone(w.calls)
	if !maps.Equal(calls, want) {
		t.Errorf("requests to the table %v, want %v", calls, want)
	}
	if most := 2 * float64(64+2+1); w.units > most || w.units < most-4 {
		t.Errorf("%.0f write units for 64 rows, the state and the work list's entry", w.units)
	}
	if o.gets != n || o.puts != 1 || report.Segments != 1 || report.Rows != 64 {
		t.Errorf("%d GETs, %d PUTs for %d segments, %+v", o.gets, o.puts, n, report)
	}
	added := w.objects.Size() - before
	if added > before || added != report.Bytes {
		t.Errorf("%d bytes were added to %d", added, before)
	}
	for p := range topic.Partitions {
		if rows := w.rows(topic, p); len(rows) != 1 || rows[0].Count != int64(n) {
			t.Fatalf("partition %d: %d rows", p, len(rows))
		}
	}
	w.sound(topic)
	t.Logf("%d segments x 64 partitions, %d bytes: %d GETs, %d PUT, table %v, %.0f write units, storage times %.2f, %.1f s", n, before, o.gets, o.puts, calls, w.units, float64(before+added)/float64(before), report.Seconds)
	// Nothing to do costs the same for any history.
	clear(w.calls)
	_, err = compact.Run(t.Context(), w.table, o, compact.Options{Env: w.env})
	check(t, err)
	if want := (map[string]int{"Identity": 1, "EraMark": 1, "Topics": 1, "State": 2, "Head": 1, "Topic": 1, "Rows": 1}); !maps.Equal(w.calls, want) {
		t.Errorf("a run with nothing to do: %v, want %v", w.calls, want)
	}
}

// TestTarget: a lane with more than the target becomes segments of the target's size.
func TestTarget(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("topic", 1, 4)
	for range 32 {
		w.append(topic, flush{ago: old, size: 4000, records: 4}, 0, 1, 2, 3)
	}
	before := w.all(topic)
	o := w.options()
	o.Target = 250 << 10
	report := w.run(o)
	w.same(topic, before)
	if report.Segments-report.Merged < 3 {
		t.Errorf("%+v", report)
	}
	for _, j := range report.Jobs[:len(report.Jobs)-1] {
		if j.Bytes < o.Target || j.Bytes > o.Target*5/2 {
			t.Errorf("a segment of %d bytes, the target is %d", j.Bytes, o.Target)
		}
	}
}

// TestExtentsAreLarge: of 10,000 segments of 1 MiB for 64 partitions, each job makes extents of 8 MiB or more, but for the last, and the merges that are then due leave none smaller.
func TestExtentsAreLarge(t *testing.T) {
	const n, each, least = 10_000, 16 << 10, 8 << 20
	topic := &metadata.Topic{Name: "t", Lanes: []metadata.LaneID{"lane"}, LaneWidth: metadata.SlotsPerLane, Partitions: metadata.SlotsPerLane}
	b := compact.Backlog{Topic: topic, State: &metadata.State{Lane: "lane"}}
	var bases metadata.Offsets
	for i := int64(0); i < n; i++ {
		if i%metadata.ChunkOrders == 0 {
			b.Chunks = append(b.Chunks, &metadata.Chunk{Lane: "lane", First: i, Bases: bases})
		}
		e := metadata.Entry{ID: segment.NewID(epoch.Add(time.Duration(i)*time.Millisecond), 7, segment.InBucket, uint64(i), segment.ID{}), Order: i}
		for s := range metadata.Slot(metadata.SlotsPerLane) {
			e.Slots = append(e.Slots, metadata.SlotEntry{Slot: s, Count: 1, Bytes: each})
			bases[s]++
		}
		c := b.Chunks[len(b.Chunks)-1]
		c.Entries = append(c.Entries, e)
	}
	rows, jobs := map[int][]*metadata.Row{}, 0
	for b.State.Archived < n {
		job, err := compact.Plan(b, compact.Limits{Target: compact.DefaultTarget, Bucket: 10 * time.Hour})
		check(t, err)
		jobs++
		for i := range job.Copies {
			c, bytes := &job.Copies[i], int64(0)
			for _, p := range c.Pieces {
				bytes += p.Len
			}
			if bytes < least && job.To < n {
				t.Fatalf("an extent of %d bytes of partition %d from offset %d on", bytes, c.Partition, c.Base)
			}
			rows[c.Partition] = append(rows[c.Partition], &metadata.Row{Base: c.Base, End: c.End, Count: c.End - c.Base, Bytes: bytes, First: c.First, Last: c.Last})
		}
		b.Chunks = b.Chunks[(job.To-job.From)/metadata.ChunkOrders:]
		b.State.Archived = job.To
		for slot, end := range job.Ends {
			b.State.Ends[slot] = end
		}
	}
	most := 0
	for p, list := range rows {
		list, _ = merged(list, compact.Merges(list, 10*time.Hour, compact.DefaultTarget, none))
		most = max(most, len(list))
		for _, r := range list {
			if r.Bytes < least {
				t.Errorf("an extent of %d bytes of partition %d after merges", r.Bytes, p)
			}
		}
	}
	t.Logf("%d jobs, then %d extents of a partition at most", jobs, most)
}
