package compact

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// survey finds out how old a lane's backlog is, and empties its head if it is idle. What an eventual read does not show of them is seen to by the next run.
func (r *run) survey(ctx context.Context, l *backlog) error {
	state, head, err := r.look(ctx, l, metadata.Consistency(r.o.All))
	if errors.Is(err, metadata.ErrNoState) || errors.Is(err, metadata.ErrNoLane) {
		state, head, err = r.look(ctx, l, metadata.Strong)
	}
	if err != nil {
		return r.gone(ctx, l, err)
	}
	if r.o.All {
		l.to = head.Next
	}
	for tries := 0; r.emptied(l, head) && tries < maxTries && (tries == 0 || !r.o.DryRun); tries++ {
		if head, err = r.empty(ctx, l); err != nil {
			return r.gone(ctx, l, err)
		}
	}
	if state.Archived >= head.First {
		return nil
	}
	l.oldest = time.UnixMilli(0) // before all, for step to see what is there
	c, err := r.table.Chunk(ctx, l.lane, metadata.ChunkOf(state.Archived, head.K), metadata.Eventual)
	if errors.Is(err, metadata.ErrNoChunk) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range c.Entries {
		if c.Entries[i].Order >= state.Archived {
			l.oldest = c.Entries[i].ID.Time()
			break
		}
	}
	return nil
}

func (r *run) look(ctx context.Context, l *backlog, c metadata.Consistency) (state *metadata.State, head *metadata.Head, err error) {
	if state, err = r.table.State(ctx, l.lane, c); err == nil {
		head, err = r.table.Head(ctx, l.lane, c)
	}
	return state, head, err
}

// maxTries is how often an attempt to empty a head is made. In a lane that is not idle padding is refused, but then the lane fills up by itself.
const maxTries = 20

// emptied tells whether a head is to be emptied: it is idle, or all that it had at first is to be archived.
func (r *run) emptied(l *backlog, h *metadata.Head) bool {
	return h.First < l.to || !r.o.All && r.idle(h)
}

// idle tells whether nothing is appended to the lane any more, and its head is not empty. Padding does not count: its spill may have failed.
func (r *run) idle(h *metadata.Head) bool {
	for i := range slices.Backward(h.Entries) {
		if e := &h.Entries[i]; !e.Empty {
			return archive.Now(r.o.Env, r.table).Sub(e.ID.Time()) >= idleAfter
		}
	}
	return len(h.Entries) > 0
}

// empty moves all entries of a lane into chunks: it fills up to a whole chunk with empty entries, if the lane has not gone on meanwhile, and spills. It returns
// the head as it is then.
func (r *run) empty(ctx context.Context, l *backlog) (*metadata.Head, error) {
	head, err := r.table.Head(ctx, l.lane, metadata.Strong)
	if err != nil || !r.emptied(l, head) {
		return head, err
	}
	n := head.PadNeeded()
	r.note(func(p *Report) { p.Idle, p.Padding = p.Idle+1, p.Padding+n })
	if r.o.DryRun {
		return head, nil
	}
	if n > 0 {
		if head, err = r.pad(ctx, head, n); err != nil || head.PadNeeded() > 0 {
			return head, err
		}
	}
	if err := lane.Spill(ctx, r.table, r.o.Env, head); err != nil {
		return nil, err
	}
	return r.table.Head(ctx, l.lane, metadata.Strong)
}

// padder is whose fence epoch padding is sent under. Padding that is applied late does no harm, as it is refused where the lane has gone on: so it is never fenced.
const padder = "compact"

// pad sends the padding once. A lane that has gone on refuses it, and is not idle then.
func (r *run) pad(ctx context.Context, head *metadata.Head, n int) (*metadata.Head, error) {
	ids := make([]segment.ID, n)
	for i := range ids {
		ids[i] = segment.NewID(archive.Now(r.o.Env, r.table), head.Class, segment.InBucket, r.o.Env.Uint64(), head.Floor)
	}
	after, err := r.table.Commit(ctx, metadata.PlanPadding(head, metadata.EpochOf(padder), ids))
	var refused *metadata.RefusedError
	switch {
	case err == nil:
		return after, nil
	case errors.As(err, &refused) && refused.Head != nil:
		return refused.Head, nil
	case errors.Is(err, metadata.ErrOutcomeUnknown):
		return r.table.Head(ctx, head.Lane, metadata.Strong)
	}
	return nil, err
}
