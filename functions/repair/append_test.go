package repair

import (
	"testing"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// A run that comes late raises the heads' floors as far as an era allows. What it appends again must be above them, or that segment, whose copy has the same id each time,
// would keep every further run from its end.
func TestCopiesAreAboveTheFloorOfLateRuns(t *testing.T) {
	era := metadata.Era{Number: 1, Begun: time.UnixMilli(1_700_000_000_000)}
	at := map[time.Duration]int{}
	for i := range uint64(200_000) {
		s := source{id: segment.NewID(era.Begun.Add(-time.Hour), segment.ClassFor(7*24*time.Hour), segment.InBucket, i*0x9e3779b97f4a7c15, segment.ID{})}
		id := copyOf(era, s)
		if at[min(id.Time().Sub(era.Begun), 3*time.Millisecond)]++; !floorOf(era).Less(id) {
			t.Fatalf("segment %s: its copy %s is not above the floor %s", s.id, id, floorOf(era))
		}
	}
	if at[2*time.Millisecond] == 0 {
		t.Error("no copy's own time was as low as the floor's")
	}
}
