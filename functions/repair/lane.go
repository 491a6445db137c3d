package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	protocol "github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// rewrite takes a lane into the new era. Each step finds out from the table whether it is done.
func (r *run) rewrite(ctx context.Context, l *lane) error {
	if l.cut(r.era.Jump) == nil {
		if err := r.archive(ctx, l); err != nil {
			return err
		}
		if err := r.cutAll(ctx, l); err != nil {
			return err
		}
	}
	if !l.jumped(r.era.Jump) {
		if err := r.jump(ctx, l); err != nil {
			return err
		}
	}
	if err := r.read(ctx, l); err != nil { // what was committed up to the jump lies in the cut, too
		return err
	}
	if r.done && l.closed(r.era.Jump) { // since when rows may have been merged, and chunks deleted, by which it was known what was given twice
		return nil
	}
	if err := r.inTime(ctx, l, func() error { return r.closeCut(ctx, l) }); err != nil {
		return err
	}
	if err := r.read(ctx, l); err != nil {
		return err
	}
	if err := r.narrow(ctx, l); err != nil {
		return err
	}
	return r.read(ctx, l)
}

// archive makes sure that all is in the archive that the lane had committed at the moment that the table was put back to, and then what follows in archive segments.
func (r *run) archive(ctx context.Context, l *lane) error {
	if !l.covers() {
		if _, err := r.drain(ctx, l); err != nil {
			return err
		}
		if err := r.read(ctx, l); err != nil {
			return err
		}
		for goesOn := true; l.state.Archived < l.order && goesOn; { // a compaction that stood still has left what it had no time for, and may not publish what it had begun
			archived := l.state.Archived
			o := compact.Options{Topics: []string{l.topic.Name}, All: true, Until: r.untils(l), Deadline: compact.MaxDeadline, Env: r.o.Env}
			report, err := compact.Run(ctx, r.table, r.bucket, o)
			if err != nil {
				return err
			}
			if err := r.read(ctx, l); err != nil {
				return err
			}
			goesOn = l.state.Archived > archived || report.Lost > 0 || report.Left > 0
		}
	}
	if err := r.publishRuns(ctx, l); err != nil {
		return err
	}
	for _, slot := range l.slots {
		jumped := l.state.SlotCuts(slot).At(l.state.Ends[slot]) // by a repair that was cut off before it had laid a row over what it had jumped over
		over := l.state.Archived >= l.order && jumped != nil && jumped.To >= l.ends[slot]
		if l.state.Ends[slot] < l.ends[slot] && !over {
			return &archive.AlarmError{Topic: l.topic.Name, Lane: l.id, What: fmt.Sprintf("slot %d is archived up to offset %d only, and had committed up to %d", slot, l.state.Ends[slot], l.ends[slot])}
		}
	}
	return nil
}

// untils lets a compaction archive what this lane had committed at that moment, and nothing else.
func (r *run) untils(l *lane) map[metadata.LaneID]int64 {
	until := map[metadata.LaneID]int64{}
	for _, id := range l.topic.Lanes {
		if until[id] = r.lanes[id].state.Archived; until[id] == 0 {
			until[id] = -1
		}
	}
	until[l.id] = l.order
	return until
}

// cutAll cuts from where the lane was at that moment. What of it is known to stand for what it did, narrow takes out again when no offset below the jump can be given any more.
func (r *run) cutAll(ctx context.Context, l *lane) error {
	var cuts []metadata.Cut
	for _, slot := range l.slots {
		cuts = append(cuts, metadata.Cut{Slot: slot, From: max(l.ends[slot], l.state.Starts[slot]), To: r.era.Jump, Order: l.order})
	}
	_, err := r.table.SetCuts(ctx, l.state, l.state.WithCuts(func(metadata.Cut) bool { return false }, cuts...))
	return err
}

// narrow leaves of the era's cuts the row without records, and before it what was given again. Of a time of which the table knows nothing any offset may have been given again, and a
// compaction that was under way when the repair began may have merged that row with those before it, so that it cannot be told where it began: then cuts stay as they are.
func (r *run) narrow(ctx context.Context, l *lane) error {
	var cuts []metadata.Cut
	kept, unknown := map[metadata.Slot]bool{}, !r.era.Whole.Equal(r.era.Back)
	for _, slot := range l.slots {
		partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: slot})
		row, err := r.table.Row(ctx, l.topic.ID, partition, r.era.Jump-1, metadata.Strong)
		if err != nil {
			return err
		}
		if unknown || row.Count > 0 {
			kept[slot] = true
			continue
		}
		from, ends, last := row.Base, l.ends[slot], l.last[slot]
		if last > ends && last < from {
			cuts = append(cuts, metadata.Cut{Slot: slot, From: ends, To: last, Order: l.order})
		} else if last > ends {
			from = ends
		}
		cuts = append(cuts, metadata.Cut{Slot: slot, From: from, To: r.era.Jump, Order: l.order})
	}
	ofEra := func(c metadata.Cut) bool {
		return !kept[c.Slot] && c.Order == l.order && (c.To == r.era.Jump || c.From == l.ends[c.Slot] && c.To == l.last[c.Slot])
	}
	state, err := r.table.SetCuts(ctx, l.state, l.state.WithCuts(ofEra, cuts...))
	if err != nil {
		return err
	}
	for _, slot := range l.slots {
		if state, err = r.passCuts(ctx, l, state, slot); err != nil {
			return err
		}
	}
	return nil
}

