// Package repair brings a log together again whose table was put back to an earlier moment, or lost, while its bucket was not.
//
// Such a table has forgotten commits that were acknowledged, and gives their offsets again to whoever writes to it. Repair begins a new era. In this order:
//
//	put era/<n>.json       which says where the offsets of the new era begin, above all that can have been given; then LOG|ERA
//	raise floors, epochs   what was sent before arrives in vain
//	of each lane:
//	  archive              what it had committed at that moment, by the archive segments that were published since, or anew;
//	                       then what these hold behind it: those records keep their offsets
//	  cut                  from that moment's end to where the new era begins
//	  jump                 to where the new era begins, at a moment when the head holds no entries
//	  publish              a row without records from the end of the others to there
//	  narrow the cut       to that row, and the offsets that were given again
//	append again           what is in the bucket and in no row, by the order of ids, in the new era
//
// A commit made after the table was put back has offsets that were given before: they lie in the cut, and its records are appended again like those that were forgotten. Where
// the archive holds the records that had these offsets first, readers that come along get them; but who asks for such an offset is told that it was given twice. The era's object is the commit point of all that can be asked twice: a run that ends anywhere, and is begun
// again, goes on with the same era. Segments are put and appended again under ids that follow from the old ones, and only while the lane does not have them: so
// nothing comes twice, however often it runs.
package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Table is what a repair needs of a log's table.
type Table interface {
	compact.Table
	metadata.Repairer
	metadata.TopicReader
	metadata.TopicWriter
	Floor(ctx context.Context) (segment.ID, error)
	RaiseFloor(ctx context.Context, floor segment.ID) error
	RaiseHeadFloor(ctx context.Context, lane metadata.LaneID, floor segment.ID) error
	SetStart(ctx context.Context, lane metadata.LaneID, slot metadata.Slot, start int64) (*metadata.State, error)
}

// Store is what it needs of a log's bucket.
type Store interface {
	compact.Store
	store.Putter
	store.Lister
}

const (
	// Settled is how old a segment must be to be brought back: then no producer commits it any more (metadata.MaxSegmentAge), by whatever clock it has.
	Settled = metadata.MaxSegmentAge * 3 / 2
	// jumpTries is how often a lane is emptied to jump. One that is written to all the time must be caught between two commits.
	jumpTries = 200
)

// Conditions.
var (
	ErrNothing = errors.New("nothing to repair: the table is not behind its bucket")
	ErrBusy    = errors.New("the lane is written to without a pause: stop its producers and run the repair again")
	// ErrCompacted: which records had these offsets first cannot be told any more by the table.
	ErrCompacted = errors.New("what was committed after that moment has been archived: put the table back to it once more, and repair before anything is compacted; or give the moment exactly")
)

// Options say what happened to the table.
type Options struct {
	// Back is the moment that the table was put back to: it has nothing of what was committed after it. One that is earlier does no harm but that more records get other
	// offsets. While a repair that has begun is not finished it is that one's.
	Back time.Time
	// Lost: there was no table any more. Back is then zero.
	Lost bool
	// Names are the names that topics get of which only the bucket knows; without one it is Unnamed and the id.
	Names map[segment.TopicID]string
	// DryRun only tells what would be done.
	DryRun bool
	// Progress, if set, is told what is being done, one step at a time. It must not block.
	Progress func(step string)
	Env      env.Env
}

// Unnamed is what the name of a topic begins with whose own nobody has told.
const Unnamed = "recovered-"

// Run repairs. The report has what was done, also with an error; a run that failed is begun again with the same options. ErrNothing: nothing was changed, but perhaps classes of segments added to what is known to be stored.
// One repair runs at a time, and neither compaction, nor retention, nor the sweep runs between the restore and its end.
func Run(ctx context.Context, table Table, bucket Store, o Options) (*Report, error) {
	r := &run{table: table, bucket: bucket, segments: objects.NewReader(bucket, table), o: o, report: newReport(o)}
	start := o.Env.Mono()
	err := r.all(ctx)
	r.report.Seconds = (o.Env.Mono() - start).Seconds()
	r.report.Finished = err == nil && !o.DryRun
	return r.report, err
}

type run struct {
	table    Table
	bucket   Store
	segments *objects.Reader
	o        Options
	log      segment.LogID
	now      time.Time
	era      metadata.Era
	begun    bool           // the era's object is there already
	done     bool           // and its repair was finished once
	eras     []metadata.Era // that were before it
	settled  segment.ID
	topics   []*metadata.Topic
	byID     map[segment.TopicID]*metadata.Topic
	made     map[metadata.LaneID]bool // by this run
	lanes    map[metadata.LaneID]*lane
	found    *found
	deleted  map[segment.TopicID]bool
	report   *Report
}

