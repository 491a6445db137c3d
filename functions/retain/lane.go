package retain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// errMoved is a lane of which something is not where its state said, because others moved it in between.
var errMoved = errors.New("the lane has moved on")

// slack is how far append times may go back in the order of commits: a segment is at most so old when it is committed, and clocks differ.
const slack = 2 * metadata.MaxSegmentAge

// lane is what a run knows of a lane, by strong reads: its state, and then its head, so that no log start is above its end.
type lane struct {
	*run
	id     metadata.LaneID
	topic  *metadata.Topic
	keep   metadata.Retention
	state  *metadata.State
	head   *metadata.Head
	slots  []*slot
	bySlot [metadata.SlotsPerLane]*slot // nil where there is no partition
	oldest time.Time                    // see State.Oldest; zero: not found out
}

// slot is one partition of a lane.
type slot struct {
	at         metadata.Slot
	partition  int
	start, end int64 // log start and end, as read
	next       int64 // what the log start becomes, as far as it is decided
	by         Policy
	open       bool      // undecided: more may go
	seen       int64     // by time: the extents up to here were looked at
	kept       time.Time // by time: append time of the newest record of the first extent from next on, zero if none was seen
	sum        int64     // by bytes: of the extents from the end back to where the summing is
}

func (r *run) open(ctx context.Context, t *metadata.Topic, id metadata.LaneID, keep metadata.Retention) (*lane, error) {
	l := &lane{run: r, id: id, topic: t, keep: keep}
	var err error
	if l.state, err = r.table.State(ctx, id, metadata.Strong); err != nil {
		return nil, err
	}
	if l.head, err = r.table.Head(ctx, id, metadata.Strong); err != nil {
		return nil, err
	}
	for p := range t.Partitions {
		if at := t.Place(p); at.Lane == id {
			start, end := l.state.Starts[at.Slot], l.head.Ends[at.Slot]
			s := &slot{at: at.Slot, partition: p, start: start, end: end, next: start}
			l.slots, l.bySlot[at.Slot] = append(l.slots, s), s
		}
	}
	return l, nil
}

// expire decides what the log starts become.
func (l *lane) expire(ctx context.Context) error {
	if l.keep.Time >= 0 {
		if err := l.byTime(ctx); err != nil {
			return err
		}
	}
	if l.keep.Bytes >= 0 {
		return l.byBytes(ctx)
	}
	return nil
}

// reopen makes every slot that retains something undecided.
func (l *lane) reopen() {
	for _, s := range l.slots {
		s.open, s.seen = s.next < s.end, s.next
	}
}

func (l *lane) anyOpen() bool {
	for _, s := range l.slots {
		if s.open {
			return true
		}
	}
	return false
}

// byTime goes through each slot's rows, and then through the lane's chunks and head in order, as far as the retention that holds for all of the topic has
// expired, and moves each log start behind the last extent whose own has. The two differ while classes are stored that are leaving: an extent of the old class goes
// by that class's rule, and so must what is before it, also if it has been moved to the new class; what is behind it, and is of the new class, stays.
func (l *lane) byTime(ctx context.Context) error {
	l.oldest = l.now.Add(-slack)
	l.reopen()
	if err := l.allByTime(ctx); err != nil {
		return err
	}
	for _, s := range l.slots {
		if !s.kept.IsZero() && s.kept.Before(l.oldest) {
			l.oldest = s.kept
		}
	}
	return nil
}

func (l *lane) allByTime(ctx context.Context) error {
	for _, s := range l.slots {
		if s.open && s.seen < l.state.Ends[s.at] {
			if err := l.rowsByTime(ctx, s); err != nil {
				return err
			}
		}
	}
	if !l.anyOpen() {
		return nil
	}
	from, err := l.firstOpen(ctx)
	if err != nil {
		return err
	}
	for n := int64(1); from < l.head.First; n = min(2*n, chunksPage) {
		chunks, err := l.chunks(ctx, from, min(from+n*l.head.K, l.head.First))
		if err != nil {
			return err
		}
		for _, c := range chunks {
			if done, err := l.entriesByTime(c.Entries, c.Ends()); done || err != nil {
				return err
			}
			from = c.First + l.head.K
		}
	}
	_, err = l.entriesByTime(l.head.Entries, l.head.Ends)
	return err
}

// look takes account of the slot's next extent, and decides the slot if it is none that may go.
func (l *lane) look(s *slot, end int64, id segment.ID, appended time.Time) {
	s.seen = end
	if s.kept.IsZero() {
		s.kept = appended
	}
	switch {
	case !metadata.Expired(appended, l.now, l.keep.Time):
		s.open = false
	case metadata.Expired(appended, l.now, l.topic.KeepFor(id)):
		s.next, s.by, s.kept = end, ByTime, time.Time{}
	}
}

