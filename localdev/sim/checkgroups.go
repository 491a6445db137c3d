package sim

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/varvelog/varve/metadata"
)

// Groups is what must be true of groups, whatever is played.
var Groups = []Check{OneOwner, NotFromTheLiving, NeverBack, AtLeastOnce, ExactlyOnce, Owned, InTurn}

// OneOwner: whoever commits holds the lease. No two sessions have one epoch, and nothing is committed under a lease after another was acquired, or the
// partition reset.
func OneOwner(h *History, _ *Log) {
	order, all := h.shares()
	for _, s := range order {
		owner := map[int64]metadata.SessionID{}
		var told []time.Time // and the highest epoch that was shown by then
		var highest []int64
		for _, f := range byAnswer(all[s]) {
			if f.Kind > WasReset || f.Told.IsZero() {
				continue
			}
			if known := owner[f.Lease.Epoch]; f.Lease.Held() && known != "" && known != f.Lease.Session {
				h.BadFact(f, "%v: epoch %d is held by two sessions, %s and %s", s, f.Lease.Epoch, known, f.Lease.Session)
			} else if f.Lease.Held() {
				owner[f.Lease.Epoch] = f.Lease.Session
			}
			if f.Kind == Committed {
				n := sort.Search(len(told), func(i int) bool { return !told[i].Before(f.Asked) })
				switch {
				case f.From != (metadata.Lease{}) && f.From != f.Lease:
					h.BadFact(f, "%v, though the lease that stands is %v", f, f.From)
				case n > 0 && highest[n-1] > f.Lease.Epoch:
					h.BadFact(f, "%v, though the lease was of epoch %d already", f, highest[n-1])
				}
			}
			epoch := f.Lease.Epoch
			if len(highest) > 0 {
				epoch = max(epoch, highest[len(highest)-1])
			}
			told, highest = append(told, f.Told), append(highest, epoch)
		}
	}
}

// byAnswer is facts in the order in which they were told. A reset stands among them since it was asked for, and may be told long after others.
func byAnswer(facts []*Fact) []*Fact {
	facts = slices.Clone(facts)
	slices.SortStableFunc(facts, func(a, b *Fact) int { return a.Told.Compare(b.Told) })
	return facts
}

// NotFromTheLiving: a lease is taken from another session only when that is over: it has no heartbeat confirmed any more.
func NotFromTheLiving(h *History, _ *Log) {
	last := map[metadata.SessionID]time.Time{} // when the last one was asked for
	for _, f := range h.facts {
		if f.Kind == Beat {
			last[f.Lease.Session] = f.Asked
		}
	}
	for _, f := range h.facts {
		if f.Kind == Took && f.From.Held() && f.From.Session != f.Lease.Session && last[f.From.Session].After(f.Told) {
			h.BadFact(f, "%v, which lives", f)
		}
	}
}

// eras are the epochs of a share with which resets begin, ascending, and what each reset was. Those of which nobody knows whether they were are among
// them, unless a session has the epoch that would be theirs.
func eras(facts []*Fact) (epochs []int64, resets map[int64]*Fact) {
	resets = map[int64]*Fact{}
	for _, f := range facts {
		if known := resets[f.Lease.Epoch]; f.Kind == WasReset && (known == nil || known.Told.IsZero()) {
			resets[f.Lease.Epoch] = f
		}
	}
	for _, f := range facts {
		if r := resets[f.Lease.Epoch]; r != nil && r.Told.IsZero() && f.Lease.Held() {
			delete(resets, f.Lease.Epoch)
		}
	}
	return slices.Sorted(maps.Keys(resets)), resets
}

// era is the epoch with which the latest reset before began, 0 if there was none.
func era(epochs []int64, epoch int64) int64 {
	if n := sort.Search(len(epochs), func(i int) bool { return epochs[i] > epoch }); n > 0 {
		return epochs[n-1]
	}
	return 0
}

// NeverBack: what is committed for a partition goes back only by a reset.
func NeverBack(h *History, _ *Log) {
	order, all := h.shares()
	for _, s := range order {
		epochs, _ := eras(all[s])
		byEpoch := map[int64][]*Fact{}
		for _, f := range all[s] {
			if f.Kind == Sampled || f.Kind == Took || f.Kind == Committed {
				byEpoch[f.Lease.Epoch] = append(byEpoch[f.Lease.Epoch], f)
			}
		}
		before, highest := int64(-1), int64(metadata.NoOffset) // of the eras before, and of the epochs of this one
		for _, epoch := range slices.Sorted(maps.Keys(byEpoch)) {
			if e := era(epochs, epoch); e != before {
				before, highest = e, metadata.NoOffset
			}
			highest = withinEpoch(h, byEpoch[epoch], highest)
		}
	}
}

// withinEpoch holds what was shown under one epoch against what was before, and returns the highest of both.
func withinEpoch(h *History, facts []*Fact, before int64) int64 {
	var told []time.Time
	highest := []int64{before}
	for _, f := range facts {
		n := sort.Search(len(told), func(i int) bool { return !told[i].Before(f.Asked) })
		if f.Offset < highest[n] {
			h.BadFact(f, "%v, though %d was committed before, and nobody has reset it", f, highest[n])
		}
		told, highest = append(told, f.Told), append(highest, max(highest[len(highest)-1], f.Offset))
	}
	return highest[len(highest)-1]
}

