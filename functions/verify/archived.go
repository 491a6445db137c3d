package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// runs are rows that name one archive segment, by their place in it. The segment may have others that they do not name, or not any more.
type runs struct {
	lane    *lane
	segment objects.Segment
	rows    []slotRow
}

// keep leaves those of the rows of which records can be read, as far as is known: those not wholly below their log starts.
func (x *runs) keep(also func(slotRow) bool) *runs {
	state := x.lane.state.Load()
	kept := *x
	kept.rows = slices.DeleteFunc(slices.Clone(x.rows), func(r slotRow) bool { return r.End <= state.Starts[r.slot] || !also(r) })
	return &kept
}

func always(slotRow) bool { return true }

func (x *runs) ranges() (ranges []Range) {
	for _, r := range x.rows {
		ranges = append(ranges, x.rangesOf(r)...)
	}
	return ranges
}

func (x *runs) rangesOf(r slotRow) []Range { return x.lane.span(r.slot, r.Base, r.End) }

// tellOf adds a finding about what a row names, or all of the rows, of which the first is given then.
func (c *checker) tellOf(kind Kind, x *runs, r slotRow, ranges []Range, format string, args ...any) {
	c.find(Finding{Kind: kind, Lane: string(x.lane.id), Item: r.Key().String(), Object: x.segment.Name(), Ranges: ranges, What: fmt.Sprintf(format, args...)})
}

// runs checks an archive segment.
func (c *checker) runs(ctx context.Context, x *runs) error {
	live := x.keep(always)
	if len(live.rows) == 0 {
		c.progress(func(p *Progress) { p.Expired++ })
		return nil
	}
	err := c.archived(ctx, live)
	if errors.Is(err, store.ErrNotExist) {
		err = c.vanished(ctx, live)
	}
	return err
}

// vanished concludes from an archive segment that is not there: as missing does, it asks again who names it.
func (c *checker) vanished(ctx context.Context, x *runs) error {
	gone, err := c.refresh(ctx, x.lane)
	if err != nil || gone {
		return err
	}
	named := map[metadata.Key]bool{}
	for _, r := range x.rows {
		now, err := c.table.Row(ctx, r.Topic, r.Partition, r.Base, metadata.Strong)
		if err != nil && !errors.Is(err, metadata.ErrNoRow) && !unreadable(err) {
			return err
		}
		named[r.Key()] = err == nil && now.Same(r.Row)
	}
	if _, err := c.fresh(ctx, x.lane); err != nil {
		return err
	}
	live := x.keep(func(r slotRow) bool { return named[r.Key()] })
	switch {
	case len(live.rows) == 0:
		return nil
	case c.outlived(x.segment.ID):
		c.progress(func(p *Progress) { p.Expired++ })
		return nil
	}
	err = c.archived(ctx, live)
	if errors.Is(err, store.ErrNotExist) {
		c.tellOf(ObjectMissing, live, live.rows[0], live.ranges(), "%d archive rows of lane %s name segment %s, whose object is missing", len(live.rows), x.lane.id, x.segment.ID)
		return nil
	}
	return err
}

// archived checks an archive segment, which may turn out not to be there.
func (c *checker) archived(ctx context.Context, x *runs) error {
	size, err := c.segments.Size(ctx, x.segment)
	if err != nil {
		return err
	}
	wanted, unknown := int64(0), x.keep(func(r slotRow) bool { return !r.known() })
	for _, r := range unknown.rows {
		wanted += r.Bytes
	}
	for _, r := range x.rows {
		if r.Start+r.Bytes > size {
			c.tellOf(ExtentOutside, x, r, x.rangesOf(r), "the row of offsets [%d, %d) names bytes [%d, %d) of the object, which has %d", r.Base, r.End, r.Start, r.Start+r.Bytes, size)
		}
	}
	if !c.o.IndexOnly && len(unknown.rows) > 0 {
		c.window.open(c.segments, x.segment, size, wanted)
		err = c.contents(ctx, unknown)
	}
	if errors.Is(err, store.ErrShort) {
		c.tellOf(ObjectUnreadable, x, x.rows[0], x.ranges(), "the object does not have the %d bytes that the store says it has: %v", size, err)
		err = nil
	}
	if err == nil {
		c.progress(func(p *Progress) { p.Objects++ })
	}
	return err
}

