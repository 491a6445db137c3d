package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// remoteTopic is a topic as a function describes it.
type remoteTopic struct {
	wire.Topic
	row *metadata.Topic // as far as it is known: places, partitions, configuration
}

// topic reads a topic from the function that serves reads.
func (r *remote) topic(ctx context.Context, name string) (*remoteTopic, error) {
	if err := metadata.ValidateName("topic", name); err != nil {
		return nil, err
	}
	t := &remoteTopic{}
	if err := r.get(ctx, "Topic", r.fetch.JoinPath("v1", "topics", name), nil, &t.Topic); err != nil {
		return nil, ofTopic(err)
	}
	if t.Name != name {
		return nil, fmt.Errorf("%w: %w: topic %q was asked for, %q is described", ErrUnreachable, errGarbage, name, t.Name)
	}
	return t, t.fill()
}

// ofTopic is the error without what only says how the topic was asked for.
func ofTopic(err error) error {
	if errors.Is(err, ErrUnknownTopic) {
		return ErrUnknownTopic
	}
	return err
}

// fill makes the row. Each lane has as many partitions as the first, but for the last.
func (t *remoteTopic) fill() error {
	row := &metadata.Topic{Name: t.Name, ID: segment.TopicID(t.ID), Version: t.Version, Partitions: len(t.Partitions), Partitioner: t.Partitioner, Keyed: t.Keyed,
		Config: metadata.DefaultTopicConfig()}
	for i, p := range t.Partitions {
		lane := metadata.LaneID(p.Lane)
		switch {
		case p.Partition != i || lane == "":
			return t.strange("partition %d of lane %q where %d should be", p.Partition, p.Lane, i)
		case len(row.Lanes) == 0 || row.Lanes[len(row.Lanes)-1] != lane:
			row.Lanes = append(row.Lanes, lane)
		}
		if len(row.Lanes) == 1 {
			row.LaneWidth++
		}
		if row.Place(i).Lane != lane {
			return t.strange("partition %d is of lane %q, which does not follow from those before it", i, lane)
		}
	}
	if len(t.Partitions) == 0 || row.ID.Validate() != nil || row.LaneWidth > metadata.SlotsPerLane {
		return t.strange("id %q, %d partitions", t.ID, len(t.Partitions))
	}
	for i, n := range t.Before {
		if n < 1 || n >= row.Partitions || i > 0 && n <= t.Before[i-1] {
			return t.strange("%d partitions before it had %d", n, row.Partitions)
		}
		row.History = append(row.History, metadata.Growth{Partitions: n})
	}
	if err := row.Config.SetAll(t.Name, t.Config); err != nil {
		return t.strange("%v", err)
	}
	t.row = row
	return nil
}

func (t *remoteTopic) strange(format string, args ...any) error {
	return fmt.Errorf("topic %q: %w: %w: %s", t.Name, ErrUnreachable, errGarbage, fmt.Sprintf(format, args...))
}

// public is the topic as users see it.
func (t *remoteTopic) public() *Topic {
	p := &Topic{Name: t.Name, ID: t.ID, Version: t.Version, Partitions: t.row.Partitions, LaneWidth: t.row.LaneWidth, Lanes: len(t.row.Lanes), Keyed: t.Keyed,
		Config: t.row.Config.Map(), RetentionMs: -1}
	if keep := t.row.Config.Retention; keep >= 0 {
		p.RetentionMs = keep.Milliseconds()
	}
	return p
}

// get asks the function that serves reads.
func (r *remote) get(ctx context.Context, op string, u *url.URL, query url.Values, into any) error {
	u.RawQuery = query.Encode()
	return r.client.json(ctx, request{op: op, method: http.MethodGet, url: u}, into)
}

// describe is Admin.Topic, with all that is told of it.
func (r *remote) describe(ctx context.Context, l *Log, name string) (*remoteTopic, error) {
	if err := l.live(); err != nil {
		return nil, err
	}
	t, err := r.topic(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", name, err)
	}
	return t, nil
}

