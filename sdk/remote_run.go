package sdk

import (
	"fmt"

	"github.com/varvelog/varve/segment"
)

// run is what the batches of a frame hold: offsets and records.
type run struct {
	base, next int64
	count      int64
}

// follow goes over the headers of batches with absolute offsets, which must ascend.
func follow(b []byte) (run, error) {
	r := run{base: -1}
	for len(b) > 0 {
		batch, rest, err := segment.SplitBatch(b)
		if err != nil {
			return r, fmt.Errorf("%w: %w", errGarbage, err)
		}
		h, err := segment.ParseBatchHeader(batch)
		if err != nil {
			return r, fmt.Errorf("%w: %w", errGarbage, err)
		}
		if h.BaseOffset < r.next {
			return r, fmt.Errorf("%w: batch with offsets from %d on, where %d or later should be", errGarbage, h.BaseOffset, r.next)
		}
		if r.base < 0 {
			r.base = h.BaseOffset
		}
		r.next = h.BaseOffset + int64(h.LastOffsetDelta) + 1
		r.count += int64(h.Count)
		b = rest
	}
	return r, nil
}
