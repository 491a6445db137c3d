package sim

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/sdk"
)

// Partition names a partition of the log.
type Partition struct {
	Topic  string
	Number int
}

func (p Partition) compare(other Partition) int {
	return cmp.Or(cmp.Compare(p.Topic, other.Topic), cmp.Compare(p.Number, other.Number))
}

func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Number) }

// Op is one record that was to be appended, and what its owner was told.
type Op struct {
	By        string // the process
	Partition Partition
	Value     string    // no other Op has it
	With      *Together // what was asked for in one call, all or none; nil: it went by itself
	From      *Source   // what it is the result of; nil: of nothing
	Invoked   time.Time // when the call was made
	Accepted  time.Time // when the call had returned; zero: never
	Told      time.Time // when its owner was told; zero: never
	Offset    int64     // if acknowledged; -1: not known
	Err       error
	Refused   bool // by the call itself: it was never accepted
	step      int  // at which something was last heard of it
}

// Together is one call that appends all of its records or none.
type Together struct {
	Ops   []*Op
	End   *int64 // the condition on the partition's end, if there was one
	Token int64  // the condition on its fencing token, if it is not 0
	Loose bool   // it keeps no order with what its owner appends otherwise

	Written *bool // whether the application's item that goes with it is there in the end; nil where none does
}

// Source is a record that a group has read.
type Source struct {
	Share
	Offset int64
}

// Outcome is what its owner knows of it: ok, failed, or nothing.
func (o *Op) Outcome() sdk.Outcome {
	if o.Told.IsZero() {
		return sdk.Unknown
	}
	return sdk.OutcomeOf(o.Err)
}

func (o *Op) String() string { return fmt.Sprintf("%s to %v", o.Value, o.Partition) }

func (o *Op) about() About { return About{By: o.By, At: o.Partition} }

// History is what happened, in order: what was asked of the log (Invoke), what was said of it (Told), what was read (Read), and what else is
// worth a line of the trace. It is safe for concurrent use until the checks run.
type History struct {
	now func() time.Time // of the world

	mu         sync.Mutex
	began      time.Time
	Ops        []*Op // in the order in which they were invoked
	seen       map[Partition]map[int64]string
	fences     map[Partition]map[int64]string // who took which token
	facts      []*Fact                        // of groups, in the order in which they were told
	observed   []*observation                 // requests that are no appends
	given      map[About]*observation         // the latest records of each reader
	asked      []*groupRequest                // in the order in which they were asked or, if they are reads, answered
	sent       map[string]*groupRequest       // transactions of these by their tokens
	removes    bool                           // gaps are noted and judged in the end
	removals   removals
	dead       map[string]bool
	events     []event
	steps      int
	hash       uint64
	counts     Counts
	violations []Violation
}

// NewHistory is an empty one that begins now.
func NewHistory(now func() time.Time) *History {
	return &History{now: now, began: now(), seen: map[Partition]map[int64]string{}, fences: map[Partition]map[int64]string{}, given: map[About]*observation{},
		sent: map[string]*groupRequest{}, dead: map[string]bool{}, counts: Counts{}}
}

// Invoke records that somebody is about to ask for the record to be appended.
func (h *History) Invoke(by string, at Partition, value string, with *Together) *Op {
	o := &Op{By: by, Partition: at, Value: value, With: with}
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Invoked = h.now()
	h.Ops = append(h.Ops, o)
	if with != nil {
		with.Ops = append(with.Ops, o)
	}
	h.step(o.about(), "appends %s", o.Value)
	o.step = h.steps
	return o
}

// Accept records that the call has returned.
func (h *History) Accept(o *Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Accepted = h.now()
}

// Tell records what the owner was told, at that moment.
func (h *History) Tell(o *Op, at time.Time, offset int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !o.Told.IsZero() {
		h.bad(o.about(), "%v: told twice", o)
	}
	var delivery *sdk.DeliveryError
	var condition *sdk.ConditionError
	o.Told, o.Offset, o.Err = at, offset, err
	o.Refused = err != nil && !errors.As(err, &delivery) && !errors.As(err, &condition)
	h.counts["told: "+brief(err)]++
	if err != nil {
		h.step(o.about(), "told of %s: %s", o.Value, brief(err))
	} else {
		h.step(o.about(), "told of %s: offset %d", o.Value, offset)
	}
	o.step = h.steps
}

// Read records that somebody was given a record of the log, where the offset next was due.
func (h *History) Read(by string, at Partition, next, offset int64, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	about := About{By: by, At: at}
	h.counts["read"]++
	h.mix(about, value, offset)
	if h.removes && offset > next {
		h.skip(about, next, offset)
	} else if offset != next {
		h.bad(about, "%s was given offset %d of %v, where %d comes next", by, offset, at, next)
	}
	h.hasRead(about, offset, value)
}

// HasRead records that somebody was given a record of the log, whichever was due.
func (h *History) HasRead(by string, at Partition, offset int64, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hasRead(About{By: by, At: at}, offset, value)
}

func (h *History) hasRead(about About, offset int64, value string) {
	h.reads(about, offset)
	at := about.At
	if h.seen[at] == nil {
		h.seen[at] = map[int64]string{}
	}
	if before, known := h.seen[at][offset]; known && before != value {
		h.bad(about, "%s was given %q at offset %d of %v, where another was given %q", about.By, value, offset, at, before)
	}
	h.seen[at][offset] = value
}

// Fence records that somebody was told to have taken a fencing token.
func (h *History) Fence(by string, at Partition, token int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	about := About{By: by, At: at}
	h.step(about, "took token %d of %v", token, at)
	h.counts["fence taken"]++
	if h.fences[at] == nil {
		h.fences[at] = map[int64]string{}
	}
	if other := h.fences[at][token]; other != "" {
		h.bad(about, "%s took token %d of %v, which %s has", by, token, at, other)
	}
	h.fences[at][token] = by
}

// Bad records what must not be.
func (h *History) Bad(about About, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad(about, format, args...)
}

// BadOp records what must not be of a record.
func (h *History) BadOp(o *Op, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, Violation{o.about(), fmt.Sprintf(format, args...), o.step})
}

// Count adds to the number of times that something came up.
func (h *History) Count(what string) { h.add(what, 1) }

func (h *History) add(what string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[what] += n
}

// Dead tells whether the process was killed.
func (h *History) Dead(by string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead[by]
}

// Died records that the process was killed: nobody is told of what it has under way.
func (h *History) Died(by string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead[by] = true
}
