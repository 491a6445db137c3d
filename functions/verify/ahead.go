package verify

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// readAhead reads the chunks that the head has not let go of. One beyond what the lane has committed was written out of no head.
func (w *walk) readAhead(ctx context.Context) error {
	if w.head == nil {
		return nil
	}
	ahead, _, err := w.table.Chunks(ctx, w.id, w.head.First, math.MaxInt64, maxAhead, metadata.Strong)
	if unreadable(err) {
		w.tell(ChunkUnreadable, metadata.ChunkKey(w.id, w.head.First), nil, "a chunk of lane %s at order %d or above cannot be read: %v", w.id, w.head.First, err)
		return nil
	}
	if err != nil {
		return err
	}
	next := w.head.Next
	if n := len(ahead); n > 0 && after(ahead[n-1]) > next {
		now, err := w.table.Head(ctx, w.id, metadata.Strong) // the lane may have gone on between the two reads
		switch {
		case errors.Is(err, metadata.ErrNoLane):
			return w.alive(ctx) // if it is alive the next check of this log says that it has no head
		case err != nil && !unreadable(err):
			return err
		case err == nil:
			next = now.Next
		}
	}
	for _, c := range ahead {
		kind := ChunkOutOfPlace
		switch {
		case c.First%w.k != 0:
		case after(c) <= w.head.Next:
			w.ahead = append(w.ahead, c)
			continue
		case after(c) <= next: // the lane has gone on
			continue
		case w.mark.Begun > 0:
			kind = ChunkForgotten
		}
		w.tell(kind, metadata.ChunkKey(w.id, c.First), nil, "chunk of orders [%d, %d) of lane %s, which has committed [0, %d) in chunks of %d", c.First, after(c), w.id, next, w.k)
	}
	return nil
}

// compareAhead compares chunks that are put, and whose entries the head has still, with what whoever spills next will put.
func (w *walk) compareAhead() {
	if w.blind {
		return // the running maxima are not known
	}
	planned, repeated := metadata.PlanSpill(w.head, w.times).Chunks, metadata.PlanSpill(w.head, w.said.times).Chunks
	for _, c := range w.ahead {
		i := int((c.First - w.head.First) / w.k)
		if packed := metadata.AppendChunk(nil, c); i >= len(planned) || !slices.Equal(packed, metadata.AppendChunk(nil, planned[i])) && !slices.Equal(packed, metadata.AppendChunk(nil, repeated[i])) {
			kind := ChunkDiffers
			if w.mark.Begun > 0 {
				kind = ChunkForgotten
			}
			w.tell(kind, metadata.ChunkKey(w.id, c.First), nil, "the chunk of orders [%d, %d) is not what the head of lane %s has in these orders", c.First, after(c), w.id)
		}
	}
}
