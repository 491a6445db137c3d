package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
)

// A table that was put back has forgotten how topics were changed, too. Where their segments tell of it, the rows learn it again before anything comes back: what a partition
// without a place has would be lost, and what lies under a class that the row does not know would go before its time by that class's rule, or stay when the topic is deleted.

// told is what footers say of a topic.
type told struct {
	partitions int // at least
	classes    map[segment.Class]bool
	lanes      map[metadata.LaneID]*toldLane
	settled    bool // not only young segments say so
}

type toldLane struct {
	first  int        // the partition in its slot 0
	slots  int        // at least
	end    int64      // the highest offset that archive segments hold
	newest segment.ID // that has something of it
}

// note takes an extent into account.
func (r *run) note(id segment.ID, e *segment.Extent, young bool) error {
	if r.deleted[e.Topic] {
		return nil
	}
	k := r.found.topics[e.Topic]
	if k == nil {
		k = &told{classes: map[segment.Class]bool{}, lanes: map[metadata.LaneID]*toldLane{}}
		r.found.topics[e.Topic] = k
	}
	first := int(e.Partition) - int(e.Slot)
	l := k.lanes[metadata.LaneID(e.Lane)]
	if l == nil {
		l = &toldLane{first: first}
		k.lanes[metadata.LaneID(e.Lane)] = l
	}
	if first < 0 || first != l.first {
		return fmt.Errorf("%w: partition %d of topic %s in slot %d of lane %s, whose slot 0 is partition %d by another", metadata.ErrCorrupt, e.Partition, e.Topic, e.Slot, e.Lane, l.first)
	}
	l.slots, l.end = max(l.slots, int(e.Slot)+1), max(l.end, e.EndOffset)
	if l.newest.Less(id) {
		l.newest = id
	}
	k.partitions, k.classes[id.Class()], k.settled = max(k.partitions, int(e.Partition)+1), true, k.settled || !young
	return nil
}

// noteStrays takes into account what writers who remember a growth have committed to new partitions of a lane that was there before, since their segments were looked for. From now on
// they know what the row says. It tells whether there was any.
func (r *run) noteStrays(l *lane, head *metadata.Head) (strays bool) {
	t := l.topic
	k := r.found.topics[t.ID]
	if k == nil {
		k = &told{classes: map[segment.Class]bool{}, lanes: map[metadata.LaneID]*toldLane{}}
		r.found.topics[t.ID] = k
	}
	first := slices.Index(t.Lanes, l.id) * t.LaneWidth
	for slot := range t.LaneWidth {
		if p := first + slot; head.Ends[slot] > 0 && p >= t.Partitions {
			k.partitions, strays = max(k.partitions, p+1), true
		}
	}
	return strays
}

// addLanes gives a topic the lanes that its partitions need, those that footers name. A topic that was grown, put back, and grown anew has had several for the same
// partitions: the one whose archive leads furthest is taken, and what was in others is moved to it.
func (k *told) addLanes(t *metadata.Topic) error {
	n := (t.Partitions + t.LaneWidth - 1) / t.LaneWidth
	if n-len(t.Lanes) > metadata.MaxLanes {
		return fmt.Errorf("%w: it had %d lanes more, at most %d are made at once", metadata.ErrInvalid, n-len(t.Lanes), metadata.MaxLanes)
	}
	names := map[int]metadata.LaneID{}
	for id, l := range k.lanes {
		if l.first%t.LaneWidth != 0 || l.slots > t.LaneWidth {
			return fmt.Errorf("%w: lane %s with %d slots from partition %d on, in a topic of %d a lane", metadata.ErrCorrupt, id, l.slots, l.first, t.LaneWidth)
		}
		i := l.first / t.LaneWidth
		if b := k.lanes[names[i]]; b == nil || cmp.Or(cmp.Compare(l.end, b.end), l.newest.Compare(b.newest), cmp.Compare(id, names[i])) > 0 {
			names[i] = id
		}
	}
	t.Lanes = slices.Clone(t.Lanes)
	for i := len(t.Lanes); i < n; i++ {
		t.Lanes = append(t.Lanes, cmp.Or(names[i], metadata.LaneID(fmt.Sprintf("%s-%d", t.ID, i)))) // nothing of it is left
	}
	return nil
}

