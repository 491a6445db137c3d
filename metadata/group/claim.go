package group

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/varvelog/varve/metadata"
)

func comparePartitions(a, b Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Partition, b.Partition))
}

// follow makes what is held what the plan of the state gives, as far as others have released it, and says what to give up.
func (m *Member) follow(ctx context.Context, state *metadata.GroupState, change *Change) error {
	wanted, added := m.assigned(state)
	lease := leases(state.Lanes)
	m.lookAtHeld(wanted, lease, change)
	changes := map[metadata.LaneID][]metadata.LeaseChange{}
	claimed := map[metadata.Place]Partition{}
	for _, p := range slices.SortedFunc(maps.Keys(wanted), comparePartitions) {
		at, l := wanted[p], lease(wanted[p])
		switch {
		case m.holds(p):
		case l.Held() && l.Session != m.session() && state.Plan.Lives(l.Session):
			change.Waiting = true // for its holder to release it
		default:
			changes[at.Lane] = append(changes[at.Lane], metadata.LeaseChange{Slot: at.Slot, From: l,
				To: metadata.Lease{Session: m.session(), Epoch: l.Epoch + 1}})
			claimed[at] = p
		}
	}
	m.strays(state, wanted, changes)
	var failed error
	for _, lane := range slices.Sorted(maps.Keys(changes)) {
		image, err := m.table.SetLeases(ctx, m.config.Group, lane, changes[lane])
		switch {
		case errors.Is(err, metadata.ErrChanged): // another look
			change.Waiting = true
		case err != nil:
			failed = errors.Join(failed, err)
		default:
			m.claimed(lane, changes[lane], claimed, image, change)
		}
	}
	for i := range change.Assigned {
		change.Assigned[i].Added = added[change.Assigned[i].Partition]
	}
	return failed
}

// assigned is where what the plan gives this session is sequenced, and which of it was added while the group has read the topic.
func (m *Member) assigned(state *metadata.GroupState) (wanted map[Partition]metadata.Place, added map[Partition]bool) {
	wanted, added = map[Partition]metadata.Place{}, map[Partition]bool{}
	for _, t := range orEmpty(state.Plan).Topics {
		topic := m.catalog.known.byID[t.ID]
		for p := range t.Owners {
			if topic != nil && p < topic.Partitions && state.Plan.Owns(m.session(), t.ID, p) {
				at := Partition{topic.Name, t.ID, p}
				wanted[at], added[at] = topic.Place(p), p >= t.Known
			}
		}
	}
	return wanted, added
}

func (m *Member) holds(p Partition) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[p] != nil
}

// Holds tells whether the partition is held by this lease, as far as is known. What was claimed by another may not be delivered or begun.
func (m *Member) Holds(p Partition, l metadata.Lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[p]
	return h != nil && h.claimed == l
}

// lookAtHeld finds what was lost and what is to be given up. What is being given up and is wanted again is given up all the same, and then claimed.
func (m *Member) lookAtHeld(wanted map[Partition]metadata.Place, lease func(metadata.Place) metadata.Lease, change *Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change.Lost = append(change.Lost, m.lost...)
	m.lost = nil
	for _, p := range slices.SortedFunc(maps.Keys(m.held), comparePartitions) {
		h := m.held[p]
		_, keep := wanted[p]
		switch l := lease(h.place); {
		case l != h.lease && (l != h.also || !l.Held()):
			delete(m.held, p)
			change.Lost = append(change.Lost, p)
		case !keep && !h.revoked:
			h.revoked = true
			change.Revoked = append(change.Revoked, p)
		}
	}
}

// strays adds the release of leases that are this session's by the table, though it does not know that it holds them and is not to: an acquisition whose
// answer was lost, and which was applied after the plan had changed.
func (m *Member) strays(state *metadata.GroupState, wanted map[Partition]metadata.Place, changes map[metadata.LaneID][]metadata.LeaseChange) {
	known := map[metadata.Place]bool{}
	for _, at := range wanted {
		known[at] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.held {
		known[h.place] = true
	}
	for _, l := range state.Lanes {
		for s, c := range l.Slots {
			at := metadata.Place{Lane: l.Lane, Slot: metadata.Slot(s)}
			if c.Lease.Session == m.self.Session && !known[at] {
				changes[l.Lane] = append(changes[l.Lane], metadata.LeaseChange{Slot: at.Slot, From: c.Lease, To: metadata.Lease{Epoch: c.Lease.Epoch}})
			}
		}
	}
}

// claimed notes what an update of a lane's leases has acquired.
func (m *Member) claimed(lane metadata.LaneID, changes []metadata.LeaseChange, claimed map[metadata.Place]Partition, image *metadata.GroupLane, change *Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		at := metadata.Place{Lane: lane, Slot: c.Slot}
		if !c.To.Held() || image.Slots[c.Slot].Lease != c.To {
			continue
		}
		now := image.Slots[c.Slot]
		m.held[claimed[at]] = &holding{place: at, claimed: c.To, lease: c.To, committed: now.Offset}
		change.Assigned = append(change.Assigned, Claim{Partition: claimed[at], Row: m.catalog.known.byID[claimed[at].ID], Committed: now})
	}
}

// Release gives up partitions. What is not held is passed over. After an error those that it names may be held by nobody before the next Tick releases them.
func (m *Member) Release(ctx context.Context, partitions []Partition) error {
	changes := map[metadata.LaneID][]metadata.LeaseChange{}
	m.mu.Lock()
	for _, p := range partitions {
		if h := m.held[p]; h != nil {
			delete(m.held, p)
			changes[h.place.Lane] = append(changes[h.place.Lane], metadata.LeaseChange{Slot: h.place.Slot, From: h.lease, To: metadata.Lease{Epoch: h.lease.Epoch}})
		}
	}
	m.mu.Unlock()
	var failed error
	for _, lane := range slices.Sorted(maps.Keys(changes)) {
		failed = errors.Join(failed, m.release(ctx, lane, changes[lane]))
	}
	return failed
}

// release takes out of the changes those that others have made impossible, until the rest is done.
func (m *Member) release(ctx context.Context, lane metadata.LaneID, changes []metadata.LeaseChange) error {
	for len(changes) > 0 {
		image, err := m.table.SetLeases(ctx, m.config.Group, lane, changes)
		if !errors.Is(err, metadata.ErrChanged) {
			return err
		}
		n := len(changes)
		changes = slices.DeleteFunc(changes, func(c metadata.LeaseChange) bool { return image.Slots[c.Slot].Lease != c.From })
		if len(changes) == n {
			return err // refused, and the image does not say why
		}
	}
	return nil
}
