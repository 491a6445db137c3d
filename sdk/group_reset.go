package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// ResetTo is where a group is to go on: an absolute position, or so many records from where it is. Set one of them.
type ResetTo struct {
	Position Position // Earliest, Latest, AtOffset or AtTime; at a time after the last record it is the end, and what is in a cut of a repair goes to the cut's end
	Shift    int64    // records, negative for back, past the cuts of repairs; the result is kept within the partition
}

// GroupReset asks for committed offsets to be changed. Without Topics it is all that the group has to do with, without Partitions all of each.
type GroupReset struct {
	Group      string
	Topics     []string
	Partitions []int
	To         ResetTo
	DryRun     bool // change nothing
	Force      bool // although members live: their partitions are taken away, and what they commit late is refused
}

// OffsetChange is one committed offset that a reset changes, or would. From is -1 where nothing was committed.
type OffsetChange struct {
	TopicPartition
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// ResetGroup changes what a group has committed and returns the changes. Everything is checked first: an unknown topic or partition, or an offset outside one
// or in a cut (*RangeError with the valid ranges), changes nothing. A dry run returns exactly what the run does if nothing is appended or deleted between them.
func (a *Admin) ResetGroup(ctx context.Context, reset GroupReset) ([]OffsetChange, error) {
	if err := a.changeGroup(reset.Group, "reset a group"); err != nil {
		return nil, err
	}
	v, err := a.groupView(ctx, reset.Group)
	if err != nil {
		return nil, err
	}
	if !reset.Force {
		if err := v.idle(); err != nil {
			return nil, err
		}
	}
	topics, err := a.resetTopics(ctx, v, reset)
	if err != nil {
		return nil, err
	}
	changes := []OffsetChange{}
	lanes := map[metadata.LaneID][]metadata.OffsetReset{}
	for _, t := range topics {
		ends, err := a.log.offsets(ctx, t)
		if err != nil {
			return nil, inTopic(t.Name, err)
		}
		for _, p := range ends {
			if len(reset.Partitions) > 0 && !slices.Contains(reset.Partitions, p.Partition) {
				continue
			}
			c := v.at(t, p.Partition)
			to, err := a.resetTo(ctx, t, p, c.Offset, reset.To)
			if err != nil {
				return nil, err
			}
			place := t.Place(p.Partition)
			changes = append(changes, OffsetChange{TopicPartition{t.Name, p.Partition}, c.Offset, to})
			lanes[place.Lane] = append(lanes[place.Lane], metadata.OffsetReset{Slot: place.Slot, From: c, Offset: to})
		}
	}
	if reset.DryRun {
		return changes, nil
	}
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		if _, err := a.log.table.ResetOffsets(ctx, reset.Group, lane, a.log.now(), lanes[lane]); err != nil {
			return nil, fmt.Errorf("group %q: a part of the offsets may have been reset; run it again: %w", reset.Group, err)
		}
	}
	return changes, nil
}

// resetTopics is the topics that a reset names, all of them there and with the partitions that it names.
func (a *Admin) resetTopics(ctx context.Context, v *groupView, reset GroupReset) ([]*metadata.Topic, error) {
	topics := v.topics
	if len(reset.Topics) > 0 {
		topics = nil
		for _, name := range slices.Compact(slices.Sorted(slices.Values(reset.Topics))) {
			t, err := a.topic(ctx, name)
			if err != nil {
				return nil, err
			}
			topics = append(topics, t)
		}
	}
	for _, t := range topics {
		for _, p := range reset.Partitions {
			if _, err := placeOf(t, p); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(topics, func(x, y *metadata.Topic) int { return cmp.Compare(x.Name, y.Name) })
	return topics, nil
}

// check is a *RangeError for an offset at which nobody can go on: outside of the partition, or in a cut.
func (p *bounds) check(t *metadata.Topic, offset int64) error {
	e := &RangeError{Topic: t.Name, Partition: p.Partition, Offset: offset, Start: p.Start, End: p.End}
	cut := p.cuts.At(offset)
	switch {
	case offset < p.Start:
		e.Err = ErrExpired
	case offset > p.End:
		e.Err = ErrOutOfRange
	case cut != nil:
		e.Err, e.CutFrom, e.CutTo = ErrRewritten, cut.From, cut.To
	default:
		return nil
	}
	return e
}

// resetTo is the offset at which a partition, whose group is at from, is to go on.
func (a *Admin) resetTo(ctx context.Context, t *metadata.Topic, p bounds, from int64, to ResetTo) (int64, error) {
	first := min(p.cuts.GoOn(p.Start), p.End)
	switch to.Position.kind {
	case earliest:
		return first, nil
	case latest:
		return p.End, nil
	case atTime:
		offset, err := a.log.offsetForTime(ctx, t, p.Partition, to.Position.time)
		if errors.Is(err, ErrNoOffset) {
			return p.End, nil
		}
		return p.cuts.GoOn(offset), err
	case atOffset:
		return to.Position.offset, p.check(t, to.Position.offset)
	}
	if to.Shift == 0 {
		return 0, &FieldError{Field: "reset", Value: to.Position.String(), Valid: "a position, or a shift other than 0"}
	}
	if from == metadata.NoOffset {
		return 0, fmt.Errorf("topic %q partition %d: %w: there is nothing to shift", t.Name, p.Partition, ErrNoCommit)
	}
	return min(max(p.cuts.Shift(from, min(max(to.Shift, -p.End), p.End)), first), p.End), nil
}
