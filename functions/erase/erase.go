// Package erase removes records from a topic's history for good: those of a person, say, by key, beginning of the key, or header.
//
// Everything that was appended before the run is moved to the archive first, so that all of it lies in rows. Each row is read; one that holds a record to be erased is
// written again without it, and published in the old one's place. Offsets stay, as gaps. What else lies in the same objects is moved out of them (objects.go), so that these
// can go. Then all is read again, and must hold no such record. Readers that run meanwhile see each record, or do not, and no other is missing or comes twice.
//
// What was replaced the sweep deletes when the restore window is over; until then, and as long as the bucket keeps versions and the table backups, those
// still hold what was erased. The report says until when.
package erase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Table is what erasing needs of a log's table.
type Table interface {
	archive.Rewriter
	metadata.HeadReader
	Topic(ctx context.Context, name string) (*metadata.Topic, error)
	Identity(ctx context.Context) (id metadata.Identity, ok bool, err error)
}

// Store is what it needs of a log's bucket.
type Store interface {
	store.Getter
	archive.Objects
}

// TableBackups is how long the table's point-in-time recovery reaches back, if it is on and not set shorter.
const TableBackups = 35 * day

const (
	defaultTarget = 512 << 20
	day           = 24 * time.Hour
	// attempts is how often a partition is begun anew because another changes its rows.
	attempts = 10
	// maxListed bounds what of the sweep's work list the report names.
	maxListed = 1000
)

// Options say what to erase, and how.
type Options struct {
	Topic string
	// Match tells whether a record is to be erased. It must keep nothing of it.
	Match func(*segment.Record) bool
	// Archive moves everything that was appended to the topic before it is called to the archive: functions/compact with All. With "" it does so for all topics: the
	// objects that producers wrote hold records of several, and stay as long as one of them has not been archived.
	Archive func(ctx context.Context, topic string) error
	// DryRun counts and changes nothing; what is not in the archive is then not looked at, and Report.Unarchived says how much that is.
	DryRun bool
	// Versions is how long the bucket keeps a version of an object that was deleted; 0 if it has no versions, below 0 if that is not known.
	Versions time.Duration
	// Target is the size in bytes that segments written are to have at most; 0 is 512 MiB.
	Target int64
	// Progress, if set, is told how far the run is. It must not block.
	Progress func(Report)
	Env      env.Env
}

// Report is the proof. Its JSON form is stable.
type Report struct {
	Topic      string        `json:"topic"`
	TopicID    string        `json:"topic_id"`
	DryRun     bool          `json:"dry_run"`
	Partitions []Partition   `json:"partitions"`
	Unarchived int64         `json:"unarchived"` // offsets that a dry run did not look at
	Extents    int64         `json:"extents"`    // scanned
	Records    int64         `json:"records"`    // scanned
	Bytes      int64         `json:"bytes"`      // scanned
	Erased     int64         `json:"erased"`     // records
	Rewritten  int64         `json:"rewritten"`  // extents that held some of them
	Moved      int64         `json:"moved"`      // extents that were written again because they lay in one object with such
	Written    int64         `json:"written"`    // bytes
	Verified   *Verification `json:"verified,omitempty"`
	Replaced   []Replaced    `json:"replaced"` // what the sweep has still to delete of this topic, of earlier publications too; at most a thousand
	Gone       *Dates        `json:"gone,omitempty"`
}

// Partition is the offsets that the proof covers.
type Partition struct {
	Partition int   `json:"partition"`
	Start     int64 `json:"start"`
	End       int64 `json:"end"`
}

// Verification is the second reading.
type Verification struct {
	Extents int64 `json:"extents"`
	Records int64 `json:"records"`
	Found   int64 `json:"found"`
	Objects int64 `json:"objects"` // that rows name, and what else lies in them
}

