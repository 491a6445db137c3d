package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Grace is how long after a deletion the chunks and states of its lanes stay. A spill or a reader that began before the heads went has ended by
// then: no request is sent for a segment older than metadata.MaxSegmentAge. The states also refuse an attempt to create this very topic that
// has been under way since before its deletion.
const Grace = metadata.MaxSegmentAge

// SecondPass is how long after the first pass the second is made, which finds what a process that stood still through the grace has put since.
const SecondPass = time.Hour

// Delete removes the topic: when it returns nil, or that there is none (metadata.ErrUnknownTopic), the name is free and nothing can be appended to the old topic any more. What the
// topic had in the table is left for Clean. A topic of that name that is created meanwhile is left alone.
//
// The transaction that takes the name row away is the commit point: after it, any process's Clean goes on.
func (k *Keeper) Delete(ctx context.Context, name string) error {
	if err := metadata.ValidateName("topic", name); err != nil {
		return err
	}
	var gone *metadata.GoneTopic // of the attempts so far
	err := k.again(ctx, func() error {
		now, err := k.table.Topic(ctx, name)
		if gone != nil && (errors.Is(err, metadata.ErrUnknownTopic) || err == nil && now.ID != gone.ID) {
			return nil // by an attempt of ours, or by somebody else
		}
		if err != nil {
			return err
		}
		at, err := k.serviceTime()
		if err != nil {
			return err
		}
		named, err := k.named(ctx, now.Lanes)
		if err != nil {
			return err
		}
		gone = &metadata.GoneTopic{ID: now.ID, Name: name, Lanes: now.Lanes, Width: now.LaneWidth, Classes: addClass(now.Classes, now.Class()), Named: named, Deleted: at}
		return k.table.DeleteTopic(ctx, now, gone)
	})
	switch {
	case err == nil:
		err = k.deleteHeads(ctx, gone.Lanes)
	case errors.Is(err, metadata.ErrUnknownTopic):
		if failed := k.finish(ctx, name); failed != nil {
			err = failed
		}
	}
	if err != nil {
		return fmt.Errorf("delete topic %q: %w", name, err)
	}
	return nil
}

// finish finishes deletions of topics of that name that were interrupted behind their transaction: until their heads are gone, their producers are acknowledged what nobody reads.
func (k *Keeper) finish(ctx context.Context, name string) error {
	gone, err := k.table.Gone(ctx)
	if err != nil {
		return err
	}
	for _, g := range gone {
		if g.Name != name {
			continue
		}
		if err := k.deleteHeads(ctx, g.Lanes); err != nil {
			return err
		}
	}
	return nil
}

// named are the segments that the lanes' heads name. A segment that is committed after this read has an id above the floor of the last sweep, so the next one
// comes across it among what is new; that holds for the youngest of these too, which are left out where there are too many.
func (k *Keeper) named(ctx context.Context, lanes []metadata.LaneID) (ids []segment.ID, err error) {
	for _, lane := range lanes {
		h, err := k.table.Head(ctx, lane, metadata.Strong)
		if errors.Is(err, metadata.ErrNoLane) { // of a deletion whose answer was lost
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range h.Entries {
			if !h.Entries[i].Empty {
				ids = append(ids, h.Entries[i].ID)
			}
		}
	}
	slices.SortFunc(ids, segment.ID.Compare)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), metadata.MaxGoneNamed)], nil
}

// Empty removes what a deleted topic has besides heads and states: first the objects that its chunks, its rows and its GONE row name, then chunks and
// rows themselves. It returns whether nothing is left. It may be called again for what it has removed.
type Empty func(ctx context.Context, g *metadata.GoneTopic) (bool, error)

// Clean carries every deletion on as far as its waits allow, and returns those that are not finished: call it again later. It is safe to run at
// any time and in several processes at once. With a nil empty only deletions that were interrupted are finished, so that nothing can be
// appended any more.
func (k *Keeper) Clean(ctx context.Context, empty Empty) (left []*metadata.GoneTopic, err error) {
	gone, err := k.table.Gone(ctx)
	if err != nil {
		return nil, fmt.Errorf("clean deleted topics: %w", err)
	}
	for _, g := range gone {
		done, err := k.cleanOne(ctx, g, empty)
		if err != nil {
			return nil, fmt.Errorf("clean deleted topic %q (%s): %w", g.Name, g.ID, err)
		}
		if !done {
			left = append(left, g)
		}
	}
	return left, nil
}

// Due tells whether the next pass over a deleted topic may be made.
func Due(g *metadata.GoneTopic, now time.Time) bool {
	if g.Pass > 0 {
		return now.Sub(g.Deleted) >= SecondPass
	}
	return now.Sub(g.Deleted) >= Grace
}

// cleanOne takes the steps that are due. Heads first, each time: a deletion may have stopped before them. States last, so that a publication that was
// under way finds either a state, and the next pass what it has put, or none.
func (k *Keeper) cleanOne(ctx context.Context, g *metadata.GoneTopic, empty Empty) (done bool, err error) {
	now, err := k.serviceTime()
	if err != nil {
		return false, err
	}
	if err := k.deleteHeads(ctx, g.Lanes); err != nil {
		return false, err
	}
	if empty == nil || !Due(g, now) {
		return false, nil
	}
	if emptied, err := empty(ctx, g); err != nil || !emptied {
		return false, err
	}
	if err := k.deleteRest(ctx, g.Lanes); err != nil {
		return false, err
	}
	if g.Pass > 0 {
		return true, k.again(ctx, func() error { return k.table.DeleteGone(ctx, g.ID) })
	}
	g.Pass, g.Deleted = 1, now
	return false, k.again(ctx, func() error { return k.table.PutGone(ctx, g) })
}

func (k *Keeper) deleteHeads(ctx context.Context, lanes []metadata.LaneID) error {
	k.env.At(env.BeforeDelete)
	for _, lane := range lanes {
		if err := k.again(ctx, func() error { return k.table.DeleteHead(ctx, lane) }); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) deleteRest(ctx context.Context, lanes []metadata.LaneID) error {
	k.env.At(env.BeforeDelete)
	for _, lane := range lanes {
		for done := false; !done; {
			err := k.again(ctx, func() (err error) {
				done, err = k.table.DeleteLaneRest(ctx, lane)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// serviceTime is the table's clock; the machine's own may be off, and the waits protect others.
func (k *Keeper) serviceTime() (time.Time, error) {
	now, ok := k.table.ServiceTime()
	if !ok {
		return now, fmt.Errorf("%w: the table has not told its time", metadata.ErrUnavailable)
	}
	return now, nil
}
