// Package archive writes archive segments and makes them part of a log. It is what everything that rewrites the archive has in common: compaction, merges,
// key compaction, erasure, moves to another class.
//
// A rewriter mints an id (Mint), writes one segment of one lane's partitions (Write), and publishes it (Publish). In between nothing names the object: one
// that is not published, for whatever reason, is left to the sweep, which finds it by its id. So each of the three may fail or be cut off at any point,
// and another run begins anew from what the table says then. The commit point is the transaction in Publish.
//
// In an archive segment the base offsets of batches are absolute; Rebase makes those of an intake segment so without decoding anything. One run of the segment
// is one row of the table: the offsets [Base, End) of a partition, of which records may be missing, up to all of them.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// PartBytes is from what size on a part is handed to the store. Write holds one part, and a batch; the store up to four parts more.
const PartBytes = 8 << 20

// Objects is where Write creates objects.
type Objects = store.PartsPutter

// Clock is the table's service time, and its process's clocks, metadata.LogKeeper's.
type Clock interface {
	ServiceTime() (now time.Time, ok bool)
	Moment() metadata.Stamp
}

// Now is the time that ages are judged by: the service's, or before it has told any the process's own.
func Now(e env.Env, c Clock) time.Time {
	if now, ok := c.ServiceTime(); ok {
		return now
	}
	return e.Now()
}

// Mint makes the id of an archive segment that is begun now, above the floor. It is minted for one Write and one Publish: what a failed one left behind has it.
// The table has to have answered shortly before. Its time is carried on by a clock that stands still while a machine is suspended: so the publication's Minted is a moment before that answer
// was asked for (Clock.Moment), and one that was suspended at any time since is not sent.
func Mint(e env.Env, c Clock, class segment.Class, floor segment.ID) segment.ID {
	return segment.NewID(Now(e, c), class, segment.Archived, e.Uint64(), floor)
}

// MergeAfter is how old a segment is before its rows are written again only to be together with others: by then a sweep that runs daily has deleted what the segment took the
// place of, so that a record is never in more than two objects. A merge of what was written just now would be a third copy of it until the restore window is over.
const MergeAfter = 2 * metadata.RestoreWindow

// Young tells whether the row's segment is not that old.
func Young(row *metadata.Row, now time.Time) bool {
	return row.Count > 0 && now.Sub(row.Segment.Time()) < MergeAfter
}

// Segment says which segment is written.
type Segment struct {
	ID    segment.ID // fresh: see Mint
	Log   segment.LogID
	Topic segment.TopicID
	Lane  metadata.LaneID
	// The orders [From, To) of the lane are what it holds the records of; equal where it takes the place of other archive segments.
	From, To int64
}

// Name is the object's name.
func (s *Segment) Name() string { return segment.ArchiveName(s.Topic, s.ID) }

// Run is what a row says besides what its batches tell.
type Run struct {
	Slot      metadata.Slot
	Partition int
	Base, End int64
	RunMax    int64     // as in metadata.Row
	First     time.Time // likewise
	Last      time.Time
	Gone      segment.Sum // of what has been removed of these offsets before
}

// UnknownTime is Add's minTime where nobody has looked at the records.
const UnknownTime = segment.UnknownTime

// errStopped ends a fill when the store takes no more parts. It is seen by nobody: the store's own error is.
var errStopped = errors.New("the store has ended the upload")

// Write creates the segment from what fill adds, and returns its rows, in the order of the runs, and its size. A segment of which no run has a record is not
// created: its size is 0. fill runs in pieces, while the store asks for parts, and never concurrently with itself; its error is in Write's. After an
// error the id is spent, as the object may be there.
func Write(ctx context.Context, e env.Env, objects Objects, s Segment, fill func(*Writer) error) (rows []metadata.Row, size int64, err error) {
	failed := func(err error) ([]metadata.Row, int64, error) {
		return nil, 0, fmt.Errorf("write archive segment %s of lane %s: %w", s.ID, s.Lane, err)
	}
	w := &Writer{decoder: segment.Decoder{Reuse: true}, segment: &s, builder: segment.NewBuilder(segment.Archive, s.Log)}
	pull, stop := iter.Pull2(func(yield func([]byte, error) bool) { w.parts(fill, yield) })
	defer stop()
	e.At(env.BeforePut)
	first, err, more := pull()
	switch {
	case err != nil:
		return failed(err)
	case !more:
		return w.rows, 0, nil
	}
	size, err = objects.PutParts(ctx, s.Name(), func() ([]byte, error) {
		if part := first; part != nil {
			first = nil
			return part, nil
		}
		if part, err, more := pull(); more {
			return part, err
		}
		return nil, io.EOF
	})
	if err != nil {
		return failed(err)
	}
	e.At(env.AfterPut)
	return w.rows, size, nil
}

// Writer takes the runs of a segment: by slot, those of one slot by offset.
type Writer struct {
	decoder segment.Decoder
	decoded []segment.Record // its memory
	summer  segment.Summer
	taken   segment.Sum // of what the last row has of sources that Took was told of
	segment *Segment
	builder *segment.Builder
	yield   func([]byte, error) bool
	rows    []metadata.Row
	extent  segment.ExtentMeta // of the last row
}

// Begin begins a run.
func (w *Writer) Begin(r Run) error {
	if n := len(w.rows); n > 0 && r.Slot == metadata.Slot(w.extent.Slot) && r.Base < w.rows[n-1].End {
		return fmt.Errorf("%w: run from offset %d on of partition %d, after one to %d", segment.ErrOrder, r.Base, r.Partition, w.rows[n-1].End)
	}
	w.rows = append(w.rows, metadata.Row{Topic: w.segment.Topic, Partition: r.Partition, Base: r.Base, End: r.End, RunMax: r.RunMax, First: r.First, Last: r.Last, Summed: true, Gone: r.Gone})
	w.taken = segment.Sum{}
	w.extent = segment.ExtentMeta{Lane: string(w.segment.Lane), Slot: uint8(r.Slot), Topic: w.segment.Topic, Partition: int32(r.Partition), BaseOffset: r.Base, EndOffset: r.End}
	return nil
}

