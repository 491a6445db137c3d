package repair

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"iter"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Archive segments of the same offsets are of one history when the one was made of the other, by merging, cleaning or erasing. Where a table was put back, and compacted before it
// was put back once more, they are of two: each has records that the other does not have.

// mark is a record, as far as it takes to tell it from another at its offset.
type mark struct {
	offset int64
	sum    uint64
	err    error
}

// sameHistory tells whether rows have what an extent has at its offsets, less what was removed since: no offset stands for one record there and for another here.
func (r *run) sameHistory(ctx context.Context, extent *metadata.Row, rows []*metadata.Row) (bool, error) {
	next, stop := iter.Pull(r.marks(ctx, rows, extent.Base, extent.End))
	defer stop()
	theirs, more := next()
	for ours := range r.marks(ctx, []*metadata.Row{extent}, extent.Base, extent.End) {
		for more && theirs.err == nil && theirs.offset < ours.offset {
			theirs, more = next()
		}
		switch {
		case ours.err != nil:
			return false, ours.err
		case !more:
			return true, nil
		case theirs.err != nil:
			return false, theirs.err
		case theirs.offset == ours.offset && theirs.sum != ours.sum:
			return false, nil
		}
	}
	return true, nil
}

// marks are those of the records at offsets in [from, to), in order. The last one may have an error.
func (r *run) marks(ctx context.Context, rows []*metadata.Row, from, to int64) iter.Seq[mark] {
	return func(yield func(mark) bool) {
		decoder := segment.Decoder{Reuse: true}
		var records []segment.Record
		for _, row := range rows {
			if row.Count == 0 || row.End <= from || row.Base >= to {
				continue
			}
			err := archive.Batches(ctx, r.bucket, row, func(b []byte) (err error) {
				if records, err = decoder.Decode(b, 0, records[:0]); err != nil {
					return err
				}
				for i := range records {
					if !yield(mark{offset: records[i].Offset, sum: sum(&records[i])}) {
						return errEnough
					}
				}
				return nil
			})
			if err != nil {
				if !errors.Is(err, errEnough) {
					yield(mark{err: err})
				}
				return
			}
		}
	}
}

// errEnough ends the reading of batches of which no more are wanted.
var errEnough = errors.New("enough")

func sum(r *segment.Record) uint64 {
	h := fnv.New64a()
	var n [8]byte
	for _, part := range [][]byte{r.Key, r.Value} {
		binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	binary.LittleEndian.PutUint64(n[:], uint64(r.Timestamp))
	h.Write(n[:])
	return h.Sum64()
}