func (r *run) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.identify, r.listTopics, r.chooseEra, r.search, r.recoverTopics, r.amendTopics} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := r.readLanes(ctx); err != nil {
		return err
	}
	if !r.begun {
		if err := r.checkRows(ctx); err != nil {
			return err
		}
		if err := r.checkRecords(ctx); err != nil {
			return err
		}
		if r.nothing() {
			return ErrNothing
		}
	}
	for _, l := range r.lanes {
		if r.o.Lost && !r.begun && l.head.Next > 0 { // topics alone may be what a run has left that was cut off
			return &metadata.FieldError{Topic: l.topic.Name, Field: "commits in a lost table", Value: fmt.Sprint(l.head.Next), Valid: "a table without topics, or with empty ones"}
		}
	}
	if r.o.DryRun {
		return r.foresee(ctx)
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, l := range r.inOrder() {
		if l.later {
			continue
		}
		r.tell("lane %s of topic %s", l.id, l.topic.Name)
		if err := r.rewrite(ctx, l); err != nil {
			return fmt.Errorf("repair topic %q, lane %s: %w", l.topic.Name, l.id, err)
		}
	}
	if err := r.appendAll(ctx); err != nil {
		return err
	}
	r.close()
	return r.table.SetEraMark(ctx, metadata.EraMark{Begun: r.era.Number, Done: r.era.Number})
}

func (r *run) tell(format string, args ...any) {
	if r.o.Progress != nil {
		r.o.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *run) identify(ctx context.Context) error {
	inTable, ok, err := r.table.Identity(ctx)
	if err != nil {
		return err
	}
	inBucket, err := objects.Identity(ctx, r.bucket)
	switch {
	case err != nil:
		return err
	case !ok || inTable != inBucket:
		return fmt.Errorf("repair: %w", metadata.ErrWrongLog)
	}
	r.log, r.now = inTable.Log, archive.Now(r.o.Env, r.table).Truncate(time.Millisecond)
	r.o.Back = r.o.Back.Truncate(time.Millisecond)
	return nil
}

const page = 100

func (r *run) listTopics(ctx context.Context) error {
	for after, more := "", true; more; {
		var rows []*metadata.Topic
		var err error
		if rows, more, err = r.table.Topics(ctx, after, page); err != nil {
			return err
		}
		for _, t := range rows {
			r.topics, after = append(r.topics, t), t.Name
		}
	}
	return nil
}

// chooseEra takes up the repair that has begun, or the one that was finished for the same moment, which may have left young segments; or plans a new era.
func (r *run) chooseEra(ctx context.Context) error {
	mark, err := r.table.EraMark(ctx)
	if err != nil {
		return err
	}
	if err := r.readEras(ctx, mark); err != nil {
		return err
	}
	var last metadata.Era
	if n := len(r.eras); n > 0 {
		last = r.eras[n-1]
	}
	same := last.Number > 0 && mark.Begun == last.Number && r.o.Back.Equal(last.Back)
	if same { // it was cut off, or there may be more to bring back by now of what was too young at first
		r.era, r.begun, r.done, r.eras = last, true, mark.Done == mark.Begun, r.eras[:len(r.eras)-1]
	} else {
		if err := r.checkMoment(mark); err != nil {
			return err
		}
		r.era = metadata.Era{Number: last.Number + 1, Back: r.o.Back, Whole: r.o.Back, Begun: r.now} // begin finds out where it jumps to
		for _, e := range r.eras[mark.Done:] {                                                       // whose repairs this table does not know to be finished
			if e.Whole.Before(r.era.Whole) {
				r.era.Whole = e.Whole
			}
		}
	}
	r.report.Jump = r.era.Jump // 0 of a new one
	r.report.Era, r.report.Lost, r.report.Back = r.era.Number, r.era.Back.IsZero(), r.era.Back.UTC()
	r.settled = floorAt(r.now.Add(-Settled))
	if last := floorOf(r.era); last.Less(r.settled) {
		r.settled = last
	}
	return nil
}

// checkMoment refuses what cannot be the moment that the table was put back to, for a new era.
func (r *run) checkMoment(mark metadata.EraMark) error {
	told := func(back time.Time) string {
		if back.IsZero() {
			return "none, as it was lost"
		}
		return back.UTC().Format(time.RFC3339Nano)
	}
	wrong := &metadata.FieldError{Field: "the moment that the table was put back to", Value: told(r.o.Back)}
	switch {
	case r.o.Lost != r.o.Back.IsZero() || r.o.Back.After(r.now):
		wrong.Valid = "a moment before now, " + told(r.now) + ", or that the table was lost"
	case mark.Begun > 0 && !r.o.Back.After(r.eras[mark.Begun-1].Begun): // a table of then would not have the mark
		known := r.eras[mark.Begun-1]
		wrong.Valid = fmt.Sprintf("%s, as in the repair that the table knows of and that began at %s; or one after that, if the table was put back again", told(known.Back), told(known.Begun))
	default:
		return nil
	}
	return wrong
}

// readEras reads what the bucket knows of eras, 1 and on. Without one of them it would not be known which segments were put by its repair.
func (r *run) readEras(ctx context.Context, mark metadata.EraMark) error {
	for after, more := "", true; more; {
		p, err := r.bucket.List(ctx, segment.EraPrefix, after, 0)
		if err != nil {
			return err
		}
		for _, o := range p.Objects {
			if want := segment.EraName(int64(len(r.eras)) + 1); o.Name != want {
				return fmt.Errorf("%w: object %s is missing, and %s is there", metadata.ErrCorrupt, want, o.Name)
			}
			era, err := objects.Era(ctx, r.bucket, o.Name)
			if err != nil {
				return err
			}
			r.eras = append(r.eras, era)
		}
		after, more = p.Last, p.More
	}
	if n := int64(len(r.eras)); n < mark.Begun {
		return fmt.Errorf("%w: object %s is missing, and the table knows of %d repairs", metadata.ErrCorrupt, segment.EraName(n+1), mark.Begun)
	}
	return nil
}

// restoring is less than it takes to put a table back, and more than clocks are apart.
const restoring = time.Minute

// checkRows refuses a table that was compacted since it was put back: what was committed after that, under offsets that were given before, would count as what the table had then.
func (r *run) checkRows(ctx context.Context) error {
	if !r.era.Whole.Equal(r.era.Back) || r.era.Lost() { // what a repair that was not finished has made of archive segments has their times; a lost table has no rows
		return nil
	}
	for _, l := range r.inOrder() {
		for _, slot := range l.slots {
			partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: slot})
			row, err := r.table.Row(ctx, l.topic.ID, partition, l.state.Ends[slot]-1, metadata.Strong)
			if errors.Is(err, metadata.ErrNoRow) {
				continue
			}
			if err != nil {
				return err
			}
			if row.Last.After(r.era.Back.Add(restoring)) {
				return fmt.Errorf("topic %q, partition %d, offsets %d to %d, up to %s: %w", l.topic.Name, partition, row.Base, row.End, row.Last.UTC().Format(time.RFC3339), ErrCompacted)
			}
		}
	}
	return nil
}

