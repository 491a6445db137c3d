package sim

import (
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
)

// Owned: while one and the same member is well all the time, no partition is without an owner for longer than two session time-outs from the last heartbeat
// that arrives of one of these: the owner, and the first life that follows it under its name; whoever else took the lease; the member to which the plan
// handed it, if it was let go of, or first gave it, if nobody ever had it; and those to whom a plan gave it since who are older than the member that is well. Whoever else comes and dies, and whenever, delays nothing.
//
// A member is well as long as its heartbeats are confirmed, each within a quarter of the time-out from when the one before was sent: so it is not frozen or
// cut off, the table answers it without much trouble, and nobody takes it for silent. An owner is a session that has the lease and is well.
func Owned(h *History, _ *Log) {
	lives, order := livesOf(h)
	shares, all := h.shares()
	for _, s := range shares {
		u := unowned{lives: lives}
		for _, f := range all[s] {
			if f.Kind == Took { // perhaps for less than the time between two samples
				u = unowned{lives: lives, since: f.Told, owner: f.Lease.Session}
			}
			if f.Kind != Sampled || !u.goesOn(f) {
				continue
			}
			for _, m := range order {
				if m.group != s.Group || !m.wellFrom(u.since, f.Told, f.Timeout/4) {
					continue
				}
				h.Count("without owner for more than a time-out, while a member was well")
				if waited := f.Told.Sub(u.last(m, f.Told)); waited > 2*f.Timeout {
					h.BadFact(f, "%v has had no owner for %v, the last %v of it for nobody's sake, though %s was well all the time; its lease is %v, and the plans gave it to %v",
						s, f.Told.Sub(u.since), waited, m.by, f.Lease, u.heirs)
					return
				}
			}
		}
	}
}

// unowned is a time in which a partition has no owner.
type unowned struct {
	lives map[metadata.SessionID]*life
	since time.Time            // when it was last seen to have one
	owner metadata.SessionID   // that it had then
	heirs []metadata.SessionID // to whom plans have given it since
	turn  []metadata.SessionID // who held it, and to whom it was handed, or first given

	handed bool // that is known
}

// goesOn takes in a sample, and tells whether there has been no owner for longer than a time-out.
func (u *unowned) goesOn(f *Fact) bool {
	owner := u.lives[f.Lease.Session]
	if u.since.IsZero() || owner != nil && owner.wellAt(f.Told, f.Timeout/4) {
		*u = unowned{lives: u.lives, since: f.Told, owner: f.Lease.Session}
	}
	if !slices.Contains(u.heirs, f.Heir) {
		u.heirs = append(u.heirs, f.Heir)
	}
	if s := f.Lease.Session; s != "" && !slices.Contains(u.turn, s) {
		u.turn = append(u.turn, s)
	} else if s == "" && !u.handed {
		u.turn, u.handed = append(u.turn, f.Heir), true
	}
	return f.Told.Sub(u.since) > f.Timeout
}

// last is when by then somebody was last heard of for whom others, and the member that is well, had to wait.
func (u *unowned) last(well *life, by time.Time) time.Time {
	last, followed := u.since, false
	owner := u.lives[u.owner]
	for _, s := range slices.Concat(u.turn, u.heirs) {
		heir := u.lives[s]
		if heir == nil || heir == well {
			continue
		}
		follows := owner != nil && heir != owner && heir.name == owner.name && !followed
		followed = followed || follows
		if at := heir.moved(by); at.After(last) && (follows || heir.age < well.age || slices.Contains(u.turn, s)) {
			last = at
		}
	}
	return last
}

// life is a session's.
type life struct {
	group, by string
	name      string  // of the member
	age       int     // sessions came into plans in this order
	beats     []*Fact // that were confirmed, in the order in which they were
	moves     []time.Time
}

const inNoPlan = 1 << 60

// livesOf is the sessions of all groups, by their names and in the order in which they came up.
func livesOf(h *History) (lives map[metadata.SessionID]*life, order []*life) {
	lives = map[metadata.SessionID]*life{}
	of := func(s metadata.SessionID, f *Fact) *life {
		if lives[s] == nil {
			lives[s] = &life{group: f.Share.Group, age: inNoPlan}
			order = append(order, lives[s])
		}
		return lives[s]
	}
	n := 0
	for _, f := range h.facts {
		switch f.Kind {
		case Beat:
			l := of(f.Lease.Session, f)
			l.by, l.beats = f.By, append(l.beats, f)
		case Moved:
			l := of(f.Lease.Session, f)
			l.moves = append(l.moves, f.Told)
		case Planned:
			for _, m := range f.Order {
				if l := of(m.Session, f); l.age == inNoPlan {
					l.name, l.age = m.Name, n
					n++
				}
			}
		}
	}
	return lives, order
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
