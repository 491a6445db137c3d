package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// suspect is a segment that may be named by nothing any more.
type suspect struct {
	id    segment.ID
	topic segment.TopicID   // of archive segments
	size  int64             // 0: not known
	from  []metadata.LaneID // lanes that are known not to need it
	why   string

	orphan bool // not in run.named
	footer *segment.Footer
	absent bool // nothing to delete
	needed bool // or to be kept for another reason
}

// name is the object's.
func (s *suspect) name() string { return objectName(s.topic, s.id) }

// judge finds out which suspects are needed, and deletes the others.
func (r *run) judge(ctx context.Context, suspects []*suspect) error {
	if err := r.decide(ctx, suspects); err != nil {
		return err
	}
	return r.remove(ctx, suspects)
}

// decide reads what the suspects say of themselves and asks those who may name them.
func (r *run) decide(ctx context.Context, suspects []*suspect) error {
	if err := each(ctx, r, suspects, r.readFooter); err != nil {
		return err
	}
	sought := map[*lane]map[segment.ID]*suspect{}
	var archived []*suspect
	for _, s := range suspects {
		switch {
		case s.absent || s.needed:
		case s.id.Place() == segment.Archived:
			archived = append(archived, s)
		default:
			for _, l := range r.mayName(s) {
				if sought[l] == nil {
					sought[l] = map[segment.ID]*suspect{}
				}
				sought[l][s.id] = s
			}
		}
	}
	if err := each(ctx, r, archived, r.readRows); err != nil {
		return err
	}
	lanes := slices.SortedFunc(maps.Keys(sought), func(a, b *lane) int { return cmp.Compare(a.id, b.id) })
	return each(ctx, r, lanes, func(ctx context.Context, l *lane) error {
		return r.names(ctx, l, func(id segment.ID) {
			if s := sought[l][id]; s != nil {
				r.mu.Lock()
				s.needed = true
				r.mu.Unlock()
			}
		})
	})
}

// mayName are the lanes in the segment that may need it.
func (r *run) mayName(s *suspect) (lanes []*lane) {
	for i, e := range s.footer.Extents {
		id := metadata.LaneID(e.Lane)
		if i > 0 && e.Lane == s.footer.Extents[i-1].Lane || slices.Contains(s.from, id) {
			continue
		}
		if l := r.lanes[id]; l != nil && !(s.orphan && l.seen) {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// tailBytes is how much of an object's end is read for its footer at first: some hundred extents.
const tailBytes = 16 << 10

// readFooter reads what a segment says of itself. One that cannot be read, or is not of this log, is kept.
func (r *run) readFooter(ctx context.Context, s *suspect) error {
	if r.wouldBeGone(s.name()) {
		s.absent = true
		return nil
	}
	body, size, err := r.tail(ctx, s, tailBytes)
	if err == nil {
		var need int64
		if need, err = segment.FooterSize(body, size); err == nil && need > int64(len(body)) {
			body, size, err = r.tail(ctx, s, need)
		}
	}
	var f segment.Footer
	if err == nil {
		f, err = segment.ParseFooter(body, size)
	}
	var bad *segment.FormatError
	switch {
	case errors.Is(err, store.ErrNotExist) || errors.Is(err, metadata.ErrNoSegment):
		s.absent = true
	case errors.As(err, &bad) || errors.Is(err, store.ErrShort) || errors.Is(err, metadata.ErrCorrupt):
		s.needed = true
		r.keep(s.name(), err.Error())
	case err != nil:
		return err
	case f.Log != r.log:
		s.needed = true
		r.keep(s.name(), fmt.Sprintf("it is of log %x", f.Log))
	default:
		s.footer = &f
	}
	return nil
}

// tail is the last n bytes of a segment, or all of it, and its size.
func (r *run) tail(ctx context.Context, s *suspect, n int64) ([]byte, int64, error) {
	if s.id.Place() == segment.InTable {
		body, err := r.table.Small(ctx, s.id)
		s.size = int64(len(body))
		return body, s.size, err
	}
	if s.size == 0 {
		info, err := r.objects.Stat(ctx, s.name())
		if err != nil {
			return nil, 0, err
		}
		s.size = info.Size
	}
	n = min(n, s.size)
	body, err := r.objects.Get(ctx, s.name(), s.size-n, n, nil)
	return body, s.size, err
}

// remove deletes the suspects that are not needed.
func (r *run) remove(ctx context.Context, suspects []*suspect) error {
	var names []string
	var small []segment.ID
	for _, s := range suspects {
		if s.absent || s.needed {
			continue
		}
		if s.id.Place() == segment.InTable {
			small = append(small, s.id)
			r.tell(Deletion{Small, s.name(), s.size, s.why})
		} else {
			names = append(names, s.name())
			r.tell(Deletion{Object, s.name(), s.size, s.why})
		}
	}
	if r.o.DryRun {
		return nil
	}
	for part := range slices.Chunk(names, store.MaxPage) {
		r.o.Env.At(env.BeforeDelete)
		if err := r.objects.Delete(ctx, part...); err != nil {
			return err
		}
	}
	if len(small) == 0 {
		return nil
	}
	r.o.Env.At(env.BeforeDelete)
	return r.table.DeleteSmall(ctx, small)
}
