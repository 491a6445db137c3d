package sweep

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

const (
	// batchListed is how many segments are listed before the orphans among them are deleted: so of a log of up to so many all are seen before.
	batchListed = 100_000
	// unitsAtATime is how many units are listed before the mark is moved.
	unitsAtATime = 16
	// smallPage is how many ids of small segments are asked for at once.
	smallPage = 1000
)

// search looks for segments that nothing names, with ids in (after, upTo].
type search struct {
	*run
	after, upTo segment.ID
	suspects    []*suspect // guarded by run.mu
	listed      int64      // likewise, since the last deletion
	made        *made      // likewise
	known       int64      // of them: named by something
}

// unit is a part of the search: a prefix of the bucket, or a collection of small segments.
type unit struct {
	name   string // units are searched in the order of their names
	prefix string
	small  string // hash

	after string // what was listed of it
	id    segment.ID
	done  bool
}

// orphans looks for segments that nothing names: left by producers and compactors that ended before their commit, or lost it. It goes on from the last search's
// mark, less Overlap. A search that was not finished is finished first, up to where it was to go.
func (r *run) orphans(ctx context.Context) error {
	if r.o.Full {
		return r.search(ctx, metadata.SweepMark{}, r.floor)
	}
	mark, err := r.table.SweepMark(ctx)
	if err != nil {
		return unreadable(err)
	}
	if mark.To.Less(mark.Next) && mark.Next.Less(r.floor) {
		if err := r.search(ctx, mark, mark.Next); err != nil {
			return err
		}
		mark = metadata.SweepMark{To: mark.Next}
	} else {
		mark = metadata.SweepMark{To: mark.To}
	}
	if !mark.To.Less(r.floor) {
		return nil
	}
	return r.search(ctx, mark, r.floor)
}

