package metadata

import (
	"time"

	"github.com/varvelog/varve/segment"
)

// maxAhead is how far past its append time a record's timestamp counts in the index.
const maxAhead = time.Hour

// IndexTime is the timestamp, in ms, by which the index knows a record of this timestamp in this segment: its own, but at most an hour after
// the append time, which is the id's. So one record from the far future does not hide all later ones from a search by time. SlotEntry.MaxTime
// is the largest of these; it has to be worked out again when the bytes are put under another id.
func IndexTime(timestamp int64, id segment.ID) int64 { return IndexTimeAt(timestamp, id.Time()) }

// IndexTimeAt is IndexTime of a record that was appended at that time.
func IndexTimeAt(timestamp int64, appended time.Time) int64 {
	return min(timestamp, appended.Add(maxAhead).UnixMilli())
}
