package sdk

import (
	"testing"

	"github.com/varvelog/varve/metadata/walk"
)

// A splitter that waits for the rest of a batch holds its beginning, and not the range that it came in.
func TestASplitterHoldsNoRangeThatItHasCut(t *testing.T) {
	s := newSplitter(walk.Extent{Bytes: 1000, Count: 1})
	s.add(make([]byte, 60, 1<<20)) // less than a header
	if b, _, _, err := s.cut(); b != nil || err != nil || s.rest != nil || len(s.carry) != 60 {
		t.Errorf("a batch of %d bytes, %v; %d of %d bytes are held besides the %d that begin the next", len(b), err, len(s.rest), cap(s.rest), len(s.carry))
	}
}