// Add adds whole batches with absolute base offsets to the run, by offset. minTime is a lower bound of their records' timestamps, or
// UnknownTime, maxTime their largest index
// timestamp (metadata.IndexTime). It needs nothing of batches afterwards. One that cannot be read, or whose checksum is wrong, is a *segment.FormatError: damage is never copied.
func (w *Writer) Add(batches []byte, minTime, maxTime int64) error {
	row := &w.rows[len(w.rows)-1]
	for len(batches) > 0 {
		batch, rest, err := segment.SplitBatch(batches)
		var sum segment.Sum
		if err == nil {
			sum, err = w.sum(batch)
		}
		if err == nil {
			err = w.builder.Add(w.extent, minTime, batch)
		}
		if err != nil {
			return fmt.Errorf("partition %d of topic %s, offsets [%d, %d): %w", row.Partition, row.Topic, row.Base, row.End, err)
		}
		h, _ := segment.ParseBatchHeader(batch) // the builder has accepted it
		if row.Count == 0 {
			row.MaxTime = maxTime
		}
		row.Count, row.Sum = row.Count+int64(h.Count), row.Sum.Plus(sum)
		row.MaxTime = max(row.MaxTime, maxTime)
		batches = rest
		if w.builder.Held() >= PartBytes && !w.yield(w.builder.Take(), nil) {
			return errStopped
		}
	}
	return nil
}

// sum checks a batch and decodes it, for the sum of its records.
func (w *Writer) sum(batch []byte) (sum segment.Sum, err error) {
	w.decoded, err = w.decoder.Decode(batch, 0, w.decoded[:0])
	for i := range w.decoded {
		sum = sum.Plus(w.summer.Sum(&w.decoded[i]))
	}
	return sum, err
}

// Took says that what was added to the run since the last Took, or since Begin, is what is kept of a row that will go, and what the sum of the records is that were left out. If the row has
// a sum, and it is another than that of both, it is a *SumError: records were lost, added, changed or moved since the sum was taken, or just now.
func (w *Writer) Took(from *metadata.Row, left segment.Sum) error {
	row := &w.rows[len(w.rows)-1]
	all := row.Sum.Minus(w.taken).Plus(left)
	w.taken, row.Gone = row.Sum, row.Gone.Plus(left)
	if from.Summed && from.Sum != all {
		return &SumError{Row: *from, Got: all}
	}
	return nil
}

// SumError is a row whose records do not come to the sum that it says. It is a metadata.ErrCorrupt.
type SumError struct {
	Row metadata.Row
	Got segment.Sum
}

func (e *SumError) Error() string {
	return fmt.Sprintf("%v: partition %d of topic %s, offsets [%d, %d) in segment %s: the records come to the sum %s, the archive row says %s; nothing was changed, 'varve verify' tells more",
		metadata.ErrCorrupt, e.Row.Partition, e.Row.Topic, e.Row.Base, e.Row.End, e.Row.Segment, e.Got, e.Row.Sum)
}

func (e *SumError) Unwrap() error { return metadata.ErrCorrupt }

// parts makes the segment, part by part.
func (w *Writer) parts(fill func(*Writer) error, yield func([]byte, error) bool) {
	w.yield = yield
	err := fill(w)
	var rest []byte
	if err == nil {
		rest, err = w.finish()
	}
	if !errors.Is(err, errStopped) && (err != nil || rest != nil) {
		yield(rest, err)
	}
}

// finish is the segment's last part, nil if it has no records, and tells the rows where their bytes are.
func (w *Writer) finish() ([]byte, error) {
	o := segment.LaneOrders{Lane: string(w.segment.Lane), First: w.segment.From, End: w.segment.To}
	if w.segment.From < w.segment.To && w.records() {
		if err := w.builder.SetOrders(o); err != nil {
			return nil, err
		}
	}
	rest, f, err := w.builder.Finish()
	if errors.Is(err, segment.ErrEmpty) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := 0
	for r := range w.rows {
		if row := &w.rows[r]; row.Count > 0 {
			row.Segment, row.Start, row.Bytes = w.segment.ID, f.Extents[i].Offset, f.Extents[i].Length
			i++
		}
	}
	return rest, nil
}

func (w *Writer) records() bool {
	return slices.ContainsFunc(w.rows, func(r metadata.Row) bool { return r.Count > 0 })
}

// Rebase adds base to the base offsets of whole batches, in place. It returns how many offsets they take, from base on, and how many records they have.
func Rebase(batches []byte, base int64) (offsets, records int64, err error) {
	for len(batches) > 0 {
		batch, rest, err := segment.SplitBatch(batches)
		if err != nil {
			return 0, 0, err
		}
		h, err := segment.ParseBatchHeader(batch)
		if err != nil {
			return 0, 0, err
		}
		if base < 0 || h.BaseOffset > math.MaxInt64-1-base-int64(h.LastOffsetDelta) {
			return 0, 0, fmt.Errorf("%w: batch from offset %d on behind %d", segment.ErrCorrupt, h.BaseOffset, base)
		}
		segment.SetBaseOffset(batch, base+h.BaseOffset)
		offsets = max(offsets, h.BaseOffset+int64(h.LastOffsetDelta)+1)
		records += int64(h.Count)
		batches = rest
	}
	return offsets, records, nil
}
