package main

import (
	"strings"

	"github.com/varvelog/varve/localdev/sim"
)

// kept is the history of topics from which records are removed: those before the latest bytes of window, and of latest those of keys that have a later record.
type kept struct {
	history *sim.History
	found   *content
	sent    map[string]*sent
	order   []string // of values, as they were sent
	reads   []*line
	next    map[sim.About]int64 // of each reader
}

// sent is a record of these topics.
type sent struct {
	*line
	outcome *line // what was told of it
}

func newKept(found *content) *kept {
	return &kept{found: found, sent: map[string]*sent{}, next: map[sim.About]int64{}}
}

func (k *kept) append(l *line) {
	k.sent[l.Value] = &sent{line: l}
	k.order = append(k.order, l.Value)
}

// told tells whether the record is of these topics.
func (k *kept) told(l *line) bool {
	s := k.sent[l.Value]
	if s != nil {
		s.outcome = l
	}
	return s != nil
}

func (k *kept) read(l *line) { k.reads = append(k.reads, l) }

func (k *kept) bad(l *line, format string, args ...any) {
	k.history.Bad(sim.About{By: l.By, At: partitionOf(l)}, format, args...)
}

func partitionOf(l *line) sim.Partition { return sim.Partition{Topic: l.Topic, Number: l.Partition} }

// check: what is there was sent, is there once, and where it was said to be; what was acknowledged is there or was to be removed; each reader, and each
// producer's records, go up.
func (k *kept) check() {
	there := map[string]*line{}
	last := map[sim.Partition]map[string]int64{} // offset of each key's last record
	for at, records := range k.found.records {
		if !removes(at.Topic) {
			continue
		}
		last[at] = map[string]int64{}
		for i := range records {
			l := &records[i]
			k.place(l)
			if before := there[l.Value]; before != nil {
				k.bad(l, "%s is in the log twice, at %d of %v and at %d of %v", l.Value, before.Offset, partitionOf(before), l.Offset, at)
			}
			there[l.Value], last[at][l.Key] = l, l.Offset
		}
	}
	for _, l := range k.reads {
		k.place(l)
		about := sim.About{By: l.By, At: partitionOf(l)}
		if l.Offset < k.next[about] {
			k.bad(l, "%s was given offset %d of %v, behind %d", l.By, l.Offset, about.At, k.next[about]-1)
		}
		k.next[about] = l.Offset + 1
	}
	k.inOrder(there)
	for _, value := range k.order {
		s := k.sent[value]
		if s.outcome == nil || s.outcome.Failure != nil || there[value] != nil {
			continue
		}
		at, offset := partitionOf(s.line), s.outcome.Offset
		end, started := k.found.ends[at], k.found.starts[at]
		if superseded := at.Topic == latest && last[at][s.Key] > offset; offset >= end || offset >= started && !superseded {
			k.bad(s.line, "%s was acknowledged at %d of %v, which begins at %d and ends at %d, and is not there, though nothing was to remove it", value, offset, at, started, end)
		}
	}
}

// place holds a record that is or was in the log against what its owner was told.
func (k *kept) place(l *line) {
	s, at := k.sent[l.Value], partitionOf(l)
	switch {
	case s == nil || partitionOf(s.line) != at:
		k.bad(l, "%q is in the log at %d of %v, and nobody sent it there", l.Value, l.Offset, at)
	case s.outcome == nil || s.outcome.Failure != nil && s.outcome.Failure.Unknown:
	case s.outcome.Failure != nil:
		k.bad(s.line, "%s is in the log at %d of %v, though its owner was told: %s", l.Value, l.Offset, at, s.outcome.Failure.Text)
	case s.outcome.Offset != l.Offset && s.outcome.Offset != -1:
		k.bad(s.line, "%s was acknowledged at %d of %v, and is at %d", l.Value, s.outcome.Offset, at, l.Offset)
	}
}

// inOrder: in each partition a producer's records are in the order in which it sent them.
func (k *kept) inOrder(there map[string]*line) {
	last := map[sim.About]*line{}
	for _, value := range k.order {
		l := there[value]
		if l == nil {
			continue
		}
		s := k.sent[value]
		about := sim.About{By: s.By, At: partitionOf(s.line)}
		if before := last[about]; before != nil && before.Offset > l.Offset {
			k.bad(s.line, "%s is at %d of %v, before %s at %d", value, l.Offset, about.At, before.Value, before.Offset)
		}
		last[about] = l
	}
}

// clientOf is the client that has made the value.
func clientOf(value string) string {
	name, _, _ := strings.Cut(value, "/")
	return name
}
