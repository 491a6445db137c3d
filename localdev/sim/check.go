package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/varvelog/varve/sdk"
)

// Check holds the history against the log and reports with History.Bad. It is called when all is over.
type Check func(*History, *Log)

// Core is what must be true whatever is played. That orders and offsets are dense is found in reading.
var Core = []Check{OnceAndOurs, AsTold, AllOrNone, AsAsked, InOrder, AsRead}

// OnceAndOurs: what is in the log was sent, and is there once.
func OnceAndOurs(h *History, l *Log) {
	sent := map[string]*Op{}
	for _, o := range h.Ops {
		sent[o.Value] = o
	}
	for _, at := range l.Partitions() {
		for offset, v := range l.Values[at] {
			o, there := sent[v], l.Places[v]
			switch {
			case o == nil:
				h.Bad(About{At: at}, "%q is in the log at %d of %v, and nobody sent it", v, offset, at)
			case there != Place{at, int64(offset)}:
				h.BadOp(o, "%v is in the log twice, at %d of %v and at %d of %v", o, offset, at, there.Offset, there.Partition)
			}
		}
	}
}

// AsTold: what was acknowledged is where it was said to be, what failed is not there, and everybody who lives was told.
func AsTold(h *History, l *Log) {
	for _, o := range h.Ops {
		offset, there := l.Find(o)
		switch {
		case h.leftWith(o):
		case o.Told.IsZero() && !h.Dead(o.By):
			h.BadOp(o, "%v: its owner was never told", o)
		case o.Outcome() == sdk.Applied && !there:
			h.BadOp(o, "%v: acknowledged at %d, and not in the log", o, o.Offset)
		case o.Outcome() == sdk.Applied && o.Offset != offset && o.Offset != -1:
			h.BadOp(o, "%v: acknowledged at %d, is at %d", o, o.Offset, offset)
		case o.Outcome() == sdk.NotApplied && there:
			h.BadOp(o, "%v: in the log at %d, though its owner was told: %v", o, offset, o.Err)
		}
	}
}

// AllOrNone: of what was asked for together all is in the log, or nothing.
func AllOrNone(h *History, l *Log) {
	for _, o := range h.Ops {
		if o.With == nil {
			continue
		}
		_, there := l.Find(o)
		if _, first := l.Find(o.With.Ops[0]); there != first {
			h.BadOp(o, "%v in the log: %v, but %v: %v, which was to go with it", o, there, o.With.Ops[0], first)
		}
	}
}

// AsAsked: a conditional append is in the log only where its condition held: at the end that it named, and behind nothing that a later holder of
// the fence has appended.
func AsAsked(h *History, l *Log) {
	asked := map[string]*Together{}
	for _, o := range h.Ops {
		if o.With != nil {
			asked[o.Value] = o.With
		}
		if offset, there := l.Find(o); there && o.With != nil && o.With.End != nil && o.With.Ops[0] == o && offset != *o.With.End {
			h.BadOp(o, "%v is at %d, and was to be appended only at %d", o, offset, *o.With.End)
		}
	}
	for _, at := range l.Partitions() {
		held := int64(0)
		for offset, v := range l.Values[at] {
			if t := asked[v]; t != nil && t.Token != 0 {
				if t.Token < held {
					h.BadOp(t.Ops[0], "%s with token %d is at %d of %v, behind records with token %d", v, t.Token, offset, at, held)
				}
				held = max(held, t.Token)
			}
		}
	}
}

// InOrder: in each partition a producer's records are in the order in which they were accepted, the unknown and those of the dead included; and none
// is there that was accepted before its owner was told that an earlier one failed or is unknown, but for those that shared the unknown's update. What failed with a topic that was deleted
// was of another partition than what is appended to the topic's next life.
func InOrder(h *History, l *Log) {
	streams, first := map[About]*stream{}, map[error]time.Time{}
	for _, o := range h.Ops {
		if o.With != nil && o.With.Loose {
			continue
		}
		s := streams[o.about()]
		if s == nil {
			s = &stream{}
			streams[o.about()] = s
		}
		if offset, there := l.Find(o); there {
			if s.last != nil && s.at > offset {
				h.BadOp(o, "%v is at %d, before %v at %d", o, offset, s.last, s.at)
			}
			if o.before(s.failed) || o.before(s.unknown) && o.Outcome() == sdk.Applied {
				h.BadOp(o, "%v is in the log at %d, though it was accepted before an earlier one's failure was told", o, offset)
			}
			s.last, s.at = o, offset
		}
		if !h.wasDeleted(o.Partition.Topic) || !errors.Is(o.Err, sdk.ErrTopicGone) {
			s.told(o, first)
		}
	}
}

// before tells whether the record is known to have been accepted before that moment.
func (o *Op) before(moment time.Time) bool { return !o.Accepted.IsZero() && o.Accepted.Before(moment) }

// stream is one producer's records of one partition, as far as they have been looked at.
type stream struct {
	last            *Op // that is in the log
	at              int64
	failed, unknown time.Time // when the latest of these were told
}

// told takes in what the owner was told. first is when the first record of a batch, which all have one error, was.
func (s *stream) told(o *Op, first map[error]time.Time) {
	if o.Told.IsZero() || o.Err == nil || o.Refused || errors.Is(o.Err, sdk.ErrPriorFailed) {
		return
	}
	if first[o.Err].IsZero() {
		first[o.Err] = o.Told
	}
	latest := &s.failed
	if o.Outcome() == sdk.Unknown {
		latest = &s.unknown
	}
	if told := first[o.Err]; told.After(*latest) {
		*latest = told
	}
}

// AsRead: what readers were given is in the log, there.
func AsRead(h *History, l *Log) {
	for at, seen := range h.seen {
		for _, offset := range slices.Sorted(maps.Keys(seen)) {
			if values := l.Values[at]; offset >= int64(len(values)) || values[offset] != seen[offset] {
				h.Bad(About{At: at}, "a reader was given %q at offset %d of %v, which is not in the log there", seen[offset], offset, at)
			}
		}
	}
}
