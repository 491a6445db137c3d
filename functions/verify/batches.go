package verify

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/segment"
)

const (
	minTime = math.MinInt64
	maxTime = math.MaxInt64
)

// fault is what is wrong with a batch.
type fault struct {
	kind Kind
	what string
}

func (f *fault) Error() string { return f.what }

func faulty(kind Kind, format string, args ...any) error {
	return &fault{kind, fmt.Sprintf(format, args...)}
}

// batches reads the batches of the parts, every record of them. Of each part the first fault is told: what follows it depends on it.
func (c *checker) batches(ctx context.Context, t *task, parts []part, slots uint64) error {
	for i := range parts {
		p := &parts[i]
		if slots>>p.slot&1 == 0 {
			continue
		}
		base := t.bases[p.slot]
		counted := t.piece(p.slot)
		if counted != nil {
			p.split = counted.split - base
		}
		done, err := c.part(ctx, p)
		var wrong *fault
		switch {
		case err == nil && counted != nil:
			counted.read(p.sum.Shifted(base), p.below.Shifted(base))
		case errors.As(err, &wrong):
			c.tell(wrong.kind, t, t.lane.span(p.slot, base+done, base+p.end), "slot %d: %s", p.slot, wrong.what)
		case err != nil:
			return err
		}
	}
	return nil
}

// part reads the batches of one part, takes the sums of their records, and returns up to which offset they are sound.
func (c *checker) part(ctx context.Context, p *part) (next int64, err error) {
	next, count := p.base, int64(0)
	for at, end := p.offset, p.offset+p.length; at < end; {
		batch, err := c.window.batch(ctx, at, end, max(end, p.ahead))
		if err != nil {
			return next, err
		}
		if c.records, err = c.decoder.Decode(batch, 0, c.records[:0]); err != nil {
			return next, faulty(BatchCorrupt, "batch at byte %d: %v", at, err)
		}
		h, _ := segment.ParseBatchHeader(batch) // Decode has accepted it
		switch last := h.BaseOffset + int64(h.LastOffsetDelta); {
		case !p.gaps && (h.BaseOffset != next || h.LastOffsetDelta != h.Count-1):
			return next, faulty(OffsetsNotDense, "batch at byte %d has records %d to %d, %d of them, where record %d should be", at, h.BaseOffset, last, h.Count, next)
		case p.gaps && (h.BaseOffset < next || h.BaseOffset >= p.end-int64(h.LastOffsetDelta)):
			return next, faulty(OffsetsOutside, "batch at byte %d has offsets %d to %d, where those from %d on, below %d, should be", at, h.BaseOffset, last, next, p.end)
		}
		for i := range c.records {
			if ms := c.records[i].Timestamp; ms < p.minTime || ms > min(p.maxTime, h.MaxTimestamp) {
				return next, faulty(TimeDiffers, "record %d has time %s, outside of what is said of its batch or extent", c.records[i].Offset, stamp(ms))
			}
			one := c.summer.Sum(&c.records[i])
			if p.sum = p.sum.Plus(one); c.records[i].Offset < p.split {
				p.below = p.below.Plus(one)
			}
		}
		next, count = h.BaseOffset+int64(h.LastOffsetDelta)+1, count+int64(h.Count)
		at += int64(len(batch))
	}
	if count != p.count {
		if p.gaps {
			next = p.base // nobody can tell where they are missing
		}
		return min(next, p.end), faulty(CountDiffers, "%d records, %d are said to be there", count, p.count)
	}
	return next, nil
}

// windowBytes is how much of an object is read at a time, and held, unless a single batch is longer.
const windowBytes = 8 << 20

// window is a piece of an object that slides over it.
type window struct {
	from    *objects.Reader
	segment objects.Segment
	size    int64
	whole   bool // the object is read in one go
	at      int64
	buf     []byte
}

// sparse is how many bytes of others are read along with those that are wanted rather than that another request is made.
const sparse = 256 << 10

// open begins another object of this size, of which wanted bytes and the footer are to be read.
func (w *window) open(from *objects.Reader, s objects.Segment, size, wanted int64) {
	if cap(w.buf) > windowBytes {
		w.buf = nil
	}
	*w = window{from: from, segment: s, size: size, buf: w.buf[:0], whole: size <= windowBytes && size-wanted <= sparse}
}

// bytes returns n bytes of the object from off on, valid until the next call. It may read ahead as far as limit.
func (w *window) bytes(ctx context.Context, off, n, limit int64) ([]byte, error) {
	if off < w.at || off+n > w.at+int64(len(w.buf)) {
		at, length := off, max(n, min(windowBytes, limit-off))
		if w.whole {
			at, length = 0, w.size
		}
		var err error
		w.at = at
		if w.buf, err = w.from.Get(ctx, w.segment, at, length, w.buf[:0]); err != nil {
			w.buf = nil
			return nil, err
		}
	}
	return w.buf[off-w.at:][:n:n], nil
}

// headBytes is the length of a batch's header: where ParseBatchHeader has all that it needs.
const headBytes = 61

// batch returns the batch that begins at the byte at, in a part that ends at end. It may read ahead as far as limit.
func (w *window) batch(ctx context.Context, at, end, limit int64) ([]byte, error) {
	if end-at < headBytes {
		return nil, faulty(BatchCorrupt, "%d bytes from byte %d on are no batch", end-at, at)
	}
	head, err := w.bytes(ctx, at, headBytes, limit)
	if err != nil {
		return nil, err
	}
	h, err := segment.ParseBatchHeader(head)
	if err != nil {
		return nil, faulty(BatchCorrupt, "batch at byte %d: %v", at, err)
	}
	if int64(h.Length) > end-at {
		return nil, faulty(BatchCorrupt, "batch at byte %d is said to have %d bytes, %d are left", at, h.Length, end-at)
	}
	return w.bytes(ctx, at, int64(h.Length), limit)
}
