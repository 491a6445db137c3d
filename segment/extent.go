package segment

import (
	"fmt"
	"math"
)

// SlotsPerLane bounds slot numbers.
const SlotsPerLane = 64

const maxExtentCount = math.MaxInt32

// UnknownTime is Extent.MinTime where nobody has looked at the records: compaction copies batches, which do not say it.
const UnknownTime = math.MinInt64

// ExtentMeta is what the writer of an extent says about it.
type ExtentMeta struct {
	Lane      string // 1 to MaxLaneBytes bytes
	Slot      uint8  // below SlotsPerLane
	Topic     TopicID
	Partition int32

	// BaseOffset and EndOffset are the absolute range of an archive extent: no record is below the base or
	// at or above the end. Both are 0 in intake segments, whose commit assigns them.
	BaseOffset int64
	EndOffset  int64

	// ProducerID and Sequence name the request of a producer that retries across processes, so that its
	// answer can be rebuilt from the segment. ProducerID is 0 where there is none.
	ProducerID int64
	Sequence   int64
}

// Extent is one partition's bytes in one segment: whole batches, one after another.
type Extent struct {
	ExtentMeta
	Offset  int64 // of the first batch in the object, bytes
	Length  int64 // bytes
	Count   int64 // records, at most 2^31-1
	MinTime int64 // ms since 1970; no record is older. Or UnknownTime
	MaxTime int64 // none is younger
}

// LaneOrders says which of a lane's commits an archive segment holds the records of: orders [First, End).
type LaneOrders struct {
	Lane  string
	First int64
	End   int64
}

// validate checks the fields by themselves.
func (e *ExtentMeta) validate(kind Kind) error {
	if err := e.Topic.Validate(); err != nil {
		return err
	}
	switch {
	case len(e.Lane) < 1 || len(e.Lane) > MaxLaneBytes:
		return fmt.Errorf("%w: lane %q has %d bytes, 1 to %d are possible", ErrBadID, clip(e.Lane), len(e.Lane), MaxLaneBytes)
	case e.Slot >= SlotsPerLane:
		return fmt.Errorf("%w: slot %d, 0 to %d are possible", ErrBadID, e.Slot, SlotsPerLane-1)
	case e.Partition < 0:
		return fmt.Errorf("%w: partition %d, at least 0", ErrBadID, e.Partition)
	case e.ProducerID < 0 || e.Sequence < 0 || e.ProducerID == 0 && e.Sequence != 0:
		return fmt.Errorf("%w: producer %d with sequence %d, at least 0, and 0 without a producer", ErrBadID, e.ProducerID, e.Sequence)
	case kind == Intake && (e.BaseOffset != 0 || e.EndOffset != 0):
		return fmt.Errorf("%w: intake extent with offsets [%d, %d), which only its commit assigns", ErrOrder, e.BaseOffset, e.EndOffset)
	case kind == Archive && (e.BaseOffset < 0 || e.EndOffset <= e.BaseOffset):
		return fmt.Errorf("%w: archive extent with offsets [%d, %d)", ErrOrder, e.BaseOffset, e.EndOffset)
	}
	return nil
}

// follows tells whether e may stand behind an extent of the same lane. Readers find the slots of a lane one
// after another, each slot's bytes in one range.
func (e *ExtentMeta) follows(last *ExtentMeta) error {
	switch {
	case e.Slot < last.Slot:
		return fmt.Errorf("%w: slot %d of lane %q after slot %d", ErrOrder, e.Slot, e.Lane, last.Slot)
	case e.Slot > last.Slot:
		return nil
	case e.Topic != last.Topic || e.Partition != last.Partition:
		return fmt.Errorf("%w: slot %d of lane %q is partition %d of %s, not %d of %s", ErrOrder, e.Slot, e.Lane, last.Partition, last.Topic, e.Partition, e.Topic)
	case *e != *last && e.BaseOffset < last.EndOffset:
		return fmt.Errorf("%w: offsets [%d, %d) of slot %d of lane %q after [%d, %d)", ErrOrder, e.BaseOffset, e.EndOffset, e.Slot, e.Lane, last.BaseOffset, last.EndOffset)
	}
	return nil
}
