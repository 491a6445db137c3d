// Package compact moves what was committed from the many small objects of intake into few large ones, each partition's records in one run, and keeps the runs few.
//
// A job takes consecutive orders of one lane, from the archived order on, reads of each segment that they name the lane's bytes, by one request, writes one archive
// segment, and publishes it. Batches are decoded, for the sums of their records, and copied as they are: only their base offsets, which no checksum covers, become absolute. What was there before stays
// until the sweep removes it. The publication is the commit point: a run that ends anywhere before it leaves an object that nothing names, and the next run begins
// where the archive ends. So any number of compactors may run at once: of two that do the same, one publishes.
//
// A run takes lanes by the age of their backlog, oldest first, job by job, and begins none for which there is no time any more. Then it merges small rows.
package compact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Table is what compaction needs of a log's table.
type Table interface {
	lane.Table
	archive.Table
	archive.Clock
	Topic(ctx context.Context, name string) (*metadata.Topic, error)
	Topics(ctx context.Context, after string, limit int) (topics []*metadata.Topic, more bool, err error)
	Identity(ctx context.Context) (id metadata.Identity, ok bool, err error)
	EraMark(ctx context.Context) (metadata.EraMark, error)
	objects.Table
}

// ErrUnrepaired is a log whose repair is not finished: what it has yet to append again would be archived under offsets that were given before.
var ErrUnrepaired = errors.New("a repair of the log has begun and is not finished: run 'varve repair' again, as it was run")

// Store is what it needs of a log's bucket.
type Store interface {
	store.Getter
	archive.Objects
}

const (
	// DefaultTarget is Options.Target where nothing is said.
	DefaultTarget = 512 << 20
	// DefaultDeadline is Options.Deadline where nothing is said, MaxDeadline the largest: the sweep takes what is older than an hour and not named for an orphan.
	DefaultDeadline = 10 * time.Minute
	MaxDeadline     = 45 * time.Minute

	// leastShare: a job is not worth its requests before it has this share of the target, or its oldest commit is maxAge old.
	leastShare = 8
	maxAge     = time.Hour
	// idleAfter is how long nothing has been appended to a lane whose head is then emptied. No segment that old is committed any more.
	idleAfter = 30 * time.Minute

	defaultMemory = 64 << 20
	parallel      = 8 // requests at a time
	maxListed     = 1000
)

// Options say what to compact, and how.
type Options struct {
	// Topics restricts the run to these; none means all.
	Topics []string
	// Target is the size in bytes that archive segments and, in time, the run of each partition are to have; 0 is DefaultTarget.
	Target int64
	// Deadline is how long the run may take; 0 is DefaultDeadline. It begins nothing that would presumably take longer, and cuts short what does.
	Deadline time.Duration
	// Memory is how many bytes of a job are held in memory; the rest is in a temporary file. 0 is 64 MiB. Requests under way and parts come on top.
	Memory int64
	// All archives everything that was committed before the run, however little it is and whether the lanes are idle or not, and merges rows however young they are.
	All bool
	// Until is for the repair, whose compaction is not kept from a log that is not repaired yet: it leaves alone the orders of a lane from this one on; 0 is none, -1 leaves alone all.
	Until map[metadata.LaneID]int64
	// DryRun only plans.
	DryRun bool
	// Progress, if set, is told how far the run is, by one goroutine at a time. It must not block.
	Progress func(Progress)
	Env      env.Env
}

func (o *Options) complete() error {
	o.Target, o.Memory, o.Deadline = cmp.Or(o.Target, DefaultTarget), cmp.Or(o.Memory, defaultMemory), cmp.Or(o.Deadline, DefaultDeadline)
	switch {
	case o.Deadline < 0 || o.Deadline > MaxDeadline:
		return &metadata.FieldError{Field: "deadline", Value: o.Deadline.String(), Valid: "above 0, at most " + MaxDeadline.String()}
	case o.Target < 0 || o.Memory < 0:
		return &metadata.FieldError{Field: "target or memory", Value: fmt.Sprint(o.Target, ", ", o.Memory), Valid: "bytes"}
	}
	return nil
}

// Run compacts. The report has what was done, also where an error comes with it: lanes that failed do not keep others from being compacted. Of the errors of lanes,
// *archive.AlarmError is damage. ErrUnrepaired: nothing was done. That another compactor was faster, and that a topic was deleted meanwhile, is no error. metadata.ErrUnknownTopic is a topic of
// Options.Topics that the log does not have.
func Run(ctx context.Context, table Table, bucket Store, o Options) (*Report, error) {
	report := &Report{DryRun: o.DryRun, Jobs: []JobReport{}, Failures: []Failure{}}
	if err := o.complete(); err != nil {
		return report, err
	}
	r := &run{table: table, bucket: bucket, segments: objects.NewReader(bucket, table), o: o, report: report, start: o.Env.Mono()}
	err := r.all(ctx)
	report.Seconds = (o.Env.Mono() - r.start).Seconds()
	return report, err
}

// run is one run.
type run struct {
	table    Table
	bucket   Store
	segments *objects.Reader
	o        Options
	log      segment.LogID
	start    time.Duration
	longest  time.Duration // that a job has taken
	jobs     int           // done

	mu     sync.Mutex
	report *Report
	errs   []error
}

