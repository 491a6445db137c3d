package compact

import (
	"time"

	"github.com/varvelog/varve/metadata"
)

// Reclass adds to the ranges of rows that are due to be merged, which ascend, the single rows that have to be moved: those whose segment is of a class that is
// deleted sooner than the topic's retention by now says. Rewriting puts them under the topic's class. One that has expired stays where it is: its object may be gone
// at any time.
func Reclass(due [][2]int, rows []*metadata.Row, t *metadata.Topic, now time.Time) (all [][2]int) {
	for i := 0; i < len(rows); {
		if len(due) > 0 && due[0][0] == i {
			all, i, due = append(all, due[0]), due[0][1], due[1:]
			continue
		}
		keep := t.KeepFor(rows[i].Segment)
		if keep != t.Config.Kept().Time && !metadata.Expired(rows[i].Last, now, keep) {
			all = append(all, [2]int{i, i + 1})
		}
		i++
	}
	return all
}
