package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Table is what Publish needs of the table.
type Table interface {
	metadata.RowReader
	metadata.Publisher
	State(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.State, error)
	Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) (entries []*metadata.Replaced, more bool, err error)
}

// publishAttempts is how often a publication is sent whose outcome is unknown and that is not seen to be applied. The adapter repeats each for a while.
const publishAttempts = 3

// Publish makes a segment that is durable part of the log. Its errors:
//
//   - *metadata.StaleError: the sweep's floor has passed the id, or may have, so the segment may be deleted by now. Write it again under a fresh one.
//   - metadata.ErrChanged: another has published meanwhile. Nothing is lost; begin anew from the table.
//   - metadata.ErrNoState: the topic was deleted.
//   - *AlarmError: the publication does not take the place of exactly the offsets that it should. It was not sent.
//   - metadata.ErrOutcomeUnknown: nothing shows that it was applied, but it may be, even later, if its conditions hold then. That does no harm.
//
// After each of them the object is the sweep's, if nothing names it.
func Publish(ctx context.Context, e env.Env, t Table, topic *metadata.Topic, p *metadata.Publication) error {
	state, err := t.State(ctx, p.Lane, metadata.Strong)
	switch {
	case err != nil:
		return err
	case p.From < p.To && state.Archived != p.From:
		return fmt.Errorf("publish %s to lane %s: %w: archived up to order %d, not %d", p.ID, p.Lane, metadata.ErrChanged, state.Archived, p.From)
	}
	if err := Check(state, topic, p); err != nil {
		return err
	}
	e.At(env.BeforePublish)
	if err := send(ctx, t, p); err != nil {
		return err
	}
	e.At(env.AfterPublish)
	return nil
}

// send sends the publication and settles an unknown outcome. A refusal too may be the answer to a repetition of what was applied.
func send(ctx context.Context, t Table, p *metadata.Publication) error {
	var err error
	for range publishAttempts {
		err = t.Publish(ctx, p)
		changed, open := errors.Is(err, metadata.ErrChanged), errors.Is(err, metadata.ErrUnavailable)
		if !changed && !open {
			return err
		}
		done, failed := applied(ctx, t, p)
		switch {
		case done:
			return nil
		case changed && failed == nil:
			return err
		case failed != nil:
			return fmt.Errorf("%w: publication %s to lane %s: %w, then: %w", metadata.ErrOutcomeUnknown, p.ID, p.Lane, err, failed)
		}
	}
	return fmt.Errorf("%w: publication %s to lane %s: %w", metadata.ErrOutcomeUnknown, p.ID, p.Lane, err)
}

// applied tells whether the publication was applied, by what of it stays longest: the entry of the work list, for a day; where there is none, its rows.
func applied(ctx context.Context, t Table, p *metadata.Publication) (bool, error) {
	if p.Listed() {
		around := func(ms time.Duration) segment.ID {
			return segment.NewID(p.ID.Time().Add(ms), 0, segment.InBucket, 0, segment.ID{})
		}
		after, more := around(0), true
		for more {
			var entries []*metadata.Replaced
			var err error
			if entries, more, err = t.Replaced(ctx, p.ID.Hash(), after, around(time.Millisecond), 100); err != nil {
				return false, err
			}
			for _, r := range entries {
				if after = r.ID; r.ID == p.ID {
					return true, nil
				}
			}
			more = more && len(entries) > 0
		}
		return false, nil
	}
	row, err := t.Row(ctx, p.Put[0].Topic, p.Put[0].Partition, p.Put[0].Base, metadata.Strong)
	return err == nil && row.Same(&p.Put[0]), err
}
