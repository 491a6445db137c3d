package compact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// maxLost is how many jobs of a lane another may do first before a run leaves the lane to that.
const maxLost = 3

// step does the lane's next job, if it is worth it, and says in l.oldest how old what is left is.
func (r *run) step(ctx context.Context, l *backlog) error {
	t, err := r.row(ctx, l)
	if err != nil {
		return err
	}
	begun := r.table.Moment()
	state, err := r.table.State(ctx, l.lane, metadata.Strong)
	if err != nil {
		return r.gone(ctx, l, err)
	}
	if r.o.DryRun {
		return r.foresee(ctx, l, t, state)
	}
	b, err := r.read(ctx, t, state)
	if errors.Is(err, metadata.ErrChanged) {
		return r.overtaken(l)
	}
	if err != nil {
		return r.gone(ctx, l, err)
	}
	job, err := Plan(*b, r.limits(t, l.lane))
	if err != nil {
		return err
	}
	if !r.worth(l, job) {
		l.oldest = time.Time{}
		return nil
	}
	done, err := r.rewrite(ctx, job, state, begun, func(until int64) (*Job, error) {
		limits := r.limits(t, l.lane)
		limits.Until = until // below the lane's own, as it was planned by that
		return Plan(*b, limits)
	})
	switch {
	case metadata.TooLate(err):
		r.later(l)
		return nil
	case errors.Is(err, metadata.ErrChanged):
		return r.overtaken(l)
	case errors.Is(err, store.ErrNotExist):
		return r.missing(ctx, l, job, state, err)
	case err != nil:
		return r.gone(ctx, l, err)
	}
	l.published = true
	if l.oldest = done.Newest; !done.Full {
		l.oldest = time.Time{}
	}
	return nil
}

// foresee plans all jobs of a lane.
func (r *run) foresee(ctx context.Context, l *backlog, t *metadata.Topic, state *metadata.State) error {
	l.oldest = time.Time{}
	for {
		b, err := r.read(ctx, t, state)
		if err != nil {
			return r.gone(ctx, l, err)
		}
		job, err := Plan(*b, r.limits(t, l.lane))
		if err != nil || !r.worth(l, job) {
			return err
		}
		r.done(job, 0)
		after := *state
		after.Archived = job.To
		for slot, end := range job.Ends {
			after.Ends[slot] = end
		}
		state = &after
	}
}

func (r *run) limits(t *metadata.Topic, lane metadata.LaneID) Limits {
	return Limits{Target: r.o.Target, Bucket: t.Config.MergeBucket(), Until: r.o.Until[lane]}
}

// worth tells whether a job is: it is large enough, or what is in it has waited long enough.
func (r *run) worth(l *backlog, j *Job) bool {
	return j.From < j.To && (j.From < l.to || j.Full || j.Bytes >= r.o.Target/leastShare || archive.Now(r.o.Env, r.table).Sub(j.Oldest) >= maxAge)
}

// overtaken leaves a lane alone in which another does the work, so that the two do not do it twice all the time.
func (r *run) overtaken(l *backlog) error {
	r.note(func(p *Report) { p.Lost++ })
	if l.lost++; l.lost == maxLost {
		l.oldest = time.Time{}
	}
	return nil
}

// later leaves a job that was not sent in time to be done again, or, where that goes on, to the next run.
func (r *run) later(l *backlog) {
	if l.late++; l.late == maxLost {
		r.left(l)
		l.oldest = time.Time{}
	}
}

// missing concludes from an object that is not there, though the job was to read it. Objects go only after what names them, and expired ones after the log start
// was raised.
func (r *run) missing(ctx context.Context, l *backlog, job *Job, was *metadata.State, why error) error {
	if _, err := r.row(ctx, l); err != nil {
		return err
	}
	for i := range job.Replace {
		row, err := r.table.Row(ctx, job.Replace[i].Topic, job.Replace[i].Partition, job.Replace[i].Base, metadata.Strong)
		if err != nil && !errors.Is(err, metadata.ErrNoRow) {
			return err
		}
		if err != nil || !row.Same(&job.Replace[i]) {
			return r.overtaken(l)
		}
	}
	now, err := r.table.State(ctx, l.lane, metadata.Strong)
	if err != nil {
		return r.gone(ctx, l, err)
	}
	if now.Archived != was.Archived || now.Starts != was.Starts {
		return r.overtaken(l)
	}
	return &archive.AlarmError{Topic: l.topic.Name, Lane: l.lane, What: fmt.Sprintf("an object that the index names is missing: %v", why)}
}

// chunksPage is how many chunks are asked for at once: some 10 to 100 KB.
const chunksPage = 32

// read reads the lane's backlog, as much as one job takes. ErrChanged: another has archived it meanwhile.
func (r *run) read(ctx context.Context, t *metadata.Topic, state *metadata.State) (*Backlog, error) {
	head, err := r.table.Head(ctx, state.Lane, metadata.Strong)
	if err != nil {
		return nil, err
	}
	b := &Backlog{Topic: t, State: state}
	m := newMeasure(state, r.limits(t, state.Lane))
	more := true
	for next := metadata.ChunkOf(state.Archived, head.K); more && next < head.First; {
		page, err := r.page(ctx, t, state, next, head.First)
		if err != nil {
			return nil, err
		}
		for _, c := range page {
			if more = more && c.First == next; !more { // one that does not follow is asked for again, or is not needed
				more = c.First > next
				break
			}
			b.Chunks, next = append(b.Chunks, c), next+int64(len(c.Entries))
			more = m.add(c)
		}
	}
	if len(b.Chunks) > 0 {
		b.Before, err = r.before(ctx, t, state, head.K, b.Chunks[0])
	}
	return b, err
}

