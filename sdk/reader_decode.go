package sdk

import (
	"math/bits"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/varvelog/varve/segment"
)

// decode decodes the next batch of c and keeps the records that are wanted. Batches that hold none of those are passed over.
func (r *Reader) decode(p *part, c *delivery) {
	if c.split.done() {
		c.dry = true
		return
	}
	from := max(c.split.next, c.from)
	batch, _, _, err := c.split.cut()
	switch {
	case err != nil: // where the next one would begin is not known
		c.err = r.damagedBatch(p, c, from, c.split.extent.End, err)
		return
	case batch == nil:
		c.dry = true
		return
	}
	if c.split.next > c.from {
		r.decoder.SumChecked = c.piece.sound(batch, len(c.split.rest))
		c.array, err = r.decoder.Decode(batch, decodeBase(c.split.extent), r.spare[:0])
		r.spare = nil
	}
	if err != nil {
		c.err = r.damagedBatch(p, c, from, c.split.next, err)
		return
	}
	c.records = c.array
	for len(c.records) > 0 && c.records[0].Offset < c.from {
		c.records = c.records[1:]
	}
	if c.split.next >= p.stop {
		c.dry = true
		for n := len(c.records); n > 0 && c.records[n-1].Offset >= p.stop; n-- {
			c.records = c.records[:n-1]
		}
	}
	c.held = recordMemory * int64(len(c.array))
	for i := range c.array {
		c.held += recordBytes(&c.array[i])
	}
	r.decoded += c.held
	if len(c.records) == 0 {
		r.recycle(c)
	}
}

// damagedBatch says that the offsets [from, to) cannot be read. Those after them can, by a Seek.
func (r *Reader) damagedBatch(p *part, c *delivery, from, to int64, err error) error {
	return &DataError{Topic: r.topic.Name, Partition: p.id, From: from, To: to, Object: r.source.object(p, c.split.extent), Err: err}
}

// recycle takes back the array of a delivery's decoded records. It keeps nothing of them alive.
func (r *Reader) recycle(c *delivery) {
	r.decoded -= c.held
	clear(c.array)
	if cap(c.array) > cap(r.spare) {
		r.spare = c.array
	}
	c.records, c.array, c.held = nil, nil, 0
}

// recordMemory is what a decoded record takes besides its bytes.
const recordMemory = int64(unsafe.Sizeof(segment.Record{}))

// payload is the bytes of all the records of the array.
func (c *delivery) payload() int64 { return c.held - recordMemory*int64(len(c.array)) }

// recordBytes is what a record counts in the bound of a poll: never nothing.
func recordBytes(record *segment.Record) int64 { return int64(segment.RecordSize(record)) + 1 }

func (r *Reader) record(p *part, record *segment.Record) Record {
	return Record{Topic: r.topic.Name, Partition: p.id, Offset: record.Offset, Timestamp: time.UnixMilli(record.Timestamp).UTC(),
		Key: record.Key, Value: record.Value, Headers: record.Headers}
}

// recycler is the memory of a reader whose records are recycled: what the records of a Poll lie in is used again from the next Poll on. Without on it
// does nothing.
type recycler struct {
	on      bool
	spent   [][]byte // of spans let go since the last turn: records that were returned may lie in them
	free    [][]byte
	lent    [][]Record // returned since the last turn
	vacated [][]Record
}

// keepBuffers is how many buffers of spans a recycler keeps; more are left to the garbage collector.
const keepBuffers = 16

// turn is the next Poll: what was returned by the last one may be overwritten.
func (m *recycler) turn() {
	m.free = append(m.free, m.spent...)
	if n := len(m.free); n > keepBuffers {
		m.free = slices.Delete(m.free, 0, n-keepBuffers)
	}
	m.vacated = append(m.vacated[:0], m.lent...)
	m.spent, m.lent = m.spent[:0], m.lent[:0]
}

// spend takes a buffer back.
func (m *recycler) spend(b []byte) {
	if m.on && cap(b) > 0 {
		m.spent = append(m.spent, b)
	}
}

// buffer is a buffer of n bytes or more, nil if there is none. What is more than twice as large is left for others.
func (m *recycler) buffer(n int64) []byte {
	for i := len(m.free) - 1; i >= 0; i-- { // what was let go last may still be in the processor's cache
		b := m.free[i]
		if size := int64(cap(b)); size >= n && size/2 <= n {
			m.free = slices.Delete(m.free, i, i+1)
			return b
		}
	}
	return nil
}

// fresh is a new buffer of n bytes, and where buffers are used again of up to a quarter more, so that spans that are not quite alike can use each other's.
func (m *recycler) fresh(n int64) []byte {
	if m.on {
		step := int64(1) << bits.Len64(uint64(n)) >> 3
		n = (n/step + 1) * step
	}
	return unzeroed(int(n))
}

// unzeroed is room for n bytes that nobody has cleared: a fetch overwrites them, and what it did not overwrite is beyond the buffer's length. Clearing it
// costs a reader more than taking checksums. A strings.Builder is the way to such memory; one byte makes its string that of the memory it has grown to.
func unzeroed(n int) []byte {
	var b strings.Builder
	b.Grow(max(n, 1))
	b.WriteByte(0)
	return unsafe.Slice(unsafe.StringData(b.String()), n)[:0]
}

// records makes room for n more records.
func (m *recycler) records(out []Record, n int) []Record {
	if out == nil && len(m.vacated) > 0 {
		last := len(m.vacated) - 1
		out, m.vacated = m.vacated[last][:0], m.vacated[:last]
	}
	return slices.Grow(out, n)
}

// lend remembers records that are being returned.
func (m *recycler) lend(out []Record) {
	if m.on {
		m.lent = append(m.lent, out)
	}
}
