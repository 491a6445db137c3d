package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/varvelog/varve/metadata"
)

// committed is the state of what a group has committed for a partition.
type committed struct {
	lease  metadata.Lease
	offset int64
	over   bool // nothing has an effect any more: then comes what was never applied
}

func (s committed) String() string { return fmt.Sprintf("offset %d, lease %v", s.offset, s.lease) }

func committedIn(image *metadata.GroupLane, s metadata.Slot) *committed {
	return &committed{lease: image.Slots[s].Lease, offset: image.Slots[s].Offset}
}

// turn is what a request does to one of these.
type turn struct {
	*groupRequest
	change   *change    // nil: it is a read, or the end
	image    *committed // that was shown, after the change if there is one; nil: none was
	doubtful bool       // the change may never be applied
}

func (x *turn) String() string {
	switch {
	case x.groupRequest == nil:
		return "the end"
	case x.change == nil:
		return fmt.Sprintf("%s is shown %v", x.by, x.image)
	}
	s := fmt.Sprintf("%s replaces lease %v by %v", x.by, x.change.lease, x.change.to)
	if x.change.offset != kept {
		s = fmt.Sprintf("%s commits %d under lease %v for one from %d to %d", x.by, x.change.offset, x.change.lease, x.change.low, x.change.high)
	}
	if x.image != nil {
		s += fmt.Sprintf(", and is shown %v", x.image)
	}
	return s
}

// commitsModel is what becomes of what a group has committed for a partition. Who has the lease moves it up, or only from where it is known to be; a reset moves it to anywhere
// and raises the epoch of the lease, so that nobody has it.
var commitsModel = porcupine.Model{
	Init: func() any { return committed{offset: metadata.NoOffset} },
	Step: func(before, input, _ any) (bool, any) {
		s, x := before.(committed), input.(*turn)
		switch {
		case x.groupRequest == nil:
			return true, committed{over: true}
		case s.over: // and only doubtful changes are left
			return true, s
		case x.change == nil:
			return s == *x.image, s
		}
		after := x.change.after(s)
		return x.change.holds(s) && (x.image == nil || *x.image == after), after
	},
}

// register is what a group has committed for a slot.
type register struct {
	group string
	metadata.Place
}

// commits are the requests about what each group has committed for each partition. What is over when they are taken counts: a table that is put back later takes away no
// commit from them. Partitions of topics that are deleted are no objects: who deletes them forgets what was committed.
func (h *History) commits(l *Log) (objects []object) {
	turns := map[register][]*turn{}
	places := map[string][]metadata.Place{}
	for _, r := range h.asked {
		for i := range r.changes {
			at := register{r.group, r.changes[i].Place}
			if turns[at] == nil {
				places[r.group] = append(places[r.group], at.Place)
				turns[at] = []*turn{{}}
			}
			if !r.never() {
				turns[at] = append(turns[at], r.changing(&r.changes[i]))
			}
		}
	}
	for _, r := range h.asked {
		for _, at := range places[r.group] {
			if x := r.showing(at); x != nil {
				turns[register{r.group, at}] = append(turns[register{r.group, at}], x)
			}
		}
	}
	for at, turns := range turns {
		if p, there := l.place(at.Lane, at.Slot); there {
			objects = append(objects, object{About{At: p}, Share{at.group, p}.String(), "commits", commitsModel, h.operations(needed(turns))})
		}
	}
	slices.SortFunc(objects, func(a, b object) int { return cmp.Compare(a.name, b.name) })
	return objects
}

// changing is a change that was or may have been applied. A commit that may come again is applied where somebody was told so, by whatever image; other changes may be those of an earlier
// request for the same, of which the image is.
func (r *groupRequest) changing(c *change) *turn {
	told := !r.told.IsZero() && r.err == nil && c.offset != kept && c.low < c.high
	x := &turn{groupRequest: r, change: c, doubtful: !r.applied() && !told}
	if image := r.image(c.Lane); image != nil && r.exact() {
		x.image = committedIn(image, c.Slot)
	}
	return x
}

// showing is what was shown of a slot, nil if nothing was, or if it is what a change has left.
func (r *groupRequest) showing(at metadata.Place) *turn {
	image := r.image(at.Lane)
	if image == nil || r.exact() && slices.ContainsFunc(r.changes, func(c change) bool { return c.Place == at }) {
		return nil
	}
	return &turn{groupRequest: r, image: committedIn(image, at.Slot)}
}

// needed leaves out commits that may have been applied and of which nothing was seen: what came next could have come without them. There are many of a member that
// is cut off, and each of their subsets would be tried.
func needed(turns []*turn) []*turn {
	seen := map[int64]bool{}
	for _, x := range turns {
		if x.image != nil {
			seen[x.image.offset] = true
		}
		if x.change != nil && x.change.low == x.change.high {
			seen[x.change.low] = true
		}
	}
	return slices.DeleteFunc(turns, func(x *turn) bool {
		return x.doubtful && x.change.offset != kept && x.change.low < x.change.high && !seen[x.change.offset]
	})
}

func (h *History) operations(turns []*turn) []porcupine.Operation {
	all := make([]porcupine.Operation, len(turns))
	for i, x := range turns {
		all[i] = porcupine.Operation{Input: x, Call: inTheEnd - 1, Return: inTheEnd - 1}
		if x.groupRequest != nil {
			all[i].Call, all[i].Return = int64(x.asked.Sub(h.began)), int64(x.told.Sub(h.began))
		}
		if x.doubtful {
			all[i].Return = inTheEnd
		}
	}
	return all
}
