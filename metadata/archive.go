package metadata

import (
	"fmt"
	"time"

	"github.com/varvelog/varve/segment"
)

// Row is P#<topic id>#<partition>|<base>: what became of the offsets [Base, End) of a partition in the archive. The rows of a partition lie one after another
// without gaps, from one that holds the log start, or where that is the archived offset none, to the archived offset of its slot: a row that is missing is
// damage, never "nothing there". Offsets without a record are inside of rows.
type Row struct {
	Topic     segment.TopicID
	Partition int
	Base, End int64
	Count     int64      // records that are left; with 0 there is no segment, and all of the fields to RunMax are 0
	Segment   segment.ID // archive segment that holds them
	Start     int64      // first byte of its batches in the segment
	Bytes     int64      // their length
	MaxTime   int64      // largest index timestamp of its records, ms
	RunMax    int64      // largest index timestamp that this row or one before it ever had, ms
	First     time.Time  // append time of its first and of its last record, those that were removed included: the times in the ids of the intake segments
	Last      time.Time

	// Sum is that of its records, Gone that of those which were removed since they came to the archive: so Sum and Gone together stay what they are, whatever is
	// rewritten. Not Summed: neither is known, as of rows that a repair made of footers; the next rewrite takes the sums.
	Summed    bool
	Sum, Gone segment.Sum
}

// Key is the row's key.
func (r *Row) Key() Key { return RowKey(r.Topic, r.Partition, r.Base) }

// Validate reports ErrInvalid for a row that is not consistent in itself.
func (r *Row) Validate() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: fmt.Sprintf("archive row of partition %d of topic %s at %d: %s", r.Partition, r.Topic, r.Base, field), Value: fmt.Sprint(value), Valid: valid}
	}
	switch {
	case r.Topic.Validate() != nil || r.Partition < 0:
		return bad("partition", fmt.Sprintf("%s/%d", r.Topic, r.Partition), "a topic id and a partition")
	case r.Base < 0 || r.End <= r.Base:
		return bad("end", r.End, "above its base, which is not negative")
	case r.Count < 0 || r.Count > r.End-r.Base:
		return bad("records", r.Count, fmt.Sprintf("0 to %d", r.End-r.Base))
	case r.Count == 0 && (!r.Segment.IsZero() || r.Start != 0 || r.Bytes != 0 || r.MaxTime != 0):
		return bad("segment", r.Segment, "none where no record is left")
	case r.Count > 0 && (r.Segment.IsZero() || r.Segment.Place() != segment.Archived || r.Start < 1 || r.Bytes < 1):
		return bad("segment", fmt.Sprintf("%s, %d bytes from %d on", r.Segment, r.Bytes, r.Start), "an archive segment and bytes in it")
	case r.Last.Before(r.First):
		return bad("append time of the last record", r.Last, "not before that of the first")
	}
	return r.validateSums(bad)
}

func (r *Row) validateSums(bad func(field string, value any, valid string) error) error {
	of := func(s segment.Sum) bool { return s.Records > 0 || s == segment.Sum{} } // no record has a sum
	switch {
	case !r.Summed && (r.Sum != segment.Sum{} || r.Gone != segment.Sum{}):
		return bad("sums", fmt.Sprint(r.Sum, ", ", r.Gone), "none of a row that is not summed")
	case r.Summed && (r.Sum.Records != r.Count || !of(r.Sum)):
		return bad("sum", r.Sum, fmt.Sprintf("one of its %d records", r.Count))
	case r.Gone.Records > r.End-r.Base-r.Count || !of(r.Gone):
		return bad("sum of what was removed", r.Gone, fmt.Sprintf("one of at most %d records", r.End-r.Base-r.Count))
	}
	return nil
}

// Same tells whether o is the row as it was read: the same offsets in the same segment.
func (r *Row) Same(o *Row) bool {
	return r.Key() == o.Key() && r.End == o.End && r.Segment == o.Segment
}