// floorOf is the highest floor that a repair of the era sets, however late: ids of the millisecond in which it began may be from before it.
func floorOf(era metadata.Era) segment.ID { return floorAt(era.Begun.Add(time.Millisecond)) }

func floorAt(t time.Time) segment.ID {
	return segment.NewID(t, segment.Keep, segment.InBucket, 0, segment.ID{})
}

// begin makes the era, and then keeps away what was sent before it.
func (r *run) begin(ctx context.Context) error {
	if !r.begun {
		end, last := int64(0), int64(0)
		if n := len(r.eras); n > 0 {
			last = r.eras[n-1].Jump
		}
		for _, l := range r.lanes {
			for s := range l.head.Ends {
				end = max(end, l.head.Ends[s], l.state.Ends[s], l.reach[s])
			}
		}
		var err error
		if r.era.Jump, err = metadata.JumpFrom(end, last); err != nil {
			return err
		}
		body, err := metadata.EncodeEra(r.era)
		if err != nil {
			return err
		}
		if err := r.bucket.Put(ctx, segment.EraName(r.era.Number), body); err != nil {
			return fmt.Errorf("begin era %d: %w", r.era.Number, err)
		}
		r.begun = true
	}
	r.report.Jump = r.era.Jump
	if err := r.table.SetEraMark(ctx, metadata.EraMark{Begun: r.era.Number, Done: r.era.Number - 1}); err != nil {
		return err
	}
	if err := r.table.RaiseFloor(ctx, r.settled); err != nil {
		return err
	}
	if err := r.changeAll(ctx); err != nil {
		return err
	}
	strays := false
	for _, l := range r.inOrder() {
		if err := r.table.RaiseHeadFloor(ctx, l.id, r.settled); err != nil {
			return err
		}
		head, err := r.fence(ctx, l.id)
		if err != nil {
			return err
		}
		strays = r.noteStrays(l, head) || strays
	}
	if !strays {
		return nil
	}
	if err := r.amendTopics(ctx); err != nil {
		return err
	}
	if err := r.readLanes(ctx); err != nil {
		return err
	}
	return r.changeAll(ctx)
}