// amended is the row with what footers tell and it does not know, as the era's version, or nil.
func (r *run) amended(t *metadata.Topic, k *told) (*metadata.Topic, error) {
	next := *t
	next.Version = max(t.Version+1, r.era.Version())
	next.Partitions = max(t.Partitions, k.partitions)
	if err := k.addLanes(&next); err != nil {
		return nil, err
	}
	if next.Partitions > t.Partitions {
		next.History = append(slices.Clone(t.History), metadata.Growth{Version: next.Version, Partitions: next.Partitions})
	}
	next.Classes, next.Stored = slices.Clone(t.Classes), slices.Clone(t.Stored)
	for c := range k.classes {
		for _, list := range []*[]segment.Class{&next.Classes, &next.Stored} {
			if !slices.Contains(*list, c) {
				*list = append(*list, c)
			}
		}
	}
	if next.Partitions == t.Partitions && len(next.Classes) == len(t.Classes) && len(next.Stored) == len(t.Stored) {
		return nil, nil
	}
	return &next, nil
}

// amendTries is how often a row is read again that others change.
const amendTries = 5

// amendTopics brings rows up to what footers tell. The lanes learn of it when the era has begun.
func (r *run) amendTopics(ctx context.Context) error {
	for i, t := range r.topics {
		k := r.found.topics[t.ID]
		if k == nil {
			continue
		}
		now, err := r.amend(ctx, t, k)
		if err != nil {
			return fmt.Errorf("topic %q: %w", t.Name, err)
		}
		if now.Partitions > t.Partitions {
			r.report.Grown = append(r.report.Grown, Grown{Topic: t.Name, From: t.Partitions, To: now.Partitions})
		}
		r.topics[i], r.byID[t.ID] = now, now
		for _, l := range now.Lanes[len(t.Lanes):] {
			r.made[l] = true
		}
	}
	return nil
}

func (r *run) amend(ctx context.Context, t *metadata.Topic, k *told) (*metadata.Topic, error) {
	var failed error
	for range amendTries {
		next, err := r.amended(t, k)
		switch {
		case err != nil:
			return nil, err
		case next == nil:
			return t, nil
		case r.o.DryRun:
			return next, nil
		}
		if failed = r.replace(ctx, t, next); failed == nil {
			return next, nil
		}
		if !errors.Is(failed, metadata.ErrChanged) {
			return nil, failed
		}
		if t, err = r.table.Topic(ctx, t.Name); err != nil {
			return nil, err
		}
	}
	return nil, failed
}

func (r *run) replace(ctx context.Context, t, next *metadata.Topic) error {
	floor, err := r.table.Floor(ctx)
	if err != nil {
		return err
	}
	return r.table.AmendTopic(ctx, t.Version, next, len(t.Lanes), floor)
}

// changeAll gives all topics a version of the era, and their lanes, so that their writers read the rows. Those who remember changes that the table has forgotten would otherwise
// take rows and heads for old ones, and go on by what they remember: under a class, perhaps, that the row does not know.
func (r *run) changeAll(ctx context.Context) error {
	keeper := topics.New(r.table, r.o.Env)
	for _, t := range r.topics {
		if t.Version < r.era.Version() {
			next := *t
			next.Version = r.era.Version()
			if err := r.replace(ctx, t, &next); err != nil {
				return fmt.Errorf("topic %q: %w", t.Name, err)
			}
			*t = next
		}
		behind := func(id metadata.LaneID) bool {
			l := r.lanes[id]
			return l.head.ConfigVersion < t.Version || t.Version > 1 && l.state.Version < t.Version // a state has none until the first change
		}
		if !slices.ContainsFunc(t.Lanes, behind) {
			continue
		}
		if err := keeper.Finish(ctx, t); err != nil {
			return fmt.Errorf("topic %q: %w", t.Name, err)
		}
	}
	return nil
}

// moved is a segment of what another has of a lane, in the lane that has its partitions now, and where that begins.
func (r *run) moved(object []byte, from, to metadata.LaneID) (body []byte, start int64, err error) {
	f, err := segment.ParseSegment(object)
	if err != nil {
		return nil, 0, err
	}
	b := segment.NewBuilder(segment.Intake, r.log)
	for _, e := range f.Extents {
		if e.Lane != string(from) {
			continue
		}
		e.Lane = string(to)
		for rest := object[e.Offset : e.Offset+e.Length]; len(rest) > 0; {
			var batch []byte
			if batch, rest, err = segment.SplitBatch(rest); err != nil {
				return nil, 0, err
			}
			if err := b.Add(e.ExtentMeta, e.MinTime, batch); err != nil {
				return nil, 0, err
			}
		}
	}
	body, f, err = b.Finish()
	if err != nil {
		return nil, 0, err
	}
	return body, f.Extents[0].Offset, nil
}
