package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// identify refuses a log whose two identities differ.
func (r *run) identify(ctx context.Context) error {
	table, ok, err := r.table.Identity(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: the table has no identity", metadata.ErrWrongLog)
	}
	bucket, err := objects.Identity(ctx, r.objects)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return fmt.Errorf("%w: the bucket has no %s, the table is of log %x", metadata.ErrWrongLog, segment.IdentityName, table.Log)
	case errors.Is(err, metadata.ErrCorrupt):
		return fmt.Errorf("%w: the table is of log %x, the bucket: %w", metadata.ErrWrongLog, table.Log, err)
	case err != nil:
		return err
	case bucket != table:
		return fmt.Errorf("%w: the bucket says log %x, the table %x", metadata.ErrWrongLog, bucket.Log, table.Log)
	}
	r.log, r.report.Log = table.Log, fmt.Sprintf("%x", table.Log)
	return nil
}

// checkClock takes the service's time, and refuses to run if the machine's own is far from it: one of the two is wrong, and everything goes by ages.
func (r *run) checkClock(context.Context) error {
	now, ok := r.table.ServiceTime()
	if !ok {
		return fmt.Errorf("%w: the table has not told its time", metadata.ErrUnavailable)
	}
	if own := r.o.Env.Now(); own.Sub(now).Abs() > MaxClockSkew {
		return &ClockError{Own: own, Service: now}
	}
	r.now, r.floor = now, at(now.Add(-SafeAge))
	r.report.Floor, r.report.Below = r.floor.String(), r.floor.Time()
	return nil
}

// raise raises the log's floor and reads it back.
func (r *run) raise(ctx context.Context) error {
	if r.o.DryRun {
		return nil
	}
	err := r.table.RaiseFloor(ctx, r.floor)
	floor, readErr := r.table.Floor(ctx)
	if readErr != nil {
		return errors.Join(err, unreadable(readErr))
	}
	return r.raised("the log", floor, err)
}

// raised tells whether a floor that was read back is where this sweep has raised it, whatever the attempt to raise it ended with.
func (r *run) raised(what string, floor segment.ID, err error) error {
	if r.o.DryRun || !floor.Less(r.floor) {
		return nil
	}
	return fmt.Errorf("the floor of %s is %s, not raised to %s: %w", what, floor, r.floor, errors.Join(err, metadata.ErrUnavailable))
}

const topicsPage = 100

// listTopics lists all topics. One row that cannot be read may name any lane.
func (r *run) listTopics(ctx context.Context) error {
	for after, more := "", true; more; {
		var page []*metadata.Topic
		var err error
		if page, more, err = r.table.Topics(ctx, after, topicsPage); err != nil {
			return unreadable(err)
		}
		for _, t := range page {
			after, r.byID[t.ID] = t.Name, t
			for _, id := range t.Lanes {
				if r.lanes[id] == nil {
					r.lanes[id] = &lane{id: id, young: math.MaxInt64}
					r.list = append(r.list, r.lanes[id])
				}
				r.lanes[id].topics = append(r.lanes[id].topics, t)
			}
		}
	}
	return nil
}

// fence raises the floors of all lanes, before anything is read of any: a segment may be committed to several. Whether it has come to that is seen when they
// are read. Then it reads which topics are deleted, those included that went meanwhile.
func (r *run) fence(ctx context.Context) error {
	if !r.o.DryRun {
		err := each(ctx, r, r.list, func(ctx context.Context, l *lane) error {
			return r.unlessGone(ctx, l, errors.Join(settled(r.table.RaiseHeadFloor(ctx, l.id, r.floor)), settled(r.table.RaiseStateFloor(ctx, l.id, r.floor))))
		})
		if err != nil {
			return err
		}
	}
	var err error
	if r.deletions, err = r.table.Gone(ctx); err != nil {
		return unreadable(err)
	}
	for _, g := range r.deletions {
		for _, id := range g.Lanes {
			r.gone[id] = true
		}
	}
	r.forget()
	return nil
}

// settled passes over outcomes that the read that follows will tell.
func settled(err error) error {
	if errors.Is(err, metadata.ErrOutcomeUnknown) || errors.Is(err, metadata.ErrUnavailable) {
		return nil
	}
	return err
}

// unlessGone is nil, and the lane noted as gone, if err says that an item of it is missing and its topics were deleted. If they were not, what the lane named is
// not known.
func (r *run) unlessGone(ctx context.Context, l *lane, err error) error {
	if !errors.Is(err, metadata.ErrNoLane) && !errors.Is(err, metadata.ErrNoState) && !errors.Is(err, metadata.ErrNoChunk) {
		return unreadable(err)
	}
	for _, t := range l.topics {
		row, rowErr := r.table.Topic(ctx, t.Name)
		switch {
		case rowErr == nil && row.ID == t.ID:
			return references("topic %s is there, but not all of its lane %s: %w ('varve verify' says more)", t.Name, l.id, err)
		case rowErr != nil && !errors.Is(rowErr, metadata.ErrUnknownTopic):
			return unreadable(rowErr)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[l.id] = true
	return nil
}

// isGone tells whether the lane was found to be of deleted topics since it was listed.
func (r *run) isGone(id metadata.LaneID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone[id]
}

// forget takes lanes that are gone off the list.
func (r *run) forget() {
	var list []*lane
	for _, l := range r.list {
		if !r.gone[l.id] {
			list = append(list, l)
			continue
		}
		delete(r.lanes, l.id)
		for _, t := range l.topics {
			delete(r.byID, t.ID)
		}
	}
	r.list = list
}
