package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// notAdmitted deals with a refusal because of producers' requests: room is made for new producers where that may be, and the tickets of those that the head does not
// admit fail. The others go on: nothing of the update was applied.
func (w *Writer) notAdmitted(ctx context.Context, b *batch, c metadata.Commit, h *metadata.Head) {
	failed := c.FailedProducers(h)
	room, retryAfter, err := 0, time.Duration(0), error(nil)
	if crowded := count(failed, metadata.Crowded); crowded > 0 {
		within, cancel := w.inTime(ctx, b)
		defer cancel()
		room, retryAfter, err = w.makeRoom(within, h, crowded)
		if err != nil && transient(err) {
			w.wait(ctx, b, err)
			return
		}
	}
	failed = slices.DeleteFunc(failed, func(f metadata.FailedProducer) bool {
		if f.Why == metadata.Crowded && room > 0 {
			room--
			return true
		}
		return false
	})
	left := b.tickets[:0:0]
	for _, t := range b.tickets {
		own := failedOf(failed, t.segment)
		if len(own) == 0 {
			left = append(left, t)
			continue
		}
		why := error(&ProducersError{Lane: w.lane, Head: h, Failed: own, RetryAfter: retryAfter})
		if err != nil && count(own, metadata.Crowded) > 0 {
			why = err
		}
		w.mu.Lock()
		r := t.result(metadata.Entry{}, metadata.Located{}, why)
		w.mu.Unlock()
		w.resolve(t, r)
	}
	b.tickets = left
}

func count(failed []metadata.FailedProducer, why metadata.Admission) (n int) {
	for _, f := range failed {
		if f.Why == why {
			n++
		}
	}
	return n
}

func failedOf(failed []metadata.FailedProducer, s *Segment) (own []metadata.FailedProducer) {
	for _, f := range failed {
		if slices.ContainsFunc(s.Producers, func(p metadata.ProducerStep) bool { return p.ID == f.ID }) {
			own = append(own, f)
		}
	}
	return own
}

// evictAfter is how old the id of a producer's last segment must be. It may have been committed when it was MaxSegmentAge old already.
const evictAfter = metadata.ProducerIdle + metadata.MaxSegmentAge

// MakeRoom evicts a producer of the image, the one that has been idle longest, if it was idle for long enough. room is how many were evicted, or 1 if another has made
// room meanwhile; if it is 0, there may be some after retryAfter.
func MakeRoom(ctx context.Context, table Table, e env.Env, image *metadata.Head) (room int, retryAfter time.Duration, err error) {
	h := &head{lane: image.Lane, table: table, env: e}
	return h.makeRoom(ctx, image, 1)
}

// makeRoom evicts up to n producers.
func (h *head) makeRoom(ctx context.Context, image *metadata.Head, n int) (room int, retryAfter time.Duration, err error) {
	for room < n {
		id, ok := image.Idlest()
		if !ok {
			return room, 0, nil
		}
		last, err := h.lastCommit(ctx, image, id)
		if err != nil {
			return room, 0, err
		}
		if idle := h.serviceTime().Sub(last); idle < evictAfter {
			return room, evictAfter - idle, nil
		}
		after, err := h.table.EvictProducers(ctx, image, 0, id)
		switch {
		case errors.Is(err, metadata.ErrChanged) && after != nil:
			h.see(after, image.Next)
			return max(room, 1), 0, nil // the next attempt shows how it is now
		case err != nil:
			return room, 0, err
		}
		h.see(after, image.Next)
		image = after
		room++
	}
	return room, 0, nil
}

// serviceTime is the clock that ids are made by.
func (h *head) serviceTime() time.Time {
	if now, ok := h.table.ServiceTime(); ok {
		return now
	}
	return h.env.Now()
}

// lastCommit is the time in the id of the segment that the producer's last request is in. So nothing that changes with every request has to be kept in the head for
// it. Of an order whose chunk was let go of the time is not known any more: the sweep has done that, for which it must be older than the floor, an hour. It is zero then.
func (h *head) lastCommit(ctx context.Context, image *metadata.Head, id metadata.ProducerID) (time.Time, error) {
	order := image.Producers[id].Last()
	if order >= image.First {
		return image.Entries[order-image.First].ID.Time(), nil
	}
	first := metadata.ChunkOf(order, image.K)
	chunk, err := h.table.Chunk(ctx, h.lane, first, metadata.Strong)
	if err == nil {
		if i := order - first; i < int64(len(chunk.Entries)) {
			return chunk.Entries[i].ID.Time(), nil
		}
		return time.Time{}, fmt.Errorf("%w: lane %s: the chunk at order %d has no order %d", metadata.ErrCorrupt, h.lane, first, order)
	}
	if !errors.Is(err, metadata.ErrNoChunk) {
		return time.Time{}, err
	}
	state, err := h.table.State(ctx, h.lane, metadata.Strong)
	if err == nil && order >= state.First {
		err = fmt.Errorf("%w: lane %s: the chunk at order %d is missing, and orders from %d on are kept", metadata.ErrCorrupt, h.lane, first, state.First)
	}
	return time.Time{}, err
}
