// Package sweep deletes what nothing names any more. Only it and the classes' lifecycle rules delete what producers and compactors wrote.
//
// The rule of floors decides what may go, and nothing else does: an object, a small segment or a chunk is deleted only if its id is at or below a floor F and no
// reference to it was found by strong reads made after F was raised everywhere. In this order:
//
//	raise LOG|FLOOR to F, and read it back     a topic that is created from now on has F in its heads and states
//	list the topics, strongly                  so these are all whose heads and states may have less
//	raise F on every head and every state      no commit and no publication of an id at or below F is applied from now on
//	read states, work list, heads, chunks and  what they do not name now they never will
//	archive rows, strongly
//	delete
//
// A step may be late by any time, and any number of sweeps may run at once: what was found to be without a reference stays so, because ids are never used again.
//
// Of each lane the orders from lane.needed on are needed: those that are not archived, and those whose publication is younger than RestoreWindow, since a table
// that is put back to an earlier hour names their segments again. (Orders below the log start are let go of in the same way: compaction passes
// over them without writing anything, and then they are archived.) A segment is needed if one of its lanes, which its footer names, has it at such an order. So of
// a segment of several lanes the last one that lets go of it decides, whoever comes first.
//
// Objects go before the chunks and rows that name them: for readers, the archived order and the log start are the pointers, and those have moved long before.
// Were the chunk or the row deleted first, a crash would leave objects that nothing names, with ids far below what is looked through for such.
package sweep

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/filter"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Table is what the sweep needs of a log's table.
type Table interface {
	metadata.LaneReader
	metadata.TopicReader
	metadata.TopicWriter
	metadata.RowReader
	metadata.Sweeper
	metadata.SmallSegments
	Groups(ctx context.Context, after string, limit int) (groups []*metadata.Group, more bool, err error)
	ForgetOffsets(ctx context.Context, group string, lanes []metadata.LaneID) error
	Identity(ctx context.Context) (id metadata.Identity, ok bool, err error)
	Floor(ctx context.Context) (segment.ID, error)
	EraMark(ctx context.Context) (metadata.EraMark, error)
	ServiceTime() (now time.Time, ok bool)
}

// Store is what the sweep needs of a log's bucket.
type Store interface {
	store.Getter
	store.Lister
	store.Deleter
}

const (
	// SafeAge is how far the floor stays behind the service's time: longer than a producer commits a segment after minting its id (metadata.MaxSegmentAge), and
	// than an archive segment may be published. Whoever takes longer has to write again under another id; nothing is lost.
	SafeAge = time.Hour
	// RestoreWindow is how long what a publication has replaced stays, for a table that is put back to an earlier hour.
	RestoreWindow = metadata.RestoreWindow
	// Overlap is how far below the ids that were looked through the next sweep begins: objects that a slow clock or a slow upload brought late.
	Overlap = 3 * time.Hour
	// MaxClockSkew is how far the machine's clock may be off the service's.
	MaxClockSkew = time.Minute
	// DefaultDeadline is Options.Deadline where nothing is said.
	DefaultDeadline = 10 * time.Minute
	// DefaultParallel is Options.Parallel where nothing is said.
	DefaultParallel = 16
)

// Options say how to sweep.
type Options struct {
	DryRun   bool          // change nothing: only tell what a run would delete now
	Full     bool          // list all objects, not only those whose ids no sweep has looked at
	Force    bool          // also where it would be refused as too much (TooMuchError)
	Deadline time.Duration // the run ends after this; what it has done stays done, and another goes on from there. 0: DefaultDeadline
	Parallel int           // requests at a time; 0: DefaultParallel
	// Tell, if set, is told of each deletion, by one goroutine at a time: just before it, or, in a dry run, instead of it. It must not block.
	Tell func(Deletion)
	Env  env.Env
}

