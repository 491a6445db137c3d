package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
)

// Bounds of CommitAtomic: the table knows a token again for ten minutes, so repeats end long before.
const (
	atomicFor   = 30 * time.Second
	atomicFirst = 50 * time.Millisecond // pause before a repeat, doubled up to atomicLast
	atomicLast  = 2 * time.Second
)

// CommitAtomic commits offsets of several lanes in one transaction, all or none, which costs twice the write units of Commit. Errors are those of Moves; a
// *metadata.OffsetsRefusedError when the table shows other leases or offsets than this member knows; ErrContended when other transactions came in between all
// the time; and metadata.ErrOutcomeUnknown.
//
// After a lost answer it is sent again under the same token, which the table applies once; when that does not settle it, the lanes are read. An
// attempt that is applied later than that does no harm: it moves offsets from exactly where they were, by leases that stand, to where its caller wanted them.
func (m *Member) CommitAtomic(ctx context.Context, offsets []Offset) error {
	moves, err := m.Moves(offsets)
	if err != nil || len(moves) == 0 {
		return err
	}
	doubt, err := m.sendMoves(ctx, moves)
	if err != nil && doubt {
		err = m.settleMoves(ctx, moves, err)
	}
	if err == nil {
		m.Moved(offsets)
	}
	return err
}

// sendMoves sends the transaction until it is answered for good, or time is up. doubt tells whether an answer was lost.
func (m *Member) sendMoves(ctx context.Context, moves []metadata.StepOffsets) (doubt bool, err error) {
	token := string(m.newSession())
	until, pause := m.env.Mono()+atomicFor, atomicFirst
	for {
		err = m.table.CommitStep(ctx, token, nil, moves)
		doubt = doubt || errors.Is(err, metadata.ErrOutcomeUnknown)
		passing := errors.Is(err, metadata.ErrOutcomeUnknown) || errors.Is(err, metadata.ErrThrottled) || errors.Is(err, metadata.ErrContended) ||
			errors.Is(err, metadata.ErrUnavailable)
		if !passing || m.env.Mono() >= until || m.env.Sleep(ctx, m.env.Jitter(pause)) != nil {
			return doubt, err
		}
		pause = min(2*pause, atomicLast)
	}
}

// settleMoves looks whether a transaction of which an answer was lost has been applied. All of it was, or nothing: a lane in which something goes forward tells.
func (m *Member) settleMoves(ctx context.Context, moves []metadata.StepOffsets, failed error) error {
	at := slices.IndexFunc(moves, func(o metadata.StepOffsets) bool { return goesUp(o) != nil })
	image, err := m.table.GroupLane(ctx, moves[at].Group, moves[at].Lane)
	var refused *metadata.OffsetsRefusedError
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w, and reading it back: %w", metadata.ErrOutcomeUnknown, failed, err)
	case !slices.ContainsFunc(moves[at].Moves, func(o metadata.OffsetMove) bool {
		s := image.Slots[o.Slot]
		return s.Lease != o.Lease || s.Offset != o.To || s.Metadata != o.Metadata
	}):
		return nil
	case errors.As(failed, &refused):
		return failed // what refuses it now refuses it for good
	}
	return fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, failed)
}
