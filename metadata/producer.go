package metadata

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Producers that repeat their requests across processes: bounds of what a head keeps of them.
const (
	MaxProducers   = 16 // in one head: each is billed with every commit
	ProducerWindow = 5  // sequences whose orders are kept

	// ProducerIdle is for how long a producer that is to make room for another one must have had nothing appended in the lane.
	ProducerIdle = 15 * time.Minute
)

// ProducerID names a producer that repeats its requests across processes. Ids are above 0 and ordered by the time at which they were made; 0 is none.
type ProducerID int64

const (
	producerChanceBits = 20
	maxProducerMillis  = 1<<(63-producerChanceBits) - 1
)

// NewProducerID makes an id for the given time, which should be the service's, with the low 20 bits of random.
func NewProducerID(at time.Time, random uint64) ProducerID {
	ms := min(max(at.UnixMilli(), 1), maxProducerMillis)
	return ProducerID(ms<<producerChanceBits | int64(random&(1<<producerChanceBits-1)))
}

// Time is when the id was made, to the millisecond.
func (id ProducerID) Time() time.Time { return time.UnixMilli(int64(id) >> producerChanceBits).UTC() }

// String is the id in decimal digits.
func (id ProducerID) String() string { return strconv.FormatInt(int64(id), 10) }

// ParseProducerID reads what String printed. Anything else is a *FieldError.
func ParseProducerID(s string) (ProducerID, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if id := ProducerID(n); err == nil && n > 0 && id.String() == s {
		return id, nil
	}
	return 0, &FieldError{Field: "producer id", Value: s, Valid: "a number as it was given out, 1 to 9223372036854775807"}
}

// ProducerStep is one request of a producer to a lane: the Sequence-th, from 1.
type ProducerStep struct {
	ID       ProducerID
	Sequence int64
	Entry    int // in a Commit: which of its entries has the request's records
}

// Validate reports a *FieldError for a step that nobody may ask for.
func (s ProducerStep) Validate() error {
	switch {
	case s.ID < 1:
		return &FieldError{Field: "producer id", Value: s.ID.String(), Valid: "1 or more"}
	case s.Sequence < 1 || s.Sequence > MaxSequence:
		return &FieldError{Field: "producer sequence", Value: strconv.FormatInt(s.Sequence, 10), Valid: fmt.Sprintf("1 to %d", MaxSequence)}
	}
	return nil
}

// MaxSequence is the last request that a producer can make of a lane.
const MaxSequence = 1<<53 - 1

// ProducerState is what a head knows of a producer.
type ProducerState struct {
	Sequence int64                 // the last that was applied, 1 or more
	Orders   [ProducerWindow]int64 // of the last applied sequences; that of sequence n is at (n-1) % ProducerWindow
}

// Order is the order of the entry of a sequence that was applied; ok is false for one that has left the window.
func (s ProducerState) Order(sequence int64) (order int64, ok bool) {
	if sequence < 1 || sequence > s.Sequence || sequence <= s.Sequence-ProducerWindow {
		return 0, false
	}
	return s.Orders[(sequence-1)%ProducerWindow], true
}

// Last is the order of the producer's last commit.
func (s ProducerState) Last() int64 { return s.Orders[(s.Sequence-1)%ProducerWindow] }

// Admission is what a head says to a request of a producer.
type Admission uint8

// Admissions.
const (
	Admitted Admission = iota // it is the next one
	Repeated                  // it was applied before
	Gapped                    // an earlier one is missing
	Evicted                   // nothing is known of the producer any more, so nothing can be said of the request
	Crowded                   // there is no room for another producer
)

var admissions = [...]string{"admitted", "repeated", "gap", "evicted", "too many producers"}

func (a Admission) String() string { return admissions[a] }

// Admit is what the head says to a request. It is the one place where this is decided; the condition of a Commit is that all its steps are Admitted.
//
// An id that is absent and above ProducerFloor was never here: it may begin, with 1. One that is absent and not above it may have been here and have been
// evicted: whatever it asks for may have been applied.
func (h *Head) Admit(s ProducerStep) Admission {
	state, known := h.Producers[s.ID]
	switch {
	case known && s.Sequence <= state.Sequence:
		return Repeated
	case known && s.Sequence == state.Sequence+1:
		return Admitted
	case known:
		return Gapped
	case s.ID <= h.ProducerFloor:
		return Evicted
	case s.Sequence > 1:
		return Gapped
	case len(h.Producers) >= MaxProducers:
		return Crowded
	}
	return Admitted
}

// AdmitAll is what the head says to requests of different producers in one update, which takes room for the new ones in their order.
func (h *Head) AdmitAll(steps []ProducerStep) []Admission {
	all := make([]Admission, len(steps))
	room := MaxProducers - len(h.Producers)
	for i, s := range steps {
		all[i] = h.Admit(s)
		if _, known := h.Producers[s.ID]; known || all[i] != Admitted {
			continue
		}
		if room--; room < 0 {
			all[i] = Crowded
		}
	}
	return all
}

// Expected is the sequence that the head wants from the producer next.
func (h *Head) Expected(id ProducerID) int64 { return h.Producers[id].Sequence + 1 }

// Idlest is the producer whose last commit lies the longest back; ok is false if there is none.
func (h *Head) Idlest() (id ProducerID, ok bool) {
	for _, candidate := range slices.Sorted(maps.Keys(h.Producers)) {
		if !ok || h.Producers[candidate].Last() < h.Producers[id].Last() {
			id, ok = candidate, true
		}
	}
	return id, ok
}
