package sdk

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment/store"
)

// request begins the requests for one segment: for the part that has least waiting, and for all other parts of which the segment has the next extent, as
// far as the buffer has room. It reports whether it did. mu is held.
func (r *Reader) request() bool {
	next := -1
	for i := range r.parts {
		at := (r.turn + i) % len(r.parts)
		if p := r.parts[at]; len(p.known) > 0 && !p.resting && !p.paused && (next < 0 || p.queued < r.parts[next].queued) {
			next = at
		}
	}
	if next < 0 || r.next(r.parts[next]).n < r.largest()/2 && r.hold() { // a large range has little to gain from what is being looked up
		return false
	}
	ranges, in, takers := r.group(r.parts[next])
	if ranges == nil {
		return false
	}
	r.turn = (next + 1) % len(r.parts)
	spans := make([]*span, len(ranges))
	pieces := make([][]*piece, len(ranges))
	parts := make([][]*part, len(ranges))
	for i, p := range takers {
		s := in[i]
		if spans[s] == nil {
			spans[s] = &span{byteRange: ranges[s]}
		}
		piece := p.take(r.next(p), spans[s])
		pieces[s], parts[s] = append(pieces[s], piece), append(parts[s], p)
	}
	for i, s := range spans {
		r.getting++
		r.buffered += s.n
		var buffer []byte
		if s.n > wholeBytes {
			buffer = r.memory.buffer(s.n)
		}
		r.begin(func(ctx context.Context) { r.get(ctx, s, buffer, parts[i], pieces[i]) })
	}
	return true
}

// group is the ranges to read of the segment that has the part's next extent, who takes part, and which range each of them needs. The part itself is
// turned away (nil) if the buffer is not empty and has no room for it, or would have room for more of the segment later. Of the others those whose bytes are next to its own are taken along, as long as there is
// room for them, they need not too many requests, and all is not over a quarter of the buffer: several segments are to be under way. mu is held.
func (r *Reader) group(p *part) (ranges []byteRange, in []int, takers []*part) {
	own := r.next(p)
	room := int64(r.config.bufferBytes) - r.buffered
	if own.n > room && r.buffered > 0 {
		return nil, nil, nil
	}
	total := int64(0) // of the takers
	for _, other := range r.parts {
		if len(other.known) > 0 && other.known[0].ID == p.known[0].ID && !other.resting && !other.paused {
			takers = append(takers, other)
			total += r.next(other).n
		}
	}
	if r.buffered > 0 && room < min(total, int64(r.config.bufferBytes)/4) {
		return nil, nil, nil // rather than several small requests for what one can bring a little later
	}
	slices.SortStableFunc(takers, func(a, b *part) int { return cmp.Compare(a.known[0].Start+a.taken, b.known[0].Start+b.taken) })
	at := slices.Index(takers, p)
	low, high := at, at+1
	g := growth{start: own.off, end: own.off + own.n, room: min(room, int64(r.config.bufferBytes)/4) - own.n, requests: r.config.prefetch - r.getting - 1}
	for high < len(takers) && g.add(r.next(takers[high])) {
		high++
	}
	for low > 0 && g.add(r.next(takers[low-1])) {
		low--
	}
	asked := make([]byteRange, 0, high-low)
	for _, p := range takers[low:high] {
		asked = append(asked, r.next(p))
	}
	ranges, in = merge(asked)
	return ranges, in, takers[low:high]
}

// growth is ranges from byte start to end of a segment, and what may be added to them.
type growth struct {
	start, end int64
	room       int64 // bytes
	requests   int
}

// add adds a range before or after the others, if there is room.
func (g *growth) add(r byteRange) bool {
	more, requests := r.n, 1
	if r.off < g.end+mergeGap && r.off+r.n+mergeGap > g.start {
		more, requests = max(g.start-r.off, 0)+max(r.off+r.n-g.end, 0), 0
	}
	if more > g.room || requests > g.requests {
		return false
	}
	g.start, g.end = min(g.start, r.off), max(g.end, r.off+r.n)
	g.room, g.requests = g.room-more, g.requests-requests
	return true
}