// AtLeastOnce: everything below a committed offset somebody has finished before, after the latest reset and from where that led on; or it has been removed.
func AtLeastOnce(h *History, l *Log) {
	order, all := h.shares()
	for _, s := range order {
		epochs, resets := eras(all[s])
		done := map[int64][]time.Time{} // of each era: by when all up to an offset were finished
		for _, f := range all[s] {
			if f.Kind != Committed && f.Kind != Sampled {
				continue
			}
			begun := era(epochs, f.Lease.Epoch)
			from, since := int64(0), time.Time{}
			if r := resets[begun]; r != nil && r.Told.IsZero() {
				continue // from where, only the table knows
			} else if r != nil {
				from, since = r.Offset, r.Asked
			}
			if done[begun] == nil {
				done[begun] = finishedBy(all[s], from, since, func(offset int64) bool { return l.gone(s.Partition, offset) })
			}
			by := f.Asked
			if f.Kind == Sampled { // it may have been committed after it was asked for
				by = f.Told
			}
			n := f.Offset - from
			if n > int64(len(done[begun])) {
				h.BadFact(f, "%v, and nobody has finished %d, from %d on", f, from+int64(len(done[begun])), from)
			} else if n > 0 && done[begun][n-1].After(by) {
				h.BadFact(f, "%v, before all from %d on were finished", f, from)
			}
		}
	}
}

// finishedBy is, for each offset from there on without a gap, when that and all before it had been finished, counting what was after since. What is gone needs nobody.
func finishedBy(facts []*Fact, from int64, since time.Time, gone func(int64) bool) (by []time.Time) {
	first := map[int64]time.Time{}
	for _, f := range facts {
		if _, known := first[f.Offset]; f.Kind == Finished && !known && f.Told.After(since) {
			first[f.Offset] = f.Told
		}
	}
	by = []time.Time{}
	var latest time.Time
	for at, ok := first[from]; ok || gone(from); at, ok = first[from] {
		if at.After(latest) {
			latest = at
		}
		by = append(by, latest)
		from++
	}
	return by
}

// ExactlyOnce: of each record that a stepping group has committed there is one result in the log, and, where the group was reset, one or more.
func ExactlyOnce(h *History, l *Log) {
	results := map[Share]map[int64]int{}
	stepping := map[string]bool{}
	for _, o := range h.Ops {
		if o.From == nil {
			continue
		}
		stepping[o.From.Group] = true
		if _, there := l.Find(o); there {
			if results[o.From.Share] == nil {
				results[o.From.Share] = map[int64]int{}
			}
			results[o.From.Share][o.From.Offset]++
		}
	}
	order, all := h.shares()
	for _, s := range order {
		if !stepping[s.Group] {
			continue
		}
		epochs, _ := eras(all[s])
		which := "results, each once"
		if len(epochs) > 0 {
			which = "results, after resets"
		}
		for o := range lastCommitted(all[s]) {
			h.Count(which)
			if n := results[s][o]; n == 0 && !l.gone(s.Partition, o) || n > 1 && len(epochs) == 0 {
				h.Bad(About{At: s.Partition}, "record %d of %v has %d results in the log, %d resets", o, s, n, len(epochs))
			}
		}
	}
}

// lastCommitted is what was committed in the end, 0 if nothing was.
func lastCommitted(facts []*Fact) (offset int64) {
	for _, f := range facts {
		if f.Kind == Sampled {
			offset = max(f.Offset, 0)
		}
	}
	return offset
}

// InTurn: a member is given records of a partition only between having got and having lost it, each in its turn, and only while its last heartbeat is
// not older than half the time-out. Where records are removed it may meet gaps, which Passed judges.
func InTurn(h *History, _ *Log) {
	type holding struct {
		lost time.Time
		next int64
	}
	type key struct {
		by string
		Share
	}
	held := map[key]*holding{}
	for _, f := range h.facts {
		k := key{f.By, f.Share}
		switch hold := held[k]; {
		case f.Kind == Assigned:
			held[k] = &holding{next: -1}
		case f.Kind == Lost && hold != nil && hold.lost.IsZero():
			hold.lost = f.Told
		case f.Kind != Given:
		case hold == nil:
			h.BadFact(f, "%v, and was never assigned it", f)
		case !hold.lost.IsZero() && f.Told.After(hold.lost):
			h.BadFact(f, "%v, %v after it had learnt that it lost it", f, f.Told.Sub(hold.lost))
		case f.Age >= f.Timeout/2:
			h.BadFact(f, "%v, %v after it sent its last confirmed heartbeat", f, f.Age)
		case hold.next >= 0 && f.Offset > hold.next && h.removes:
			h.removals.gaps = append(h.removals.gaps, gap{f.about(), hold.next, f.Offset, f.Told, f.step})
			hold.next = f.Offset + 1
		case hold.next >= 0 && f.Offset != hold.next:
			h.BadFact(f, "%v, where %d comes next", f, hold.next)
		default:
			hold.next = f.Offset + 1
		}
	}
}
