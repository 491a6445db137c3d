package group

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// Settle finds out whether a transaction with these moves, which somebody else has sent, was applied, and if not makes sure that it never will be: it takes the
// leases of one lane of it again, so that the transaction, if it is still under way, finds another lease. At least one offset goes up, and
// nothing else commits for the partitions meanwhile. ErrNotHeld: they are another's by now, or were reset, and nobody can tell.
func (m *Member) Settle(ctx context.Context, moves []metadata.StepOffsets) (applied bool, err error) {
	lane := &moves[slices.IndexFunc(moves, func(o metadata.StepOffsets) bool { return goesUp(o) != nil })]
	changes := make([]metadata.LeaseChange, len(lane.Moves))
	for i, mv := range lane.Moves {
		changes[i] = metadata.LeaseChange{Slot: mv.Slot, From: mv.Lease, To: metadata.Lease{Session: mv.Lease.Session, Epoch: mv.Lease.Epoch + 1}}
	}
	m.replacing(lane.Lane, changes, func(h *holding, to metadata.Lease) { h.also = to })
	image, err := m.table.SetLeases(ctx, lane.Group, lane.Lane, changes)
	if errors.Is(err, metadata.ErrChanged) {
		return false, fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	if err != nil {
		return false, err
	}
	m.replacing(lane.Lane, changes, func(h *holding, to metadata.Lease) { h.lease, h.also = to, h.lease })
	mv := goesUp(*lane)
	switch now := image.Slots[mv.Slot].Offset; now {
	case mv.To:
		return true, nil
	case mv.From:
		return false, nil
	default:
		return false, fmt.Errorf("%w: slot %d of lane %s was to be moved from %d to %d, and is at %d", metadata.ErrChanged, mv.Slot, lane.Lane, mv.From, mv.To, now)
	}
}

func goesUp(o metadata.StepOffsets) *metadata.OffsetMove {
	for i := range o.Moves {
		if o.Moves[i].To > o.Moves[i].From {
			return &o.Moves[i]
		}
	}
	return nil
}

// replacing calls do for what is held by the leases that the changes replace.
func (m *Member) replacing(lane metadata.LaneID, changes []metadata.LeaseChange, do func(h *holding, to metadata.Lease)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.held {
		for _, c := range changes {
			if h.place == (metadata.Place{Lane: lane, Slot: c.Slot}) && h.lease == c.From {
				do(h, c.To)
			}
		}
	}
}
