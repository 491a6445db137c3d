package retain

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
)

const (
	chunksPage = 64   // chunks asked for at once: 20 to 200 KB
	rowsPage   = 1000 // rows: 250 KB
)

// low is the first order of the first chunk that is of interest: what is before it is in the archive. So may be the first entries of that chunk.
func (l *lane) low() int64 {
	return metadata.ChunkOf(max(l.state.First, l.state.Archived), l.head.K)
}

// firstOpen is the first order whose chunk holds anything of an open slot that was not looked at: by bisection, since ends only grow with orders.
func (l *lane) firstOpen(ctx context.Context) (int64, error) {
	k := l.head.K
	low, high := l.low(), l.head.First
	for low < high {
		middle := low + (high-low)/(2*k)*k
		chunks, err := l.chunks(ctx, middle, middle+k)
		if err != nil {
			return 0, err
		}
		ends, below := chunks[0].Ends(), true
		for _, s := range l.slots {
			below = below && (!s.open || ends[s.at] <= s.seen)
		}
		if below {
			low = middle + k
		} else {
			high = middle
		}
	}
	return low, nil
}

// chunks are those of orders [from, to), both multiples of K.
func (l *lane) chunks(ctx context.Context, from, to int64) (all []*metadata.Chunk, err error) {
	for at := from; at < to; {
		page, more, err := l.table.Chunks(ctx, l.id, at, to, int((to-at)/l.head.K), metadata.Strong)
		if err != nil {
			return nil, err
		}
		for _, c := range page {
			if c.First != at {
				break
			}
			all, at = append(all, c), at+l.head.K
		}
		if at < to && !(more && len(page) > 0) {
			return nil, l.missing(ctx, "the chunk of order %d is not there", at)
		}
	}
	return all, nil
}

// rows calls visit with the rows of the slot from the one that has the offset on, up to the archived offset, until it returns false.
func (l *lane) rows(ctx context.Context, s *slot, offset int64, visit func(*metadata.Row) bool) error {
	archived := l.state.Ends[s.at]
	first, err := l.table.Row(ctx, l.topic.ID, s.partition, offset, metadata.Strong)
	if errors.Is(err, metadata.ErrNoRow) || err == nil && first.End <= offset {
		return l.missing(ctx, "no row of partition %d has offset %d", s.partition, offset)
	}
	if err != nil || !visit(first) {
		return err
	}
	for at := first.End; at < archived; {
		page, _, err := l.table.Rows(ctx, l.topic.ID, s.partition, at, archived, rowsPage, metadata.Strong)
		if err != nil {
			return err
		}
		for _, r := range page {
			if r.Base != at {
				return l.noRow(ctx, s, at)
			}
			if at = r.End; !visit(r) {
				return nil
			}
		}
		if len(page) == 0 {
			return l.noRow(ctx, s, at)
		}
	}
	return nil
}

// noRow says what it means that no row begins at an offset where one ended: rows were replaced by others in between, or one is missing.
func (l *lane) noRow(ctx context.Context, s *slot, offset int64) error {
	r, err := l.table.Row(ctx, l.topic.ID, s.partition, offset, metadata.Strong)
	switch {
	case err == nil && r.End > offset:
		return errMoved
	case err != nil && !errors.Is(err, metadata.ErrNoRow):
		return err
	}
	return l.missing(ctx, "no row of partition %d has offset %d", s.partition, offset)
}

// missing says what it means that something is not where the state said: others moved it, or it is damage.
func (l *lane) missing(ctx context.Context, format string, args ...any) error {
	state, err := l.table.State(ctx, l.id, metadata.Strong)
	switch {
	case err != nil:
		return err
	case state.First != l.state.First || state.Archived != l.state.Archived || state.Starts != l.state.Starts:
		return errMoved
	}
	return fmt.Errorf("%w: %s", metadata.ErrCorrupt, fmt.Sprintf(format, args...))
}
