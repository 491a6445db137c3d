package sim

import (
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// TombstonesFor is for how long tombstones stay in what is played.
const TombstonesFor = 2 * time.Hour

// Removed is what must be true where records are removed.
var Removed = []Check{StartsMoved, StillThere, Superseded, GoneAsAsked, Passed, LookedUp}

// StartsMoved: a log start was moved only beyond what had expired by then.
func StartsMoved(h *History, l *Log) {
	for _, m := range h.removals.starts {
		at, known := l.place(m.lane, m.slot)
		if !known {
			continue // of a topic that was deleted
		}
		for offset, r := range l.Committed[at][:min(m.to, int64(len(l.Committed[at])))] {
			if int64(offset) >= h.removals.trims[at] && !h.expired(at.Topic, r, m.asked) {
				h.Bad(About{By: m.by, At: at}, "%s moved the log start of %v to %d, beyond %q at %d, appended %v before", m.by, at, m.to, r.Value, offset, m.asked.Sub(r.Appended))
				break
			}
		}
	}
}

// StillThere: what is in the log is what was committed there, and what is not there any more was removed by a rule.
func StillThere(h *History, l *Log) {
	for _, a := range l.Audits {
		for at, values := range a.Values {
			records := l.Committed[at]
			for offset := range values {
				if offset >= int64(len(records)) {
					h.Bad(About{At: at}, "%q is in the log at %d of %v, and was never committed", values[offset], offset, at)
				}
			}
			latest := latest(records)
			for offset, r := range records {
				v, there := values[int64(offset)]
				switch {
				case there && v != r.Value:
					h.Bad(About{At: at}, "%q is in the log at %d of %v, where %q was committed", v, offset, at, r.Value)
				case there || int64(offset) < a.Starts[at] || r.Appended.After(a.At) || h.mayBeErased(at, r):
				case h.compacts(at.Topic) && r.Key != "" && (int64(offset) < latest[r.Key] || r.Tombstone && a.At.Sub(r.Appended) > TombstonesFor):
				default:
					h.Bad(About{At: at}, "%q at %d of %v is gone after %v, and nothing has removed it", r.Value, offset, at, a.At.Sub(h.began))
				}
			}
		}
	}
}

// latest is the offset of each key's latest record.
func latest(records []Record) map[string]int64 {
	offsets := map[string]int64{}
	for offset, r := range records {
		offsets[r.Key] = int64(offset)
	}
	return offsets
}

// Superseded: no value of a key is in the log when the tombstone behind it is gone, unless an erasure has taken that.
func Superseded(h *History, l *Log) {
	for _, a := range l.Audits {
		for at, values := range a.Values {
			if !h.compacts(at.Topic) {
				continue
			}
			last, records := latest(l.Committed[at]), l.Committed[at]
			for offset, v := range values {
				if offset >= int64(len(records)) || records[offset].Key == "" {
					continue
				}
				if end := last[records[offset].Key]; records[end].Tombstone && values[end] == "" && end > offset {
					h.Bad(About{At: at}, "%q at %d of %v is in the log, and the tombstone at %d behind it is gone", v, offset, at, end)
				}
			}
		}
	}
}

// GoneAsAsked: what an erasure was told to erase, and said it had, is gone, in the end from all objects too.
func GoneAsAsked(h *History, l *Log) {
	for _, e := range h.removals.erasures {
		for _, o := range h.Ops {
			if !e.Proven || o.Partition.Topic != e.Topic || o.Outcome() != sdk.Applied || o.Offset < 0 || !o.Told.Before(e.Began) {
				continue
			}
			records := l.Committed[o.Partition]
			if o.Offset >= int64(len(records)) || records[o.Offset].Key != e.Key {
				continue
			}
			for _, a := range l.Audits {
				if v, there := a.Values[o.Partition][o.Offset]; there && a.At.After(e.Ended) {
					h.BadOp(o, "%q at %d of %v is in the log after key %q was erased", v, o.Offset, o.Partition, e.Key)
				}
				if v, there := a.Lie[o.Partition][o.Offset]; there {
					h.BadOp(o, "%q at %d of %v is in an object, long after key %q was erased", v, o.Offset, o.Partition, e.Key)
				}
			}
		}
	}
}

// Passed: what a reader passed was removed by then.
func Passed(h *History, l *Log) {
	for _, g := range h.removals.gaps {
		for _, a := range l.Audits {
			if a.At.Before(g.passed) {
				continue
			}
			for offset := g.from; offset < g.to; offset++ {
				v, there := a.Values[g.At][offset]
				if records := l.Committed[g.At]; there && (offset >= int64(len(records)) || !h.expired(g.At.Topic, records[offset], g.passed)) {
					h.badAt(g, "%s passed offset %d of %v, where the log has %q", g.By, offset, g.At, v)
					break
				}
			}
			break
		}
	}
}

// LookedUp: the first record from a time on is not before it, and of those before none is that was told to be there when it was asked for, and still is in the next
// audit.
func LookedUp(h *History, l *Log) {
	told := map[Partition]map[int64]time.Time{}
	for _, o := range h.Ops {
		if o.Outcome() == sdk.Applied && o.Offset >= 0 && !h.leftWith(o) {
			if told[o.Partition] == nil {
				told[o.Partition] = map[int64]time.Time{}
			}
			told[o.Partition][o.Offset] = o.Told
		}
	}
	for _, q := range h.removals.lookups {
		records := l.Committed[q.At]
		if q.offset >= int64(len(records)) || q.offset >= 0 && records[q.offset].Time.Before(q.time) {
			h.Bad(q.About, "%s was told that the first record of %v from %v on is at %d, which is of another time", q.By, q.At, q.time, q.offset)
			continue
		}
		before := records
		if q.offset >= 0 {
			before = records[:q.offset]
		}
		for _, a := range l.Audits[:min(1, len(l.Audits))] {
			for offset, r := range before {
				_, there := a.Values[q.At][int64(offset)]
				if at := told[q.At][int64(offset)]; there && !at.IsZero() && at.Before(q.asked) && metadata.IndexTimeAt(r.Time.UnixMilli(), r.Appended) >= q.time.UnixMilli() && !h.expired(q.At.Topic, r, q.told) {
					h.Bad(q.About, "%s was told that the first record of %v from %v on is at %d, but that at %d is of %v", q.By, q.At, q.time, q.offset, offset, r.Time)
					break
				}
			}
		}
	}
}

func (h *History) badAt(g gap, format string, args ...any) {
	h.Bad(g.About, format, args...)
	h.violations[len(h.violations)-1].step = g.step
}

func (h *History) mayBeErased(at Partition, r Record) bool {
	for _, e := range h.removals.erasures {
		if e.Topic == at.Topic && e.Key == r.Key && (e.Ended.IsZero() || !r.Appended.After(e.Ended)) {
			return true
		}
	}
	return false
}

// compacts tells whether of a topic only the latest record of each key is to stay.
func (h *History) compacts(topic string) bool { return h.removals.compacted[topic] }