// get reads a span and hands its pieces their bytes.
func (r *Reader) get(ctx context.Context, s *span, buffer []byte, parts []*part, pieces []*piece) {
	if buffer == nil && s.n > wholeBytes {
		buffer = r.memory.fresh(s.n)
	}
	got, shared, err := r.log.fetcher.read(ctx, s.byteRange, len(pieces), buffer)
	results := make([]result, len(pieces))
	for i, piece := range pieces {
		results[i] = r.examine(ctx, parts[i], piece, s.byteRange, got, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.getting--
	if !shared {
		s.buffer = got.bytes
	}
	for i, piece := range pieces {
		r.settle(parts[i], piece, results[i])
	}
	if s.done = true; s.wanted == 0 {
		r.free(s)
	}
	r.advance()
	r.wake()
}

// result is what became of a piece: its bytes, an error, or other extents that hold its records now.
type result struct {
	in      summed
	at      int // where the piece's bytes begin in those
	err     error
	extents []walk.Extent
	next    walk.Cursor
}

// examine checks a piece's bytes, cut from a range that was read. Whatever went wrong is looked into once more for this piece alone: an object that is
// too short for the range may still hold the piece, one that is gone may have been replaced.
func (r *Reader) examine(ctx context.Context, p *part, piece *piece, in byteRange, got summed, err error) result {
	e := piece.extent
	alone := byteRange{in.segment, e.Start + piece.start, piece.n}
	if errors.Is(err, store.ErrShort) && in != alone {
		in = alone
		got, err = r.log.fetcher.get(ctx, in, 1, nil)
	}
	switch {
	case err == nil:
		x := result{in: got, at: int(alone.off - in.off)}
		if e.Archived() { // Poll checks it: where in the range a batch begins is not known before
			return x
		}
		if err := checkExtent(got.bytes[x.at:][:piece.n], e); err != nil {
			return result{err: r.damaged(p, e, err)}
		}
		return x
	case errors.Is(err, store.ErrShort):
		return result{err: r.damaged(p, e, err)}
	case errors.Is(err, store.ErrNotExist):
		extents, next, err := r.log.refetch(ctx, r.topic, r.resume(p, piece), e, err)
		if err == nil {
			return result{extents: extents, next: next}
		}
		return result{err: r.log.readError(ctx, r.topic, p.id, e, err)}
	}
	return result{err: r.log.readError(ctx, r.topic, p.id, e, err)}
}

func (r *Reader) damaged(p *part, e walk.Extent, err error) error {
	return &DataError{Topic: r.topic.Name, Partition: p.id, From: e.Base, To: e.End, Object: objectOf(e).Name(), Err: err}
}

// settle gives a piece its result, unless it is not wanted any more. mu is held.
func (r *Reader) settle(p *part, piece *piece, x result) {
	at := slices.Index(p.queue, piece)
	if at < 0 {
		return
	}
	switch {
	case errors.Is(x.err, ErrTopicGone):
		r.end(x.err)
	case x.extents != nil:
		r.replace(p, piece, x)
	default:
		piece.err, piece.done = x.err, true
		if x.err != nil {
			r.release(piece)
			return
		}
		piece.in, piece.at, piece.bytes = x.in, x.at, x.in.bytes[x.at:][:piece.n:piece.n]
	}
}

// resume is a cursor at the first offset of a piece's extent that is wanted and was not returned yet.
func (r *Reader) resume(p *part, piece *piece) walk.Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.cursor.To(max(piece.from, p.position))
}

// replace goes on elsewhere than in a piece's extent, whose records are in others now: what was not returned of it, and what was planned after it, is planned
// anew from there. mu is held.
func (r *Reader) replace(p *part, gone *piece, x result) {
	at := slices.IndexFunc(p.queue, func(q *piece) bool { return q.extent == gone.extent })
	offset := gone.from
	if at == 0 { // some of it may have been returned, and Poll may be at it
		offset = max(offset, p.position)
		p.life++
	}
	r.cut(p, at)
	p.asked++
	p.looking, p.blocked = false, false
	p.cursor = p.cursor.To(offset)
	if x.extents = slices.DeleteFunc(x.extents, func(e walk.Extent) bool { return e.End <= offset }); len(x.extents) == 0 {
		x.next = p.cursor
	}
	p.found(x.extents, x.next)
	p.tailing = false
}
