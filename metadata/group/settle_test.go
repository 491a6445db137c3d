package group

import (
	"errors"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// settler is a member that holds the two partitions of a topic, and the moves of an offset of each.
func (w *world) settler() (*Member, []metadata.StepOffsets) {
	w.Helper()
	topic := w.create("t", 2, 64)
	m, err := Join(w.Context(), w.table, env.System(), Config{Group: "g", Timeout: timeout, Refresh: time.Minute, Topics: []string{"t"}})
	w.ok(err)
	_, err = m.Tick(w.Context())
	w.ok(err)
	var offsets []Offset
	for p, to := range []int64{5, 3} {
		at := Partition{"t", topic.ID, p}
		offsets = append(offsets, Offset{Partition: at, Lease: m.held[at].claimed, Offset: to})
	}
	moves, err := m.Moves(offsets)
	w.ok(err)
	return m, moves
}

func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(*world, *Member, []metadata.StepOffsets) error
		applied bool
		err     error
	}{
		"not applied": {func(*world, *Member, []metadata.StepOffsets) error { return nil }, false, nil},
		"applied": {func(w *world, _ *Member, moves []metadata.StepOffsets) error {
			return w.table.CommitStep(w.Context(), "token", nil, moves)
		}, true, nil},
		"committed by itself meanwhile": {func(w *world, m *Member, moves []metadata.StepOffsets) error {
			for p, h := range m.held {
				_, err := m.Commit(w.Context(), []Offset{{Partition: p, Lease: h.claimed, Offset: 1}})
				w.ok(err)
			}
			return nil
		}, false, metadata.ErrChanged},
		"taken by another": {func(w *world, m *Member, moves []metadata.StepOffsets) error {
			mv := moves[0].Moves[1]
			_, err := w.table.SetLeases(w.Context(), "g", moves[0].Lane, []metadata.LeaseChange{{Slot: mv.Slot, From: mv.Lease, To: metadata.Lease{Session: m.newSession(), Epoch: mv.Lease.Epoch + 1}}})
			return err
		}, false, ErrNotHeld},
	} {
		inWorld(t, func(w *world) {
			m, moves := w.settler()
			w.ok(c.before(w, m, moves))
			stale, err := w.table.GroupState(w.Context(), "g")
			w.ok(err)
			applied, err := m.Settle(w.Context(), moves)
			if applied != c.applied || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%s: %v, %v", name, applied, err)
			}
			if err := w.table.CommitStep(w.Context(), "another token", nil, moves); !errors.Is(err, metadata.ErrChanged) {
				t.Errorf("%s: applied after it was settled: %v", name, err)
			}
			if errors.Is(err, ErrNotHeld) {
				return
			}
			// A heartbeat that has read the leases before does not take them for another's, nor does the next.
			var change Change
			w.ok(m.follow(w.Context(), stale, &change))
			next, err := m.Tick(w.Context())
			w.ok(err)
			if lost := append(change.Lost, next.Lost...); len(lost) > 0 {
				t.Errorf("%s: lost %v", name, lost)
			}
		})
	}
}