// Run sweeps once. The report has what was deleted, also with an error. Errors besides those of table and store:
//
//   - *ClockError: the machine's clock is off; nothing was done.
//   - metadata.ErrWrongLog: bucket and table belong to different logs; nothing was done.
//   - *UnrepairedError: a repair of the table is not finished; nothing was done.
//   - ErrReferences: not all that names segments can be read. Nothing more was deleted.
//   - *TooMuchError: nearly all of the objects looked at would go, or many that were made while none was committed, as after a table was put back. None of those
//     was deleted.
//   - ErrDeadline: run it again.
func Run(ctx context.Context, table Table, objects Store, o Options) (*Report, error) {
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Parallel < 1 {
		o.Parallel = DefaultParallel
	}
	r := &run{
		table: table, objects: objects, o: o, topics: topics.New(table, o.Env), named: filter.New(),
		lanes: map[metadata.LaneID]*lane{}, gone: map[metadata.LaneID]bool{}, byID: map[segment.TopicID]*metadata.Topic{},
		published: map[segment.ID]bool{}, replaced: map[segment.ID]bool{}, due: map[string]bool{}, told: map[string]bool{},
		report: &Report{DryRun: o.DryRun, Full: o.Full, Deleted: map[Kind]Heap{}},
	}
	start := o.Env.Mono()
	timed, cancel := o.Env.WithTimeout(ctx, o.Deadline)
	defer cancel()
	err := r.all(timed)
	if err != nil && ctx.Err() == nil && errors.Is(timed.Err(), context.DeadlineExceeded) {
		err = ErrDeadline
	}
	r.report.Seconds = (o.Env.Mono() - start).Seconds()
	r.report.Finished = err == nil
	return r.report, err
}

// run is one sweep. What is not guarded by mu is written by one step and only read by those after it.
type run struct {
	table    Table
	objects  Store
	o        Options
	topics   *topics.Keeper
	log      segment.LogID
	now      time.Time  // the service's, at the start
	floor    segment.ID // F
	repaired time.Time  // what was made before it and had been forgotten a repair has brought back

	list      []*lane // of topics that are there
	lanes     map[metadata.LaneID]*lane
	byID      map[segment.TopicID]*metadata.Topic
	deletions []*metadata.GoneTopic

	named *filter.Filter // intake and small segments that are needed, as far as orphans are looked for

	mu        sync.Mutex
	gone      map[metadata.LaneID]bool // lanes of deleted topics
	published map[segment.ID]bool      // ids of the publications of the restore window
	replaced  map[segment.ID]bool      // archive segments that these have replaced
	due       map[string]bool          // hashes under which the work list has older entries
	told      map[string]bool          // in a dry run: what would be gone by now
	report    *Report
}

// lane is a lane of a topic that is there.
type lane struct {
	id     metadata.LaneID
	topics []*metadata.Topic
	state  *metadata.State
	head   *metadata.Head
	needed int64 // orders from it on are needed
	young  int64 // lowest order of a publication within the restore window; above all where there is none
	due    bool  // the work list has an entry of it that is older than the restore window
	let    int64 // segments of orders below it have been let go of, by this run
	seen   bool  // all of its needed segments are in run.named
}

func (r *run) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		r.identify, r.checkClock, r.checkEra, r.raise, r.listTopics, r.fence, r.readStates, r.readWorkList, r.readHeads, // what is needed
		r.deleted, r.superseded, r.expiredRows, r.workList, r.orphans, // what is not
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// old tells whether an id may be deleted by its age.
func (r *run) old(id segment.ID) bool { return !r.floor.Less(id) }

// at is the lowest id of a time.
func at(t time.Time) segment.ID {
	return segment.NewID(t, segment.Keep, segment.InBucket, 0, segment.ID{})
}

// each does something for every item, some at a time, until one fails.
func each[T any](ctx context.Context, r *run, items []T, do func(context.Context, T) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, r.o.Parallel)
	for _, item := range items {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(ctx, item); err != nil {
				fail(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
