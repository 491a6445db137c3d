package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
)

// recoverTopics makes the topics anew of which only the bucket knows. Footers have their ids, lanes, slots and partitions; of their configurations only what the classes of
// their segments say of retention. A topic is made under its own id, with its own lanes.
func (r *run) recoverTopics(ctx context.Context) error {
	known := map[segment.TopicID]bool{}
	for _, t := range r.topics {
		known[t.ID] = true
	}
	floor, err := r.table.Floor(ctx)
	if err != nil {
		return err
	}
	var ids []segment.TopicID
	for id := range r.found.classes {
		if !known[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		t, err := r.topicOf(id)
		if err != nil {
			return err
		}
		r.report.Topics = append(r.report.Topics, Recovered{Topic: t.Name, ID: string(id), Partitions: t.Partitions})
		r.topics = append(r.topics, t)
		if r.o.DryRun {
			continue
		}
		err = r.table.CreateTopic(ctx, t, floor)
		if errors.Is(err, metadata.ErrTopicExists) { // by an answer that was lost, or another topic of that name
			if row, failed := r.table.Topic(ctx, t.Name); failed == nil && row.ID == t.ID {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("recover topic %s as %q: %w", id, t.Name, err)
		}
	}
	return nil
}

// topicOf is the row of a topic as far as footers tell.
func (r *run) topicOf(id segment.TopicID) (*metadata.Topic, error) {
	name := cmp.Or(r.o.Names[id], Unnamed+string(id))
	if err := metadata.ValidateName("topic", name); err != nil {
		return nil, err
	}
	var extents []*segment.Extent
	for i := range r.found.runs[id] {
		extents = append(extents, &r.found.runs[id][i].Extent)
	}
	for _, p := range r.found.intake {
		for _, of := range p.lanes {
			for i := range of {
				if of[i].Topic == id {
					extents = append(extents, &of[i])
				}
			}
		}
	}
	t := &metadata.Topic{Name: name, ID: id, Version: 1, Partitioner: topics.Partitioner, Keyed: true, Config: metadata.DefaultTopicConfig()}
	for _, c := range slices.Sorted(keys(r.found.classes[id])) {
		t.Classes = append(t.Classes, c)
		if t.Config.Retention = time.Duration(c) * 24 * time.Hour; c == segment.Keep {
			t.Config.Retention = -1
			break
		}
	}
	t.Classes = slices.Collect(keys(r.found.classes[id]))
	slices.Sort(t.Classes)
	t.Stored = slices.Clone(t.Classes)
	if err := placesOf(t, extents); err != nil {
		return nil, fmt.Errorf("topic %s: %w", id, err)
	}
	t.History = []metadata.Growth{{Version: 1, Partitions: t.Partitions}}
	return t, t.Validate()
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// placesOf works out how wide the topic's lanes are, and which is which: partition p is slot p%width of lane p/width.
func placesOf(t *metadata.Topic, extents []*segment.Extent) error {
	widest, divisor := 0, 0
	first := map[string]int{} // lane to the partition in its slot 0
	for _, e := range extents {
		n := int(e.Partition) - int(e.Slot)
		if before, ok := first[e.Lane]; n < 0 || ok && before != n {
			return fmt.Errorf("%w: partition %d in slot %d of lane %s, whose slot 0 is partition %d by another", metadata.ErrCorrupt, e.Partition, e.Slot, e.Lane, before)
		}
		first[e.Lane] = n
		divisor, widest, t.Partitions = gcd(divisor, n), max(widest, int(e.Slot)+1), max(t.Partitions, int(e.Partition)+1)
	}
	t.LaneWidth = metadata.SlotsPerLane
	for divisor > 0 && divisor%t.LaneWidth != 0 {
		t.LaneWidth--
	}
	if t.LaneWidth < widest {
		return fmt.Errorf("%w: its lanes have up to %d slots, and begin at multiples of %d", metadata.ErrCorrupt, widest, divisor)
	}
	t.Lanes = make([]metadata.LaneID, (t.Partitions+t.LaneWidth-1)/t.LaneWidth)
	for id, n := range first {
		t.Lanes[n/t.LaneWidth] = metadata.LaneID(id)
	}
	for i := range t.Lanes {
		if t.Lanes[i] == "" { // nothing of it is left
			t.Lanes[i] = metadata.LaneID(fmt.Sprintf("%s-%d", t.ID, i))
		}
	}
	if len(t.Lanes) > metadata.MaxLanes {
		return fmt.Errorf("%w: it had more than %d lanes, which are not made at once", metadata.ErrInvalid, metadata.MaxLanes)
	}
	return nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