// MaxPublishRows is how many rows one publication can put and replace together, those at the same base counted once: the service takes 100 actions in a
// transaction, and two are the state's and the work list's.
const MaxPublishRows = 98

// Publication makes an archive segment part of the log, all or none. It is refused unless the segment's id is above the state's Floor and of its class, the
// archived order is From, every row of Replace is still as it was read, and it is not too old to be sent. So a publisher that was paused, however long, publishes nothing that is stale.
type Publication struct {
	Lane LaneID
	ID   segment.ID // of the archive segment that was written; where no record was left to write, a fresh one
	// Minted is no later than when the id was made, by the clocks that the table has: the publication is not sent when that is MaxArchiveAge old; zero: whatever its age.
	Minted Stamp

	// From and To are the archived order before and after. Equal where only rows change.
	From, To int64
	Ends     map[Slot]int64 // archived offset after it, of slots where it changes

	Put     []Row        // new rows
	Replace []Row        // rows that go, as they were read; one with the base of a new row is replaced by that
	Left    []segment.ID // archive segments of Replace, each once, for the work list of the sweep
}

// Validate reports ErrInvalid for a publication that is not consistent in itself: the rows put must take the place of exactly the offsets of the rows
// replaced, or follow one another up to Ends.
func (p *Publication) Validate() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: fmt.Sprintf("publication %s to lane %s: %s", p.ID, p.Lane, field), Value: fmt.Sprint(value), Valid: valid}
	}
	keys := map[Key]bool{}
	for i := range p.Replace {
		if err := p.Replace[i].Validate(); err != nil {
			return err
		}
		keys[p.Replace[i].Key()] = true
	}
	replaced := len(keys)
	fresh := map[Key]bool{}
	for i := range p.Put {
		r := &p.Put[i]
		if err := r.Validate(); err != nil {
			return err
		}
		if !r.Segment.IsZero() && r.Segment != p.ID {
			return bad("segment of a row", r.Segment, "the publication's")
		}
		keys[r.Key()], fresh[r.Key()] = true, true
	}
	switch {
	case p.Lane == "" || p.ID.IsZero() || p.ID.Place() != segment.Archived:
		return bad("id", p.ID, "an archive segment's, and a lane")
	case p.From < 0 || p.To < p.From:
		return bad("orders", fmt.Sprintf("[%d, %d)", p.From, p.To), "not negative, ascending")
	case replaced != len(p.Replace) || len(fresh) != len(p.Put):
		return bad("rows", len(keys), "each once")
	case len(keys) > MaxPublishRows:
		return bad("rows", len(keys), fmt.Sprintf("at most %d", MaxPublishRows))
	case p.From == p.To && len(keys) == 0:
		return bad("rows", 0, "at least one, or orders")
	}
	for s := range p.Ends {
		if s >= SlotsPerLane {
			return bad("slot", s, fmt.Sprintf("below %d", SlotsPerLane))
		}
	}
	return nil
}

// Listed tells whether it leaves an entry in the work list of the sweep: where it only moves what rows without records say there is nothing to see to.
func (p *Publication) Listed() bool { return p.From < p.To || len(p.Left) > 0 }

// SweepMark is LOG|SWEEP: how far orphans have been looked for. Every mark that was ever set is true: those who set marks at once may replace each other's.
type SweepMark struct {
	To segment.ID // they were looked for up to this id, everywhere
	// Next and Past are a search that was not finished: up to the id Next, in everything up to Past in the order of names.
	Next segment.ID
	Past string
}

// RestoreWindow is how long after a publication's id was made what it has replaced stays, at least. So the table may be put back to any moment of the last 24 hours, and is then sound.
const RestoreWindow = 24*time.Hour + MaxArchiveAge + MaxLate

// Replaced is X#<2 hex>|<archive id>: what a publication left behind. The segments that the commits of its orders name are in the lane's chunks, which the
// sweep removes after it has gone through them.
type Replaced struct {
	ID       segment.ID // of the publication
	Lane     LaneID
	From, To int64
	Left     []segment.ID
}