// contents checks footer, header and the batches that rows name.
func (c *checker) contents(ctx context.Context, x *runs) error {
	footer, header, err := c.footer(ctx)
	parts := make([]part, len(x.rows))
	var bad *segment.FormatError
	switch {
	case errors.As(err, &bad):
		c.tellOf(ObjectUnreadable, x, x.rows[0], x.ranges(), "the object says nothing of itself that can be read: %v", err)
		for i, r := range x.rows {
			parts[i] = rowPart(r)
		}
	case err != nil:
		return err
	case footer.Log != c.log:
		c.tellOf(ObjectForeign, x, x.rows[0], x.ranges(), "the object is of log %x, this log is %x", footer.Log, c.log)
		return nil
	case footer.Kind != segment.Archive:
		c.tellOf(ObjectForeign, x, x.rows[0], x.ranges(), "the object is an %s segment, the rows name it as an archive segment", footer.Kind)
		return nil
	default:
		if err := c.orders(ctx, x, &footer); err != nil {
			return err
		}
		for i, r := range x.rows {
			parts[i] = c.compareRow(x, r, &footer)
		}
		ahead(parts)
		if err := c.header(ctx, x, &footer, header, &parts[0]); err != nil {
			return err
		}
	}
	for i := range parts {
		if err := c.batchesOf(ctx, x, x.rows[i], &parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// header compares the object's first bytes with the copy in the footer, if the first run is among those that are read.
func (c *checker) header(ctx context.Context, x *runs, f *segment.Footer, want []byte, p *part) error {
	if p.offset != f.Extents[0].Offset {
		return nil
	}
	got, err := c.window.bytes(ctx, 0, int64(len(want)), max(p.offset+p.length, p.ahead))
	if err == nil && !bytes.Equal(got, want) {
		c.tellOf(ObjectUnreadable, x, x.rows[0], x.ranges(), "the object begins with %x, its footer says %x", got, want)
	}
	return err
}

// rowPart is a row's run as the row has it.
func rowPart(r slotRow) part {
	return part{slot: r.slot, offset: r.Start, length: r.Bytes, count: r.Count, minTime: minTime, maxTime: maxTime, base: r.Base, end: r.End, gaps: true}
}

// ahead says of parts, which are by offset, up to where they are read in one go: over gaps that are not worth another request.
func ahead(parts []part) {
	end := int64(0)
	for i := len(parts) - 1; i >= 0; i-- {
		p := &parts[i]
		if n := i + 1; n == len(parts) || parts[n].offset-(p.offset+p.length) > sparse {
			end = p.offset + p.length
		}
		p.ahead = end
	}
}

// compareRow compares a row with what the segment says of itself, and returns the part to read.
func (c *checker) compareRow(x *runs, r slotRow, f *segment.Footer) part {
	told := false
	wrong := func(kind Kind, format string, args ...any) {
		told = true
		c.tellOf(kind, x, r, x.rangesOf(r), "the row of offsets [%d, %d): "+format, append([]any{r.Base, r.End}, args...)...)
	}
	i, found := slices.BinarySearchFunc(f.Extents, r.Start, func(e segment.Extent, start int64) int { return int(e.Offset - start) })
	if !found {
		wrong(LengthDiffers, "it names bytes from %d on; no run of the object begins there", r.Start)
		return part{slot: r.slot, offset: r.Start, base: r.Base, end: r.End, told: told} // nothing to read
	}
	e := &f.Extents[i]
	earliest := metadata.IndexTime(max(e.MaxTime, 0), idAt(r.First)) // the latest record may have been appended with the first
	switch {
	case e.Lane != string(x.lane.id) || metadata.Slot(e.Slot) != r.slot || e.Topic != r.Topic || int(e.Partition) != r.Partition:
		wrong(PlaceDiffers, "the object has slot %d of lane %s there, partition %d of topic %s", e.Slot, e.Lane, e.Partition, e.Topic)
	case e.Length != r.Bytes:
		wrong(LengthDiffers, "it has %d bytes, the run in the object %d", r.Bytes, e.Length)
	case e.BaseOffset != r.Base || e.EndOffset != r.End:
		wrong(OffsetsDiffer, "the run in the object is of offsets [%d, %d)", e.BaseOffset, e.EndOffset)
	case e.Count != r.Count:
		wrong(CountDiffers, "it has %d records, the run in the object %d", r.Count, e.Count)
	case r.MaxTime < earliest || r.Count == r.End-r.Base && r.MaxTime > max(e.MaxTime, 0):
		wrong(TimeDiffers, "its latest time is %s; by the object's records it is %s", stamp(r.MaxTime), stamp(max(e.MaxTime, 0)))
	}
	return part{slot: r.slot, offset: e.Offset, length: e.Length, count: e.Count, minTime: e.MinTime, maxTime: e.MaxTime, base: e.BaseOffset, end: e.EndOffset, gaps: true, told: told}
}

// idAt is an id of a moment.
func idAt(t time.Time) segment.ID {
	return segment.NewID(t, segment.Keep, segment.InBucket, 0, segment.ID{})
}

// orders compares the orders that a segment is said to hold with how far the lane is archived.
func (c *checker) orders(ctx context.Context, x *runs, f *segment.Footer) error {
	for _, o := range f.Orders {
		if o.Lane != string(x.lane.id) || o.End <= x.lane.state.Load().Archived {
			continue
		}
		state, err := c.fresh(ctx, x.lane)
		if err != nil {
			return err
		}
		if o.End > state.Archived && len(state.Cuts) == 0 { // orders of an era that was cut may be higher
			c.tellOf(PlaceDiffers, x, x.rows[0], x.ranges(), "the object is said to hold orders [%d, %d) of lane %s, which is archived up to order %d", o.First, o.End, o.Lane, state.Archived)
		}
	}
	return nil
}

// batchesOf reads the batches of a row, every record of them.
func (c *checker) batchesOf(ctx context.Context, x *runs, r slotRow, p *part) error {
	if p.offset+p.length > c.window.size {
		return nil // told of
	}
	if r.piece != nil {
		p.split = r.piece.split
	}
	next, err := c.part(ctx, p)
	var wrong *fault
	if errors.As(err, &wrong) {
		c.tellOf(wrong.kind, x, r, x.lane.span(r.slot, min(max(next, r.Base), r.End), r.End), "the row of offsets [%d, %d): %s", r.Base, r.End, wrong.what)
		return nil
	}
	if err != nil {
		return err
	}
	if r.piece != nil {
		r.piece.read(p.sum, p.below)
	}
	if r.Summed && p.sum != r.Sum && !p.told {
		c.tellOf(RowSumDiffers, x, r, x.rangesOf(r), "the row of offsets [%d, %d) says that its records come to the sum %s, and they come to %s", r.Base, r.End, r.Sum, p.sum)
	}
	return nil
}
