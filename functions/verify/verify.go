// Package verify reads a whole log and checks everything about it that can be seen from outside: what the table says, what the objects hold, and that
// the two agree. It changes nothing.
//
// What it relies on, so that a log in use never gives a false alarm: an entry keeps its order and its offsets for ever; chunks and objects never change; a
// chunk is there before the head lets go of its entries, an object before its commit; a log start is raised, a topic's row and heads are removed, before
// anything below them is. So each lane is checked up to the head that was read first, whatever was appended since, and whatever is found missing is
// looked for again by strong reads, state and head included, before it is called missing. Rows of the archive are replaced; what that means for those who read
// them says series.
//
// Orders below the archived one, as it was first read, are checked by the archive's rows: readers go by those. Of the commits themselves only the index is
// checked then; their objects are superseded, and may be gone.
//
// Offsets are not taken from anybody's word: the records of all commits are counted from order 0 upwards, and the sums are compared with the bases that
// chunks state, with the ends that heads state, and with what metadata.Bases makes of them for readers.
//
// Memory hardly grows with history. Held are: the topics' rows; some 150 bytes for each archive row of the walkers lanes that are walked at a time, what is reported of each partition, and of
// a proof file where each partition is; for each of walkers lanes a page of chunks, or a page of rows for each of its partitions, and the ids of at most two times maxRecent
// commits; for each of Options.Parallel checkers one window of an object and one batch, decompressed; a filter of fixed size in place of the set of all
// segment ids; and at most MaxFindings findings.
package verify

import (
	"context"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/filter"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Table is what verify reads of a log's table.
type Table interface {
	metadata.LaneReader
	metadata.RowReader
	metadata.TopicReader
	Identity(ctx context.Context) (id metadata.Identity, ok bool, err error)
	Floor(ctx context.Context) (segment.ID, error)
	ServiceTime() (now time.Time, ok bool)
	EraMark(ctx context.Context) (metadata.EraMark, error)
	Small(ctx context.Context, id segment.ID) ([]byte, error)
	SmallIDs(ctx context.Context, hash string, after, before segment.ID, limit int) (ids []segment.ID, more bool, err error)
	Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) (entries []*metadata.Replaced, more bool, err error)
}

// Store is what verify reads of a log's bucket.
type Store interface {
	store.Getter
	store.Lister
}

// Options say what to verify, and how.
type Options struct {
	// Topics restricts the check to these; none means all. What only the whole log can tell (orphans) is then not looked for.
	Topics []string
	// IndexOnly leaves the bodies of objects unread: of each, only presence and length are checked.
	IndexOnly bool
	// Proof, if set, is the file in which the sums of what was found are kept for the next check, and those that the last one has kept, if there is one: with these is compared what is there now, and
	// archive rows that are the same are not read again, only that their objects are there and long enough is checked. A check that ends replaces it. Not with IndexOnly.
	Proof string
	// All reads also what Proof knows.
	All bool
	// Parallel is how many objects are checked at a time; 0 is DefaultParallel. Each may take windowBytes and one decompressed batch.
	Parallel int
	// Progress, if set, is told how far the check is, now and then, by one goroutine at a time. It must not block.
	Progress func(Progress)
	Env      env.Env
}

// DefaultParallel is Options.Parallel where nothing is said.
const DefaultParallel = 8

// walkers is how many lanes are walked at a time.
const walkers = 4

// Progress says how far a check is.
type Progress struct {
	Lanes, LanesDone int
	Totals
	Findings int64
}

// Run verifies the log. The report has what was found. An error means that the check could not be finished, because a service did not answer or ctx was
// done: the report then has what was found up to there, and is marked Incomplete. Damage is no error. metadata.ErrUnknownTopic is a topic of
// Options.Topics that the log does not have; *ProofError is a proof file that cannot be used: nothing was checked.
func Run(ctx context.Context, table Table, bucket Store, o Options) (*Report, error) {
	if o.Parallel < 1 {
		o.Parallel = DefaultParallel
	}
	r := &run{table: table, bucket: bucket, segments: objects.NewReader(bucket, table), o: o, report: &Report{IndexOnly: o.IndexOnly, Findings: []Finding{}},
		damaged: map[Range]bool{}, damagedLanes: map[string]bool{}}
	if o.Proof != "" && o.IndexOnly {
		return r.report, &metadata.FieldError{Field: "proof", Value: o.Proof, Valid: "none where only the index is checked"}
	}
	start := o.Env.Mono()
	err := r.all(ctx)
	r.report.Seconds = (o.Env.Mono() - start).Seconds()
	r.report.Incomplete = err != nil
	r.sortSums()
	return r.report, err
}

