package verify

import (
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// ledger counts a lane upwards, from order 0 or from where the index begins by now. It knows two answers for each slot: what was counted from the
// beginning, and what follows from the item before. An item that agrees with neither is wrong itself; one that agrees with the second
// only repeats a fault that was told already.
type ledger struct {
	next  int64 // order after the last entry
	blind bool  // what comes next cannot be compared: it is the first, or something before it is missing
	ends  metadata.Offsets
	times metadata.Offsets // running maxima
	said  struct{ ends, times metadata.Offsets }
}

// enter takes the offsets that the next item states, and returns the slots where they are wrong.
func (l *ledger) enter(bases metadata.Offsets) (wrong []metadata.Slot) {
	if l.blind {
		l.ends = bases
	}
	for s, base := range bases {
		if base != l.ends[s] && base != l.said.ends[s] && !l.blind {
			wrong = append(wrong, metadata.Slot(s))
		}
	}
	l.said.ends = bases
	return wrong
}

// count goes over entries, whose offsets were entered, and returns the offsets before each of them.
func (l *ledger) count(entries []metadata.Entry) []metadata.Offsets {
	bases := make([]metadata.Offsets, len(entries))
	for i := range entries {
		bases[i] = l.ends
		for _, s := range entries[i].Slots {
			l.ends[s.Slot] += int64(s.Count)
			l.said.ends[s.Slot] += int64(s.Count)
			if s.Count > 0 {
				l.times[s.Slot] = max(l.times[s.Slot], s.MaxTime)
				l.said.times[s.Slot] = max(l.said.times[s.Slot], s.MaxTime)
			}
		}
	}
	l.next += int64(len(entries))
	return bases
}

// maxima takes the running maxima that a chunk states for its end, after count, and returns the slots where they are wrong.
func (l *ledger) maxima(stated metadata.Offsets) (wrong []metadata.Slot) {
	if l.blind {
		l.times = stated
	}
	for s, t := range stated {
		if t != l.times[s] && t != l.said.times[s] && !l.blind {
			wrong = append(wrong, metadata.Slot(s))
		}
	}
	l.said.times, l.blind = stated, false
	return wrong
}

// disagree returns the slots of entries for which metadata.Bases, which readers go by, gives other offsets than counting does, both from the same start.
func disagree(entries []metadata.Entry, bases, ends metadata.Offsets) (wrong []metadata.Slot) {
	worked := metadata.Bases(entries, ends)
	for i := range entries {
		for _, s := range entries[i].Slots {
			if worked[i][s.Slot] != bases[s.Slot] {
				wrong = append(wrong, s.Slot)
			}
			bases[s.Slot] += int64(s.Count)
		}
	}
	return wrong
}

// maxRecent is how many commits recent tells apart at least. At the rate that one item of the table bears, some 330 commits a second, it is
// a little more than maxLate.
const maxRecent = 1 << 18

// recent remembers the segments that a lane's last commits were of. A segment may be committed only for a while after it was made, so a second commit
// of it comes soon after the first. Of what is older than that, only late is known.
type recent struct {
	now, before map[segment.ID]int64 // order of its commit; what is in before is older
	since       segment.ID           // first of now
	newest      segment.ID
	late        int64
}

// add notes a commit, and returns the order of an earlier one of the same segment.
func (r *recent) add(id segment.ID, order int64) (earlier int64, twice bool) {
	if r.now == nil || len(r.now) >= maxRecent || id.Time().Sub(r.since.Time()) > maxLate {
		r.now, r.before, r.since = map[segment.ID]int64{}, r.now, id
	}
	if earlier, twice = r.now[id]; !twice {
		earlier, twice = r.before[id]
	}
	switch {
	case twice:
		return earlier, true
	case r.newest.Time().Sub(id.Time()) > maxLate:
		r.late++
	}
	r.now[id] = order
	if r.newest.Less(id) {
		r.newest = id
	}
	return 0, false
}