// backlog is a lane, and how old the oldest commit is that is not in the archive.
type backlog struct {
	topic     *metadata.Topic // as listed
	lane      metadata.LaneID
	oldest    time.Time // zero: it has none that could be archived
	to        int64     // with All: orders below it are to be archived
	lost      int       // jobs that another did
	late      int       // that were not sent in time
	published bool
}

func (r *run) all(ctx context.Context) error {
	identity, ok, err := r.table.Identity(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("compact: %w: the table has no identity", metadata.ErrWrongLog)
	}
	r.log = identity.Log
	if r.o.Until == nil {
		mark, err := r.table.EraMark(ctx)
		if err != nil {
			return err
		}
		if mark.Done < mark.Begun {
			return fmt.Errorf("compact: %w", ErrUnrepaired)
		}
	}
	lanes, err := r.lanes(ctx)
	if err != nil {
		return err
	}
	r.each(ctx, lanes, r.survey)
	r.oldestFirst(ctx, lanes)
	for _, l := range lanes {
		if !r.time(ctx) {
			break
		}
		r.failed(l, r.merge(ctx, l))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(r.errs...)
}

// topicsPage is how many rows are asked for at once.
const topicsPage = 100

func (r *run) lanes(ctx context.Context) (lanes []*backlog, err error) {
	wanted := map[string]bool{}
	for _, name := range r.o.Topics {
		wanted[name] = true
	}
	var topics []*metadata.Topic
	for name := range wanted {
		t, err := r.table.Topic(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("compact topic %q: %w", name, err)
		}
		topics = append(topics, t)
	}
	for after, more := "", len(wanted) == 0; more; {
		var page []*metadata.Topic
		if page, more, err = r.table.Topics(ctx, after, topicsPage); err != nil {
			return nil, err
		}
		for _, t := range page {
			topics, after = append(topics, t), t.Name
		}
	}
	for _, t := range topics {
		for _, id := range t.Lanes {
			lanes = append(lanes, &backlog{topic: t, lane: id})
		}
	}
	r.report.Topics, r.report.Lanes = len(topics), len(lanes)
	return lanes, nil
}

// each does something with every lane, several at a time.
func (r *run) each(ctx context.Context, lanes []*backlog, do func(context.Context, *backlog) error) {
	var all sync.WaitGroup
	waiting := make(chan *backlog)
	for range parallel {
		all.Go(func() {
			for l := range waiting {
				r.failed(l, do(ctx, l))
			}
		})
	}
	for _, l := range lanes {
		if r.time(ctx) {
			waiting <- l
		}
	}
	close(waiting)
	all.Wait()
}

// oldestFirst does jobs until there is no backlog worth one, or no time.
func (r *run) oldestFirst(ctx context.Context, lanes []*backlog) {
	waiting := slices.Clone(lanes)
	for {
		waiting = slices.DeleteFunc(waiting, func(l *backlog) bool { return l.oldest.IsZero() })
		if len(waiting) == 0 {
			return
		}
		if !r.time(ctx) {
			for _, l := range waiting {
				r.left(l)
			}
			return
		}
		l := oldest(waiting)
		r.failed(l, r.step(ctx, l))
	}
}

// left notes that there was no time for a lane.
func (r *run) left(l *backlog) {
	r.note(func(p *Report) {
		if p.Left++; p.LeftSince.IsZero() || l.oldest.Before(p.LeftSince) {
			p.LeftSince = l.oldest
		}
	})
}

func oldest(lanes []*backlog) *backlog {
	return slices.MinFunc(lanes, func(a, b *backlog) int { return a.oldest.Compare(b.oldest) })
}

// time tells whether there is time for another job. The first is always begun: what it cannot finish it cuts short.
func (r *run) time(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	left := r.remaining()
	return r.jobs == 0 && left > 0 || left > r.longest
}

func (r *run) remaining() time.Duration { return r.start + r.o.Deadline - r.o.Env.Mono() }

// failed notes what went wrong with a lane, which is then left alone. What another has done meanwhile is no failure.
func (r *run) failed(l *backlog, err error) {
	if err == nil {
		return
	}
	l.oldest = time.Time{}
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, errGone) {
		r.report.Gone++
		return
	}
	if len(r.report.Failures) < maxListed {
		r.report.Failures = append(r.report.Failures, Failure{Topic: l.topic.Name, Lane: string(l.lane), What: err.Error()})
		r.errs = append(r.errs, fmt.Errorf("compact topic %q, lane %s: %w", l.topic.Name, l.lane, err))
	}
}

// errGone is a topic that was deleted meanwhile.
var errGone = errors.New("topic was deleted")

// gone is errGone for an error by which the deletion of the lane's topic shows, if that is what it was: the topic's row goes first. Otherwise something is missing,
// or was not shown by an eventual read.
func (r *run) gone(ctx context.Context, l *backlog, err error) error {
	if !errors.Is(err, metadata.ErrNoState) && !errors.Is(err, metadata.ErrNoLane) {
		return err
	}
	if _, other := r.row(ctx, l); other != nil {
		return other
	}
	return err
}

// row is the lane's topic as it is now. Slots never move, so all but a growth and a new configuration is as it was.
func (r *run) row(ctx context.Context, l *backlog) (*metadata.Topic, error) {
	t, err := r.table.Topic(ctx, l.topic.Name)
	if errors.Is(err, metadata.ErrUnknownTopic) || err == nil && t.ID != l.topic.ID {
		return nil, errGone
	}
	return t, err
}
