package filter

import (
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
)

// Nothing that was added is ever unknown, and little else is known.
func TestFilter(t *testing.T) {
	f := New()
	id := func(n int) segment.ID {
		return segment.NewID(time.UnixMilli(int64(n)), 7, segment.InBucket, uint64(n), segment.ID{})
	}
	const n = 200_000
	for i := range n {
		f.Add(id(2 * i))
	}
	wrong := 0
	for i := range n {
		if !f.Has(id(2 * i)) {
			t.Fatalf("%s was added", id(2*i))
		}
		if f.Has(id(2*i + 1)) {
			wrong++
		}
	}
	if got := f.Missed(); got > 1e-8 || wrong > 1 {
		t.Errorf("%d of %d taken for known; said to be %g of them", wrong, n, got)
	}
}
