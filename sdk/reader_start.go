package sdk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// takePartitions makes the parts, in order of partitions, and groups them by lane.
func (r *Reader) takePartitions() error {
	bad := func(p int, field string, valid string) error {
		return fmt.Errorf("%w: %w", ErrNoPartition, &FieldError{Topic: r.topic.Name, Partition: p, Field: field, Value: strconv.Itoa(p), Valid: valid})
	}
	wanted := make(map[int]bool)
	for _, p := range r.config.partitions {
		if p < 0 || p >= r.topic.Partitions {
			return bad(p, "partition", fmt.Sprintf("0 to %d", r.topic.Partitions-1))
		}
		wanted[p] = true
	}
	for _, offsets := range []map[int]int64{r.config.fromOffsets, r.config.toOffsets} {
		for p := range offsets {
			if p < 0 || p >= r.topic.Partitions || len(wanted) > 0 && !wanted[p] {
				return bad(p, "partition of a given offset", "one that is read")
			}
		}
	}
	lanes := make(map[metadata.LaneID]*readLane)
	for p := range r.topic.Partitions {
		if len(wanted) > 0 && !wanted[p] {
			continue
		}
		at := r.topic.Place(p)
		lane := lanes[at.Lane]
		if lane == nil {
			lane = &readLane{id: at.Lane}
			lanes[at.Lane] = lane
			r.lanes = append(r.lanes, lane)
		}
		part := &part{id: p, place: at, cursor: walk.At(r.topic, p, 0)}
		lane.parts = append(lane.parts, part)
		r.parts = append(r.parts, part)
	}
	return nil
}

// resolve turns starts and stops into numbers. This is the only time that a relative one is looked at.
func (s directSource) resolve(ctx context.Context) error {
	r := s.Reader
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for _, lane := range r.lanes {
		g.Go(func() error {
			state, head, err := r.log.walker.Bounds(ctx, lane.id)
			if err != nil {
				return r.log.readError(ctx, r.topic, lane.parts[0].id, walk.Extent{}, err)
			}
			for _, p := range lane.parts {
				if err := r.resolvePart(ctx, p, state.Starts[p.place.Slot], head.Ends[p.place.Slot]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *Reader) resolvePart(ctx context.Context, p *part, start, end int64) error {
	from, to := r.config.from, r.config.to
	if offset, ok := r.config.fromOffsets[p.id]; ok {
		from = AtOffset(offset)
	}
	if offset, ok := r.config.toOffsets[p.id]; ok {
		to = AtOffset(offset)
	}
	position, err := r.number(ctx, p, from, start, end)
	if err != nil {
		return err
	}
	if p.stop, err = r.number(ctx, p, to, start, end); err != nil {
		return err
	}
	if bounded := p.stop < math.MaxInt64; bounded && from.kind == atOffset && position > end {
		// it would be behind its stop, and so done, before it had looked
		return &RangeError{Topic: r.topic.Name, Partition: p.id, Offset: position, Start: start, End: end, Err: ErrOutOfRange}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restart(p, position)
	if position >= start {
		p.cursor = p.cursor.Within()
	}
	if from.kind == earliest || r.config.goesOn {
		p.cursor = p.cursor.Arrived()
	}
	return nil
}

// number is a position of a partition that has [start, end).
func (r *Reader) number(ctx context.Context, p *part, at Position, start, end int64) (int64, error) {
	switch at.kind {
	case earliest:
		return start, nil
	case latest:
		return end, nil
	case atOffset:
		if at.offset < 0 {
			return 0, &FieldError{Topic: r.topic.Name, Partition: p.id, Field: "offset", Value: strconv.FormatInt(at.offset, 10), Valid: "0 or more"}
		}
		return at.offset, nil
	case atTime:
		offset, err := r.source.offsetForTime(ctx, p.id, at.time)
		if errors.Is(err, ErrNoOffset) {
			return end, nil
		}
		return offset, err
	}
	return math.MaxInt64, nil
}
