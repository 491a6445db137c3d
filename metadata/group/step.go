package group

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// Moves is the offsets as they are to be moved in a transaction: from what is committed, as this member knows it, by the leases that it holds. What is not
// held is a *PartitionError, and then nothing is to be moved. At least one must go forward: a transaction that moves nothing could be applied twice.
func (m *Member) Moves(offsets []Offset) ([]metadata.StepOffsets, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byLane := map[metadata.LaneID]*metadata.StepOffsets{}
	var failed error
	forward := false
	for _, o := range offsets {
		h := m.held[o.Partition]
		switch {
		case h == nil || h.claimed != o.Lease:
			failed = errors.Join(failed, &PartitionError{o.Partition, ErrNotHeld})
			continue
		case o.Offset < h.committed:
			failed = errors.Join(failed, &PartitionError{o.Partition, ErrBehind})
			continue
		}
		forward = forward || o.Offset > h.committed
		s := byLane[h.place.Lane]
		if s == nil {
			s = &metadata.StepOffsets{Group: m.config.Group, Lane: h.place.Lane, At: m.serviceTime()}
			byLane[h.place.Lane] = s
		}
		s.Moves = append(s.Moves, metadata.OffsetMove{Slot: h.place.Slot, Lease: h.lease, From: h.committed, To: o.Offset, Metadata: o.Metadata})
	}
	if failed == nil && !forward && len(offsets) > 0 {
		failed = &PartitionError{offsets[0].Partition, ErrBehind}
	}
	if failed != nil {
		return nil, failed
	}
	var all []metadata.StepOffsets
	for _, s := range slices.SortedFunc(maps.Values(byLane), func(a, b *metadata.StepOffsets) int { return cmp.Compare(a.Lane, b.Lane) }) {
		all = append(all, *s)
	}
	return all, nil
}

// Moved notes that the transaction was applied.
func (m *Member) Moved(offsets []Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range offsets {
		if h := m.held[o.Partition]; h != nil && h.claimed == o.Lease {
			h.committed = max(h.committed, o.Offset)
		}
	}
}

// Doubt lets go of partitions of which nobody knows what is committed. The next Tick tells that they are lost, and claims those that the plan still gives, with
// what is committed then: by another lease, so that the transaction, if it is still under way, can move nothing any more.
func (m *Member) Doubt(offsets []Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range offsets {
		if h := m.held[o.Partition]; h != nil && h.claimed == o.Lease {
			delete(m.held, o.Partition)
			m.lost = append(m.lost, o.Partition)
		}
	}
}
