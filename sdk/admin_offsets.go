package sdk

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/varvelog/varve/metadata"
)

// PartitionLoad is a partition's offsets and its part of the topic. Records counts the offsets that are retained, without those that a repair has cut out.
// The recent figures are of the commits that the index holds outside the archive and that one more read reaches: the last 64 to 128 of the lane. Shares are
// of the topic, 0 to 1.
type PartitionLoad struct {
	Partition     int     `json:"partition"`
	Start         int64   `json:"start"`
	End           int64   `json:"end"`
	Records       int64   `json:"records"`
	RecentRecords int64   `json:"recent_records"`
	RecentBytes   int64   `json:"recent_bytes"` // of record batches as stored
	RecordShare   float64 `json:"record_share"` // of Records
	ByteShare     float64 `json:"byte_share"`   // of RecentBytes
}

// Description is a topic and its partitions, hottest first: by recent bytes, then by records.
type Description struct {
	Topic
	Load []PartitionLoad `json:"load"`
}

// DescribeTopic describes a topic by strong reads: two requests per lane, and a third for lanes that have spilled.
func (a *Admin) DescribeTopic(ctx context.Context, name string) (*Description, error) {
	if a.log.remote != nil {
		t, err := a.log.remote.describe(ctx, a.log, name)
		if err != nil {
			return nil, err
		}
		return a.log.remote.load(ctx, t)
	}
	t, err := a.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &Description{Topic: *topicOf(t)}
	for _, lane := range t.Lanes {
		load, err := a.laneLoad(ctx, t, lane)
		if err != nil {
			return nil, inTopic(name, err)
		}
		d.Load = append(d.Load, load...)
	}
	share(d.Load)
	slices.SortStableFunc(d.Load, func(x, y PartitionLoad) int {
		if x.RecentBytes != y.RecentBytes {
			return sign(y.RecentBytes - x.RecentBytes)
		}
		return sign(y.Records - x.Records)
	})
	return d, nil
}

// recentOrders is how many spilled commits of a lane are looked at for its load.
const recentOrders = 64

func (a *Admin) laneLoad(ctx context.Context, t *metadata.Topic, lane metadata.LaneID) ([]PartitionLoad, error) {
	state, head, err := a.log.walker.Bounds(ctx, lane)
	if err != nil {
		return nil, err
	}
	var records, bytes metadata.Offsets
	count := func(entries []metadata.Entry) {
		for _, e := range entries {
			for _, s := range e.Slots {
				if s.Count > 0 {
					records[s.Slot] += int64(s.Count)
					bytes[s.Slot] += int64(s.Bytes)
				}
			}
		}
	}
	count(head.Entries)
	if from := max(state.First, head.First-recentOrders, 0); from < head.First {
		chunks, _, err := a.log.table.Chunks(ctx, lane, from, head.First, recentOrders, metadata.Strong)
		if err != nil {
			return nil, err
		}
		for _, c := range chunks {
			count(c.Entries)
		}
	}
	var load []PartitionLoad
	for p := range t.Partitions {
		at := t.Place(p)
		if at.Lane == lane {
			start, end := state.Starts[at.Slot], head.Ends[at.Slot]
			load = append(load, PartitionLoad{Partition: p, Start: start, End: end, Records: state.SlotCuts(at.Slot).Count(start, end), RecentRecords: records[at.Slot], RecentBytes: bytes[at.Slot]})
		}
	}
	return load, nil
}

func share(load []PartitionLoad) {
	var records, bytes int64
	for _, l := range load {
		records += l.Records
		bytes += l.RecentBytes
	}
	for i := range load {
		load[i].RecordShare = float64(load[i].Records) / float64(max(records, 1))
		load[i].ByteShare = float64(load[i].RecentBytes) / float64(max(bytes, 1))
	}
}

func sign(n int64) int { return int(max(-1, min(1, n))) }

// Offsets returns the offsets of every partition of the topic, by strong reads, in order of partitions.
func (a *Admin) Offsets(ctx context.Context, topic string) ([]PartitionOffsets, error) {
	t, err := a.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	all, err := a.log.offsets(ctx, t)
	if err != nil {
		return nil, inTopic(topic, err)
	}
	offsets := make([]PartitionOffsets, len(all))
	for p := range all {
		offsets[p] = all[p].public()
	}
	return offsets, nil
}

// DeleteRecords moves the partition's log start up to before: what is below is not read any more, and its space is won back in time. It returns the
// log start, which is higher if it was higher. A *RangeError (ErrOutOfRange) if before is past the end.
func (a *Admin) DeleteRecords(ctx context.Context, topic string, partition int, before int64) (start int64, err error) {
	at, err := a.place(ctx, topic, partition, "delete records")
	if err != nil {
		return 0, err
	}
	if before < 0 {
		return 0, &FieldError{Topic: topic, Partition: partition, Field: "offset to delete before", Value: strconv.FormatInt(before, 10), Valid: "0 to the partition's end"}
	}
	state, head, err := a.log.walker.Bounds(ctx, at.Lane)
	if err != nil {
		return 0, inTopic(topic, err)
	}
	if end := head.Ends[at.Slot]; before > end {
		return 0, &RangeError{Topic: topic, Partition: partition, Offset: before, Start: state.Starts[at.Slot], End: end, Err: ErrOutOfRange}
	}
	state, err = a.log.table.SetStart(ctx, at.Lane, at.Slot, before)
	if err != nil {
		return 0, inTopic(topic, err)
	}
	return state.Starts[at.Slot], nil
}

// SetFence raises the partition's fencing token from one value to a larger one; 0 is a token that was never set. From then on only appends that
// name the new token (TokenIs) or none are accepted. ErrChanged: the token is not from, which includes the case that the answer to this very
// call was lost and repeated; nobody who gets nil shares a token with somebody else. Read it with Fence, and raise it again.
func (a *Admin) SetFence(ctx context.Context, topic string, partition int, from, to int64) error {
	at, err := a.place(ctx, topic, partition, "set a fencing token")
	if err != nil {
		return err
	}
	if from < 0 || to <= from {
		return &FieldError{Topic: topic, Partition: partition, Field: "fencing token", Value: fmt.Sprintf("%d to %d", from, to), Valid: "from 0 or more to a larger one"}
	}
	if err := a.log.table.SetToken(ctx, at.Lane, at.Slot, from, to); err != nil {
		return inTopic(topic, err)
	}
	return nil
}

// Fence reads the partition's fencing token strongly; 0 if it was never set.
func (a *Admin) Fence(ctx context.Context, topic string, partition int) (int64, error) {
	at, err := a.place(ctx, topic, partition, "read a fencing token")
	if err != nil {
		return 0, err
	}
	head, err := a.log.table.Head(ctx, at.Lane, metadata.Strong)
	if err != nil {
		return 0, inTopic(topic, err)
	}
	return head.Tokens[at.Slot], nil
}

// OffsetForTime returns the first offset, in order of offsets, whose index timestamp is at or after the time (see AtTime); ErrNoOffset when there is none.
func (a *Admin) OffsetForTime(ctx context.Context, topic string, partition int, at time.Time) (int64, error) {
	t, err := a.topic(ctx, topic)
	if err != nil {
		return 0, err
	}
	if _, err := placeOf(t, partition); err != nil {
		return 0, err
	}
	if a.log.remote != nil {
		return a.log.remote.offsetForTime(ctx, topic, partition, at)
	}
	return a.log.offsetForTime(ctx, t, partition, at)
}
