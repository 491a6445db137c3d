package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// found is what the bucket has that the table may not know: by the footers, of which the extents are kept.
type found struct {
	intake []*piece
	runs   map[segment.TopicID][]run1
	topics map[segment.TopicID]*told
}

// piece is an intake segment.
type piece struct {
	id    segment.ID
	size  int64
	lanes map[metadata.LaneID][]segment.Extent
}

// run1 is an extent of an archive segment.
type run1 struct {
	id segment.ID
	segment.Extent
}

// since is from which time on ids are looked at: a segment may be committed for a while after its id was made.
func (r *run) since() segment.ID {
	if r.era.Lost() {
		return segment.ID{}
	}
	return segment.NewID(r.era.Whole.Add(-Settled), segment.Keep, segment.InBucket, 0, segment.ID{})
}

// before tells whether what has this id may have been committed while the table was whole. Ids have whole milliseconds, and are the service's time.
func (r *run) before(id segment.ID) bool {
	return !r.era.Lost() && !id.Time().After(r.era.Whole)
}

// search lists the bucket and reads the footers of what is young enough.
func (r *run) search(ctx context.Context) error {
	r.found = &found{runs: map[segment.TopicID][]run1{}, topics: map[segment.TopicID]*told{}}
	gone, err := r.table.Gone(ctx)
	if err != nil {
		return err
	}
	r.deleted = map[segment.TopicID]bool{}
	for _, g := range gone {
		r.deleted[g.ID] = true
	}
	since := r.since()
	for after, more := "", true; more; {
		p, err := r.bucket.List(ctx, "", after, 0)
		if err != nil {
			return err
		}
		for _, o := range p.Objects {
			name, err := segment.ParseName(o.Name)
			if err != nil || name.ID.Less(since) || r.deleted[name.Topic] {
				continue
			}
			if err := r.look(ctx, name, o.Size); err != nil {
				return err
			}
		}
		after, more = p.Last, p.More
		r.tell("%d segments that are younger than the table", r.report.Looked)
	}
	slices.SortFunc(r.found.intake, func(a, b *piece) int { return a.id.Compare(b.id) })
	return nil
}

// look reads the footer of a segment. One that cannot be read is told of, and left where it is. Of one that is too young to be brought back, its topics are noted, so that
// they have all their partitions before their lanes go on in the new era; one of a time since that began is of it.
func (r *run) look(ctx context.Context, name segment.ParsedName, size int64) error {
	young := name.Topic == "" && !name.ID.Less(r.settled)
	if young && name.ID.Time().After(r.era.Begun) {
		return nil
	}
	s := objects.Of(name.Topic, name.ID)
	f, err := r.footer(ctx, s, size)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil
	case errors.As(err, new(*segment.FormatError)) || err == nil && f.Log != r.log:
		r.report.unreadable(s.Name(), err)
		return nil
	case err != nil:
		return err
	}
	for i := range f.Extents {
		if err := r.note(name.ID, &f.Extents[i], young); err != nil {
			return fmt.Errorf("object %s: %w", s.Name(), err)
		}
	}
	if young {
		r.report.Young++
		return nil
	}
	r.report.Looked++
	r.take(name.ID, size, f)
	return nil
}

func (r *run) take(id segment.ID, size int64, f segment.Footer) {
	p := &piece{id: id, size: size, lanes: map[metadata.LaneID][]segment.Extent{}}
	for _, e := range f.Extents {
		if r.deleted[e.Topic] {
			continue
		}
		if f.Kind == segment.Archive {
			r.found.runs[e.Topic] = append(r.found.runs[e.Topic], run1{id, e})
		} else {
			p.lanes[metadata.LaneID(e.Lane)] = append(p.lanes[metadata.LaneID(e.Lane)], e)
		}
	}
	if f.Kind == segment.Intake {
		r.found.intake = append(r.found.intake, p)
	}
}

// tail is how much of a segment's end is read at first.
const tail = 16 << 10

func (r *run) footer(ctx context.Context, s objects.Segment, size int64) (segment.Footer, error) {
	n := min(size, tail)
	b, err := r.segments.Get(ctx, s, size-n, n, nil)
	if err != nil {
		return segment.Footer{}, err
	}
	want, err := segment.FooterSize(b, size)
	if err == nil && want > n {
		b, err = r.segments.Get(ctx, s, size-want, want, nil)
	}
	if err != nil {
		return segment.Footer{}, err
	}
	return segment.ParseFooter(b, size)
}

// lane is a lane, and what is to become of it.
type lane struct {
	id    metadata.LaneID
	topic *metadata.Topic
	asked metadata.Stamp // before state was read
	state *metadata.State
	head  *metadata.Head
	slots []metadata.Slot // of the topic's partitions, as far as they go on in the era
	later bool            // it was made since the repair was finished, and has no part in the era

	order int64                         // of the first commit that was made after the moment that the table was put back to
	ends  metadata.Offsets              // before it
	last  metadata.Offsets              // after the last commit before the lane jumped
	reach metadata.Offsets              // up to where the archive segments that were found hold records
	next  int64                         // first order of the new era; -1 before it has jumped
	has   map[segment.ID]bool           // committed before that moment, or in the new era
	again map[segment.ID]metadata.Entry // committed between: they lie in the cut, or in that of an earlier repair
	seen  int64                         // orders below it are in has
}

func (r *run) inOrder() (lanes []*lane) {
	for _, l := range r.lanes {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Or(cmp.Compare(a.topic.Name, b.topic.Name), cmp.Compare(a.id, b.id)) })
	return lanes
}

