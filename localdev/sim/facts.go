package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
)

// Share is a partition as one group reads it.
type Share struct {
	Group string
	Partition
}

func (s Share) String() string { return fmt.Sprintf("%v of group %s", s.Partition, s.Group) }

// FactKind says what a Fact is.
type FactKind uint8

// The kinds of facts, and what they say besides who and when.
const (
	Sampled   FactKind = iota // by the world itself: the lease and the committed offset that stand
	Took                      // a lease was acquired: Lease, after From; Offset is what is committed
	Gave                      // a lease was released: From
	Committed                 // Offset was committed under Lease; From is the lease that stands after that, zero where the answer does not say
	WasReset                  // to Offset, by which the lease is of epoch Lease.Epoch; Told is zero where nobody knows whether it was
	Beat                      // a heartbeat of the session Lease.Session is confirmed
	Assigned                  // a member knows that the partition is its own
	Lost                      // a member has learnt that it is not
	Given                     // a member was given the record at Offset; Age since it sent its last confirmed heartbeat, by the worse of its clocks
	Finished                  // it is done with it
	Moved                     // the row of the session Lease.Session has moved, be it by a heartbeat that came late
)

var factNames = [...]string{"stands", "takes", "gives up", "commits", "resets", "beats", "is assigned", "loses", "is given", "has finished", "moves"}

// Fact is something about a group that an answer of the table has shown, or that a member has met.
type Fact struct {
	Kind        FactKind
	By          string // the process; empty: the world
	Share       Share
	Asked, Told time.Time // when the request was sent, and when it was answered; the same where there was none
	Lease, From metadata.Lease
	Offset      int64
	Age         time.Duration
	Timeout     time.Duration      // of the sessions
	Heir        metadata.SessionID // of a sample: to whom the plan gives the partition
	step        int                // at which it was told
}

func (f *Fact) about() About { return About{By: f.By, At: f.Share.Partition} }

func (f *Fact) String() string {
	s := fmt.Sprintf("%s %s %v", f.By, factNames[f.Kind], f.Share)
	switch f.Kind {
	case Took:
		return fmt.Sprintf("%s: epoch %d after %v, committed is %d", s, f.Lease.Epoch, f.From, f.Offset)
	case Gave:
		return fmt.Sprintf("%s: epoch %d", s, f.From.Epoch)
	case Committed, WasReset, Sampled:
		return fmt.Sprintf("%s: offset %d, epoch %d", s, f.Offset, f.Lease.Epoch)
	case Given, Finished:
		return fmt.Sprintf("%s: offset %d", s, f.Offset)
	}
	return s
}

// Fact records a fact. What is not told by a request is so now. Beats, and what the world reads, are no lines of the trace.
func (h *History) Fact(f Fact) *Fact {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.Asked.IsZero() {
		f.Asked = h.now()
		f.Told = f.Asked
	}
	h.facts = append(h.facts, &f)
	switch f.Kind {
	case Sampled, Beat, Moved:
		h.mix(f.about(), factNames[f.Kind], f.Offset+f.Lease.Epoch)
	default:
		h.step(f.about(), "%v", &f)
	}
	f.step = h.steps
	return &f
}

// Settle records that what was recorded as unknown is so.
func (h *History) Settle(f *Fact) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.Told = h.now()
	h.step(f.about(), "told: %v", f)
}

// Retract takes back what was recorded as unknown and is not so.
func (h *History) Retract(f *Fact) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts = slices.DeleteFunc(h.facts, func(other *Fact) bool { return other == f })
	h.step(f.about(), "told: not so: %v", f)
}

// shares are the facts of each share, in the order in which they were told, and the shares in the order in which they came up.
func (h *History) shares() (order []Share, facts map[Share][]*Fact) {
	facts = map[Share][]*Fact{}
	for _, f := range h.facts {
		if f.Kind == Beat || f.Kind == Moved {
			continue
		}
		if facts[f.Share] == nil {
			order = append(order, f.Share)
		}
		facts[f.Share] = append(facts[f.Share], f)
	}
	return order, facts
}

// BadFact records that a fact must not be.
func (h *History) BadFact(f *Fact, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, Violation{f.about(), fmt.Sprintf(format, args...), f.step})
}
