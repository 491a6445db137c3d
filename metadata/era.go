package metadata

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/varvelog/varve/segment"
)

// An era ends when the table is put back to an earlier moment, or lost: offsets were given that the table does not know. A repair begins the next era: every
// slot goes on at the era's Jump, and what lies between is a cut, in which no offset stands for a record any more.

// EraStep is what jumps are multiples of. No era gives nearly that many offsets in one partition, and there is room for half a million eras.
const EraStep = int64(1) << 44

// JumpFrom is the jump of an era before which no slot has ended above end, and the one before it jumped to last (0: none).
func JumpFrom(end, last int64) (int64, error) {
	least := max(end, last) + EraStep/2
	if least > math.MaxInt64-2*EraStep {
		return 0, &FieldError{Field: "highest offset", Value: fmt.Sprint(max(end, last)), Valid: "one that leaves room for another era"}
	}
	return (least + EraStep - 1) / EraStep * EraStep, nil
}

// Cut is offsets of a slot, [From, To), that were given and stand for no record any more, or were given twice: who asks for one of them is told so. Of the lane's
// commits those of orders from Order on, up to the jump, have their offsets in it.
type Cut struct {
	Slot     Slot
	From, To int64
	Order    int64
}

// Cut is the cut that holds the offset, or nil.
func (s *State) Cut(slot Slot, offset int64) *Cut {
	for i := range s.Cuts {
		if c := &s.Cuts[i]; c.Slot == slot && c.From <= offset && offset < c.To {
			return c
		}
	}
	return nil
}

// Cuts are those of one slot, ascending, none over another.
type Cuts []Cut

// SlotCuts are the cuts of a slot; those that overlap are one.
func (s *State) SlotCuts(slot Slot) (cuts Cuts) {
	for _, c := range s.Cuts {
		switch last := len(cuts) - 1; {
		case c.Slot != slot:
		case last >= 0 && c.From < cuts[last].To:
			cuts[last].To = max(cuts[last].To, c.To)
		default:
			cuts = append(cuts, c)
		}
	}
	return cuts
}

// At is the cut that holds the offset, or nil.
func (cs Cuts) At(offset int64) *Cut {
	for i := range cs {
		if c := &cs[i]; c.From <= offset && offset < c.To {
			return c
		}
	}
	return nil
}

// GoOn is where one goes on who has all before the offset, or wants none of it: there, also where a cut begins, which is passed from before it, but from the inside of
// a cut behind it.
func (cs Cuts) GoOn(offset int64) int64 {
	for _, c := range cs {
		if c.From < offset && offset < c.To {
			return c.To
		}
	}
	return offset
}

// Count is how many of the offsets [from, to), at most, stand for records, 0 if to is below from: all but those of cuts up to a jump. What was given twice
// is a cut of its own, and has records that who comes from before it reads.
func (cs Cuts) Count(from, to int64) int64 {
	n := max(to-from, 0)
	for _, c := range cs {
		if c.To%EraStep == 0 {
			n -= max(min(c.To, to)-max(c.From, from), 0)
		}
	}
	return n
}

// Shift is the offset that is n further on from the offset from, or with n < 0 further back, of those that are in none of them.
func (cs Cuts) Shift(from, n int64) int64 {
	to := from + n
	if n < 0 {
		for _, c := range slices.Backward(cs) {
			if c.From < from && to < c.To {
				to -= min(c.To, from) - c.From
			}
		}
		return to
	}
	for _, c := range cs {
		if c.To > from && to >= c.From {
			to += c.To - max(c.From, from)
		}
	}
	return to
}

// Era is era/<number>.json in the bucket, which says so even to a table that does not know of it. It is put before anything else of a repair, and never changed.
type Era struct {
	Number int64     // the first is 1
	Back   time.Time // the moment that the table was put back to: it has nothing of what was committed after it; zero: it was lost
	Whole  time.Time // what was committed up to it the table has: Back, or earlier, if it was put back to before an earlier repair was finished; zero: it may lack anything
	Begun  time.Time // service time when the repair began
	Jump   int64     // from where on offsets are given in this era
}

// VersionStep is by how much at least the config versions of topics are raised from one era to the next: above all that a forgotten time can have had, so that a writer
// who remembers it reads the row.
const VersionStep = 1 << 20

// FenceStep is by how much a repair raises the epochs of heads. The head of an earlier moment has lower ones than requests that are still under way, which single steps would
// meet again some day; and a writer knows by it that its lane has gone back.
const FenceStep = 1 << 20

// Version is the least config version of topics in the era.
func (e *Era) Version() int64 { return e.Number * VersionStep }

// Lost tells whether the table may lack anything.
func (e *Era) Lost() bool { return e.Whole.IsZero() }

type eraJSON struct {
	Era   int64  `json:"era"`
	Back  int64  `json:"restored_to_ms"`     // 0: lost
	Whole *int64 `json:"whole_ms,omitempty"` // if it is not Back
	Begun int64  `json:"begun_ms"`
	Jump  int64  `json:"jump"`
}

// EncodeEra is the object of an era.
func EncodeEra(e Era) ([]byte, error) {
	j := eraJSON{Era: e.Number, Back: unixMilli(e.Back), Begun: e.Begun.UnixMilli(), Jump: e.Jump}
	if whole := unixMilli(e.Whole); whole != j.Back {
		j.Whole = &whole
	}
	return json.Marshal(j)
}