// page reads the chunks from first on, which is there.
func (r *run) page(ctx context.Context, t *metadata.Topic, state *metadata.State, first, to int64) ([]*metadata.Chunk, error) {
	for _, consistency := range []metadata.Consistency{metadata.Eventual, metadata.Strong} {
		page, _, err := r.table.Chunks(ctx, state.Lane, first, to, chunksPage, consistency)
		if err != nil {
			return nil, err
		}
		if len(page) > 0 && page[0].First == first {
			return page, nil
		}
	}
	now, err := r.table.State(ctx, state.Lane, metadata.Strong)
	if err != nil {
		return nil, err
	}
	if now.Archived != state.Archived {
		return nil, metadata.ErrChanged
	}
	if _, err := r.table.Head(ctx, state.Lane, metadata.Strong); err != nil {
		return nil, err
	}
	return nil, &archive.AlarmError{Topic: t.Name, Lane: state.Lane, What: fmt.Sprintf("the chunk at order %d is missing; orders below %d are archived, those below %d are not in the head", first, state.Archived, to)}
}

// before are the running maximum timestamps before the archived order: from the chunk before it, or where the sweep has removed that from the archive's last rows. Where a repair
// has cut the lane the rows may know more than the chunks, which have never had what came back from archive segments.
func (r *run) before(ctx context.Context, t *metadata.Topic, state *metadata.State, k int64, c *metadata.Chunk) (maxima metadata.Offsets, err error) {
	if c.First > 0 {
		last, err := r.table.Chunk(ctx, state.Lane, c.First-k, metadata.Eventual)
		if errors.Is(err, metadata.ErrNoChunk) {
			return r.archived(ctx, t, state)
		}
		if err != nil {
			return maxima, err
		}
		maxima = last.MaxTimes
	}
	maxima = metadata.MaxTimes(maxima, c.Entries[:state.Archived-c.First])
	if len(state.Cuts) == 0 {
		return maxima, nil
	}
	rows, err := r.archived(ctx, t, state)
	for s := range rows {
		maxima[s] = max(maxima[s], rows[s])
	}
	return maxima, err
}

func (r *run) archived(ctx context.Context, t *metadata.Topic, state *metadata.State) (maxima metadata.Offsets, err error) {
	for s, end := range state.Ends {
		p, ok := t.Partition(metadata.Place{Lane: state.Lane, Slot: metadata.Slot(s)})
		if !ok || end == 0 {
			continue
		}
		row, err := r.table.Row(ctx, t.ID, p, end-1, metadata.Strong)
		if errors.Is(err, metadata.ErrNoRow) {
			continue // all of it is below the log start
		}
		if err != nil {
			return maxima, err
		}
		maxima[s] = row.RunMax
	}
	return maxima, nil
}

// rewrite does a job, of the lane's state that was asked for at the moment begun: reads, writes, publishes. If time runs out while it reads, it goes on with what has been
// read: shorter plans the job up to an order. It
// returns the job that was done.
func (r *run) rewrite(ctx context.Context, job *Job, state *metadata.State, begun metadata.Stamp, shorter func(until int64) (*Job, error)) (done *Job, err error) {
	start := r.o.Env.Mono()
	s, err := newScratch(job.size(), r.o.Memory)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n, err := r.load(ctx, job, s, start+r.remaining()/2)
	if err != nil {
		return nil, err
	}
	if n < len(job.Reads) {
		if job, err = shorter(job.Reads[n].Order); err != nil {
			return nil, err
		}
	}
	segment := archive.Segment{ID: archive.Mint(r.o.Env, r.table, job.Topic.Class(), state.Floor), Log: r.log, Topic: job.Topic.ID, Lane: job.Lane, From: job.From, To: job.To}
	rows, size, err := archive.Write(ctx, r.o.Env, r.bucket, segment, func(w *archive.Writer) error { return copyAll(w, job, s) })
	if err != nil {
		return nil, err
	}
	p := &metadata.Publication{Lane: job.Lane, ID: segment.ID, Minted: begun, From: job.From, To: job.To, Ends: job.Ends, Put: rows, Replace: job.Replace, Left: job.left()}
	if err := archive.Publish(ctx, r.o.Env, r.table, job.Topic, p); err != nil {
		return nil, err
	}
	r.jobs++
	r.longest = max(r.longest, r.o.Env.Mono()-start)
	r.done(job, size)
	return job, nil
}

// left are the archive segments that rows are taken from.
func (j *Job) left() (ids []segment.ID) {
	seen := map[segment.ID]bool{}
	for i := range j.Replace {
		if id := j.Replace[i].Segment; !id.IsZero() && !seen[id] {
			seen[id], ids = true, append(ids, id)
		}
	}
	return ids
}
