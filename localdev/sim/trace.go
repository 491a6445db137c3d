package sim

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
)

// About says whom and what something concerns: By is a process, At a partition; either may be empty.
type About struct {
	By string
	At Partition
}

// event is a line of the trace.
type event struct {
	step  int
	after time.Duration // since the world began
	About
	what string
}

func (e event) String() string { return fmt.Sprintf("%6d %14v %-6s %s", e.step, e.after, e.By, e.what) }

// Violation is something that must not be. What led to it was over at that step.
type Violation struct {
	About
	What string
	step int
}

func (h *History) note(about About, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step(about, format, args...)
}

func (h *History) bad(about About, format string, args ...any) {
	h.violations = append(h.violations, Violation{about, fmt.Sprintf(format, args...), h.steps})
}

func (h *History) step(about About, format string, args ...any) {
	e := event{step: h.steps + 1, after: h.now().Sub(h.began), About: about, what: fmt.Sprintf(format, args...)}
	h.mix(about, e.what, int64(e.after))
	h.events = append(h.events, e)
}

// mix makes the hash that of the history with one step more.
func (h *History) mix(about About, what string, number int64) {
	h.steps++
	f := fnv.New64a()
	fmt.Fprint(f, h.hash, about.By, about.At, what, number)
	h.hash = f.Sum64()
}

// Hash is the same for the same history, and for another one another.
func (h *History) Hash() uint64 { return h.hash }

// Differs is the first line of the trace in which another history is another, with its counterpart, or empty if there is none.
func (h *History) Differs(other *History) string {
	for i := range max(len(h.events), len(other.events)) {
		a, b := h.events[min(i, len(h.events)):], other.events[min(i, len(other.events)):]
		if len(a) == 0 || len(b) == 0 || a[0] != b[0] {
			return fmt.Sprintf("%v\n%v", a[:min(1, len(a))], b[:min(1, len(b))])
		}
	}
	return ""
}

// Violations is what must not be and was, the first found first.
func (h *History) Violations() []Violation { return h.violations }

// Counts is how often each thing came up.
func (h *History) Counts() Counts { return h.counts }

// Story is what led to a violation, at most so many lines: what its process did with its partition and with none, or, where no process is named, what
// everybody did with the partition.
func (h *History) Story(v Violation, most int) string {
	var lines []string
	for _, e := range slices.Backward(h.events) {
		if e.step > v.step || !v.concerns(e) {
			continue
		}
		if len(lines) == most {
			lines = append(lines, "   …")
			break
		}
		lines = append(lines, e.String())
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

// concerns tells whether an event belongs to what led to the violation.
func (v Violation) concerns(e event) bool {
	nowhere := Partition{}
	if v.By == "" {
		return e.At == v.At
	}
	return e.By == v.By && (e.At == v.At || e.At == nowhere || v.At == nowhere)
}

// Counts is how often something came up.
type Counts map[string]int

// Add adds the counts of another run.
func (c Counts) Add(more Counts) {
	for name, n := range more {
		c[name] += n
	}
}

func (c Counts) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%8d  %s\n", c[name], name)
	}
	return b.String()
}
