package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// BatchReader answers single reads of record batches, as they are stored, for those who pass them on: a function that serves readers over HTTP. Between two reads
// it remembers the rows of topics and some of how far it has come in large extents, which are asked for piece by piece; nothing depends on that, and nothing runs
// after a call has returned.
type BatchReader struct {
	log *Log

	mu     sync.Mutex
	topics map[string]*metadata.Topic
	marks  map[walk.Extent][]passed // ascending
}

// NewBatchReader makes one.
func (l *Log) NewBatchReader() *BatchReader {
	return &BatchReader{log: l, topics: map[string]*metadata.Topic{}, marks: map[walk.Extent][]passed{}}
}

// ReadFrom is where a partition is to be read from.
type ReadFrom struct {
	Partition int
	Offset    int64
}

// Batches is what was read of a partition: whole record batches with absolute base offsets, one after another. The first may begin below the offset that was asked
// for; offsets may be missing between them, of records that were removed.
type Batches struct {
	Topic      string // its id: another topic of the same name has another one
	Partition  int
	Batches    [][]byte
	Next       int64 // where to go on
	Start, End int64 // of the partition; End is as new as Next at least
}

// Read reads from several partitions of a topic, up to maxBytes of batches, but one batch at least if there is any, in the order of from: what comes last may get
// nothing, and should be first the next time. If there is nothing at all it waits for something to be appended, up to wait. Errors are those of a Reader's Poll; one
// that concerns a partition (*RangeError, *DataError) is returned if there is nothing else to return.
func (r *BatchReader) Read(ctx context.Context, topic string, from []ReadFrom, maxBytes int, wait time.Duration) (read []Batches, err error) {
	err = r.withTopic(ctx, topic, from, func(t *metadata.Topic) error {
		read, err = r.read(ctx, t, from, maxBytes, wait)
		return err
	})
	return read, err
}

// withTopic runs do with the topic's row: the one that is known, and if that turns out to be of a topic that is gone, the one that is there now.
func (r *BatchReader) withTopic(ctx context.Context, name string, from []ReadFrom, do func(*metadata.Topic) error) error {
	if err := r.log.direct("read batches as they are stored"); err != nil {
		return err
	}
	for _, f := range from {
		if f.Offset < 0 {
			return &FieldError{Topic: name, Partition: f.Partition, Field: "offset", Value: strconv.FormatInt(f.Offset, 10), Valid: "0 or more"}
		}
	}
	for known := r.known(name); ; known = nil {
		t, fresh := known, known == nil
		for _, f := range from {
			fresh = fresh || f.Partition >= t.Partitions // it may have grown
		}
		if fresh {
			var err error
			if t, err = r.log.topicToRead(ctx, name); err != nil {
				return err
			}
			r.know(t)
		}
		for _, f := range from {
			if _, err := placeOf(t, f.Partition); err != nil {
				return err
			}
		}
		err := do(t)
		if errors.Is(err, ErrTopicGone) {
			r.forget(name)
		}
		if fresh || !errors.Is(err, ErrTopicGone) {
			return err
		}
	}
}

// maxKnown bounds what is remembered, of topics and of extents.
const maxKnown = 256

func (r *BatchReader) known(name string) *metadata.Topic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.topics[name]
}

func (r *BatchReader) know(t *metadata.Topic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.topics {
		if len(r.topics) < maxKnown {
			break
		}
		delete(r.topics, name)
	}
	r.topics[t.Name] = t
}

func (r *BatchReader) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.topics, name)
}

// read reads, waits if there is nothing, and reads again.
func (r *BatchReader) read(ctx context.Context, t *metadata.Topic, from []ReadFrom, maxBytes int, wait time.Duration) ([]Batches, error) {
	lanes := lanesOf(t, from)
	for _, lane := range lanes {
		r.log.lanes.attach(lane)
		defer r.log.lanes.detach(lane)
	}
	read, next, err := r.bounds(ctx, t, from, lanes)
	if err != nil {
		return nil, err
	}
	waiting, cancel := r.log.env.WithTimeout(ctx, wait)
	defer cancel()
	for {
		found, err := r.fill(ctx, t, read, maxBytes)
		if found || err != nil || wait <= 0 || waiting.Err() != nil {
			return read, err
		}
		err = r.await(waiting, lanes, next)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil && waiting.Err() == nil {
			return nil, r.log.readError(ctx, t, from[0].Partition, walk.Extent{}, err)
		}
		r.refresh(t, read, next)
	}
}

