package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// tailBytes is how much of an object's end is read for its footer at first: some thousand extents.
const tailBytes = 64 << 10

// checker checks objects, by one goroutine. Its memory is used again for each.
type checker struct {
	*run
	decoder segment.Decoder
	records []segment.Record
	summer  segment.Summer
	window  window
}

// part is one slot's bytes in an object, as the footer has them, or the entry where there is no footer to go by.
type part struct {
	slot             metadata.Slot
	offset, length   int64
	count            int64
	minTime, maxTime int64
	base, end        int64 // offsets, of an intake part counted from its first record
	gaps             bool  // of an archive part: records may have been removed
	ahead            int64 // if above its end: up to there the object is read in one go

	told bool // that it is not what the row says

	split      int64       // offset
	sum, below segment.Sum // found: of the records, and of those before that offset
}

// check checks what an entry names. Damage is found, not returned: an error is a service that does not answer.
func (c *checker) check(ctx context.Context, t task) error {
	slots := t.readable()
	if slots == 0 {
		c.progress(func(p *Progress) { p.Expired++ })
		return nil
	}
	err := c.object(ctx, &t, slots)
	if errors.Is(err, store.ErrNotExist) {
		err = c.missing(ctx, &t)
	}
	return err
}

// tell adds a finding about an entry's object.
func (c *checker) tell(kind Kind, t *task, ranges []Range, format string, args ...any) {
	c.find(Finding{Kind: kind, Lane: string(t.lane.id), Item: t.item.String(), Object: t.segment().Name(), Ranges: ranges, What: fmt.Sprintf(format, args...)})
}

// object checks an object, which may turn out not to be there.
func (c *checker) object(ctx context.Context, t *task, slots uint64) error {
	size, err := c.segments.Size(ctx, t.segment())
	if err != nil {
		return err
	}
	length := int64(0)
	for _, s := range t.entry.Slots {
		length += int64(s.Bytes)
	}
	if end := t.entry.Start + length; end > size {
		c.tell(ExtentOutside, t, t.ranges(everySlot), "order %d names bytes [%d, %d) of the object, which has %d", t.entry.Order, t.entry.Start, end, size)
	}
	if !c.o.IndexOnly {
		c.window.open(c.segments, t.segment(), size, length)
		err = c.body(ctx, t, slots)
	}
	if errors.Is(err, store.ErrShort) {
		c.tell(ObjectUnreadable, t, t.ranges(slots), "the object does not have the %d bytes that the store says it has: %v", size, err)
		err = nil
	}
	if err == nil {
		c.progress(func(p *Progress) { p.Objects++ })
	}
	return err
}

// body checks footer, header and batches.
func (c *checker) body(ctx context.Context, t *task, slots uint64) error {
	footer, header, err := c.footer(ctx)
	var bad *segment.FormatError
	switch {
	case errors.As(err, &bad):
		c.tell(ObjectUnreadable, t, t.ranges(everySlot), "the object says nothing of itself that can be read: %v", err)
		return c.batches(ctx, t, indexParts(&t.entry, c.window.size), slots)
	case err != nil:
		return err
	case footer.Log != c.log:
		c.tell(ObjectForeign, t, t.ranges(everySlot), "the object is of log %x, this log is %x", footer.Log, c.log)
		return nil
	case footer.Kind != segment.Intake:
		c.tell(ObjectForeign, t, t.ranges(everySlot), "the object is an %s segment, the index names it as an intake segment", footer.Kind)
		return nil
	}
	parts := c.compare(t, &footer)
	if len(parts) > 0 && footer.Extents[0].Lane == string(t.lane.id) { // who has the first bytes of the object has its header too
		last := parts[len(parts)-1]
		first, err := c.window.bytes(ctx, 0, int64(len(header)), last.offset+last.length)
		if err != nil {
			return err
		}
		if !bytes.Equal(first, header) {
			c.tell(ObjectUnreadable, t, t.ranges(everySlot), "the object begins with %x, its footer says %x", first, header)
		}
	}
	return c.batches(ctx, t, parts, slots)
}