func (l *lane) rowsByTime(ctx context.Context, s *slot) error {
	return l.rows(ctx, s, s.seen, func(r *metadata.Row) bool {
		l.look(s, r.End, r.Segment, r.Last)
		return s.open
	})
}

// entriesByTime looks at entries, up to the first that may not go: those after it were committed later, and are of the same time or little older. They may
// wait.
func (l *lane) entriesByTime(entries []metadata.Entry, ends metadata.Offsets) (done bool, err error) {
	bases := metadata.Bases(entries, ends)
	for i := range entries {
		e := &entries[i]
		if e.Order < l.state.Archived {
			continue
		}
		appended := e.ID.Time()
		if !metadata.Expired(appended, l.now, l.keep.Time) {
			if stays := appended.Add(-slack); stays.Before(l.oldest) {
				l.oldest = stays
			}
			return true, nil
		}
		for _, x := range e.Slots {
			s := l.bySlot[x.Slot]
			if s == nil || !s.open || x.Count == 0 {
				continue
			}
			base := bases[i][x.Slot]
			switch end := base + int64(x.Count); {
			case base > s.seen:
				return false, fmt.Errorf("%w: partition %d: order %d begins at offset %d, what is before it ends at %d", metadata.ErrCorrupt, s.partition, e.Order, base, s.seen)
			case end > s.seen:
				l.look(s, end, e.ID, appended)
			}
		}
	}
	return false, nil
}

// byBytes sums up, for each slot, what is kept from the end back to the extent that makes it enough.
func (l *lane) byBytes(ctx context.Context) error {
	l.reopen()
	for _, s := range l.slots {
		l.enough(s, s.end)
	}
	l.entriesByBytes(l.head.Entries, l.head.Ends)
	for to := l.head.First; to > l.low() && l.anyOpen(); {
		from := max(to-chunksPage*l.head.K, l.low())
		chunks, err := l.chunks(ctx, from, to)
		if err != nil {
			return err
		}
		for i := len(chunks) - 1; i >= 0; i-- {
			l.entriesByBytes(chunks[i].Entries, chunks[i].Ends())
		}
		to = from
	}
	for _, s := range l.slots {
		if s.open && s.next < l.state.Ends[s.at] {
			if err := l.rowsByBytes(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// enough decides a slot if what is summed up, which begins at base, is enough.
func (l *lane) enough(s *slot, base int64) {
	if !s.open || s.sum < l.keep.Bytes {
		return
	}
	if s.open = false; base > s.next {
		s.next, s.by = base, ByBytes
	}
}

// entriesByBytes leaves out what is in the archive: rows have that.
func (l *lane) entriesByBytes(entries []metadata.Entry, ends metadata.Offsets) {
	bases := metadata.Bases(entries, ends)
	for i := len(entries) - 1; i >= 0 && entries[i].Order >= l.state.Archived; i-- {
		for _, x := range entries[i].Slots {
			if s := l.bySlot[x.Slot]; s != nil && s.open && x.Count > 0 {
				s.sum += int64(x.Bytes)
				base := bases[i][x.Slot]
				if l.enough(s, base); base <= s.next {
					s.open = false
				}
			}
		}
	}
}

// maxCuts is how many places are remembered at which a slot's rows could be cut. Of more rows every second one's end is, of twice as many every fourth's, and
// so on: then a little more is kept than need be.
const maxCuts = 1 << 14

// rowsByBytes goes through the slot's rows once, and cuts them where what is behind is just enough.
func (l *lane) rowsByBytes(ctx context.Context, s *slot) error {
	type cut struct{ end, sum int64 } // the bytes up to an end of a row
	var cuts []cut
	sum, n, step := int64(0), 0, 1
	err := l.rows(ctx, s, s.next, func(r *metadata.Row) bool {
		sum += r.Bytes
		if n++; n%step == 0 {
			cuts = append(cuts, cut{r.End, sum})
		}
		if len(cuts) == maxCuts {
			for i := range maxCuts / 2 {
				cuts[i] = cuts[2*i+1]
			}
			cuts, step = cuts[:maxCuts/2], 2*step
		}
		return true
	})
	for _, c := range cuts {
		if sum-c.sum+s.sum < l.keep.Bytes {
			break
		}
		s.next, s.by = c.end, ByBytes
	}
	return err
}
