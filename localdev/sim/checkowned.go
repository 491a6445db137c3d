package sim

import (
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
)

// Owned: while one and the same member is well all the time, no partition is without an owner for longer than two session time-outs, whoever else comes and dies, and
// whenever. An owner is a session that has the lease, until the last heartbeat of it that arrives.
//
// A member is well as long as its heartbeats are confirmed, each within a quarter of the time-out from when the one before was sent: so it is not frozen or
// cut off, the table answers it without much trouble, and nobody takes it for silent.
func Owned(h *History, _ *Log) {
	lives, order := livesOf(h)
	shares, all := h.shares()
	for _, s := range shares {
		var owned time.Time // when it was last seen to have an owner
		for _, f := range all[s] {
			switch {
			case f.Kind == Took: // perhaps for less than the time between two samples
				owned = f.Told
				continue
			case f.Kind != Sampled:
				continue
			case owned.IsZero():
				owned = f.Told
			}
			if owner := lives[f.Lease.Session]; owner != nil && owner.moved(f.Told).After(owned) {
				owned = owner.moved(f.Told)
			}
			unowned := f.Told.Sub(owned)
			if unowned <= f.Timeout {
				continue
			}
			for _, m := range order {
				since := owned
				if came := m.came(); came.After(owned) {
					since = came
				}
				lived := f.Told.Sub(since)
				if m.group != s.Group || lived <= f.Timeout || !m.wellFrom(since, f.Told, f.Timeout/4) {
					continue
				}
				h.Count("without owner for more than a time-out, while a member was well")
				if lived > 2*f.Timeout {
					h.BadFact(f, "%v has had no owner for %v, though %s was well for %v of it; its lease is %v, and the plan gives it to %v", s, unowned, m.by, lived, f.Lease, f.Heir)
					return
				}
			}
		}
	}
}

// life is a session's.
type life struct {
	group, by string
	beats     []*Fact // that were confirmed, in the order in which they were
	moves     []time.Time
}

// livesOf is the sessions of all groups, by their names and in the order in which they came up.
func livesOf(h *History) (lives map[metadata.SessionID]*life, order []*life) {
	lives = map[metadata.SessionID]*life{}
	for _, f := range h.facts {
		if f.Kind != Beat && f.Kind != Moved {
			continue
		}
		l := lives[f.Lease.Session]
		if l == nil {
			l = &life{group: f.Share.Group}
			lives[f.Lease.Session] = l
			order = append(order, l)
		}
		if f.Kind == Moved {
			l.moves = append(l.moves, f.Told)
		} else {
			l.by, l.beats = f.By, append(l.beats, f)
		}
	}
	return lives, order
}

// came is when its first heartbeat was confirmed; zero if none was.
func (l *life) came() time.Time {
	if len(l.beats) == 0 {
		return time.Time{}
	}
	return l.beats[0].Told
}

// moved is when by then the session's row was last seen to move.
func (l *life) moved(by time.Time) time.Time {
	n, _ := slices.BinarySearchFunc(l.moves, by.Add(1), time.Time.Compare)
	if n == 0 {
		return time.Time{}
	}
	return l.moves[n-1]
}

// wellAt tells whether the last heartbeat that was confirmed before was sent no longer ago than that.
func (l *life) wellAt(t time.Time, longest time.Duration) bool {
	n := l.until(t)
	return n > 0 && t.Sub(l.beats[n-1].Asked) <= longest
}

// until is how many heartbeats were confirmed by then.
func (l *life) until(t time.Time) int {
	n, _ := slices.BinarySearchFunc(l.beats, t, func(f *Fact, t time.Time) int {
		if f.Told.After(t) {
			return 1
		}
		return -1
	})
	return n
}

// wellFrom tells whether the session was well from then to then.
func (l *life) wellFrom(from, to time.Time, longest time.Duration) bool {
	first, last := l.until(from), l.until(to)
	if first == 0 || !l.wellAt(to, longest) {
		return false
	}
	for i := first; i < last; i++ {
		if l.beats[i].Told.Sub(l.beats[i-1].Asked) > longest {
			return false
		}
	}
	return true
}