// passCuts lets a slot that begins with rows without records, in cuts, begin behind them, and no cut go on over that place: nobody who reads from its start is told of a cut. It returns
// the state after it.
func (r *run) passCuts(ctx context.Context, l *lane, state *metadata.State, slot metadata.Slot) (*metadata.State, error) {
	partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: slot})
	start := state.Starts[slot]
	for state.Cut(slot, start) != nil {
		row, err := r.table.Row(ctx, l.topic.ID, partition, start, metadata.Strong)
		if errors.Is(err, metadata.ErrNoRow) || err == nil && (row.End <= start || row.Count > 0 || state.Cut(slot, row.End-1) == nil) {
			break
		}
		if err != nil {
			return nil, err
		}
		if state, err = r.table.SetStart(ctx, l.id, slot, row.End); err != nil {
			return nil, err
		}
		start = state.Starts[slot]
	}
	c := state.Cut(slot, start)
	if c == nil || c.From == start {
		return state, nil
	}
	before, after := *c, *c
	before.To, after.From = start, start
	return r.table.SetCuts(ctx, state, state.WithCuts(func(d metadata.Cut) bool { return d == *c }, before, after))
}

// jump lets the lane go on at the era's offsets, at a moment when its head holds no entries. Writers that are refused come back after a while: the time for it.
func (r *run) jump(ctx context.Context, l *lane) error {
	for range jumpTries {
		if _, err := r.fence(ctx, l.id); err != nil {
			return err
		}
		head, err := r.drain(ctx, l)
		if err != nil {
			return err
		}
		if head.First < head.Next {
			continue
		}
		_, err = r.table.Jump(ctx, l.id, head.Next, l.slots, r.era.Jump)
		if !errors.Is(err, metadata.ErrChanged) {
			return err
		}
	}
	return ErrBusy
}

// fence keeps away what was sent before, and lets the head forget producers whose requests may be sent again. What it knows of them is of an earlier moment: one that
// it does not know, or takes for the next, may be among the records that are appended again. So all that have an id by now are told that nothing can be verified. It returns
// the head as it is then.
func (r *run) fence(ctx context.Context, id metadata.LaneID) (*metadata.Head, error) {
	head, err := r.table.Fence(ctx, id)
	floor := metadata.NewProducerID(archive.Now(r.o.Env, r.table), math.MaxUint64)
	for range jumpTries {
		if err != nil {
			return nil, err
		}
		head, err = r.table.EvictProducers(ctx, head, floor, slices.Collect(maps.Keys(head.Producers))...)
		if !errors.Is(err, metadata.ErrChanged) {
			return head, err
		}
		err = nil
	}
	return nil, ErrBusy
}

// drain moves all entries of a head into chunks, filling up with empty ones. In a lane that goes on meanwhile some are left.
func (r *run) drain(ctx context.Context, l *lane) (*metadata.Head, error) {
	head, err := r.table.Head(ctx, l.id, metadata.Strong)
	if err != nil || head.First == head.Next {
		return head, err
	}
	if n := head.PadNeeded(); n > 0 {
		ids := make([]segment.ID, n)
		for i := range ids {
			ids[i] = segment.NewID(archive.Now(r.o.Env, r.table), head.Class, segment.InBucket, r.o.Env.Uint64(), head.Floor)
		}
		after, err := r.table.Commit(ctx, metadata.PlanPadding(head, writer, ids))
		var refused *metadata.RefusedError
		switch {
		case err == nil:
			head = after
		case errors.As(err, &refused) && refused.Head != nil || errors.Is(err, metadata.ErrOutcomeUnknown):
			if head, err = r.table.Head(ctx, l.id, metadata.Strong); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	if err := protocol.Spill(ctx, r.table, r.o.Env, head); err != nil {
		return nil, err
	}
	return r.table.Head(ctx, l.id, metadata.Strong)
}

var writer = metadata.EpochOf("repair")

// inTime does what ends with a publication to the lane, again where the process stood still for so long that it was not sent any more.
func (r *run) inTime(ctx context.Context, l *lane, do func() error) (err error) {
	for range tooLateTries {
		if err = do(); !metadata.TooLate(err) {
			return err
		}
		if err := r.read(ctx, l); err != nil {
			return err
		}
	}
	return err
}

// tooLateTries bounds how often a repair may stand still in the same place.
const tooLateTries = 5

// closed tells whether closeCut was done.
func (l *lane) closed(jump int64) bool { return l.state.Ends[l.slots[0]] >= jump }

// closeCut lays a row without records over the lane's cuts of the era, and passes the orders whose commits lie in them.
func (r *run) closeCut(ctx context.Context, l *lane) error {
	if l.closed(r.era.Jump) {
		return nil
	}
	p := &metadata.Publication{Lane: l.id, ID: archive.Mint(r.o.Env, r.table, l.topic.Class(), l.state.Floor), Minted: l.asked, From: l.state.Archived, To: l.next, Ends: map[metadata.Slot]int64{}}
	for _, slot := range l.slots {
		partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: slot})
		from := max(l.state.Ends[slot], l.state.Starts[slot])
		before, err := r.latest(ctx, l, partition, from)
		if err != nil {
			return err
		}
		p.Put = append(p.Put, r.empty(l, partition, from, r.era.Jump, before))
		p.Ends[slot] = r.era.Jump
	}
	return archive.Publish(ctx, r.o.Env, r.table, l.topic, p)
}