// search searches from the mark up to the id upTo, and moves the mark.
func (r *run) search(ctx context.Context, mark metadata.SweepMark, upTo segment.ID) error {
	s := &search{run: r, upTo: upTo, made: madeSince(r.now.Add(-RestoreWindow))}
	if !mark.To.IsZero() {
		s.after = at(mark.To.Time().Add(-Overlap))
	}
	if err := each(ctx, r, r.list, func(ctx context.Context, l *lane) error { return r.recent(ctx, l, s.after, s.isNamed) }); err != nil {
		return err
	}
	units, err := s.units(ctx)
	if err != nil {
		return err
	}
	units = slices.DeleteFunc(units, func(u *unit) bool { return u.name <= mark.Past && mark.Past != "" })
	for part := range slices.Chunk(units, unitsAtATime) {
		if err := s.list(ctx, part); err != nil {
			return err
		}
		if len(s.suspects) > 0 || r.o.Full {
			continue
		}
		if err := r.setMark(ctx, metadata.SweepMark{To: mark.To, Next: upTo, Past: part[len(part)-1].name}); err != nil {
			return err
		}
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	return r.setMark(ctx, metadata.SweepMark{To: upTo})
}

func (s *search) isNamed(id segment.ID) {
	s.named.Add(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made.note(id)
}

func (r *run) setMark(ctx context.Context, m metadata.SweepMark) error {
	if r.o.DryRun {
		return nil
	}
	return r.table.SetSweepMark(ctx, m)
}

func archivePrefix(class segment.Class, topic segment.TopicID) string {
	return class.String() + "/archive/" + string(topic) + "/"
}

// units are all there is to search, in the order of their names.
func (s *search) units(ctx context.Context) (units []*unit, err error) {
	for _, hash := range hashes {
		units = append(units, &unit{name: "D#" + hash, small: hash})
	}
	if s.o.Full {
		return append(units, &unit{name: "all"}), nil
	}
	classes := map[segment.Class]bool{}
	for _, g := range s.deletions {
		for _, c := range g.Classes {
			classes[c] = true
		}
	}
	for _, t := range s.byID {
		own := map[segment.Class]bool{t.Class(): true}
		for _, c := range t.Classes {
			own[c] = true
		}
		for c := range own {
			classes[c] = true
			units = append(units, s.objectsUnder(archivePrefix(c, t.ID)))
		}
	}
	for _, c := range slices.Sorted(maps.Keys(classes)) {
		intake, err := s.intake(ctx, c.String()+"/intake/")
		if err != nil {
			return nil, err
		}
		units = append(units, intake...)
	}
	slices.SortFunc(units, func(a, b *unit) int { return strings.Compare(a.name, b.name) })
	return units, nil
}

// intake are the units of a class's intake: one, named to come after all hashes, while all that is there is one page.
func (s *search) intake(ctx context.Context, prefix string) (units []*unit, err error) {
	page, err := s.objects.List(ctx, prefix, "", 0)
	if err != nil {
		return nil, err
	}
	if !page.More {
		return []*unit{{name: prefix + "g", prefix: prefix}}, nil
	}
	for _, hash := range hashes {
		units = append(units, s.objectsUnder(prefix+hash+"/"))
	}
	return units, nil
}

// objectsUnder is the unit of a prefix behind which there are ids.
func (s *search) objectsUnder(prefix string) *unit {
	u := &unit{name: prefix, prefix: prefix}
	if !s.after.IsZero() {
		u.after = prefix + s.after.String()
	}
	return u
}

// list lists units, a page of each at a time, so that few suspects are held.
func (s *search) list(ctx context.Context, units []*unit) error {
	for len(units) > 0 {
		err := each(ctx, s.run, units, func(ctx context.Context, u *unit) error {
			if u.small != "" {
				return s.listSmall(ctx, u)
			}
			return s.listObjects(ctx, u)
		})
		if err != nil {
			return err
		}
		if len(s.suspects) >= batchSuspects || s.listed >= batchListed {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		units = slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return u.done })
	}
	return nil
}

func (s *search) listObjects(ctx context.Context, u *unit) error {
	page, err := s.objects.List(ctx, u.prefix, u.after, 0)
	if err != nil {
		return err
	}
	u.after, u.done = page.Last, !page.More
	for _, o := range page.Objects {
		n, err := segment.ParseName(o.Name)
		switch {
		case segment.IsRecord(o.Name):
		case err != nil:
			s.keep(o.Name, "it is not a name that varve gives")
		default:
			s.look(n, o.Size)
		}
	}
	if n := len(page.Objects); n > 0 && strings.Count(u.prefix, "/") == 3 { // by ids: the rest is younger
		last, err := segment.ParseName(page.Objects[n-1].Name)
		u.done = u.done || err == nil && s.upTo.Less(last.ID)
	}
	return nil
}

func (s *search) listSmall(ctx context.Context, u *unit) error {
	page, more, err := s.table.SmallIDs(ctx, u.small, later(s.after, u.id), s.upTo, smallPage)
	if err != nil {
		return unreadable(err)
	}
	u.done = !more || len(page) == 0
	for _, id := range page {
		s.look(segment.ParsedName{ID: id}, 0)
		u.id = id
	}
	return nil
}

func later(a, b segment.ID) segment.ID {
	if a.Less(b) {
		return b
	}
	return a
}

// look makes a segment that was listed a suspect, unless it is seen to be named, or too young. What a deleted topic has in the archive goes with it.
func (s *search) look(n segment.ParsedName, size int64) {
	if !s.after.Less(n.ID) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Listed++
	s.listed++
	switch archived := n.ID.Place() == segment.Archived; {
	case s.upTo.Less(n.ID), archived && s.deletedTopic(n.Topic):
	case archived && (s.published[n.ID] || s.replaced[n.ID]), !archived && s.named.Has(n.ID):
		s.known++
	default:
		s.suspects = append(s.suspects, &suspect{id: n.ID, topic: n.Topic, size: size, why: whyOrphan, orphan: true})
	}
}

// flush judges the suspects and deletes those that nothing names, unless that would be nearly everything, or looks as if what names them had been forgotten.
func (s *search) flush(ctx context.Context) error {
	if err := s.decide(ctx, s.suspects); err != nil {
		return err
	}
	var e TooMuchError
	e.Named = s.known
	var intake []segment.ID
	for _, x := range s.suspects {
		switch {
		case x.absent:
		case x.needed:
			e.Named++
		case s.unexplained(x) && x.id.Time().After(s.repaired):
			e.Orphans++
			if x.id.Place() == segment.InBucket {
				intake = append(intake, x.id)
			}
		}
	}
	e.InARow = s.made.inARow(intake)
	if tooMuch := e.Orphans >= leastSuspicious && e.Orphans > 9*e.Named; (tooMuch || e.InARow >= leastInARow) && !s.o.Force {
		return &e
	}
	if err := s.remove(ctx, s.suspects); err != nil {
		return err
	}
	s.suspects, s.listed, s.known = nil, 0, 0
	return nil
}

// unexplained tells whether a segment was not only of topics that are deleted.
func (s *search) unexplained(x *suspect) bool {
	return slices.ContainsFunc(x.footer.Extents, func(e segment.Extent) bool { return !s.isGone(metadata.LaneID(e.Lane)) })
}