// footer reads an object's footer, and the header that it has a copy of.
func (c *checker) footer(ctx context.Context) (f segment.Footer, header []byte, err error) {
	size := c.window.size
	n := min(size, tailBytes)
	for {
		tail, err := c.window.bytes(ctx, size-n, n, size)
		if err != nil {
			return f, nil, err
		}
		need, err := segment.FooterSize(tail, size)
		if err != nil {
			return f, nil, err
		}
		if need > n {
			n = need
			continue
		}
		if f, err = segment.ParseFooter(tail, size); err != nil {
			return f, nil, err
		}
		return f, bytes.Clone(tail[n-need:][:f.Extents[0].Offset]), nil
	}
}

// indexParts is an entry's slots as the index has them, as far as they are in the object.
func indexParts(e *metadata.Entry, size int64) (parts []part) {
	at := e.Start
	for _, s := range e.Slots {
		if end := at + int64(s.Bytes); s.Count > 0 && end <= size {
			parts = append(parts, part{slot: s.Slot, offset: at, length: int64(s.Bytes), count: int64(s.Count), end: int64(s.Count), minTime: minTime, maxTime: maxTime})
		}
		at += int64(s.Bytes)
	}
	return parts
}

// footerParts is what the footer says of the lane. A slot whose bytes came in several requests has several extents, one after another.
func footerParts(lane metadata.LaneID, f *segment.Footer) (parts []part) {
	for i := range f.Extents {
		e := &f.Extents[i]
		if e.Lane != string(lane) {
			continue
		}
		if n := len(parts); n > 0 && parts[n-1].slot == metadata.Slot(e.Slot) {
			p := &parts[n-1]
			p.length, p.count, p.end, p.minTime, p.maxTime = p.length+e.Length, p.count+e.Count, p.end+e.Count, min(p.minTime, e.MinTime), max(p.maxTime, e.MaxTime)
			continue
		}
		parts = append(parts, part{slot: metadata.Slot(e.Slot), offset: e.Offset, length: e.Length, count: e.Count, end: e.Count, minTime: e.MinTime, maxTime: e.MaxTime})
	}
	return parts
}

// compare compares an entry with what its segment says of itself, and returns the parts to read.
func (c *checker) compare(t *task, f *segment.Footer) []part {
	parts := footerParts(t.lane.id, f)
	if len(parts) == 0 {
		c.tell(PlaceDiffers, t, t.ranges(everySlot), "the object has nothing of lane %s", t.lane.id)
		return nil
	}
	c.owners(t, f)
	if parts[0].offset != t.entry.Start || len(parts) != len(t.entry.Slots) {
		c.tell(LengthDiffers, t, t.ranges(everySlot), "order %d has %d slots from byte %d on; the object has %d of the lane, from byte %d on", t.entry.Order, len(t.entry.Slots), t.entry.Start, len(parts), parts[0].offset)
		return parts
	}
	for i, s := range t.entry.Slots {
		p, span := &parts[i], t.ranges(1<<s.Slot)
		latest := metadata.IndexTime(max(p.maxTime, 0), t.entry.ID)
		switch {
		case p.slot != s.Slot || p.length != int64(s.Bytes):
			c.tell(LengthDiffers, t, span, "order %d has %d bytes of slot %d; the object has %d of slot %d there", t.entry.Order, s.Bytes, s.Slot, p.length, p.slot)
		case s.Count == 0: // withdrawn
		case p.count != int64(s.Count):
			c.tell(CountDiffers, t, span, "order %d has %d records of slot %d; the object has %d", t.entry.Order, s.Count, s.Slot, p.count)
		case latest != s.MaxTime:
			c.tell(TimeDiffers, t, span, "the latest time of slot %d in order %d is %s; by the object's records it is %s", s.Slot, t.entry.Order, stamp(s.MaxTime), stamp(latest))
		}
	}
	return parts
}

// owners compares whose records the segment says it has with whose the slots are.
func (c *checker) owners(t *task, f *segment.Footer) {
	for i := range f.Extents {
		e := &f.Extents[i]
		if e.Lane != string(t.lane.id) {
			continue
		}
		topic, partition, ok := t.lane.place(metadata.Slot(e.Slot))
		if ok && (e.Topic != topic.ID || int(e.Partition) != partition) {
			c.tell(PlaceDiffers, t, t.ranges(1<<e.Slot), "slot %d is partition %d of topic %s (%s); the object has partition %d of topic %s there", e.Slot, partition, topic.Name, topic.ID, e.Partition, e.Topic)
		}
	}
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
