package retain

import (
	"context"
	"errors"
	"slices"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// release takes the classes off the topic's row that nothing stored is under any more, and returns them. From then on the longer retention holds.
//
// What makes the look lasting: every lane's head and state have the row's version. So no writer commits under another class than the topic's, since its epoch was
// raised, and nothing is published under another, whenever it was begun: what was looked at and found to be of the topic's class is only ever replaced by
// what is of that class. A change of the row meanwhile makes SetStored fail.
func (r *run) release(ctx context.Context, t *metadata.Topic) (left []segment.Class, err error) {
	named := map[segment.Class]bool{t.Class(): true}
	for _, id := range t.Lanes {
		l, err := r.open(ctx, t, id, metadata.Retention{})
		if err != nil {
			return nil, err
		}
		if !r.o.DryRun && (l.state.Version < t.Version || l.head.ConfigVersion < t.Version) { // which a run would have finished before
			return nil, nil
		}
		if err := l.classes(ctx, named, len(t.Leaving())+1); err != nil || len(named) > len(t.Leaving()) {
			if errors.Is(err, errMoved) {
				err = nil
			}
			return nil, err
		}
	}
	stored := slices.DeleteFunc(slices.Clone(t.Stored), func(c segment.Class) bool { return !named[c] })
	left = slices.DeleteFunc(t.Leaving(), func(c segment.Class) bool { return named[c] })
	if r.o.DryRun {
		return left, nil
	}
	if err := r.table.SetStored(ctx, t, stored); err != nil {
		if errors.Is(err, metadata.ErrChanged) || errors.Is(err, metadata.ErrUnknownTopic) {
			return nil, nil
		}
		return nil, err
	}
	return left, nil
}

// classes notes the classes of the objects that hold anything the lane retains, until all are known: head, chunks, rows, the order in which they move on. What is
// in the table is of no class, whatever its id says: no rule deletes it.
func (l *lane) classes(ctx context.Context, named map[segment.Class]bool, all int) error {
	note := func(id segment.ID) {
		if id.Place() != segment.InTable && !id.IsZero() && slices.Contains(l.topic.Stored, id.Class()) {
			named[id.Class()] = true
		}
	}
	entries := func(list []metadata.Entry, ends metadata.Offsets) {
		bases := metadata.Bases(list, ends)
		for i := range list {
			for _, x := range list[i].Slots {
				if s := l.bySlot[x.Slot]; s != nil && list[i].Order >= l.state.Archived && x.Count > 0 && bases[i][x.Slot]+int64(x.Count) > s.start {
					note(list[i].ID)
				}
			}
		}
	}
	entries(l.head.Entries, l.head.Ends)
	l.reopen()
	from, err := l.firstOpen(ctx)
	if err != nil {
		return err
	}
	for from < l.head.First && len(named) < all {
		chunks, err := l.chunks(ctx, from, min(from+chunksPage*l.head.K, l.head.First))
		if err != nil {
			return err
		}
		for _, c := range chunks {
			entries(c.Entries, c.Ends())
		}
		from += chunksPage * l.head.K
	}
	return l.classesOfRows(ctx, note, func() bool { return len(named) < all })
}

// classesOfRows reads the state again first: what was in the chunks may be in rows by now.
func (l *lane) classesOfRows(ctx context.Context, note func(segment.ID), more func() bool) (err error) {
	if l.state, err = l.table.State(ctx, l.id, metadata.Strong); err != nil {
		return err
	}
	for _, s := range l.slots {
		start := max(s.start, l.state.Starts[s.at])
		if start >= l.state.Ends[s.at] || !more() {
			continue
		}
		err := l.rows(ctx, s, start, func(r *metadata.Row) bool {
			note(r.Segment)
			return more()
		})
		if err != nil {
			return err
		}
	}
	return nil
}
