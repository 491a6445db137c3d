package group

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
)

// sighting is what is known of a member that has shown no heartbeat since it was seen first, or seen to move.
type sighting struct {
	session metadata.SessionID
	beat    int64
	at      time.Duration // a time on our monotonic clock
	quiet   time.Duration // by then it had been silent for at least so long
	silence time.Duration // and by the last look
	noted   time.Duration // of this silence, what this observer has written down
	moved   bool          // the member was seen to move before
}

const (
	// silentAfter is the part of a time-out after which a member that has shown no heartbeat may be dead. It is longer than the time between
	// heartbeats, also when one is lost, so that nobody who is well is passed over.
	silentAfter = 3
	// overdueAfter is the part of the longest time-out in the group after which a vacancy is ended by whoever has watched it, whoever was to end it. It is longer than
	// those need who are well, also if their heartbeats are rarer than this member's, and short enough that a partition is back within two time-outs from the last heartbeat of its owner: one until that is dead, this, and the heartbeats between.
	overdueAfter = 3
	// noteAfter is the part of a time-out that an observer has to have watched a row that it never saw move before it writes that down. It is less than the
	// time between two looks, so that an observer that is killed after its second has left something.
	noteAfter = 100
	// maxNotes bounds what is written down at one look. More dead than that are written down, and buried, one after the other.
	maxNotes = 64
)

// watch takes in what a look shows of the others. asked is when the state was asked for, by our monotonic clock: what it shows was so later, and what was
// seen before was so before its answer came, so the time between is never more than the silence was. What other observers have written down counts if it is
// more, and takes away nothing of what this one knows by itself: those who come, write, and die, must not lengthen the watch of one that stays.
func (m *Member) watch(state *metadata.GroupState, asked time.Duration) {
	arrived := m.env.Mono()
	seen := map[string]sighting{}
	for i := range state.Members {
		o := &state.Members[i]
		if o.Name == m.config.Name {
			continue
		}
		s, known := m.seen[o.Name]
		if s.session != o.Session || s.beat != o.Beat {
			s = sighting{session: o.Session, beat: o.Beat, at: arrived, quiet: o.Quiet, silence: o.Quiet, moved: known}
		} else if s.silence = (s.quiet + asked - s.at).Truncate(time.Millisecond); o.Quiet > s.silence {
			s.at, s.quiet, s.silence = arrived, o.Quiet, o.Quiet
		}
		seen[o.Name] = s
	}
	m.seen = seen
}

// bury removes the rows of those who are dead, from the table and from the state.
func (m *Member) bury(ctx context.Context, state *metadata.GroupState) error {
	var living []metadata.Member
	for i := range state.Members {
		o := &state.Members[i]
		if m.seen[o.Name].silence >= o.Timeout {
			err := m.table.Bury(ctx, m.config.Group, o)
			if err == nil {
				delete(m.seen, o.Name)
				continue
			}
			if !errors.Is(err, metadata.ErrChanged) {
				return err
			}
			s := m.seen[o.Name] // it lives, or another observer was faster: the next look tells
			s.silence = 0
			m.seen[o.Name] = s
		}
		living = append(living, *o)
	}
	state.Members = living
	return nil
}

// watchVacant takes in what a state, in which the dead are buried, shows of the partitions that the member reads and nobody holds.
func (m *Member) watchVacant(state *metadata.GroupState, known *knownTopics) {
	there := map[metadata.SessionID]bool{}
	m.patience = 0
	for i := range state.Members {
		o := &state.Members[i]
		there[o.Session] = true
		m.patience = max(m.patience, o.Timeout/overdueAfter)
	}
	lease, now := leases(state.Lanes), m.env.Mono()
	vacant := map[metadata.Place]time.Duration{}
	for id := range known.readBy(m.subscription()) {
		topic := known.byID[id]
		for p := range topic.Partitions {
			at := topic.Place(p)
			if there[lease(at).Session] {
				continue
			}
			since, before := m.vacant[at]
			if !before {
				since = now
			}
			vacant[at] = since
		}
	}
	m.vacant = vacant
}

// overdue tells of which partitions the vacancy has lasted too long. Those who are well end one much earlier, and who is to do so is agreed upon; but that one can die
// before it does, and the next one too, each at its worst moment and without end. Waiting for one after the other is bounded by this.
func (m *Member) overdue(t *metadata.Topic) []bool {
	overdue := make([]bool, t.Partitions)
	for p := range overdue {
		since, vacant := m.vacant[t.Place(p)]
		overdue[p] = vacant && m.tooLong(since)
	}
	return overdue
}

// anyOverdue tells whether there is something for this member to take, whoever was to have it.
func (m *Member) anyOverdue() bool {
	for _, since := range m.vacant {
		if m.tooLong(since) {
			return true
		}
	}
	return false
}

// tookOverdue has what a plan of this member gives to itself watched anew. It is claimed at once; while claims fail, and others take it in turn, that many plans are
// enough.
func (m *Member) tookOverdue() {
	maps.DeleteFunc(m.vacant, func(_ metadata.Place, since time.Duration) bool { return m.tooLong(since) })
}

func (m *Member) tooLong(since time.Duration) bool { return m.env.Mono()-since >= m.patience }

// silent tells whether a member has shown no heartbeat for so long that it may be dead.
func (m *Member) silent(o *metadata.Member) bool {
	return m.seen[o.Name].silence >= o.Timeout/silentAfter // of itself a member has no sighting
}

// lives tells whether this member knows that another one lives, or did a while ago: it has seen it move. Of itself it knows.
func (m *Member) lives(o *metadata.Member) bool {
	return o.Name == m.config.Name || m.seen[o.Name].moved
}

// doubtful tells whether this member cannot say yet whether another one lives: it has neither seen it move nor is that silent.
func (m *Member) doubtful(o *metadata.Member) bool { return !m.lives(o) && !m.silent(o) }

// report writes down for how long those have been silent who may be dead, so that observers who live shorter than the time-out (a scheduled job, a function)
// bury them together. ends says that the observer will not look again.
//
// A note is written only to the row as it was read: if that has moved since, nothing is said of it. So it never tells of more than the silence was.
func (m *Member) report(ctx context.Context, state *metadata.GroupState, ends bool) error {
	var due []*metadata.Member
	for i := range state.Members {
		if o := &state.Members[i]; m.seen[o.Name].due(o, ends) {
			due = append(due, o)
		}
	}
	slices.SortStableFunc(due, func(a, b *metadata.Member) int { return cmp.Compare(b.Quiet, a.Quiet) })
	for _, o := range due[:min(len(due), maxNotes)] {
		s := m.seen[o.Name]
		more := s.silence - o.Quiet
		err := m.table.Watched(ctx, m.config.Group, o, more)
		if errors.Is(err, metadata.ErrChanged) { // it lives, or another observer was faster: the next look tells
			continue
		}
		if err != nil {
			return err
		}
		s.noted += more
		m.seen[o.Name] = s
	}
	return nil
}

// due tells whether more is known of a silence than the row says, and is to be written down. Of a member that was seen to move, not before that is a time in
// which the living would have moved, so that nobody writes about them. Of one that never was, soon, for the observer may be killed before it sees
// more; then again whenever that is as much again.
func (s sighting) due(o *metadata.Member, ends bool) bool {
	more := s.silence - o.Quiet
	switch {
	case s.moved:
		return more >= o.Timeout/silentAfter
	case ends:
		return more > 0
	}
	return more >= min(max(s.noted, o.Timeout/noteAfter), o.Timeout/silentAfter)
}
