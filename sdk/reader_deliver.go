package sdk

import (
	"math"
	"slices"

	"github.com/varvelog/varve/segment"
)

// delivery is the extent of a part that Poll is returning, batch by batch. Only Poll touches it.
type delivery struct {
	life    int
	from    int64 // the first offset that is wanted
	split   splitter
	piece   *piece           // what split was given last; nil while it needs the next
	dry     bool             // no further batch can be cut from it
	records []segment.Record // decoded and not returned yet
	array   []segment.Record // that they are a part of
	held    int64            // memory of the array and its records: none is free before the last is returned
	err     error            // comes after them
}

// deliver returns an error that is due, or else records, or else nothing for now.
func (r *Reader) deliver() ([]Fetch, error) {
	for {
		r.mu.Lock()
		event, err := r.due()
		var ready []*part
		if err == nil {
			if ready = r.ready(); len(ready) == 0 {
				err = r.over()
			}
		}
		r.advance()
		r.mu.Unlock()
		if event != nil {
			fire(r.log.hooks, func(h ResetHook) { h.OnReset(*event) })
		}
		if len(ready) == 0 {
			return nil, err
		}
		if fetches := r.gather(ready); len(fetches) > 0 {
			return fetches, nil
		}
	}
}

// ready is the parts that have something to decode or return, beginning with the one whose turn it is. mu is held.
func (r *Reader) ready() (ready []*part) {
	for i := range r.parts {
		p := r.parts[(r.served+i)%len(r.parts)]
		if c := p.current; c != nil && c.life != p.life {
			r.recycle(c)
			p.current = nil
		}
		if p.paused {
			continue
		}
		if p.current == nil && len(p.queue) > 0 && p.queue[0].done && p.queue[0].err == nil {
			first := p.queue[0]
			p.current = &delivery{life: p.life, from: first.from, split: splitter{extent: first.extent, passed: *first.first}}
		}
		if c := p.current; c != nil && c.piece == nil && len(p.queue) > 0 && p.queue[0].done && p.queue[0].err == nil {
			c.piece, c.dry = p.queue[0], false
			c.split.add(c.piece.bytes)
		}
		if p.current != nil && p.current.piece != nil {
			ready = append(ready, p)
		}
	}
	return ready
}

// gather takes records of the parts, an equal share of the poll from each, more where others have less, and at least one from each while they fit. It
// decodes without mu, for that takes time; a part that was moved by a Seek meanwhile keeps nothing of it.
func (r *Reader) gather(ready []*part) (fetches []Fetch) {
	if r.decodedFull() { // then there are parts with decoded records
		ready = slices.DeleteFunc(ready, func(p *part) bool { return len(p.current.records) == 0 })
	}
	left := int64(r.config.pollBytes)
	for i, p := range ready {
		atMost := left
		if len(fetches) == 0 {
			atMost = math.MaxInt64 // a record is returned, however large it is
		}
		records, size := r.take(p, left/int64(len(ready)-i), atMost)
		if r.commit(p, records) {
			fetches = append(fetches, Fetch{r.topic.Name, p.id, records})
			r.memory.lend(records)
		}
		if p.current != nil && len(records) == 0 {
			break // there was no room for it: the next poll begins with it
		}
		r.served = (slices.Index(r.parts, p) + 1) % len(r.parts)
		if left -= size; left <= 0 {
			break
		}
	}
	return fetches
}

// decodedFull tells whether the batches that are decoded and not wholly returned fill their bound, so that no more may be decoded.
func (r *Reader) decodedFull() bool { return r.decoded >= int64(r.config.bufferBytes) }

// take decodes and takes records up to a share of bytes, and the first one if it is not over atMost.
func (r *Reader) take(p *part, share, atMost int64) (out []Record, size int64) {
	c := p.current
	for size < share || size == 0 {
		if len(c.records) == 0 {
			if c.err != nil || c.dry || r.decodedFull() {
				break
			}
			r.decode(p, c)
			if len(c.records) > 0 { // room for all that the share will take of the extent, as far as this batch tells
				left := int64(len(c.records)) + max(c.split.extent.Count-c.split.count, 0) // not by offsets: in the archive hardly any may be left
				out = r.memory.records(out, int(min(left, (share-size)*int64(len(c.array))/max(c.payload(), 1)+1)))
			}
			continue
		}
		n := recordBytes(&c.records[0])
		if size+n > atMost || size > 0 && size+n > share {
			break
		}
		out = append(out, r.record(p, &c.records[0]))
		c.records = c.records[1:]
		size += n
		if len(c.records) == 0 {
			r.recycle(c)
		}
	}
	return out, size
}

// commit makes records the part's last ones to be returned, and reports whether they are to be: a Seek may have come in between. A piece that is at
// its end is let go, and what has no record is passed.
func (r *Reader) commit(p *part, records []Record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := p.current
	if c.life != p.life {
		return false
	}
	if n := len(records); n > 0 {
		p.position = records[n-1].Offset + 1
	}
	if len(c.records) > 0 || c.err != nil {
		return len(records) > 0
	}
	before := p.position
	p.position = min(max(p.position, c.split.next), p.stop)
	if c.split.extent.Archived() {
		p.mark = mark{c.split.extent, c.split.passed}
	}
	switch {
	case c.split.done():
		p.position = min(c.split.extent.End, p.stop)
		p.current, p.failures = nil, 0
		r.drop(p)
	case p.position == p.stop: // the rest of the extent is not wanted
		p.current, p.failures = nil, 0
		r.cut(p, 0)
		p.known = nil
	case c.dry:
		c.piece = nil
		r.drop(p)
	}
	if p.position > before {
		p.passed, r.passing = p.position, true
	}
	r.advance()
	return len(records) > 0
}
