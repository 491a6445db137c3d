package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/varvelog/varve/metadata"
)

// Change is what is to become of a topic. A change says what is wanted, not by how much, so that doing it twice is doing it once.
type Change struct {
	Set        map[string]string // configuration by Kafka's names
	Partitions int               // 0: as they are
	MoveKeys   bool              // yes to growing a topic that has keyed records: some keys go to other partitions from then on, and their order is lost at that point
}

// Alter changes the topic and returns its row. Growing keeps every partition and its records where they are and adds new ones behind them;
// shrinking is refused. When Alter returns nil every lane knows the version; when it fails after the row was written, the change holds all the same
// and the next Alter, of anything, completes it.
//
// After an unknown outcome the row tells: it is as wanted, or still of the old version, and then at most one of the attempts at the next version, which differ in the
// ids of new lanes only, can ever be applied.
func (k *Keeper) Alter(ctx context.Context, name string, c Change) (*metadata.Topic, error) {
	if err := metadata.ValidateName("topic", name); err != nil {
		return nil, err
	}
	var t *metadata.Topic
	var refused error // of the change as such; it names the topic itself
	err := k.again(ctx, func() error {
		now, err := k.table.Topic(ctx, name)
		if err != nil {
			return err
		}
		var next *metadata.Topic
		if next, refused = k.altered(now, c); refused != nil {
			return refused
		}
		if next == nil {
			t = now
			return nil
		}
		if err := k.replace(ctx, next, len(now.Lanes)); err != nil {
			return err
		}
		t = next
		return nil
	})
	if refused != nil {
		return nil, refused
	}
	if err == nil {
		err = k.Finish(ctx, t)
	}
	if err != nil {
		return nil, fmt.Errorf("alter topic %q: %w", name, err)
	}
	return t, nil
}

func (k *Keeper) replace(ctx context.Context, next *metadata.Topic, firstNew int) error {
	floor, err := k.table.Floor(ctx)
	if err != nil {
		return err
	}
	return k.table.ReplaceTopic(ctx, next, firstNew, floor)
}

// altered is the row after the change, or nil if it is already as wanted.
func (k *Keeper) altered(now *metadata.Topic, c Change) (*metadata.Topic, error) {
	next := *now
	if err := next.Config.SetAll(now.Name, c.Set); err != nil {
		return nil, err
	}
	if next.Config.Isolate != now.Config.Isolate {
		return nil, &metadata.FieldError{Topic: now.Name, Field: metadata.Isolate, Value: strconv.FormatBool(next.Config.Isolate),
			Valid: fmt.Sprintf("%t, as when the topic was created: what is stored does not change its segments", now.Config.Isolate)}
	}
	if c.Partitions != 0 && c.Partitions != now.Partitions {
		if err := k.grow(&next, c); err != nil {
			return nil, err
		}
	}
	if next.Config == now.Config && next.Partitions == now.Partitions {
		return nil, nil
	}
	next.Version++
	next.Classes = addClass(now.Classes, next.Class())
	next.Stored = addClass(now.Stored, next.Class())
	if next.Partitions != now.Partitions {
		next.History = append(slices.Clone(now.History), metadata.Growth{Version: next.Version, Partitions: next.Partitions})
	}
	return &next, nil
}

func (k *Keeper) grow(t *metadata.Topic, c Change) error {
	if c.Partitions < t.Partitions {
		return &metadata.FieldError{Topic: t.Name, Field: "partitions", Value: strconv.Itoa(c.Partitions),
			Valid: fmt.Sprintf("%d or more: a topic never shrinks", t.Partitions)}
	}
	if err := validPartitions(t.Name, c.Partitions, t.LaneWidth); err != nil {
		return err
	}
	if t.Keyed && !c.MoveKeys {
		return &KeysMoveError{Topic: t.Name, From: t.Partitions, To: c.Partitions}
	}
	if more := lanesFor(c.Partitions, t.LaneWidth) - len(t.Lanes); more > 0 {
		t.Lanes = append(slices.Clone(t.Lanes), k.newLanes(more)...)
	}
	t.Partitions = c.Partitions
	return nil
}

// Finish brings every lane of the topic to its row's version: first its head, which its writers go by, then its state, which publishers of archive segments
// go by. So a state of the version tells that the head has it. Those that have it are left alone.
func (k *Keeper) Finish(ctx context.Context, t *metadata.Topic) error {
	for _, lane := range t.Lanes {
		err := k.again(ctx, func() error { return k.table.SetHeadConfig(ctx, lane, t.Version, t.Class()) })
		if err == nil {
			err = k.again(ctx, func() error { return k.table.SetStateConfig(ctx, lane, t.Version, t.Class()) })
		}
		if errors.Is(err, metadata.ErrNoLane) || errors.Is(err, metadata.ErrNoState) {
			err = metadata.ErrTopicGone
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// KeysMoveError refuses to grow a topic with keyed records without an explicit yes. It is metadata.ErrInvalid.
type KeysMoveError struct {
	Topic    string
	From, To int
}

func (e *KeysMoveError) Error() string {
	return fmt.Sprintf("topic %q has keyed records: with %d partitions instead of %d about %d %% of the keys (those whose hash modulo the two counts differs) move, "+
		"and their new records are not ordered after their old ones; that needs an explicit yes", e.Topic, e.To, e.From, movingPercent(e.From, e.To))
}

func (e *KeysMoveError) Is(target error) bool { return target == metadata.ErrInvalid }

// movingPercent is the share of hashes h with h mod from != h mod to. For from < to exactly the hashes with h mod lcm < from stay.
func movingPercent(from, to int) int {
	a, b := from, to
	for b != 0 {
		a, b = b, a%b
	}
	lcm := from / a * to
	return 100 - 100*from/lcm
}
