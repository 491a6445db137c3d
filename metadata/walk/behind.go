package walk

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
)

// rowsPage is how many rows are asked for at once where all of them are gone through: 250 KB.
const rowsPage = 1000

// behind sums up the bytes behind offsets of a lane's slots.
type behind struct {
	*Walker
	topic       *metadata.Topic
	id          metadata.LaneID
	enough      int64
	offsets     map[metadata.Slot]int64
	sums        map[metadata.Slot]int64
	open        map[metadata.Slot]bool // those that more may come to
	consistency metadata.Consistency
}

// Behind is how many bytes each of these slots of a lane has behind the extent that holds its offset, or that are all above it: those by which retention by bytes
// goes, since an extent is deleted when what is behind it has as many. Summing a slot up ends once it has enough; it may have more then. What is below the log
// start has enough behind it.
//
// It goes from the end back, and no further than the offsets or enough: two strong reads, one eventual read for each 32 chunks, and for each slot that comes to the
// archive a strong one for the row and one for each 1,000 rows behind it: rows of before and after a merge, side by side, would leave bytes out or have them twice.
func (w *Walker) Behind(ctx context.Context, t *metadata.Topic, id metadata.LaneID, offsets map[metadata.Slot]int64, enough int64) (map[metadata.Slot]int64, error) {
	b := &behind{Walker: w, topic: t, id: id, offsets: offsets, enough: enough}
	var last error
	for range maxRounds {
		if last = b.round(ctx); !errors.Is(last, errMoved) {
			return b.sums, last
		}
		w.chunks.forget(id)
		b.consistency = metadata.Strong
	}
	return nil, fmt.Errorf("%w: lane %s: %v", metadata.ErrCorrupt, id, last)
}

func (b *behind) round(ctx context.Context) error {
	b.sums, b.open = map[metadata.Slot]int64{}, map[metadata.Slot]bool{}
	state, head, err := b.Bounds(ctx, b.id)
	if err != nil {
		return err
	}
	for slot, offset := range b.offsets {
		b.open[slot] = offset < head.Ends[slot]
		if b.add(slot, 0); offset < state.Starts[slot] {
			b.add(slot, b.enough) // it is gone
		}
	}
	v, err := newView(head)
	if err != nil {
		return err
	}
	b.take(v, state)
	low := unarchived(state, head.K)
	for to := head.First; to > low && b.anyOpen(); {
		from := max(low, to-maxRun*head.K)
		views, err := b.page(ctx, b.id, head.K, from, to, b.consistency)
		if err != nil {
			return err
		}
		if int64(len(views)) != (to-from)/head.K {
			return fmt.Errorf("%w: not all of the chunks of orders [%d, %d) are there", errMoved, from, to)
		}
		for i := len(views) - 1; i >= 0; i-- {
			b.take(views[i], state)
		}
		to = from
	}
	for slot, open := range b.open {
		if open && b.offsets[slot] < state.Ends[slot] {
			if err := b.takeRows(ctx, slot, state.Ends[slot]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *behind) anyOpen() bool {
	for _, open := range b.open {
		if open {
			return true
		}
	}
	return false
}

// add adds bytes to a slot that is open.
func (b *behind) add(slot metadata.Slot, bytes int64) {
	if b.sums[slot] += bytes; b.sums[slot] >= b.enough {
		b.open[slot] = false
	}
}

// take takes the entries, from the last to the first, that are not in the archive.
func (b *behind) take(v *view, state *metadata.State) {
	for i := len(v.entries) - 1; i >= 0 && v.entries[i].Order >= state.Archived; i-- {
		for _, x := range v.entries[i].Slots {
			switch base := v.bases[i][x.Slot]; {
			case x.Count == 0 || !b.open[x.Slot]:
			case base > b.offsets[x.Slot]:
				b.add(x.Slot, int64(x.Bytes))
			default:
				b.open[x.Slot] = false
			}
		}
	}
	for slot, offset := range b.offsets { // what is in the archive may be of a chunk of which not all is
		b.open[slot] = b.open[slot] && (v.start(slot) > offset || offset < state.Ends[slot])
	}
}

// takeRows takes the rows behind the one that holds the slot's offset, up to the archived offset.
func (b *behind) takeRows(ctx context.Context, slot metadata.Slot, archived int64) error {
	partition, _ := b.topic.Partition(metadata.Place{Lane: b.id, Slot: slot})
	c := At(b.topic, partition, b.offsets[slot])
	r, err := b.row(ctx, c, metadata.Strong)
	if err != nil {
		return err
	}
	for at := r.End; b.open[slot] && at != archived; {
		page, _, err := b.table.Rows(ctx, c.Topic, partition, at, archived, rowsPage, metadata.Strong)
		if err != nil {
			return err
		}
		page = joined(page, at)
		if len(page) == 0 { // or the row before has become one with some that are younger than the state
			return fmt.Errorf("%w: no row of partition %d of topic %s begins at %d", errMoved, partition, c.Topic, at)
		}
		for _, r := range page {
			b.add(slot, r.Bytes)
			at = r.End
		}
	}
	return nil
}
