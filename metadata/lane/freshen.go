package lane

import (
	"context"
	"fmt"

	"github.com/varvelog/varve/metadata"
)

// freshen gives new ids to the segments of the batch that may not be committed under theirs. It tells whether it did
// anything; time has passed then, and a segment may have failed.
//
// The age is checked before every attempt because the sweep takes an id that is old enough, and that no head shows, for
// an orphan's: a commit of such an id must not be under way.
func (w *Writer) freshen(ctx context.Context, b *batch) (did bool) {
	for _, t := range b.tickets {
		v := w.seen()
		s := t.segment
		if v.version > s.Version && w.withdrawGone(t) {
			did = true
			continue
		}
		if !stale(s, v, Now(w.env)) {
			continue
		}
		did = true
		if err := w.remint(ctx, s, v); err != nil {
			b.last = fmt.Errorf("segment %s needs a new id: %w", s.ID, err)
			if w.env.Mono() < s.Deadline { // otherwise it is the deadline that ended it
				t.Fail(b.last)
			}
		}
	}
	return did
}

// withdrawGone withdraws what is of slots that are no partitions any more, and tells whether there was any.
func (w *Writer) withdrawGone(t *Ticket) (any bool) {
	if w.cfg.Gone == nil {
		return false
	}
	for _, s := range t.segment.Slots {
		err := w.cfg.Gone(s.Slot) // which may look at what its owner locks
		if err == nil {
			continue
		}
		w.mu.Lock()
		any = any || t.withdrawn[s.Slot] == nil
		t.withdraw(s.Slot, err)
		w.mu.Unlock()
	}
	return any
}

func stale(s *Segment, v view, now metadata.Stamp) bool {
	return s.Minted.Age(now) >= metadata.MaxSegmentAge || !v.floor.IsZero() && !v.floor.Less(s.ID) ||
		v.version > s.Version && v.class != s.ID.Class()
}

func (w *Writer) remint(ctx context.Context, s *Segment, v view) error {
	class, old := s.ID.Class(), s.ID
	if v.version > s.Version {
		class, s.Version = v.class, v.version
	}
	above := v.floor
	if above.Less(old) {
		above = old
	}
	within, cancel := w.env.WithTimeout(ctx, s.Deadline-w.env.Mono())
	defer cancel()
	err := w.cfg.Remint(within, s, above, class)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case err != nil && within.Err() != nil:
		return fmt.Errorf("%w: %w", ErrDeadline, err)
	case err != nil:
		return err
	}
	if !above.Less(s.ID) || s.ID.Class() != class {
		return fmt.Errorf("%w: %s is not above %s or not of class %s", metadata.ErrInvalid, s.ID, above, class)
	}
	return nil
}
