package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// windowBytes is how much of a row is read at a time, and held, if no batch is larger.
const windowBytes = 8 << 20

// Batches hands the whole batches of a row to do, in order. They lie in memory that is used again. That they are not what the row says is metadata.ErrCorrupt; an
// error of do ends it. A segment that is not there is store.ErrNotExist: the row may be another by now.
func Batches(ctx context.Context, objects store.Getter, row *metadata.Row, do func(batch []byte) error) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: partition %d of topic %s, offsets [%d, %d) in segment %s: %s", metadata.ErrCorrupt, row.Partition, row.Topic, row.Base, row.End, row.Segment, fmt.Sprintf(format, args...))
	}
	var buf []byte
	next, count := row.Base, int64(0)
	for at, want := int64(0), int64(windowBytes); at < row.Bytes; {
		var err error
		if buf, err = objects.Get(ctx, segment.ArchiveName(row.Topic, row.Segment), row.Start+at, min(want, row.Bytes-at), buf); err != nil {
			return err
		}
		done := 0
		for rest := buf; len(rest) > 0; {
			batch, after, err := segment.SplitBatch(rest)
			if err != nil {
				break // it is cut off by the window's end, or damaged: the next window tells
			}
			h, err := segment.ParseBatchHeader(batch)
			if err != nil || h.BaseOffset < next || h.BaseOffset+int64(h.LastOffsetDelta) >= row.End {
				return wrong("a batch of offsets %d to %d after %d: %v", h.BaseOffset, h.BaseOffset+int64(h.LastOffsetDelta), next, err)
			}
			if err := do(batch); err != nil {
				return fmt.Errorf("partition %d, batch from offset %d on in object %s: %w", row.Partition, h.BaseOffset, segment.ArchiveName(row.Topic, row.Segment), err)
			}
			next, count = h.BaseOffset+int64(h.LastOffsetDelta)+1, count+int64(h.Count)
			done, rest = done+len(batch), after
		}
		at, want = at+int64(done), windowBytes
		if done == 0 { // the first batch is larger than the window
			h, err := segment.ParseBatchHeader(buf)
			if err != nil || int64(h.Length) > row.Bytes-at || h.Length <= len(buf) {
				return wrong("byte %d begins no batch that ends within: %v", row.Start+at, err)
			}
			want = int64(h.Length)
		}
	}
	if count != row.Count {
		return wrong("it has %d records, the row says %d", count, row.Count)
	}
	return nil
}

// footerBytes is how much of an object's end is read for its footer at first: some hundred runs.
const footerBytes = 16 << 10

// ReadFooter reads what a segment says of itself. store.ErrNotExist; *segment.FormatError: it is damaged.
func ReadFooter(ctx context.Context, objects store.Getter, name string) (f segment.Footer, err error) {
	info, err := objects.Stat(ctx, name)
	if err != nil {
		return f, err
	}
	tail := make([]byte, 0, footerBytes)
	for want := min(footerBytes, info.Size); int64(len(tail)) < want; {
		if tail, err = objects.Get(ctx, name, info.Size-want, want, tail); err != nil {
			return f, err
		}
		if want, err = segment.FooterSize(tail, info.Size); err != nil {
			return f, err
		}
	}
	return segment.ParseFooter(tail, info.Size)
}

// Rewriting is rows of one partition that are written again without some of their records.
type Rewriting struct {
	Log       segment.LogID
	Topic     *metadata.Topic
	Partition int
	Groups    [][]*metadata.Row // by offset; each group, of rows that follow one another, becomes one row
	Keep      func(*segment.Record) bool
}

// Services is what Rewrite needs of table and bucket.
type Services struct {
	Env     env.Env
	Table   Rewriter
	Objects interface {
		store.Getter
		Objects
	}
}

// Rewriter is the table's part of Services.
type Rewriter interface {
	Table
	Clock
}

// rewriteAttempts is how often a rewriting is begun anew because the floor has overtaken it.
const rewriteAttempts = 3

// Rewrite writes a segment with what Keep keeps of the rows, and publishes it in their place. Keep is called for every record, in order, once for each attempt:
// restart is called before each. It returns what was published, and the segment's size. Errors are those of Batches, Write and Publish.
func Rewrite(ctx context.Context, s Services, x Rewriting, restart func()) (p *metadata.Publication, size int64, err error) {
	for range rewriteAttempts {
		restart()
		p, size, err = rewrite(ctx, s, x)
		if !errors.As(err, new(*metadata.StaleError)) {
			return p, size, err
		}
	}
	return p, size, err
}

func rewrite(ctx context.Context, s Services, x Rewriting) (*metadata.Publication, int64, error) {
	at, begun := x.Topic.Place(x.Partition), s.Table.Moment()
	state, err := s.Table.State(ctx, at.Lane, metadata.Strong)
	if err != nil {
		return nil, 0, err
	}
	p := &metadata.Publication{Lane: at.Lane, ID: Mint(s.Env, s.Table, x.Topic.Class(), state.Floor), Minted: begun, From: state.Archived, To: state.Archived}
	seen := map[segment.ID]bool{}
	for _, group := range x.Groups {
		for _, row := range group {
			p.Replace = append(p.Replace, *row)
			if row.Count > 0 && !seen[row.Segment] {
				seen[row.Segment] = true
				p.Left = append(p.Left, row.Segment)
			}
		}
	}
	var size int64
	written := Segment{ID: p.ID, Log: x.Log, Topic: x.Topic.ID, Lane: at.Lane, From: p.From, To: p.To}
	if p.Put, size, err = Write(ctx, s.Env, s.Objects, written, func(w *Writer) error { return x.fill(ctx, s, at.Slot, w) }); err != nil {
		return nil, 0, err
	}
	return p, size, Publish(ctx, s.Env, s.Table, x.Topic, p)
}