// Replaced is an entry of the sweep's work list: the intake segments of a lane's orders, and archive segments, that may hold what was erased.
type Replaced struct {
	Lane string    `json:"lane"`
	From int64     `json:"from_order"`
	To   int64     `json:"to_order"`
	Left []string  `json:"objects"`
	Due  time.Time `json:"due"` // a sweep from then on deletes them
}

// Dates are when the last trace is gone, if a sweep runs once a day.
type Dates struct {
	Objects  time.Time `json:"objects"`           // with the first sweep from then on
	Versions time.Time `json:"versions,omitzero"` // of objects that were deleted; zero if it is not known how long the bucket keeps them
	Backups  time.Time `json:"backups"`           // of the table, with point-in-time recovery at its longest
}

// datesFrom are the dates where sweeps may delete the last object from a time on. Rules of buckets delete after whole days, at midnight.
func datesFrom(objects time.Time, versions time.Duration) *Dates {
	swept := objects.Add(day)
	d := &Dates{Objects: objects, Backups: swept.Add(TableBackups)}
	switch {
	case versions == 0:
		d.Versions = swept
	case versions > 0:
		d.Versions = swept.Add(versions).UTC().Truncate(day).Add(day)
	}
	return d
}

// FoundError is a second reading that found records to be erased: they were appended meanwhile, or something is wrong. Run again.
type FoundError struct{ Found int64 }

func (e *FoundError) Error() string {
	return fmt.Sprintf("%d records to be erased were found after the erasure; run it again", e.Found)
}

// Run erases. The report says what was done, also where an error comes with it. metadata.ErrUnknownTopic; *FoundError if the proof fails; metadata.ErrContended if
// others would not stop changing a partition's rows.
func Run(ctx context.Context, table Table, objects Store, o Options) (*Report, error) {
	o.Target = cmp.Or(o.Target, defaultTarget)
	r := &run{Services: archive.Services{Env: o.Env, Table: table, Objects: objects}, table: table, o: o, held: map[segment.ID]bool{}, report: &Report{Topic: o.Topic, DryRun: o.DryRun, Partitions: []Partition{}, Replaced: []Replaced{}}}
	err := r.all(ctx)
	if err != nil {
		err = fmt.Errorf("erase in topic %q: %w", o.Topic, err)
	}
	return r.report, err
}

type run struct {
	archive.Services
	table  Table
	o      Options
	log    segment.LogID
	topic  *metadata.Topic
	ends   map[metadata.LaneID]*metadata.Head // as they were first
	held   map[segment.ID]bool                // segments of rows that hold, or held, something to be erased
	report *Report
}

