package compact

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// load reads a job's reads into the scratch, several at a time and by order, and returns how many. All of them, unless it is later than until: then those that have
// begun, at least one. What rewrites rows has no until, as it cannot be cut.
func (r *run) load(ctx context.Context, job *Job, s *scratch, until time.Duration) (n int, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var mu sync.Mutex
	at := int64(0)
	take := func() (read *Read, pos int64) {
		mu.Lock()
		defer mu.Unlock()
		late := n > 0 && job.From < job.To && r.o.Env.Mono() > until
		if n == len(job.Reads) || late || ctx.Err() != nil {
			return nil, 0
		}
		read, pos = &job.Reads[n], at
		n, at = n+1, at+read.Len
		return read, pos
	}
	var all sync.WaitGroup
	for range min(parallel, len(job.Reads)) {
		all.Go(func() {
			var buf []byte
			for read, pos := take(); read != nil; read, pos = take() {
				var err error
				if buf, err = r.segments.Get(ctx, objects.Of(job.Topic.ID, read.ID), read.At, read.Len, s.room(pos, read.Len, buf)); err == nil {
					err = s.keep(pos, buf)
				}
				if err != nil {
					fail(err)
					return
				}
				r.note(func(p *Report) { p.Requests, p.Read = p.Requests+1, p.Read+read.Len })
			}
		})
	}
	all.Wait()
	return n, context.Cause(ctx)
}

// window is how many bytes of a piece are looked at at once, if no batch is larger.
const window = 1 << 20

// copyAll writes the rows of a job.
func copyAll(w *archive.Writer, job *Job, s *scratch) error {
	var buf []byte
	for i := range job.Copies {
		run := &job.Copies[i]
		if err := w.Begin(run.Run); err != nil {
			return err
		}
		for j := range run.Pieces {
			if err := copyPiece(w, run, &run.Pieces[j], s, &buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyPiece copies whole batches, and checks that they have the records that the index says.
func copyPiece(w *archive.Writer, run *Copy, p *Piece, s *scratch, buf *[]byte) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: partition %d, the batches of %d records before offset %d: %s", metadata.ErrCorrupt, run.Partition, p.Count, run.End, fmt.Sprintf(format, args...))
	}
	offsets, records := int64(0), int64(0)
	for at, want := int64(0), int64(window); at < p.Len; {
		b, err := s.bytes(p.At+at, min(want, p.Len-at), *buf)
		if err != nil {
			return err
		}
		*buf = b
		whole := wholeBatches(b)
		if whole == 0 { // the first is larger
			h, err := segment.ParseBatchHeader(b)
			if err != nil || int64(h.Length) > p.Len-at {
				return wrong("they do not end where they should: %d bytes from %d on: %v", p.Len, at, err)
			}
			want = int64(h.Length)
			continue
		}
		if p.Relative {
			end, n, err := archive.Rebase(b[:whole], p.Base)
			if err != nil {
				return wrong("%v", err)
			}
			offsets, records = max(offsets, end), records+n
		}
		if err := w.Add(b[:whole], archive.UnknownTime, p.MaxTime); err != nil {
			return err
		}
		at, want = at+int64(whole), window
	}
	if p.Relative && (offsets != p.Count || records != p.Count) {
		return wrong("they have %d, up to offset %d", records, p.Base+offsets)
	}
	if p.Row != nil {
		return w.Took(p.Row, segment.Sum{})
	}
	return nil
}

// wholeBatches is how many bytes the whole batches at the start of b have.
func wholeBatches(b []byte) (n int) {
	for rest := b; ; {
		batch, after, err := segment.SplitBatch(rest)
		if err != nil {
			return n
		}
		n, rest = n+len(batch), after
	}
}