func lanesOf(t *metadata.Topic, from []ReadFrom) (lanes []metadata.LaneID) {
	seen := map[metadata.LaneID]bool{}
	for _, f := range from {
		if lane := t.Place(f.Partition).Lane; !seen[lane] {
			seen[lane] = true
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// bounds reads where the partitions begin and end, strongly, and up to which order of each lane that is known.
func (r *BatchReader) bounds(ctx context.Context, t *metadata.Topic, from []ReadFrom, lanes []metadata.LaneID) ([]Batches, map[metadata.LaneID]int64, error) {
	var mu sync.Mutex
	read, next := make([]Batches, len(from)), map[metadata.LaneID]int64{}
	g, asking := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for _, lane := range lanes {
		g.Go(func() error {
			state, head, err := r.log.walker.Bounds(asking, lane)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			next[lane] = head.Next
			for i, f := range from {
				if at := t.Place(f.Partition); at.Lane == lane {
					read[i] = Batches{Topic: string(t.ID), Partition: f.Partition, Next: f.Offset, Start: state.Starts[at.Slot], End: head.Ends[at.Slot]}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, r.log.readError(ctx, t, from[0].Partition, walk.Extent{}, err)
	}
	return read, next, nil
}

// await returns when one of the lanes is known to have gone on.
func (r *BatchReader) await(ctx context.Context, lanes []metadata.LaneID, next map[metadata.LaneID]int64) error {
	if len(lanes) == 1 {
		return r.log.lanes.wait(ctx, lanes[0], next[lanes[0]])
	}
	any, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g, any := errgroup.WithContext(any)
	for _, lane := range lanes {
		g.Go(func() error {
			err := r.log.lanes.wait(any, lane, next[lane])
			cancel(nil)
			return err
		})
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return context.Cause(ctx)
}

// refresh takes in what became known while it waited.
func (r *BatchReader) refresh(t *metadata.Topic, read []Batches, next map[metadata.LaneID]int64) {
	for lane := range next {
		h := r.log.lanes.known(lane)
		if h == nil {
			continue
		}
		next[lane] = max(next[lane], h.Next)
		for i := range read {
			if at := t.Place(read[i].Partition); at.Lane == lane {
				read[i].End = max(read[i].End, h.Ends[at.Slot])
			}
		}
	}
}

// fill reads batches into read. found tells whether there are any.
func (r *BatchReader) fill(ctx context.Context, t *metadata.Topic, read []Batches, room int) (found bool, failed error) {
	for i := range read {
		b := &read[i]
		share := room / (len(read) - i)
		used, err := r.fillOne(ctx, t, b, share, !found)
		found = found || len(b.Batches) > 0
		if room -= used; room <= 0 {
			return found, nil
		}
		if err != nil && failed == nil {
			failed = err
		}
	}
	if found {
		failed = nil
	}
	return found, failed
}

// fillOne reads batches of a partition, up to room bytes; atLeast says that one is to be read though it is larger. What was read before an error is kept.
func (r *BatchReader) fillOne(ctx context.Context, t *metadata.Topic, b *Batches, room int, atLeast bool) (used int, err error) {
	if err := b.outside(t); err != nil {
		return 0, err
	}
	defer func() { b.End = max(b.End, b.Next) }()
	c := walk.At(t, b.Partition, b.Next).Within()
	take := &taking{Batches: b, topic: t, room: room, atLeast: atLeast}
	for !take.full {
		extents, next, err := r.log.walker.Next(ctx, c)
		for err == nil && len(extents) > 0 && !take.full {
			e := extents[0]
			if err = r.extent(ctx, take, e); err == nil {
				extents = extents[1:]
			} else if errors.Is(err, store.ErrNotExist) {
				extents, next, err = r.log.refetch(ctx, t, c.To(b.Next), e, err)
				if err != nil {
					err = r.log.readError(ctx, t, b.Partition, e, err)
				}
			}
		}
		switch {
		case err != nil && len(b.Batches) > 0:
			return take.used, nil // the next read begins with it
		case err != nil:
			return take.used, r.log.typed(ctx, t, b.Partition, err)
		case next.Offset == c.Offset:
			return take.used, nil
		}
		c = next
	}
	return take.used, nil
}

// typed is err as users see it, if it is not that already.
func (l *Log) typed(ctx context.Context, t *metadata.Topic, partition int, err error) error {
	var outside *RangeError
	var damaged *DataError
	if errors.As(err, &outside) || errors.As(err, &damaged) || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTopicGone) || errors.Is(err, ErrCorrupt) {
		return err
	}
	return l.readError(ctx, t, partition, walk.Extent{}, err)
}

// outside is the error for an offset that is not in the partition.
func (b *Batches) outside(t *metadata.Topic) error {
	e := &RangeError{Topic: t.Name, Partition: b.Partition, Offset: b.Next, Start: b.Start, End: b.End}
	switch {
	case b.Next < b.Start:
		e.Err = ErrExpired
	case b.Next > b.End:
		e.Err = ErrOutOfRange
	default:
		return nil
	}
	return e
}

// taking is batches being read into.
type taking struct {
	*Batches
	topic   *metadata.Topic
	room    int
	used    int
	atLeast bool // one batch is taken, whatever its size
	full    bool
}

// add takes a batch, a copy with its absolute base offset, or finds that there is no room.
func (x *taking) add(batch []byte, base, next int64) bool {
	if x.used+len(batch) > x.room && !(x.atLeast && x.used == 0) {
		x.full = true
		return false
	}
	batch = bytes.Clone(batch) // its bytes may be shared
	segment.SetBaseOffset(batch, base)
	x.Batches.Batches = append(x.Batches.Batches, batch)
	x.used += len(batch)
	x.Next = next
	return true
}

// extent reads batches of an extent, from where the reading is. store.ErrNotExist comes as it is.
func (r *BatchReader) extent(ctx context.Context, x *taking, e walk.Extent) error {
	if e.Count == 0 || e.End <= x.Next {
		x.Next = max(x.Next, e.End)
		return nil
	}
	split := newSplitter(e)
	split.passed = r.mark(e, x.Next)
	damaged := func(err error) error {
		return &DataError{Topic: x.topic.Name, Partition: x.Partition, From: e.Base, To: e.End, Object: objectOf(e).Name(), Err: err}
	}
	if e.Bytes == 0 { // of which the index says that there are records in it
		return damaged(split.total())
	}
	for at := split.at; !split.done() && !x.full; {
		b, err := r.piece(ctx, e, at, pieceSize(split.next < x.Next, x.room-x.used))
		if err != nil {
			if errors.Is(err, store.ErrNotExist) {
				return err
			}
			if errors.Is(err, store.ErrShort) {
				return damaged(err)
			}
			return r.log.readError(ctx, x.topic, x.Partition, e, err)
		}
		at += int64(len(b))
		split.add(b)
		before := split.passed
		err = r.cut(x, split)
		r.remember(e, before, split.passed)
		if err != nil {
			return damaged(err)
		}
	}
	if split.done() && !x.full {
		x.Next = max(x.Next, e.End)
	}
	return nil
}

// cut takes the batches that are wholly there. One for which there is no room is not passed.
func (r *BatchReader) cut(x *taking, split *splitter) error {
	for !split.done() {
		before := split.passed
		batch, _, base, err := split.cut()
		if batch == nil || err != nil {
			return err
		}
		if split.next <= x.Next {
			continue
		}
		if err := segment.CheckSum(batch); err != nil {
			return err
		}
		if !x.add(batch, base, split.next) {
			split.passed = before
			return nil
		}
	}
	return nil
}

// pieceSize is how much of a large extent is read at once: much on the way to the offset, and then what is wanted and a little.
func pieceSize(onTheWay bool, room int) int64 {
	if onTheWay {
		return maxRange
	}
	return min(max(int64(room)+minRange, minRange), maxRange)
}

// piece reads bytes of the extent from byte at on: all of a small one, of a large one up to atMost.
func (r *BatchReader) piece(ctx context.Context, e walk.Extent, at, atMost int64) ([]byte, error) {
	alone := byteRange{objectOf(e), e.Start + at, min(e.Bytes-at, atMost)}
	if !e.Archived() && e.LaneLength <= wholeBytes {
		got, _, err := r.log.fetcher.read(ctx, byteRange{objectOf(e), e.LaneStart, e.LaneLength}, 1, nil)
		if !errors.Is(err, store.ErrShort) {
			if err != nil {
				return nil, err
			}
			return got.bytes[e.Start+at-e.LaneStart:][: e.Bytes-at : e.Bytes-at], nil
		}
	}
	got, err := r.log.fetcher.get(ctx, alone, 1, nil)
	return got.bytes, err
}

// mark is the last place before the offset that is remembered of the extent, or its beginning.
func (r *BatchReader) mark(e walk.Extent, offset int64) passed {
	r.mu.Lock()
	defer r.mu.Unlock()
	best := newSplitter(e).passed
	for _, m := range r.marks[e] {
		if m.next <= offset {
			best = m
		}
	}
	return best
}

// maxMarks is how many places are remembered of one extent, oldest first to go.
const maxMarks = 128

// remember keeps the place that a read has come to in a large extent.
func (r *BatchReader) remember(e walk.Extent, before, at passed) {
	if e.Bytes <= wholeBytes || at.at == before.at || at.at == e.Bytes {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	marks := r.marks[e]
	if len(marks) == 0 {
		for other := range r.marks {
			if len(r.marks) < maxKnown {
				break
			}
			delete(r.marks, other)
		}
	}
	i := 0
	for i < len(marks) && marks[i].at < at.at {
		i++
	}
	if i < len(marks) && marks[i].at == at.at {
		return
	}
	marks = append(marks[:i:i], append([]passed{at}, marks[i:]...)...)
	if len(marks) > maxMarks {
		marks = marks[1:]
	}
	r.marks[e] = marks
}

// Linked is an extent of a partition for somebody who gets its bytes himself. Relative says that its batches' base offsets count from Base, otherwise they are
// absolute.
type Linked struct {
	Base, End int64 // offsets
	Bytes     int64
	Relative  bool
	Link      store.Link // zero if Inline is set
	Inline    []byte     // of what is kept in the table, to which there are no links
}

// Links is what Links says of a partition.
type Links struct {
	Extents    []Linked
	Next       int64 // where to go on
	Start, End int64 // of the partition
}

// maxLinks is how many extents one call names, maxInline how many bytes of them it has itself.
const (
	maxLinks  = 256
	maxInline = 3 << 20
)

// Links returns the extents from the offset on, up to maxBytes of them and one at least, each with a link that lives as long as store.MaxLinkLifetime at most. An
// object that is gone when its link is used, by 404, was replaced or has expired: asking again tells. ErrNotSupported where the store has no links.
func (r *BatchReader) Links(ctx context.Context, topic string, partition int, offset, maxBytes int64) (links *Links, err error) {
	if r.log.presigner == nil {
		return nil, fmt.Errorf("links to objects: %w by the store of this log; read the records instead", ErrNotSupported)
	}
	from := []ReadFrom{{partition, offset}}
	err = r.withTopic(ctx, topic, from, func(t *metadata.Topic) error {
		links, err = r.links(ctx, t, from, maxBytes)
		return err
	})
	return links, err
}

func (r *BatchReader) links(ctx context.Context, t *metadata.Topic, from []ReadFrom, maxBytes int64) (*Links, error) {
	read, _, err := r.bounds(ctx, t, from, lanesOf(t, from))
	if err != nil {
		return nil, err
	}
	b := &read[0]
	if err := b.outside(t); err != nil {
		return nil, err
	}
	x, inline := &Links{Next: b.Next, Start: b.Start, End: b.End}, int64(maxInline)
	for c := walk.At(t, b.Partition, b.Next).Within(); ; {
		extents, next, err := r.log.walker.Next(ctx, c)
		for err == nil && len(extents) > 0 {
			e := extents[0]
			if len(x.Extents) > 0 && (e.Bytes > maxBytes || len(x.Extents) == maxLinks || e.ID.Place() == segment.InTable && e.Bytes > inline) {
				return x, nil
			}
			if err = r.link(ctx, x, e); err == nil {
				maxBytes -= e.Bytes
				if e.ID.Place() == segment.InTable {
					inline -= e.Bytes
				}
				extents = extents[1:]
			} else if errors.Is(err, store.ErrNotExist) {
				extents, next, err = r.log.refetch(ctx, t, c.To(x.Next), e, err)
			}
		}
		if err != nil {
			return nil, r.log.typed(ctx, t, b.Partition, err)
		}
		if next.Offset == c.Offset {
			x.End = max(x.End, x.Next)
			return x, nil
		}
		c = next
	}
}

// link appends the extent.
func (r *BatchReader) link(ctx context.Context, x *Links, e walk.Extent) (err error) {
	if e.Count > 0 {
		l := Linked{Base: e.Base, End: e.End, Bytes: e.Bytes, Relative: !e.Archived()}
		if e.ID.Place() == segment.InTable {
			var got summed
			got, err = r.log.fetcher.get(ctx, byteRange{objectOf(e), e.Start, e.Bytes}, 1, nil)
			l.Inline = got.bytes
		} else {
			l.Link, err = r.log.presigner.PresignGet(ctx, objectOf(e).Name(), e.Start, e.Bytes, store.MaxLinkLifetime)
		}
		if err != nil {
			return err
		}
		x.Extents = append(x.Extents, l)
	}
	x.Next = e.End
	return nil
}
