package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// Offset is the next offset to be read of a partition, to be committed by the lease under which what is before it was read. A lease is named, because the
// member may hold the partition again by another by now: what was read before it was lost says nothing of what is committed since, least of all after a reset.
type Offset struct {
	Partition
	Lease    metadata.Lease
	Offset   int64
	Metadata string
}

// Conditions of a commit, for single partitions of it; the others are committed.
var (
	ErrNotHeld = errors.New("partition is not held by this member")
	ErrBehind  = errors.New("as much or more is committed already; only a reset takes it back")
)

// PartitionError says why one partition was left out of a commit.
type PartitionError struct {
	Partition
	Err error
}

func (e *PartitionError) Error() string {
	return fmt.Sprintf("topic %q, partition %d: %v", e.Topic, e.Partition.Partition, e.Err)
}

func (e *PartitionError) Unwrap() error { return e.Err }

// Commit commits offsets, with one update for each lane, and returns those that are committed. A partition that cannot be committed is left out, and
// the error names it by a *PartitionError; one that the table shows to be lost is held no more. What is being given up can still be committed.
func (m *Member) Commit(ctx context.Context, offsets []Offset) (done []Offset, failed error) {
	byLane := map[metadata.LaneID][]pending{}
	m.mu.Lock()
	for _, o := range offsets {
		h := m.held[o.Partition]
		if h == nil || h.claimed != o.Lease {
			failed = errors.Join(failed, &PartitionError{o.Partition, ErrNotHeld})
			continue
		}
		byLane[h.place.Lane] = append(byLane[h.place.Lane], pending{o, metadata.OffsetCommit{Slot: h.place.Slot, Lease: h.lease,
			First: h.committed == metadata.NoOffset, Offset: o.Offset, Metadata: o.Metadata}})
	}
	m.mu.Unlock()
	for _, lane := range slices.Sorted(maps.Keys(byLane)) {
		committed, err := m.commit(ctx, lane, byLane[lane])
		done, failed = append(done, committed...), errors.Join(failed, err)
	}
	return done, failed
}

// pending is one partition's part of a commit.
type pending struct {
	asked Offset
	metadata.OffsetCommit
}

// commit takes out what the table refuses, until the rest is committed.
func (m *Member) commit(ctx context.Context, lane metadata.LaneID, rest []pending) (done []Offset, failed error) {
	for len(rest) > 0 {
		commits := make([]metadata.OffsetCommit, len(rest))
		for i := range rest {
			commits[i] = rest[i].OffsetCommit
		}
		image, err := m.table.CommitOffsets(ctx, m.config.Group, lane, m.serviceTime(), commits)
		if err == nil {
			return m.committed(rest), failed
		}
		if !errors.Is(err, metadata.ErrChanged) {
			return nil, errors.Join(failed, err)
		}
		again := rest[:0:0]
		corrected := false
		for _, p := range rest {
			now := image.Slots[p.Slot]
			switch first := now.Offset == metadata.NoOffset; {
			case now.Lease != p.Lease:
				m.lose(p)
				failed = errors.Join(failed, &PartitionError{p.asked.Partition, ErrNotHeld})
			case now.Offset > p.Offset:
				failed = errors.Join(failed, &PartitionError{p.asked.Partition, ErrBehind})
			default:
				corrected = corrected || first != p.First
				p.First = first
				again = append(again, p)
			}
		}
		if len(again) == len(rest) && !corrected {
			return nil, errors.Join(failed, err) // refused, and the image does not say why
		}
		rest = again
	}
	return nil, failed
}

func (m *Member) committed(all []pending) (done []Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range all {
		if h := m.held[p.asked.Partition]; h != nil && h.lease == p.Lease {
			h.committed = max(h.committed, p.Offset)
		}
		done = append(done, p.asked)
	}
	return done
}

// lose forgets what is held by a lease that stands no more. The next Tick tells, and claims it again if the plan still gives it.
func (m *Member) lose(p pending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.held[p.asked.Partition]; h != nil && h.lease == p.Lease {
		delete(m.held, p.asked.Partition)
		m.lost = append(m.lost, p.asked.Partition)
	}
}
