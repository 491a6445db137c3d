package archive

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// AlarmError is a contradiction in the log, or in what was about to be published to it: nothing was changed, and somebody has to look. `varve verify` tells more.
type AlarmError struct {
	Topic string
	Lane  metadata.LaneID
	What  string
}

func (e *AlarmError) Error() string {
	return fmt.Sprintf("topic %q, lane %s: %s; nothing was changed, 'varve verify' tells more", e.Topic, e.Lane, e.What)
}

// span is the offsets [base, end).
type span struct{ base, end int64 }

// Check tells whether the publication takes the place of exactly the offsets that it should: new rows those of the rows that they replace and, per slot, those from
// the archived offset to the new one, each once; of the latter, what is below the log start may be left out at the front. Otherwise it is an *AlarmError.
func Check(state *metadata.State, topic *metadata.Topic, p *metadata.Publication) error {
	alarm := func(format string, args ...any) error {
		return &AlarmError{Topic: topic.Name, Lane: p.Lane, What: fmt.Sprintf("publication %s: ", p.ID) + fmt.Sprintf(format, args...)}
	}
	put, replaced := spans(p.Put), spans(p.Replace)
	for partition := range topic.Partitions {
		have, want := put[partition], replaced[partition]
		delete(put, partition)
		delete(replaced, partition)
		at := topic.Place(partition)
		if at.Lane == p.Lane {
			from, to := state.Ends[at.Slot], state.Ends[at.Slot]
			if end, ok := p.Ends[at.Slot]; ok {
				to = end
			}
			if to < from {
				return alarm("the archived offset of partition %d goes back from %d to %d", partition, from, to)
			}
			if begin := begins(have, from, to); begin <= state.Starts[at.Slot] {
				from = begin
			}
			want = append(want, span{from, to})
		} else if len(have)+len(want) > 0 {
			return alarm("partition %d is in lane %s", partition, at.Lane)
		}
		covered, once := join(have)
		wanted, sound := join(want)
		if !once || !sound || !slices.Equal(covered, wanted) {
			return alarm("the rows of partition %d cover offsets %v, and have to cover %v, each once", partition, covered, wanted)
		}
	}
	for partition := range put {
		return alarm("the topic has no partition %d", partition)
	}
	for partition := range replaced {
		return alarm("the topic has no partition %d", partition)
	}
	return nil
}

func spans(rows []metadata.Row) map[int][]span {
	of := map[int][]span{}
	for i := range rows {
		of[rows[i].Partition] = append(of[rows[i].Partition], span{rows[i].Base, rows[i].End})
	}
	return of
}

// begins is where the first row begins of those for the offsets [from, to).
func begins(rows []span, from, to int64) int64 {
	first := to
	for _, r := range rows {
		if r.base >= from {
			first = min(first, r.base)
		}
	}
	return first
}

// join makes one span of those that follow one another. once: none overlap.
func join(spans []span) (joined []span, once bool) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.base, b.base) })
	for _, s := range spans {
		n := len(joined)
		switch {
		case s.base == s.end:
		case n > 0 && s.base < joined[n-1].end:
			return joined, false
		case n > 0 && s.base == joined[n-1].end:
			joined[n-1].end = s.end
		default:
			joined = append(joined, s)
		}
	}
	return joined, true
}
