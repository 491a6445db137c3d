package lane

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// spilling is a spill under way. err may be read when done is closed.
type spilling struct {
	done chan struct{}
	err  error
}

// spillSoon spills from the image in the background, so that the next commit does not wait for it. If a spill
// is under way it does nothing: the next commit to cross a multiple of K will.
func (w *Writer) spillSoon(h *metadata.Head) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spilling != nil {
		return
	}
	s := &spilling{done: make(chan struct{})}
	w.spilling = s
	w.start(func(ctx context.Context) {
		s.err = w.spill(ctx, h)
		w.mu.Lock()
		w.spilling = nil
		w.mu.Unlock()
		close(s.done)
	})
}

// spillNow makes room in a head that refused a commit because it is full, from the image that showed it. nil:
// try the commit again.
func (w *Writer) spillNow(ctx context.Context, h *metadata.Head) error {
	w.mu.Lock()
	s := w.spilling
	w.mu.Unlock()
	if s != nil {
		select {
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if s.err == nil {
			return nil
		}
	}
	return w.spill(ctx, h)
}

// Spill moves the whole chunks of the image, out of the head: those of an idle lane. That another does the same at the same
// time does no harm.
func Spill(ctx context.Context, table Table, e env.Env, image *metadata.Head) error {
	if image.Next-image.First < image.K {
		return nil
	}
	h := &head{lane: image.Lane, table: table, env: e}
	return h.spill(ctx, image)
}

func (h *head) spill(ctx context.Context, image *metadata.Head) error {
	start := h.env.Mono()
	event, err := h.move(ctx, image)
	event.Lane, event.Duration, event.Err = h.lane, h.env.Mono()-start, err
	h.hooks.spill(event)
	return err
}

// move writes the chunks and then, all of them being there, trims the head. A failure in between leaves entries both in
// the head and in a chunk, which readers and the next spill expect. Trimming first, or past a chunk that is not
// confirmed, would lose entries for a moment or for good.
func (h *head) move(ctx context.Context, image *metadata.Head) (event SpillEvent, err error) {
	before, moved, err := h.maxima(ctx, image)
	if err != nil || moved {
		return SpillEvent{ByAnother: moved}, err
	}
	plan := metadata.PlanSpill(image, before)
	event.Chunks = len(plan.Chunks)
	for _, c := range plan.Chunks {
		h.env.At(env.BeforeChunk)
		if event.ByAnother, err = h.put(ctx, &plan, c); err != nil || event.ByAnother {
			return event, err
		}
	}
	h.remember(plan)
	h.env.At(env.AfterChunk)
	after, err := h.table.Trim(ctx, h.lane, plan.From, plan.To, plan.IDs)
	event.ByAnother = errors.Is(err, metadata.ErrChanged)
	if after != nil && (err == nil || event.ByAnother) {
		h.see(after, image.Next)
		err = nil
	}
	h.env.At(env.AfterTrim)
	return event, err
}

// put puts a chunk of the plan. Another one may be there that a writer has put whose table was put back to an earlier moment since: its image was of a time of which the table knows
// nothing. Whose image is right, the head says, which has these entries still; the other chunk is replaced then, as otherwise nobody could spill past it. byAnother: the head is
// another by now, or always was, and this plan is for nothing.
func (h *head) put(ctx context.Context, plan *metadata.Spill, c *metadata.Chunk) (byAnother bool, err error) {
	for range putTries {
		err = h.table.PutChunk(ctx, c)
		if !errors.Is(err, metadata.ErrCorrupt) {
			return false, err
		}
		now, failed := h.table.Head(ctx, h.lane, metadata.Strong)
		if failed != nil {
			return false, failed
		}
		if !now.Holds(plan) {
			h.see(now, 0)
			return true, nil
		}
		there, failed := h.table.Chunk(ctx, h.lane, c.First, metadata.Strong)
		if failed != nil {
			return false, err
		}
		if failed = h.table.ReplaceChunk(ctx, c, there); !errors.Is(failed, metadata.ErrChanged) {
			return false, failed
		}
	}
	return false, err
}

// putTries bounds how often others may replace a chunk while one is put.
const putTries = 3

// maxima are the running maximum timestamps before the image's first entry, which the chunks continue: those of
// the chunk before it. moved tells that another has spilled since, so there is nothing to do. Chunks are put
// before the head is trimmed, and the newest below the head is never deleted, so a chunk that is missing while
// the head is as it was is lost.
func (h *head) maxima(ctx context.Context, image *metadata.Head) (before metadata.Offsets, moved bool, err error) {
	if image.First == 0 {
		return before, false, nil
	}
	h.viewMu.Lock()
	last, known := h.lastMaxima, h.lastSpilled == image.First
	h.viewMu.Unlock()
	if known {
		return last, false, nil
	}
	c, err := h.table.Chunk(ctx, h.lane, image.First-image.K, metadata.Strong)
	if err == nil {
		return c.MaxTimes, false, nil
	}
	if !errors.Is(err, metadata.ErrNoChunk) {
		return before, false, err
	}
	now, err := h.table.Head(ctx, h.lane, metadata.Strong)
	if err != nil {
		return before, false, err
	}
	h.see(now, image.Next)
	if now.First != image.First {
		return before, true, nil
	}
	return before, false, fmt.Errorf("%w: lane %s: the chunk at order %d, before the head's first, is missing",
		metadata.ErrCorrupt, h.lane, image.First-image.K)
}

// remember keeps the maxima for the next spill, which saves a Writer that spills alone one read each.
func (h *head) remember(s metadata.Spill) {
	h.viewMu.Lock()
	defer h.viewMu.Unlock()
	h.lastSpilled, h.lastMaxima = s.To, s.Chunks[len(s.Chunks)-1].MaxTimes
}
