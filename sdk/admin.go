package sdk

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
)

// Admin creates, describes, changes and deletes topics, and answers for their offsets. It holds no state.
type Admin struct {
	log    *Log
	topics *topics.Keeper
}

// Admin returns the log's administration.
func (l *Log) Admin() *Admin { return &Admin{log: l, topics: topics.New(l.table, l.env)} }

// NewTopic says what topic is to be created. The zero value of everything but Name is the default.
type NewTopic struct {
	Name string
	// Partitions is how many; default 8, at most 49 lanes of LaneWidth. It is the ceiling on how many members of a group can share the work.
	Partitions int
	// LaneWidth is how many partitions are sequenced together, 1 to 64; default 64. Narrower lanes carry more commits per second and cost more.
	LaneWidth int
	// Config is by Kafka's names: retention.ms (default 7 days), retention.bytes, cleanup.policy, max.message.bytes (default 1 MiB), message.timestamp.type;
	// and isolate (true or false), which cannot be altered: segments of the topic hold no other topic's records.
	Config map[string]string
}

// Topic describes a topic.
type Topic struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`      // another for every creation
	Version    int64             `json:"version"` // of the configuration, raised by every change
	Partitions int               `json:"partitions"`
	LaneWidth  int               `json:"lane_width"`
	Lanes      int               `json:"lanes"`
	Keyed      bool              `json:"keyed"` // keyed records may have been appended
	Config     map[string]string `json:"config"`
	// RetentionMs is the retention that holds for all that is stored, -1 for ever. It is shorter than Config's after that was made longer, as long as records are
	// under a class, of Stored, whose lifecycle rule deletes them sooner.
	RetentionMs int64    `json:"effective_retention_ms"`
	Stored      []string `json:"stored_classes"`
}

func topicOf(t *metadata.Topic) *Topic {
	keep := t.EffectiveRetention().Time
	topic := &Topic{Name: t.Name, ID: string(t.ID), Version: t.Version, Partitions: t.Partitions, LaneWidth: t.LaneWidth, Lanes: len(t.Lanes),
		Keyed: t.Keyed, Config: t.Config.Map(), RetentionMs: -1}
	if keep >= 0 {
		topic.RetentionMs = keep.Milliseconds()
	}
	for _, c := range t.Stored {
		topic.Stored = append(topic.Stored, c.String())
	}
	return topic
}

// CreateTopic creates the topic: ErrTopicExists if the name is taken, a *FieldError for what is not valid, before anything is written.
func (a *Admin) CreateTopic(ctx context.Context, n NewTopic) (*Topic, error) {
	spec := topics.Spec{Name: n.Name, Partitions: n.Partitions, LaneWidth: n.LaneWidth, Config: metadata.DefaultTopicConfig()}
	if n.Partitions == 0 {
		spec.Partitions = metadata.DefaultPartitions
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Config.SetAll(n.Name, n.Config); err != nil {
		return nil, err
	}
	if err := a.log.direct("create a topic"); err != nil {
		return nil, err
	}
	if err := a.log.checkIdentity(ctx); err != nil {
		return nil, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	t, err := a.topics.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return topicOf(t), nil
}

// Topic describes the topic by its row alone, which is one read; DescribeTopic says more. ErrUnknownTopic if there is none.
func (a *Admin) Topic(ctx context.Context, name string) (*Topic, error) {
	if a.log.remote != nil {
		t, err := a.log.remote.describe(ctx, a.log, name)
		if err != nil {
			return nil, err
		}
		return t.public(), nil
	}
	t, err := a.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	return topicOf(t), nil
}

// ListTopics returns all topics by name.
func (a *Admin) ListTopics(ctx context.Context) ([]*Topic, error) {
	if err := a.log.live(); err != nil {
		return nil, err
	}
	if a.log.remote != nil {
		return a.log.remote.list(ctx)
	}
	list := []*Topic{}
	after := ""
	for {
		page, more, err := a.log.table.Topics(ctx, after, 100)
		if err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		for _, t := range page {
			list = append(list, topicOf(t))
			after = t.Name
		}
		if !more {
			return list, nil
		}
	}
}

// Alteration is what is to become of a topic; zero fields leave things as they are. It says what is wanted, so repeating it changes nothing.
type Alteration struct {
	Config map[string]string // by Kafka's names
	// Partitions, more than there are: new ones come behind the old, which keep their records. Existing groups start the new ones at earliest.
	Partitions int
	// MoveKeys agrees to what growing a topic with keyed records means: some keys go to another partition from then on, and are not ordered across
	// that moment. Without it such a topic is not grown.
	MoveKeys bool
}

// AlterTopic changes configuration and partition count. When it returns nil every writer is held to the change; after an error it may have
// been made nevertheless, and asking for it again completes it.
func (a *Admin) AlterTopic(ctx context.Context, name string, c Alteration) (*Topic, error) {
	if err := a.log.direct("alter a topic"); err != nil {
		return nil, err
	}
	t, err := a.topics.Alter(ctx, name, topics.Change{Set: c.Config, Partitions: c.Partitions, MoveKeys: c.MoveKeys})
	if err != nil {
		return nil, err
	}
	return topicOf(t), nil
}

// DeleteTopic deletes the topic and all its records. The name is free at once, for a topic that has nothing of the old one; producers and
// readers of the old one fail with ErrTopicGone. What it leaves in table and bucket the sweep removes. ErrUnknownTopic: there is none; a deletion
// of one of that name that was interrupted is finished then. CreateTopic of the name finishes it, too.
func (a *Admin) DeleteTopic(ctx context.Context, name string) error {
	if err := a.log.direct("delete a topic"); err != nil {
		return err
	}
	return a.topics.Delete(ctx, name)
}

// CleanTopics finishes deletions that were interrupted, so that nothing can be appended to their topics any more, and returns how many deleted topics still
// have something in the table or the bucket. The sweep removes that.
func (a *Admin) CleanTopics(ctx context.Context) (left int, err error) {
	if err := a.log.direct("clean deleted topics up"); err != nil {
		return 0, err
	}
	gone, err := a.topics.Clean(ctx, nil)
	return len(gone), err
}

// topic reads a topic's row strongly.
func (a *Admin) topic(ctx context.Context, name string) (*metadata.Topic, error) {
	if err := metadata.ValidateName("topic", name); err != nil {
		return nil, err
	}
	if err := a.log.live(); err != nil {
		return nil, err
	}
	t, err := a.log.topicRow(ctx, name)
	if errors.Is(err, ErrUnknownTopic) {
		err = ErrUnknownTopic // where the table keeps it does not matter
	}
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", name, err)
	}
	return t, nil
}

// place reads a topic's row and finds the partition's place, for what needs the table.
func (a *Admin) place(ctx context.Context, topic string, partition int, what string) (metadata.Place, error) {
	if err := a.log.direct(what); err != nil {
		return metadata.Place{}, err
	}
	t, err := a.topic(ctx, topic)
	if err != nil {
		return metadata.Place{}, err
	}
	return placeOf(t, partition)
}

func placeOf(t *metadata.Topic, partition int) (metadata.Place, error) {
	if partition < 0 || partition >= t.Partitions {
		return metadata.Place{}, fmt.Errorf("%w: %w", ErrNoPartition, &FieldError{Topic: t.Name, Partition: partition, Field: "partition",
			Value: strconv.Itoa(partition), Valid: fmt.Sprintf("0 to %d", t.Partitions-1)})
	}
	return t.Place(partition), nil
}

// inTopic names the topic in an error of one of its lanes: a lane that is gone means a topic that is.
func inTopic(topic string, err error) error {
	if errors.Is(err, metadata.ErrNoLane) || errors.Is(err, metadata.ErrNoState) {
		err = fmt.Errorf("%w (%w)", ErrTopicGone, err)
	}
	return fmt.Errorf("topic %q: %w", topic, err)
}
