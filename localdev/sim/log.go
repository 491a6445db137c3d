package sim

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/varvelog/varve/metadata"

	"github.com/varvelog/varve/sdk"
)

// Log is what is in the log at the end.
type Log struct {
	Values map[Partition][]string // by offset; those that were removed since included
	Places map[string]Place       // of each value, the last if there are several

	Committed map[Partition][]Record // likewise
	Audits    []*Audit
	places    map[metadata.Place]Partition
}

func (l *Log) place(lane metadata.LaneID, slot metadata.Slot) (Partition, bool) {
	at, known := l.places[metadata.Place{Lane: lane, Slot: slot}]
	return at, known
}

// Place is an offset in a partition.
type Place struct {
	Partition
	Offset int64
}

// NewLog is the log with these values.
func NewLog(values map[Partition][]string) *Log {
	l := &Log{Values: values, Places: map[string]Place{}}
	for at, vs := range values {
		for offset, v := range vs {
			l.Places[v] = Place{at, int64(offset)}
		}
	}
	return l
}

// gone tells whether the first audit has found an offset that was given without its record: it has been removed.
func (l *Log) gone(at Partition, offset int64) bool {
	if len(l.Audits) == 0 || offset >= int64(len(l.Committed[at])) {
		return false
	}
	_, there := l.Audits[0].Values[at][offset]
	return !there
}

// Partitions are those of the log, in order.
func (l *Log) Partitions() []Partition {
	return slices.SortedFunc(maps.Keys(l.Values), Partition.compare)
}

// Find tells whether the record is in the log, in its partition, and at which offset.
func (l *Log) Find(o *Op) (offset int64, there bool) {
	at, there := l.Places[o.Value]
	return at.Offset, there && at.Partition == o.Partition
}

// read is the log with all that was ever committed to the topics that are there, read from table and store.
func (w *World) read() *Log {
	w.record()
	committed := map[Partition][]Record{}
	topics, _, err := w.table().Topics(context.Background(), "", 1000)
	w.must(err)
	for _, t := range topics {
		for p := range t.Partitions {
			place := t.Place(p)
			committed[Partition{t.Name, p}] = nil
			if a := w.ledger.lanes[place.Lane]; a != nil {
				committed[Partition{t.Name, p}] = a.records[place.Slot]
			}
		}
		for _, l := range t.Lanes {
			if a := w.ledger.lanes[l]; a != nil {
				w.commits += a.next
			}
		}
	}
	values, places := map[Partition][]string{}, map[metadata.Place]Partition{}
	for _, t := range topics {
		for p := range t.Partitions {
			places[t.Place(p)] = Partition{t.Name, p}
		}
	}
	for at, records := range committed {
		values[at] = nil
		for _, r := range records {
			values[at] = append(values[at], r.Value)
		}
	}
	log := NewLog(values)
	log.Committed, log.places = committed, places
	return log
}

// judge reads the log from the beginning as its users do, and compares.
func (w *World) judge(log *Log) {
	log.Audits = w.audits
	if w.removes {
		return // who audits has judged
	}
	p := w.Start("judge", Life{Safe: true})
	opened := p.Open()
	if opened == nil {
		return
	}
	for _, topic := range w.Topics() {
		if fresh := w.readAll(p, opened, topic); fresh != nil {
			compare(w.History, log, fresh, topic)
		}
	}
}

// readAll reads a topic to the end, or returns nil if it cannot.
func (w *World) readAll(p *Process, opened *sdk.Log, topic string) map[Partition][]Kept {
	r, err := opened.NewReader(p.ctx, topic, sdk.To(sdk.Latest))
	if err != nil {
		w.Bad(About{}, "judge cannot read: %v", err)
		return nil
	}
	defer r.Close()
	fresh := map[Partition][]Kept{}
	for {
		fetches, err := r.Poll(p.ctx)
		if errors.Is(err, io.EOF) {
			return fresh
		}
		if err != nil {
			w.Bad(About{}, "judge was told %v", err)
			return nil
		}
		for _, f := range fetches {
			at := Partition{topic, f.Partition}
			for i := range f.Records {
				next, record := int64(0), &f.Records[i]
				if n := len(fresh[at]); n > 0 {
					next = fresh[at][n-1].Offset + 1
				}
				value := valueOf(record.Value, record.Headers)
				if !w.judged {
					w.Read(p.Name, at, next, record.Offset, value)
				}
				fresh[at] = append(fresh[at], Kept{record.Offset, value})
			}
		}
	}
}

// compare holds what a reader of the whole topic was given against the log.
func compare(h *History, log *Log, fresh map[Partition][]Kept, topic string) {
	for _, at := range log.Partitions() {
		if n := len(log.Values[at]); at.Topic == topic && n != len(fresh[at]) {
			h.Bad(About{At: at}, "%v has %d records, judge was given %d", at, n, len(fresh[at]))
		}
	}
}
