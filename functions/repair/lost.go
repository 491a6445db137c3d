package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
)

// recoverTopics makes the topics anew of which only the bucket knows. Footers have their ids, lanes, slots and partitions; of their configurations only what the classes of
// their segments say of retention. A topic is made under its own id, with its own lanes.
func (r *run) recoverTopics(ctx context.Context) error {
	r.byID, r.made = map[segment.TopicID]*metadata.Topic{}, map[metadata.LaneID]bool{}
	for _, t := range r.topics {
		r.byID[t.ID] = t
	}
	floor, err := r.table.Floor(ctx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(r.found.topics)) {
		if r.byID[id] != nil || !r.found.topics[id].settled {
			continue
		}
		t, err := r.topicOf(id)
		if err != nil {
			return err
		}
		r.report.Topics = append(r.report.Topics, Recovered{Topic: t.Name, ID: string(id), Partitions: t.Partitions})
		r.topics, r.byID[id] = append(r.topics, t), t
		for _, l := range t.Lanes {
			r.made[l] = true
		}
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
	k := r.found.topics[id]
	t := &metadata.Topic{Name: name, ID: id, Version: r.era.Version(), Partitioner: topics.Partitioner, Keyed: true, Config: metadata.DefaultTopicConfig(), Partitions: k.partitions}
	t.Classes = slices.Sorted(maps.Keys(k.classes))
	t.Stored = slices.Clone(t.Classes)
	for _, c := range t.Classes {
		if t.Config.Retention = time.Duration(c) * 24 * time.Hour; c == segment.Keep {
			t.Config.Retention = -1
			break
		}
	}
	var err error
	if t.LaneWidth, err = k.width(); err == nil {
		err = k.addLanes(t)
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", id, err)
	}
	t.History = []metadata.Growth{{Version: t.Version, Partitions: t.Partitions}}
	return t, t.Validate()
}

// width works out how wide a topic's lanes are: partition p is slot p%width of lane p/width.
func (k *told) width() (int, error) {
	widest, divisor := 0, 0
	for _, l := range k.lanes {
		divisor, widest = gcd(divisor, l.first), max(widest, l.slots)
	}
	width := metadata.SlotsPerLane
	for divisor > 0 && divisor%width != 0 {
		width--
	}
	if width < widest {
		return 0, fmt.Errorf("%w: its lanes have up to %d slots, and begin at multiples of %d", metadata.ErrCorrupt, widest, divisor)
	}
	return width, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