// run is one check.
type run struct {
	table      Table
	bucket     Store
	segments   *objects.Reader
	o          Options
	log        segment.LogID
	start      time.Time      // by the table's clock where it tells: no commit of a segment that was too old then can come later
	named      *filter.Filter // the segments that commits and rows name, and superseded ones as mark has them; nil when orphans are not looked for
	made       madeAt         // the segments that were listed
	eraObjects []string       // their names, in their order
	mark       metadata.EraMark
	proof      *proof // nil: there is none

	mu     sync.Mutex
	report *Report
	at     Progress
	floor  segment.ID // highest of any head
	holes  bool       // part of the index could not be read, so named lacks segments

	damaged      map[Range]bool  // partitions of which damage was found
	damagedLanes map[string]bool // and lanes, where it is not known of which
}

func (r *run) all(ctx context.Context) error {
	one, err := r.identity(ctx)
	if err != nil || !one {
		return err
	}
	r.start = r.now()
	if err := r.eras(ctx); err != nil {
		return err
	}
	topics, err := r.listTopics(ctx)
	if err != nil {
		return err
	}
	if len(r.o.Topics) == 0 {
		r.named = filter.New()
	}
	if r.o.Proof != "" {
		return r.proving(ctx, topics)
	}
	return r.rest(ctx, topics)
}

// rest is all that follows the list of topics.
func (r *run) rest(ctx context.Context, topics []*metadata.Topic) error {
	if err := r.lanes(ctx, r.claim(topics)); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{r.floors, r.replaced, r.orphans} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// now is the table's time.
func (r *run) now() time.Time {
	if now, ok := r.table.ServiceTime(); ok {
		return now
	}
	return r.o.Env.Now()
}

// work is the check of an object, by one of the checkers.
type work func(context.Context, *checker) error

// lanes walks the lanes, some at a time, and checks the objects that their entries and rows name, some at a time.
func (r *run) lanes(ctx context.Context, lanes []*lane) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	waiting, tasks := make(chan *lane), make(chan work)
	var walking, checking sync.WaitGroup
	for range r.o.Parallel {
		checking.Go(func() {
			c := &checker{run: r}
			c.decoder.Reuse = true
			for t := range tasks {
				if err := t(ctx, c); err != nil {
					fail(err)
				}
			}
		})
	}
	for range walkers {
		walking.Go(func() {
			for l := range waiting {
				w := &walk{lane: l, run: r, tasks: tasks}
				if err := w.all(ctx); err != nil {
					fail(err)
				}
				r.progress(func(p *Progress) { p.LanesDone++ })
			}
		})
	}
	r.progress(func(p *Progress) { p.Lanes = len(lanes) })
	for _, l := range lanes {
		select {
		case waiting <- l:
		case <-ctx.Done():
		}
	}
	close(waiting)
	walking.Wait()
	close(tasks)
	checking.Wait()
	return context.Cause(ctx)
}

// floors checks that no head was raised above the log's floor, which is raised first.
func (r *run) floors(ctx context.Context) error {
	floor, err := r.table.Floor(ctx)
	switch {
	case unreadable(err):
		r.find(Finding{Kind: FloorWrong, Item: metadata.FloorKey().String(), What: err.Error()})
	case err != nil:
		return err
	case floor.Less(r.floor):
		r.find(Finding{Kind: FloorWrong, Item: metadata.FloorKey().String(), What: "the log's floor is " + floor.String() + ", a lane's head has " + r.floor.String()})
	}
	return nil
}

// progress notes how far the check is, and tells.
func (r *run) progress(note func(*Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	note(&r.at)
	r.report.Totals = r.at.Totals
	r.inform()
}

// unclear notes that the index names segments that were not seen.
func (r *run) unclear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holes = true
}

// inform reports progress. mu is held, which is what makes it one goroutine at a time.
func (r *run) inform() {
	if r.o.Progress != nil {
		r.at.Findings = r.report.Damage + r.report.Suspicious
		r.o.Progress(r.at)
	}
}
