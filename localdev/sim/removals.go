package sim

import (
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// removals is what the history knows of why records may be missing.
type removals struct {
	policies  map[string][]*Policy // of each topic, in order
	starts    []startMove
	gaps      []gap
	erasures  []*Erasure
	deletions []*Deletion
	trims     map[Partition]int64 // below these offsets records were deleted by request
	lookups   []*lookup
	compacted map[string]bool // topics of which only the latest record of each key is to stay
}

// Policy is a retention that a topic has had.
type Policy struct {
	Retention time.Duration // negative: for ever
	Asked     time.Time     // when it was asked for
	Over      time.Time     // when its successor was known to hold; zero: not yet
}

// Erasure is the erasing of a key.
type Erasure struct {
	Topic, Key string
	Began      time.Time
	Ended      time.Time // zero: it may go on still
	Proven     bool      // it was said to be gone
}

// Deletion is the deletion of a topic.
type Deletion struct {
	Topic string
	Over  time.Time // when the topic was known to be another; zero: not yet
}

// startMove is a request to move a log start.
type startMove struct {
	by    string
	lane  metadata.LaneID
	slot  metadata.Slot
	to    int64
	asked time.Time
}

// lookup is a question for the first record at or after a time.
type lookup struct {
	About
	time        time.Time
	asked, told time.Time
	offset      int64 // -1: there is none
}

// gap is what a reader passed without being given a record.
type gap struct {
	About
	from, to int64
	passed   time.Time
	step     int
}

// Skip records that a reader has passed offsets [from, to) without being given a record.
func (h *History) Skip(about About, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skip(about, from, to)
}

func (h *History) skip(about About, from, to int64) {
	h.step(about, "passes offsets [%d, %d)", from, to)
	h.counts["offsets passed"] += int(to - from)
	h.removals.gaps = append(h.removals.gaps, gap{about, from, to, h.now(), h.steps})
}

// Compacts records that of a topic only the latest record of each key is to stay.
func (h *History) Compacts(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removals.compacted == nil {
		h.removals.compacted = map[string]bool{}
	}
	h.removals.compacted[topic] = true
}

// Trims records that records below an offset are about to be deleted.
func (h *History) Trims(about About, before int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step(about, "deletes records below %d", before)
	if h.removals.trims == nil {
		h.removals.trims = map[Partition]int64{}
	}
	h.removals.trims[about.At] = max(h.removals.trims[about.At], before)
}

// Looks records what was answered to the question for the first record at or after a time; -1 is none.
func (h *History) Looks(about About, at, asked time.Time, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step(about, "was told that the first record from %v on is at %d", at, offset)
	h.counts["looked up by time"]++
	h.removals.lookups = append(h.removals.lookups, &lookup{about, at, asked, h.now(), offset})
}

// Keep records that a topic is about to have a retention; the one before is over when Held is called.
func (h *History) Keep(topic string, retention time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removals.policies == nil {
		h.removals.policies = map[string][]*Policy{}
	}
	h.removals.policies[topic] = append(h.removals.policies[topic], &Policy{Retention: retention, Asked: h.now()})
}

// Held records that the retention that was asked for last holds.
func (h *History) Held(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.removals.policies[topic]
	for _, p := range all[:len(all)-1] {
		if p.Over.IsZero() {
			p.Over = h.now()
		}
	}
}

// Erases records that a key is about to be erased.
func (h *History) Erases(topic, key string) *Erasure {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := &Erasure{Topic: topic, Key: key, Began: h.now()}
	h.removals.erasures = append(h.removals.erasures, e)
	return e
}

// Erased records how an erasure ended.
func (h *History) Erased(e *Erasure, proven bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Ended, e.Proven = h.now(), proven
}

// Deletes records that a topic is about to be deleted.
func (h *History) Deletes(topic string) *Deletion {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &Deletion{Topic: topic}
	h.removals.deletions = append(h.removals.deletions, d)
	return d
}

// Recreated records that the topic is another by now.
func (h *History) Recreated(d *Deletion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.Over = h.now()
}

// wasDeleted tells whether a topic was deleted and created again.
func (h *History) wasDeleted(topic string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.removals.deletions, func(d *Deletion) bool { return d.Topic == topic })
}

func (h *History) moves(m startMove) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step(About{By: m.by}, "moves the log start of slot %d of lane %s to %d", m.slot, m.lane, m.to)
	h.counts["log start moved"]++
	m.asked = h.now()
	h.removals.starts = append(h.removals.starts, m)
}

// leftWith tells whether the record went, or may have gone, with a topic that was deleted.
func (h *History) leftWith(o *Op) bool {
	for _, d := range h.removals.deletions {
		if d.Topic == o.Partition.Topic && (d.Over.IsZero() || o.Invoked.Before(d.Over)) {
			return true
		}
	}
	return false
}

// expired tells whether a topic's record may have expired at a moment: by the shortest of the retentions that the topic has had since it was appended, or of the
// classes that it had before, under which something may have been stored still.
func (h *History) expired(topic string, r Record, now time.Time) bool {
	for _, p := range h.removals.policies[topic] {
		keep := p.Retention
		switch {
		case keep < 0 || p.Asked.After(now):
			continue
		case !p.Over.IsZero() && p.Over.Before(r.Appended):
			keep = time.Duration(segment.ClassFor(keep)) * 24 * time.Hour
		}
		if metadata.Expired(r.Appended, now.Add(time.Second), keep) {
			return true
		}
	}
	return false
}