// list is Admin.ListTopics.
func (r *remote) list(ctx context.Context) ([]*Topic, error) {
	all, err := r.names(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	topics := make([]*Topic, len(all))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for i, named := range all {
		g.Go(func() error {
			t, err := r.topic(ctx, named.Name)
			switch {
			case errors.Is(err, ErrUnknownTopic): // deleted meanwhile
				return nil
			case err != nil:
				return fmt.Errorf("list topics: topic %q: %w", named.Name, err)
			}
			topics[i] = t.public()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(topics, func(t *Topic) bool { return t == nil }), nil
}

// names are the topics by name.
func (r *remote) names(ctx context.Context) (all []wire.TopicName, err error) {
	err = r.pages(ctx, "Topics", "topics", func(b []byte) (last string, more bool, err error) {
		var page wire.Topics
		if err := decodeJSON(b, &page); err != nil || len(page.Topics) == 0 {
			return "", page.More, err
		}
		all = append(all, page.Topics...)
		return page.Topics[len(page.Topics)-1].Name, page.More, nil
	})
	return all, err
}

// load is Admin.DescribeTopic: what is recent only the index knows.
func (r *remote) load(ctx context.Context, t *remoteTopic) (*Description, error) {
	offsets, err := r.offsets(ctx, t.row)
	if err != nil {
		return nil, inTopic(t.Name, err)
	}
	d := &Description{Topic: *t.public()}
	for _, o := range offsets {
		d.Load = append(d.Load, PartitionLoad{Partition: o.Partition, Start: o.Start, End: o.End, Records: o.cuts.Count(o.Start, o.End)})
	}
	share(d.Load)
	slices.SortStableFunc(d.Load, func(x, y PartitionLoad) int { return sign(y.Records - x.Records) })
	return d, nil
}

// offsets is Log.offsets.
func (r *remote) offsets(ctx context.Context, t *metadata.Topic) ([]bounds, error) {
	var all wire.Offsets
	if err := r.get(ctx, "Offsets", r.fetch.JoinPath("v1", "topics", t.Name, "offsets"), nil, &all); err != nil {
		return nil, ofTopic(err)
	}
	if len(all.Partitions) < t.Partitions {
		return nil, fmt.Errorf("%w: %w: offsets of %d partitions, it has %d", ErrUnreachable, errGarbage, len(all.Partitions), t.Partitions)
	}
	offsets := make([]bounds, t.Partitions) // it may have grown
	for i := range offsets {
		p := &all.Partitions[i]
		offsets[i] = bounds{Partition: i, Start: p.Start, End: p.End}
		if p.Partition != i || p.Start < 0 || p.End < p.Start {
			return nil, fmt.Errorf("%w: %w: offsets of partition %d, [%d, %d), where those of %d should be", ErrUnreachable, errGarbage, p.Partition, p.Start, p.End, i)
		}
		before := int64(0)
		for _, c := range p.Cuts {
			if c.From < before || c.To <= c.From {
				return nil, fmt.Errorf("%w: %w: partition %d has a cut [%d, %d)", ErrUnreachable, errGarbage, i, c.From, c.To)
			}
			before = c.To
			offsets[i].cuts = append(offsets[i].cuts, metadata.Cut{From: c.From, To: c.To})
		}
		if p.Removed != nil {
			offsets[i].cleaned = metadata.Cleaning{Purged: p.Removed.Below, Until: p.Removed.Until}
		}
	}
	return offsets, nil
}

// offsetForTime is Admin.OffsetForTime.
func (r *remote) offsetForTime(ctx context.Context, topic string, partition int, at time.Time) (int64, error) {
	var found wire.OffsetAt
	u := r.fetch.JoinPath("v1", "topics", topic, "partitions", strconv.Itoa(partition), "offsets")
	err := r.get(ctx, "OffsetForTime", u, url.Values{"time": {at.UTC().Format(time.RFC3339Nano)}}, &found)
	switch {
	case err != nil:
		return 0, remoteReadError(topic, partition, 0, err)
	case found.Offset == nil:
		return 0, fmt.Errorf("topic %q partition %d: %w: %v", topic, partition, ErrNoOffset, at)
	case *found.Offset < 0:
		return 0, remoteReadError(topic, partition, 0, fmt.Errorf("%w: offset %d", errGarbage, *found.Offset))
	}
	return *found.Offset, nil
}
