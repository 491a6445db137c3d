package repair

import (
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

// ErrMoment: with it the records that the table has would be lost, as those of the archive take their offsets.
var ErrMoment = errors.New("the archive has another record at that offset, so the table was put back before this one was committed: give an earlier moment; one that is too early does no harm")

// compared is how many offsets of a slot are compared, the last ones: what was committed since the table was put back is there.
const compared = 1 << 14

// checkRecords refuses a moment at which the table has what was only committed after it was put back. Where the archive leads beyond the table, its extents become the rows:
// if an offset stands for one record in the table and for another in the archive, the table's would go without anybody being told.
func (r *run) checkRecords(ctx context.Context) error {
	if !r.era.Whole.Equal(r.era.Back) || r.era.Lost() { // what a repair that was not finished has made lies in cuts
		return nil
	}
	for _, l := range r.inOrder() {
		if l.state.Archived >= l.order || !l.covers() {
			continue
		}
		archived := map[metadata.Slot]map[int64]uint64{}
		var failed error
		err := r.entries(ctx, l, l.state.Archived, func(e *metadata.Entry, bases *metadata.Offsets) {
			last := slices.ContainsFunc(e.Slots, func(s metadata.SlotEntry) bool { return bases[s.Slot]+int64(s.Count) > l.tail(s.Slot) })
			if failed == nil && last && e.Order >= l.state.Archived && e.Order < l.order && l.has[e.ID] {
				failed = r.checkEntry(ctx, l, e, bases, archived)
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return err
		}
	}
	return nil
}

// tail is where a slot's offsets begin that are compared.
func (l *lane) tail(s metadata.Slot) int64 { return max(l.state.Ends[s], l.ends[s]-compared) }

// checkEntry compares what an entry has with what the archive has at its offsets. What cannot be read says nothing, nor what was removed.
func (r *run) checkEntry(ctx context.Context, l *lane, e *metadata.Entry, bases *metadata.Offsets, archived map[metadata.Slot]map[int64]uint64) error {
	body, err := r.segments.Get(ctx, objects.Of("", e.ID), 0, -1, nil)
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var decoder segment.Decoder
	at := e.Start
	for _, s := range e.Slots {
		if at+int64(s.Bytes) > int64(len(body)) {
			return nil
		}
		rest := body[at : at+int64(s.Bytes)]
		at += int64(s.Bytes)
		if archived[s.Slot] == nil {
			archived[s.Slot] = r.sums(ctx, l, s.Slot)
		}
		for len(rest) > 0 {
			batch, after, err := segment.SplitBatch(rest)
			if err != nil {
				return nil
			}
			records, err := decoder.Decode(batch, bases[s.Slot], nil)
			if err != nil {
				return nil
			}
			for i := range records {
				if there, ok := archived[s.Slot][records[i].Offset]; ok && there != sum(&records[i]) {
					partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: s.Slot})
					when := e.ID.Time().UTC().Format(time.RFC3339)
					return fmt.Errorf("topic %q, partition %d, offset %d, of %s: %w", l.topic.Name, partition, records[i].Offset, when, ErrMoment)
				}
			}
			rest = after
		}
	}
	return nil
}

// sums are those of a slot's records in the extents that are to be its rows, at the offsets that are compared.
func (r *run) sums(ctx context.Context, l *lane, slot metadata.Slot) map[int64]uint64 {
	var rows []*metadata.Row
	for _, k := range r.links(l, slot) {
		rows = append(rows, &metadata.Row{Topic: k.Topic, Partition: int(k.Partition), Base: k.BaseOffset, End: k.EndOffset, Count: k.Count, Segment: k.id, Start: k.Offset,
			Bytes: k.Length})
	}
	all := map[int64]uint64{}
	for m := range r.marks(ctx, rows, l.tail(slot), l.ends[slot]) {
		if m.err == nil && m.offset >= l.tail(slot) && m.offset < l.ends[slot] {
			all[m.offset] = m.sum
		}
	}
	return all
}