func (r *run) readLanes(ctx context.Context) error {
	r.lanes = map[metadata.LaneID]*lane{}
	for _, t := range r.topics {
		for _, id := range t.Lanes {
			l := &lane{id: id, topic: t}
			if err := r.read(ctx, l); err != nil {
				return fmt.Errorf("topic %q, lane %s: %w", t.Name, id, err)
			}
			r.lanes[id] = l
		}
	}
	return nil
}

// read reads what a lane has in the table, without changing it.
func (r *run) read(ctx context.Context, l *lane) (err error) {
	l.asked = r.table.Moment()
	if l.state, err = r.table.State(ctx, l.id, metadata.Strong); r.o.DryRun && errors.Is(err, metadata.ErrNoState) { // its topic would be made anew
		l.state, l.head, l.slots = &metadata.State{Lane: l.id}, &metadata.Head{Lane: l.id, K: metadata.ChunkOrders}, l.topic.Used(l.id)
		r.measure(l)
		return nil
	}
	if err != nil {
		return err
	}
	if l.head, err = r.table.Head(ctx, l.id, metadata.Strong); err != nil {
		return err
	}
	l.slots = l.topic.Used(l.id)
	if r.begun && l.jumped(r.era.Jump) { // what was added since has no part in the era
		l.slots = slices.DeleteFunc(l.slots, func(s metadata.Slot) bool { return l.head.Ends[s] < r.era.Jump })
	}
	l.has, l.again = map[segment.ID]bool{}, map[segment.ID]metadata.Entry{}
	l.order, l.ends, l.last, l.next = l.head.Next, l.head.Ends, l.head.Ends, -1
	cut := l.cut(r.era.Jump)
	l.later = r.done && cut == nil && l.head.Next > 0 && !r.made[l.id]
	since, met := r.since(), false
	ends := l.state.Ends // before the entry that is looked at next, if it is of the new era and the first
	err = r.entries(ctx, l, l.state.First, func(e *metadata.Entry, bases *metadata.Offsets) {
		fresh := l.later || r.begun && len(l.slots) > 0 && bases[l.slots[0]] >= r.era.Jump
		late := !fresh && (cut != nil && e.Order >= cut.Order || cut == nil && e.Order >= l.state.Archived && (met || !e.Empty && !r.before(e.ID)))
		switch {
		case fresh:
			if l.next < 0 {
				l.next = e.Order
			}
			l.has[e.ID] = true
		case late:
			if !met {
				met, l.order, l.ends = true, e.Order, *bases
			}
			if !e.Empty {
				l.again[e.ID] = *e
			}
		case !e.Empty && r.leftBehind(l, e, bases):
			l.again[e.ID] = *e
		case since.Less(e.ID):
			l.has[e.ID] = true
		}
		if !fresh {
			ends = *bases
			for _, s := range e.Slots {
				ends[s.Slot] += int64(s.Count)
			}
		}
	})
	if err != nil {
		return err
	}
	if cut != nil {
		l.order = cut.Order
	}
	l.seen = l.head.First
	if jumped := r.begun && l.jumped(r.era.Jump); jumped {
		l.last = ends
		if l.next < 0 {
			l.next = l.head.Next
		}
		if !met {
			l.ends = ends
		}
	}
	r.measure(l)
	return nil
}

// leftBehind tells whether an entry lies in the cut of an earlier repair that may not have been finished, which then has not appended it again.
func (r *run) leftBehind(l *lane, e *metadata.Entry, bases *metadata.Offsets) bool {
	return slices.ContainsFunc(r.eras, func(era metadata.Era) bool {
		cut := l.cut(era.Jump)
		return era.Begun.After(r.era.Whole) && cut != nil && e.Order >= cut.Order && bases[cut.Slot] < era.Jump
	})
}

// cut is the lane's cut of the era, or nil.
func (l *lane) cut(jump int64) *metadata.Cut {
	for i := range l.state.Cuts {
		if c := &l.state.Cuts[i]; c.To == jump {
			return c
		}
	}
	return nil
}

func (l *lane) jumped(jump int64) bool {
	return jump > 0 && len(l.slots) > 0 && l.head.Ends[l.slots[0]] >= jump && l.cut(jump) != nil
}

const chunksPage = 64

// entries goes through chunks, from the order first on, and the head's image, and tells the offsets before each entry.
func (r *run) entries(ctx context.Context, l *lane, first int64, do func(*metadata.Entry, *metadata.Offsets)) error {
	for next := metadata.ChunkOf(first, l.head.K); next < l.head.First; {
		chunks, _, err := r.table.Chunks(ctx, l.id, next, l.head.First, chunksPage, metadata.Strong)
		if err != nil {
			return err
		}
		if len(chunks) == 0 || chunks[0].First != next {
			return fmt.Errorf("%w: the chunk at order %d is missing", metadata.ErrCorrupt, next)
		}
		for _, c := range chunks {
			if c.First != next {
				break
			}
			tellEntries(c.Entries, c.Ends(), do)
			next += int64(len(c.Entries))
		}
	}
	tellEntries(l.head.Entries, l.head.Ends, do)
	return nil
}

func tellEntries(entries []metadata.Entry, ends metadata.Offsets, do func(*metadata.Entry, *metadata.Offsets)) {
	bases := metadata.Bases(entries, ends)
	for i := range entries {
		do(&entries[i], &bases[i])
	}
}

// nothing tells whether the bucket has nothing that the table does not have, and the table nothing that was committed after that moment.
func (r *run) nothing() bool {
	for _, l := range r.lanes {
		for _, s := range l.slots {
			if l.reach[s] > max(l.head.Ends[s], l.state.Ends[s]) {
				return false
			}
		}
	}
	return len(r.additions()) == 0
}
