package sdk

import (
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// part is one partition of a reader. Its offsets, ascending: position <= those in queue <= those in known <= cursor. Fields are under
// Reader.mu, current is Poll's alone.
type part struct {
	id       int
	place    metadata.Place
	stop     int64 // read up to here; the largest int64 to follow
	position int64 // of the next record that Poll returns

	queue  []*piece      // requested
	queued int64         // bytes of the queue's pieces
	known  []walk.Extent // looked up and not, or not wholly, requested
	taken  int64         // bytes of the first of known that were requested or need not be
	origin passed        // where the first of known is begun
	from   int64         // of known's records, the first that is wanted
	cursor walk.Cursor   // what to look up next, from the beginning one of this partition

	looking  bool // a lookUp has taken the cursor along
	asked    int  // raised when the answer of a lookUp that is under way is not wanted any more
	tailing  bool // the lookUp found nothing from the cursor on
	blocked  bool // the last in queue is an error that comes instead of what is at the cursor
	resting  bool // waits after an error that may pass
	halted   bool // an error was reported, and nobody has sought past it
	paused   bool // nothing is fetched or returned
	failures int  // errors that may pass, one after another

	life    int // raised by restart: what Poll began to decode in an earlier life is not wanted any more
	current *delivery
	passed  int64 // the last position that was reached by passing offsets without a record, negative before; for a Consumer
	mark    mark
}

// mark is how far an archive extent was returned: where a reader that comes back to it, after a pause or an error, can go on without reading its beginning.
type mark struct {
	extent walk.Extent
	passed passed
}

// piece is an extent that was requested, one range of it where it is a large one of the archive, or an error in its place.
type piece struct {
	extent walk.Extent
	first  *passed // of the first piece of an extent: what was passed of it before
	start  int64   // the piece's bytes in the extent
	n      int64
	from   int64 // the first offset that is wanted
	span   *span // whose bytes it needs; nil when it does not any more, or never did
	done   bool
	in     summed // once done: what was got by the request
	at     int    // once done: where in that the piece's own bytes begin
	bytes  []byte // once done: those
	err    error  // once done
}

// sound tells whether a batch, which was cut off the piece and after which left bytes of it are left, is known to have the checksum that it says. It is
// not of one that was put together from two pieces.
func (p *piece) sound(batch []byte, left int) bool {
	at := p.at + len(p.bytes) - left - len(batch)
	return at >= p.at && &p.in.bytes[at] == &batch[0] && p.in.Sound(p.in.bytes, at, at+len(batch))
}

// span is a range of a segment that one request reads.
type span struct {
	byteRange
	wanted int    // pieces that need its bytes
	done   bool   // the request is over
	buffer []byte // the reader's own memory in which the bytes are; nil when they are shared
}

// restart begins a new life of the part at the offset. mu is held.
func (r *Reader) restart(p *part, offset int64) {
	r.cut(p, 0)
	p.life++
	p.asked++
	p.known, p.taken, p.passed = nil, 0, -1
	p.position, p.cursor = offset, p.cursor.To(offset)
	p.looking, p.tailing, p.blocked, p.resting, p.halted = false, false, false, false, false
}

// drop takes the first piece out of the part's queue. mu is held.
func (r *Reader) drop(p *part) {
	first := p.queue[0]
	p.queue[0] = nil // the array would keep its bytes
	p.queue, p.queued = p.queue[1:], p.queued-first.n
	r.release(first)
}

// cut takes the piece at an index and all after it out of the part's queue. mu is held.
func (r *Reader) cut(p *part, at int) {
	for _, piece := range p.queue[at:] {
		p.queued -= piece.n
		r.release(piece)
	}
	clear(p.queue[at:])
	p.queue = p.queue[:at]
}

// release ends a piece's need of its span. The last one of a span that is done frees it. mu is held.
func (r *Reader) release(piece *piece) {
	s := piece.span
	if s == nil {
		return
	}
	piece.span = nil
	if s.wanted--; s.wanted == 0 && s.done {
		r.free(s)
	}
}

// free takes a span that is done and not needed out of the account. mu is held.
func (r *Reader) free(s *span) {
	r.buffered -= s.n
	r.memory.spend(s.buffer)
}

// wants tells whether there is something to look up for the part. mu is held.
func (p *part) wants() bool {
	return len(p.known) == 0 && p.cursor.Offset < p.stop && !p.looking && !p.tailing && !p.blocked && !p.resting && !p.halted && !p.paused
}

// found takes what a lookup of the part's cursor found. mu is held.
func (p *part) found(extents []walk.Extent, next walk.Cursor) {
	p.from, p.cursor, p.tailing = p.cursor.Offset, next, len(extents) == 0
	if past := slices.IndexFunc(extents, func(e walk.Extent) bool { return e.Base >= p.stop }); past >= 0 {
		extents = extents[:past]
	}
	p.known = extents
	p.enter()
	if m := &p.mark; len(p.known) > 0 && p.known[0] == m.extent && m.passed.next <= p.from && m.passed.at < m.extent.Bytes {
		p.origin, p.taken = p.mark.passed, p.mark.passed.at
	}
}

// enter is at the beginning of the next extent. Those without records are queued as they are, several as one. mu is held.
func (p *part) enter() {
	for ; len(p.known) > 0 && p.known[0].Count == 0; p.known = p.known[1:] {
		e := p.known[0]
		if last := len(p.queue) - 1; last > 0 && p.queue[last].err == nil && p.queue[last].extent.Count == 0 { // Poll may be at the first
			p.queue[last].extent.End = e.End
			continue
		}
		p.queue = append(p.queue, &piece{extent: e, first: &passed{next: e.Base}, from: max(p.from, e.Base), done: true})
	}
	if p.origin, p.taken = (passed{}), 0; len(p.known) > 0 {
		p.origin.next = p.known[0].Base
	}
}

// next is the range to read for the part's next piece. mu is held.
func (r *Reader) next(p *part) byteRange {
	return wanted(p.known[0], p.taken, r.largest())
}

// largest bounds the ranges in which archive extents are read: three fit into the buffer, so that one is decoded while others come. mu is held.
func (r *Reader) largest() int64 {
	return max(min(int64(r.config.bufferBytes)/2, maxRange), minRange)
}

// take moves the next of known to the queue, or as much of it as the range has, to be read with the span. mu is held.
func (p *part) take(next byteRange, s *span) *piece {
	e := p.known[0]
	piece := &piece{extent: e, start: p.taken, n: e.Bytes, from: max(p.from, e.Base), span: s}
	if e.Archived() {
		piece.n = next.n
	}
	if p.taken == p.origin.at {
		first := p.origin
		piece.first = &first
	}
	s.wanted++
	p.queued += piece.n
	p.queue = append(p.queue, piece)
	if p.taken += piece.n; p.taken == e.Bytes {
		p.known = p.known[1:]
		p.enter()
	}
	return piece
}

// block puts an error where the next extent would be. mu is held.
func (p *part) block(err error) {
	p.queue = append(p.queue, &piece{done: true, err: err})
	p.blocked = true
}

const (
	restFloor   = 100 * time.Millisecond
	restCeiling = 5 * time.Second
)

// restAfter is how long to wait after that many failures in a row.
func restAfter(failures int) time.Duration {
	return min(restFloor<<min(failures, 10), restCeiling)
}
