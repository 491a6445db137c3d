package sdk

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata/walk"
)

// A reader has no goroutine that stands idle: every change (a lookup or a request that ended, a head that moved on, a Poll that took records away, a
// Seek) ends in advance, which begins whatever can be begun, in goroutines that end with their one step.

// advance begins lookups, watches and requests. mu is held.
func (r *Reader) advance() {
	if r.final == nil {
		r.source.advance()
	}
}

// patience is how long a request waits for lookups that are under way. They mostly answer from memory, and may want the same segments.
const patience = 50 * time.Millisecond

// hold tells whether to wait for a lookup, and sees to it that the wait has an end. mu is held.
func (r *Reader) hold() bool {
	now := r.log.env.Mono()
	if !slices.ContainsFunc(r.lanes, func(l *readLane) bool { return l.looking && now < l.since+patience }) {
		return false
	}
	if !r.holding {
		r.holding = true
		r.begin(func(ctx context.Context) {
			r.log.env.Sleep(ctx, patience)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.holding = false
			r.advance()
		})
	}
	return true
}

// lookUp finds the next extents of the lane's parts that have none. mu is held.
func (r *Reader) lookUp(lane *readLane) {
	if lane.looking {
		return
	}
	type query struct {
		part   *part
		cursor walk.Cursor
		asked  int
	}
	var queries []query
	for _, p := range lane.parts {
		if p.wants() {
			p.looking = true
			queries = append(queries, query{p, p.cursor, p.asked})
		}
	}
	if len(queries) == 0 {
		return
	}
	lane.looking, lane.since = true, r.log.env.Mono()
	r.begin(func(ctx context.Context) {
		for i, q := range queries {
			extents, next, err := r.log.walker.Next(ctx, q.cursor)
			if err != nil {
				err = r.log.readError(ctx, r.topic, q.part.id, walk.Extent{}, err)
			}
			r.mu.Lock()
			// A Seek, or an object that is gone, may have moved the cursor meanwhile, and be it to where it was; then this is an answer to nobody's question.
			if q.part.asked == q.asked {
				q.part.looking = false
				if err != nil {
					r.trouble(q.part, err)
				} else {
					q.part.found(extents, next)
				}
			}
			lane.looking = i < len(queries)-1
			r.advance()
			r.wake()
			r.mu.Unlock()
		}
	})
}

// trouble is an error that a part has met ahead of its position: it is reported when the position gets there. mu is held.
func (r *Reader) trouble(p *part, err error) {
	if errors.Is(err, ErrTopicGone) {
		r.end(err)
		return
	}
	p.block(err)
}

// end makes an error the reader's last. mu is held.
func (r *Reader) end(err error) {
	if r.final == nil {
		r.final = err
	}
}

// watch waits for commits to a lane some of whose parts have nothing to read. mu is held.
func (r *Reader) watch(lane *readLane) {
	waiting := func(p *part) bool { return p.tailing && !p.paused && p.cursor.Offset < p.stop }
	first := slices.IndexFunc(lane.parts, waiting)
	if lane.watching || first < 0 {
		return
	}
	lane.watching = true
	order := lane.parts[first].cursor.Order()
	for _, p := range lane.parts[first:] {
		if waiting(p) {
			order = min(order, p.cursor.Order())
		}
	}
	failures := lane.failures
	r.begin(func(ctx context.Context) {
		if failures > 0 {
			r.log.env.Sleep(ctx, r.log.env.Jitter(restAfter(failures)))
		}
		err := r.log.lanes.wait(ctx, lane.id, order)
		if err != nil {
			err = r.log.readError(ctx, r.topic, lane.parts[first].id, walk.Extent{}, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		lane.watching = false
		switch {
		case errors.Is(err, ErrTopicGone):
			r.end(err)
		case err != nil:
			lane.failures++
			if len(r.errs) < len(r.lanes) { // nobody may be polling
				r.errs = append(r.errs, err)
			}
		default:
			lane.failures = 0
			for _, p := range lane.parts {
				p.tailing = false
			}
		}
		r.advance()
		r.wake()
	})
}