// fill writes each group as a run.
func (x *Rewriting) fill(ctx context.Context, s Services, slot metadata.Slot, w *Writer) error {
	decoder, summer := segment.Decoder{Reuse: true}, segment.Summer{}
	var filtered []byte
	var left segment.Sum // of a row, what is not kept
	keep := func(r *segment.Record) bool {
		kept := x.Keep(r)
		if !kept {
			left = left.Plus(summer.Sum(r))
		}
		return kept
	}
	for _, group := range x.Groups {
		last := group[len(group)-1]
		run := Run{Slot: slot, Partition: x.Partition, Base: group[0].Base, End: last.End, RunMax: last.RunMax, First: group[0].First, Last: last.Last}
		for _, row := range group {
			if row.First.Before(run.First) {
				run.First = row.First
			}
			if row.Last.After(run.Last) {
				run.Last = row.Last
			}
			run.Gone = run.Gone.Plus(row.Gone)
		}
		if err := w.Begin(run); err != nil {
			return err
		}
		for _, row := range group {
			left = segment.Sum{}
			err := Batches(ctx, s.Objects, row, func(batch []byte) error {
				out, info, err := decoder.Filter(batch, 0, filtered, keep)
				if err != nil || info.Count == 0 {
					return err
				}
				if len(out) > 0 && &out[0] != &batch[0] {
					filtered = out
				}
				// Not the row's, which may be that of a record that goes: readers hold the batches against it.
				return w.Add(out, info.MinTime, min(row.MaxTime, metadata.IndexTimeAt(info.MaxTime, row.Last)))
			})
			if err == nil {
				err = w.Took(row, left)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Rows reads a partition's rows from the log start to the archived offset, as a state has them. Where they do not follow one another another changes them just now, or
// the log start has moved and the sweep has come since the state was read, or one is missing, which is an *AlarmError.
func Rows(ctx context.Context, t Table, topic *metadata.Topic, partition int, state *metadata.State) (rows []*metadata.Row, err error) {
	at, gap := topic.Place(partition), int64(0)
	for range looks {
		if rows, gap, err = rowsOnce(ctx, t, topic, partition, state.Starts[at.Slot], state.Ends[at.Slot]); err != nil || gap < 0 {
			return rows, err
		}
		if state, err = t.State(ctx, at.Lane, metadata.Strong); err != nil {
			return nil, err
		}
	}
	return nil, &AlarmError{Topic: topic.Name, Lane: at.Lane, What: fmt.Sprintf("an archive row of partition %d is missing before offset %d", partition, gap)}
}

// Missing concludes from a segment that is not there, though one of these rows, which are the partition's from some time ago, was to be read: ErrChanged if they are others
// by now or some have expired, by which objects may go before the log start moves, otherwise an *AlarmError.
func Missing(ctx context.Context, s Services, topic *metadata.Topic, partition int, rows []*metadata.Row, why error) error {
	at, now := topic.Place(partition), Now(s.Env, s.Table)
	state, err := s.Table.State(ctx, at.Lane, metadata.Strong)
	if err != nil {
		return err
	}
	after, err := Rows(ctx, s.Table, topic, partition, state)
	if err != nil {
		return err
	}
	expired := func(row *metadata.Row) bool { return metadata.Expired(row.Last, now, topic.KeepFor(row.Segment)) }
	switch {
	case len(after) < len(rows) || !slices.EqualFunc(rows, after[:len(rows)], (*metadata.Row).Same):
		return fmt.Errorf("%w: %w", metadata.ErrChanged, why)
	case slices.ContainsFunc(rows, expired):
		return fmt.Errorf("%w: some of partition %d has expired ('varve retain' moves the log start): %w", metadata.ErrChanged, partition, why)
	}
	return &AlarmError{Topic: topic.Name, Lane: at.Lane, What: fmt.Sprintf("an object that the index names is missing: %v", why)}
}

// looks is how often rows are looked at before one is called missing, rowsPage how many are asked for at once.
const (
	looks    = 3
	rowsPage = 1000
)

// rowsOnce returns the rows, and behind which gap one begins, -1 if none does.
func rowsOnce(ctx context.Context, t metadata.RowReader, topic *metadata.Topic, partition int, start, end int64) (rows []*metadata.Row, gap int64, err error) {
	if start >= end {
		return nil, -1, nil
	}
	for next, more := int64(0), true; more && next < end; {
		page, left, err := t.Rows(ctx, topic.ID, partition, next, end, rowsPage, metadata.Strong)
		if err != nil {
			return nil, 0, err
		}
		more = left && len(page) > 0
		for _, row := range page {
			if next = row.End; row.End <= start {
				continue
			}
			if n := len(rows); n > 0 && rows[n-1].End != row.Base || n == 0 && row.Base > start {
				return nil, row.Base, nil
			}
			rows = append(rows, row)
		}
	}
	if n := len(rows); n == 0 || rows[n-1].End < end {
		return nil, end, nil
	}
	return rows, -1, nil
}