func (r *run) all(ctx context.Context) (err error) {
	identity, ok, err := r.table.Identity(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the table has no identity", metadata.ErrWrongLog)
	}
	if err != nil {
		return err
	}
	r.log = identity.Log
	if r.topic, err = r.table.Topic(ctx, r.o.Topic); err != nil {
		return err
	}
	r.report.TopicID = string(r.topic.ID)
	r.ends = map[metadata.LaneID]*metadata.Head{}
	for _, lane := range r.topic.Lanes {
		if r.ends[lane], err = r.table.Head(ctx, lane, metadata.Strong); err != nil {
			return err
		}
	}
	if !r.o.DryRun {
		if err := r.o.Archive(ctx, r.o.Topic); err != nil {
			return fmt.Errorf("archive what was appended: %w", err)
		}
	}
	for p := range r.topic.Partitions {
		if err := r.partition(ctx, p); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	for _, lane := range r.topic.Lanes {
		if err := r.beside(ctx, lane); err != nil {
			return fmt.Errorf("what lies beside it in objects of lane %s: %w", lane, err)
		}
	}
	if r.o.DryRun {
		r.report.Moved -= r.report.Rewritten // which still lie there
		return nil
	}
	return r.prove(ctx)
}

// rows reads a partition's rows up to the end that it had. Archived may not be below that, but in a dry run.
func (r *run) rows(ctx context.Context, partition int) ([]*metadata.Row, *metadata.State, error) {
	at := r.topic.Place(partition)
	state, err := r.table.State(ctx, at.Lane, metadata.Strong)
	if err != nil {
		return nil, nil, err
	}
	if end := max(r.end(at), state.Starts[at.Slot]); state.Ends[at.Slot] < end && !r.o.DryRun {
		return nil, nil, fmt.Errorf("%w: archived up to offset %d, appended before the run were %d", metadata.ErrContended, state.Ends[at.Slot], end)
	}
	rows, err := archive.Rows(ctx, r.table, r.topic, partition, state)
	return rows, state, err
}

// end is the end that a partition had when the run began; 0 if its lane was not there yet.
func (r *run) end(at metadata.Place) int64 {
	if head := r.ends[at.Lane]; head != nil {
		return head.Ends[at.Slot]
	}
	return 0
}

// retry does something, and begins anew where another changes rows meanwhile.
func (r *run) retry(ctx context.Context, do func() error) error {
	var last error
	for range attempts {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if last = do(); !errors.Is(last, metadata.ErrChanged) {
			return last
		}
	}
	return fmt.Errorf("%w: %w", metadata.ErrContended, last)
}

// partition erases in a partition. What it has erased when it has to begin anew stays erased.
func (r *run) partition(ctx context.Context, partition int) error {
	return r.retry(ctx, func() error {
		rows, state, err := r.rows(ctx, partition)
		if err != nil {
			return err
		}
		if err = r.rowsOf(ctx, partition, rows); errors.Is(err, store.ErrNotExist) {
			err = archive.Missing(ctx, r.Services, r.topic, partition, rows, err)
		}
		if !errors.Is(err, metadata.ErrChanged) {
			at := r.topic.Place(partition)
			r.report.Partitions = append(r.report.Partitions, Partition{partition, state.Starts[at.Slot], state.Ends[at.Slot]})
			r.report.Unarchived += max(0, r.end(at)-max(state.Ends[at.Slot], state.Starts[at.Slot]))
		}
		return err
	})
}

// rowsOf looks for what is to be erased, and rewrites the rows that have it.
func (r *run) rowsOf(ctx context.Context, partition int, rows []*metadata.Row) error {
	again := batch{run: r, partition: partition, count: &r.report.Rewritten}
	for _, row := range rows {
		found, err := r.scan(ctx, row)
		r.report.Extents++
		r.report.Records += row.Count
		r.report.Bytes += row.Bytes
		r.inform()
		switch {
		case err != nil:
			return err
		case found == 0:
			continue
		case r.o.DryRun:
			r.report.Erased += found
		}
		r.held[row.Segment] = true
		if err := again.add(ctx, row); err != nil {
			return err
		}
	}
	return again.flush(ctx)
}

// batch is rows of a partition that are to be written again, as many at a time as one segment takes.
type batch struct {
	*run
	partition int
	count     *int64 // of the report
	groups    [][]*metadata.Row
	bytes     int64
}

func (b *batch) add(ctx context.Context, row *metadata.Row) error {
	if b.bytes > 0 && b.bytes+row.Bytes > b.o.Target || len(b.groups) == metadata.MaxPublishRows {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.groups, b.bytes = append(b.groups, []*metadata.Row{row}), b.bytes+row.Bytes
	return nil
}

func (b *batch) flush(ctx context.Context) error {
	if len(b.groups) > 0 && !b.o.DryRun {
		if err := b.rewrite(ctx, b.partition, b.groups); err != nil {
			return err
		}
	}
	*b.count += int64(len(b.groups))
	b.groups, b.bytes = nil, 0
	return nil
}

func (r *run) inform() {
	if r.o.Progress != nil {
		r.o.Progress(*r.report)
	}
}

// scan counts what is to be erased in a row.
func (r *run) scan(ctx context.Context, row *metadata.Row) (found int64, err error) {
	decoder := segment.Decoder{Reuse: true}
	var records []segment.Record
	err = archive.Batches(ctx, r.Objects, row, func(batch []byte) (err error) {
		if records, err = decoder.Decode(batch, 0, records[:0]); err != nil {
			return err
		}
		for i := range records {
			if r.o.Match(&records[i]) {
				found++
			}
		}
		return nil
	})
	return found, err
}

func (r *run) rewrite(ctx context.Context, partition int, groups [][]*metadata.Row) error {
	var erased int64
	x := archive.Rewriting{Log: r.log, Topic: r.topic, Partition: partition, Groups: groups, Keep: func(record *segment.Record) bool {
		if r.o.Match(record) {
			erased++
			return false
		}
		return true
	}}
	_, size, err := archive.Rewrite(ctx, r.Services, x, func() { erased = 0 })
	if err != nil {
		return err
	}
	r.report.Erased += erased
	r.report.Written += size
	r.inform()
	return nil
}

// prove reads everything again, and says what is left where.
func (r *run) prove(ctx context.Context) error {
	v := &Verification{}
	r.report.Verified = v
	for p := range r.topic.Partitions {
		if err := r.verify(ctx, p, v); err != nil {
			return fmt.Errorf("verify partition %d: %w", p, err)
		}
	}
	r.held = map[segment.ID]bool{} // nothing but what is there now
	for _, lane := range r.topic.Lanes {
		if err := r.verifyObjects(ctx, lane, v); err != nil {
			return fmt.Errorf("verify objects of lane %s: %w", lane, err)
		}
	}
	if v.Found > 0 {
		return &FoundError{v.Found}
	}
	if err := r.o.Archive(ctx, ""); err != nil {
		return fmt.Errorf("none is left in the topic, but objects that hold them stay until other topics that have records there are archived: %w", err)
	}
	return r.leftovers(ctx)
}

func (r *run) verify(ctx context.Context, partition int, v *Verification) error {
	return r.retry(ctx, func() error {
		rows, _, err := r.rows(ctx, partition)
		if err != nil {
			return err
		}
		var once Verification
		for _, row := range rows {
			found, err := r.scan(ctx, row)
			if errors.Is(err, store.ErrNotExist) {
				return archive.Missing(ctx, r.Services, r.topic, partition, rows, err)
			}
			if err != nil {
				return err
			}
			once.Extents, once.Records, once.Found = once.Extents+1, once.Records+row.Count, once.Found+found
		}
		v.Extents, v.Records, v.Found = v.Extents+once.Extents, v.Records+once.Records, v.Found+once.Found
		return nil
	})
}

// leftovers lists what the sweep has to delete still, and when the last of it is gone.
func (r *run) leftovers(ctx context.Context) error {
	now := archive.Now(r.Env, r.table)
	last := now
	future := segment.NewID(now.Add(24*time.Hour), 0, segment.InBucket, 0, segment.ID{})
	for hash := range 256 {
		for after, more := (segment.ID{}), true; more; {
			page, left, err := r.table.Replaced(ctx, fmt.Sprintf("%02x", hash), after, future, maxListed)
			if err != nil {
				return err
			}
			for _, x := range page {
				after = x.ID
				_, ours := r.ends[x.Lane]
				due := x.ID.Time().Add(metadata.RestoreWindow)
				if due.After(last) && (ours || x.From < x.To) { // objects of orders may be shared with any lane
					last = due
				}
				if ours && len(r.report.Replaced) < maxListed {
					r.report.Replaced = append(r.report.Replaced, r.replaced(x, due))
				}
			}
			more = left && len(page) > 0
		}
	}
	r.report.Gone = datesFrom(last, r.o.Versions)
	return nil
}

func (r *run) replaced(x *metadata.Replaced, due time.Time) Replaced {
	e := Replaced{Lane: string(x.Lane), From: x.From, To: x.To, Left: []string{}, Due: due}
	for _, id := range x.Left {
		e.Left = append(e.Left, segment.ArchiveName(r.topic.ID, id))
	}
	return e
}