// DecodeEra reads what EncodeEra wrote, or is ErrCorrupt.
func DecodeEra(b []byte) (Era, error) {
	var j eraJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return Era{}, fmt.Errorf("%w: era: %w", ErrCorrupt, err)
	}
	if j.Whole == nil {
		j.Whole = &j.Back
	}
	if j.Era < 1 || j.Era > math.MaxInt64/VersionStep || j.Jump < EraStep || j.Jump%EraStep != 0 || j.Begun < 1 || j.Back < 0 || *j.Whole < 0 || *j.Whole > j.Back {
		return Era{}, fmt.Errorf("%w: era %d, restored to %d, begun %d, jump %d", ErrCorrupt, j.Era, j.Back, j.Begun, j.Jump)
	}
	return Era{Number: j.Era, Back: fromMilli(j.Back), Whole: fromMilli(*j.Whole), Begun: fromMilli(j.Begun), Jump: j.Jump}, nil
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// EraMark is LOG|ERA: what the table knows of eras.
type EraMark struct {
	Begun, Done int64 // the last one whose repair has begun, and the last one whose repair was finished
}

// Repairer has the single steps of a repair; their order is its business (package repair).
type Repairer interface {
	// EraMark returns LOG|ERA, zero when there is none. SetEraMark raises it; lower or equal is left as it is.
	EraMark(ctx context.Context) (EraMark, error)
	SetEraMark(ctx context.Context, m EraMark) error
	// Fence raises all epochs of a lane's head, far above all that a head of an earlier era had, and returns the image after that. ErrNoLane.
	Fence(ctx context.Context, lane LaneID) (*Head, error)
	// SetCuts replaces the cuts of a lane's state, at least one, if they are still as they were read; ErrChanged. Returns the state after it.
	SetCuts(ctx context.Context, was *State, cuts []Cut) (*State, error)
	// AmendTopic is ReplaceTopic for a row of an earlier version than t.Version-1.
	AmendTopic(ctx context.Context, was int64, t *Topic, firstNew int, floor segment.ID) error
	// Jump sets the ends of slots to an offset above them, if the head holds no entries and is at the order next; ErrChanged, with the image, if not. That it was done is nil.
	Jump(ctx context.Context, lane LaneID, next int64, slots []Slot, to int64) (*Head, error)
}

// The packed form of a state's cuts.
//
//	1        version, 1
//	uvarint  cuts; then for each, ascending by slot, then offset: 1 slot · uvarint from · uvarint to - from · uvarint order
const cutsVersion = 1

// MaxCuts bounds the cuts of a lane.
const MaxCuts = 16 * SlotsPerLane

// AppendCuts appends the packed form of sorted cuts.
func AppendCuts(dst []byte, cuts []Cut) []byte {
	dst = binary.AppendUvarint(append(dst, cutsVersion), uint64(len(cuts)))
	for _, c := range cuts {
		dst = append(dst, byte(c.Slot))
		dst = binary.AppendUvarint(dst, uint64(c.From))
		dst = binary.AppendUvarint(dst, uint64(c.To-c.From))
		dst = binary.AppendUvarint(dst, uint64(c.Order))
	}
	return dst
}

// DecodeCuts reads what AppendCuts wrote. ErrVersion if a newer build wrote it, ErrCorrupt if none did.
func DecodeCuts(packed []byte) (cuts []Cut, err error) {
	c := &cursor{rest: packed}
	if v := c.byte("version"); v != cutsVersion {
		c.fail(ErrVersion, "version %d, known is %d", v, cutsVersion)
	}
	for range c.uvarint("cuts", MaxCuts) {
		k := Cut{Slot: Slot(c.byte("slot")), From: int64(c.uvarint("from", math.MaxInt64))}
		k.To = k.From + int64(c.uvarint("length", uint64(math.MaxInt64-k.From)))
		k.Order = int64(c.uvarint("order", math.MaxInt64))
		switch n := len(cuts); {
		case c.err != nil:
		case k.Slot >= SlotsPerLane || k.To == k.From:
			c.fail(ErrCorrupt, "slot %d, offsets [%d, %d)", k.Slot, k.From, k.To)
		case n > 0 && (k.Slot < cuts[n-1].Slot || k.Slot == cuts[n-1].Slot && k.From < cuts[n-1].From):
			c.fail(ErrCorrupt, "slot %d from %d on after slot %d from %d on", k.Slot, k.From, cuts[n-1].Slot, cuts[n-1].From)
		}
		if c.err != nil {
			break
		}
		cuts = append(cuts, k)
	}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("cuts: %w", err)
	}
	return cuts, nil
}

// WithCuts is the cuts of the state and others, sorted, without those that drop names, and those that end below the log start and before whose end no chunk is left whose bases
// they explain. One that ends where the log begins still tells who stands in it what became of it.
func (s *State) WithCuts(drop func(Cut) bool, more ...Cut) []Cut {
	cuts := slices.DeleteFunc(slices.Clone(s.Cuts), func(c Cut) bool { return c.To < s.Starts[c.Slot] && c.Order < s.First || drop(c) })
	cuts = append(cuts, more...)
	slices.SortFunc(cuts, func(a, b Cut) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return slices.Compact(cuts)
}

// Used are the slots of a lane that are partitions of the topic.
func (t *Topic) Used(lane LaneID) (slots []Slot) {
	for i, l := range t.Lanes {
		if l == lane {
			for s := range min(t.LaneWidth, t.Partitions-i*t.LaneWidth) {
				slots = append(slots, Slot(s))
			}
		}
	}
	return slots
}
