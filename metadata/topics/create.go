package topics

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Partitioner is how producers place keyed records unless they say otherwise: Kafka's default.
const Partitioner = "murmur2"

// Spec is a topic to be created. LaneWidth is how many partitions are sequenced together, 0 for the most possible: narrower lanes carry more commits
// per second and cost more, because a flush that touches several lanes pays one commit for each.
type Spec struct {
	Name       string
	Partitions int
	LaneWidth  int
	Config     metadata.TopicConfig
}

// Validate reports the first field that is not valid, as a *metadata.FieldError.
func (s Spec) Validate() error {
	if err := metadata.ValidateName("topic", s.Name); err != nil {
		return err
	}
	if s.LaneWidth < 0 || s.LaneWidth > MaxLaneWidth {
		return &metadata.FieldError{Topic: s.Name, Field: "partitions per lane", Value: strconv.Itoa(s.LaneWidth), Valid: fmt.Sprintf("1 to %d, or 0 for the default", MaxLaneWidth)}
	}
	return validPartitions(s.Name, s.Partitions, s.width())
}

func (s Spec) width() int {
	if s.LaneWidth == 0 {
		return MaxLaneWidth
	}
	return s.LaneWidth
}

func validPartitions(topic string, n, width int) error {
	if most := metadata.MaxLanes * width; n < 1 || n > most {
		return &metadata.FieldError{Topic: topic, Field: "partitions", Value: strconv.Itoa(n),
			Valid: fmt.Sprintf("1 to %d (%d lanes of %d)", most, metadata.MaxLanes, width)}
	}
	return nil
}

func lanesFor(partitions, width int) int { return (partitions + width - 1) / width }

// Create creates the topic and returns its row. ErrTopicExists if the name is taken, by whatever topic.
//
// An unknown outcome is settled by doing it again with the same ids: then the name is taken, and the row tells by whom. When the floor moved, every
// earlier attempt was refused for good, because it names the old floor; the next one uses fresh ids all the same, so that no two different
// transactions ever carry one topic id.
func (k *Keeper) Create(ctx context.Context, s Spec) (*metadata.Topic, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := k.finish(ctx, s.Name); err != nil {
		return nil, fmt.Errorf("create topic %q: %w", s.Name, err)
	}
	var t *metadata.Topic
	var floor segment.ID
	err := k.again(ctx, func() (err error) {
		if t == nil {
			if floor, err = k.table.Floor(ctx); err != nil {
				return err
			}
			t = k.plan(s)
		}
		err = k.table.CreateTopic(ctx, t, floor)
		switch {
		case errors.Is(err, metadata.ErrTopicExists):
			return k.ours(ctx, t)
		case errors.Is(err, metadata.ErrChanged):
			if k.ours(ctx, t) == nil {
				return nil
			}
			t = nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", s.Name, err)
	}
	return t, nil
}

func (k *Keeper) plan(s Spec) *metadata.Topic {
	return &metadata.Topic{
		Name: s.Name, ID: segment.TopicID(k.newID()), Version: 1,
		Partitions: s.Partitions, LaneWidth: s.width(), Lanes: k.newLanes(lanesFor(s.Partitions, s.width())),
		Partitioner: Partitioner,
		History:     []metadata.Growth{{Version: 1, Partitions: s.Partitions}},
		Classes:     []segment.Class{s.Config.Class()},
		Stored:      []segment.Class{s.Config.Class()},
		Config:      s.Config,
	}
}

// ours is nil if the row of that name has t's id.
func (k *Keeper) ours(ctx context.Context, t *metadata.Topic) error {
	row, err := k.table.Topic(ctx, t.Name)
	if err != nil {
		return err
	}
	if row.ID != t.ID {
		return metadata.ErrTopicExists
	}
	return nil
}
