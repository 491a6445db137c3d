// Package clean keeps, of topics whose cleanup.policy has compact in it, the latest record of each key: key compaction.
//
// It works on a partition's archive, from the log start to the archived offset. A pass notes the hash and the place of every key (keys.go), which tells for each
// record whether a later one has its key, and then rewrites the rows without those, group by group and in ascending order. Offsets stay as they are, and so does the
// end. Since a record is left out only because of a later one, which is in the log and stays there, and groups go from front to back, a pass that ends anywhere has
// done nothing wrong, and the next begins anew.
//
// A tombstone, a record with a null value, is the latest of its key until it goes too: from a pass that begins DefaultTombstones or more after another has ended that had
// removed all before it (metadata.Cleaning.Settled). So who reads a record, and reads on to its tombstone within that time, finds the tombstone there. Records without a key
// are not touched.
package clean

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

// Table is what cleaning needs of a log's table.
type Table interface {
	archive.Rewriter
	metadata.KeyCleaner
	Topic(ctx context.Context, name string) (*metadata.Topic, error)
	Topics(ctx context.Context, after string, limit int) (topics []*metadata.Topic, more bool, err error)
	Identity(ctx context.Context) (id metadata.Identity, ok bool, err error)
}

// Store is what it needs of a log's bucket.
type Store interface {
	store.Getter
	archive.Objects
}

const (
	// DefaultTombstones is Options.Tombstones where nothing is said: Kafka's delete.retention.ms.
	DefaultTombstones = 24 * time.Hour
	// DefaultDirty is Options.Dirty where nothing is said: Kafka's min.cleanable.dirty.ratio.
	DefaultDirty = 0.5
	// DefaultDeadline is Options.Deadline where nothing is said.
	DefaultDeadline = 10 * time.Minute

	defaultTarget = 512 << 20
	defaultMemory = 64 << 20

	// slack is longer than a pass goes on after its first group: when it may have removed the last tombstone is noted before.
	slack = time.Hour
	// skew is how far the clocks of those who commit may be off, by which it is told who may have missed a tombstone.
	skew = time.Minute
)

// Options say what to clean, and how.
type Options struct {
	// Topics restricts the run to these; none means all whose policy has compact.
	Topics []string
	// Dirty is from what share of a partition's archived bytes on, of those that no pass has seen, a pass is made; 0 is DefaultDirty.
	Dirty float64
	// Tombstones is how long a tombstone stays after what it deletes has gone; 0 is DefaultTombstones. A reader that takes longer from one to the other may miss it.
	Tombstones time.Duration
	// Target is what size rows are merged to; 0 is 512 MiB.
	Target int64
	// Memory is how many bytes a pass holds of what it notes of keys; the rest is in temporary files. 0 is 64 MiB. A bit for each record comes on top.
	Memory int64
	// Deadline is how long the run may take; 0 is DefaultDeadline. It begins no partition after it, and a pass ends with the group under way, or if it has none with the
	// first: so each run leaves lasting progress.
	Deadline time.Duration
	// DryRun only says which partitions are due.
	DryRun bool
	// Progress, if set, is told of each partition before its pass. It must not block.
	Progress func(topic string, partition int)
	Env      env.Env
}

// Report is what a run did. Its JSON form is stable.
type Report struct {
	Topics     int         `json:"topics"`
	Partitions []Partition `json:"partitions"` // those with a pass
	Left       int         `json:"left"`       // partitions that are due and for which there was no time
	Overtaken  int         `json:"overtaken"`  // passes that ended early because another has changed the rows
	Seconds    float64     `json:"seconds"`
}

// Partition is one pass.
type Partition struct {
	Topic      string `json:"topic"`
	Partition  int    `json:"partition"`
	To         int64  `json:"to"` // clean up to this offset, if the pass has ended
	Records    int64  `json:"records"`
	Kept       int64  `json:"kept"`
	Tombstones int64  `json:"tombstones"` // of those left out
	Bytes      int64  `json:"bytes"`
	Written    int64  `json:"written"`
	Rows       int    `json:"rows"`
	Segments   int    `json:"segments"` // written
	Done       bool   `json:"done"`
}

// Run cleans what is due. A partition that fails does not keep others from being cleaned; the error joins what went wrong.
func Run(ctx context.Context, table Table, objects Store, o Options) (*Report, error) {
	o.Dirty, o.Tombstones, o.Deadline = cmp.Or(o.Dirty, DefaultDirty), cmp.Or(o.Tombstones, DefaultTombstones), cmp.Or(o.Deadline, DefaultDeadline)
	o.Target, o.Memory = cmp.Or(o.Target, defaultTarget), cmp.Or(o.Memory, defaultMemory)
	report := &Report{Partitions: []Partition{}}
	if o.Dirty < 0 || o.Dirty > 1 || o.Tombstones < 0 || o.Deadline < 0 || o.Target < 1 || o.Memory < 1 {
		return report, &metadata.FieldError{Field: "options of a cleaning", Value: fmt.Sprintf("%+v", o), Valid: "a share from 0 to 1, and nothing negative"}
	}
	r := &run{Services: archive.Services{Env: o.Env, Table: table, Objects: objects}, table: table, o: o, report: report, start: o.Env.Mono()}
	err := r.all(ctx)
	report.Seconds = (o.Env.Mono() - r.start).Seconds()
	return report, err
}

type run struct {
	archive.Services
	table  Table
	o      Options
	log    segment.LogID
	start  time.Duration
	report *Report
}

func (r *run) late(ctx context.Context) bool {
	return ctx.Err() != nil || r.o.Env.Mono()-r.start >= r.o.Deadline
}

func (r *run) all(ctx context.Context) error {
	identity, ok, err := r.table.Identity(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the table has no identity", metadata.ErrWrongLog)
	}
	if err != nil {
		return err
	}
	r.log = identity.Log
	topics, err := r.topics(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var open []place
	for _, t := range topics {
		r.report.Topics++
		parts, err := r.open(ctx, t)
		if err != nil {
			errs = append(errs, fmt.Errorf("clean topic %q: %w", t.Name, err))
		}
		open = append(open, parts...)
	}
	// In no order, so that where there is never time for all, each comes first now and then.
	for i := range open {
		j := i + int(r.o.Env.Int64N(int64(len(open)-i)))
		open[i], open[j] = open[j], open[i]
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := r.partition(ctx, open[i])
		switch {
		case errors.Is(err, metadata.ErrChanged):
			r.report.Overtaken++
		case errors.Is(err, metadata.ErrNoState): // the topic was deleted
		case err != nil:
			errs = append(errs, fmt.Errorf("clean topic %q: partition %d: %w", open[i].topic.Name, open[i].partition, err))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// place is a partition.
type place struct {
	topic     *metadata.Topic
	partition int
}

func (r *run) topics(ctx context.Context) (topics []*metadata.Topic, err error) {
	for _, name := range r.o.Topics {
		t, err := r.table.Topic(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("clean topic %q: %w", name, err)
		}
		if !t.Config.Compacts() {
			return nil, &metadata.FieldError{Topic: name, Field: metadata.CleanupPolicy, Value: t.Config.CleanupPolicy, Valid: "compact or compact,delete, for keys to be compacted"}
		}
		topics = append(topics, t)
	}
	for after, more := "", len(r.o.Topics) == 0; more; {
		var page []*metadata.Topic
		if page, more, err = r.table.Topics(ctx, after, 100); err != nil {
			return nil, err
		}
		for _, t := range page {
			if after = t.Name; t.Config.Compacts() {
				topics = append(topics, t)
			}
		}
	}
	return topics, nil
}

// open are the topic's partitions that have something in the archive that no pass has seen.
func (r *run) open(ctx context.Context, t *metadata.Topic) (parts []place, err error) {
	for lane, id := range t.Lanes {
		state, err := r.table.State(ctx, id, metadata.Strong)
		if errors.Is(err, metadata.ErrNoState) {
			return nil, nil // deleted
		}
		if err != nil {
			return parts, err
		}
		for slot := range t.LaneWidth {
			if p := lane*t.LaneWidth + slot; p < t.Partitions && state.Ends[slot] > max(state.Starts[slot], state.Cleaned[slot].To) {
				parts = append(parts, place{t, p})
			}
		}
	}
	return parts, nil
}

// partition makes a pass over a partition if one is due.
func (r *run) partition(ctx context.Context, at place) error {
	t, partition := at.topic, at.partition
	lane, slot := t.Place(partition).Lane, t.Place(partition).Slot
	state, err := r.table.State(ctx, lane, metadata.Strong)
	if err != nil {
		return err
	}
	rows, err := archive.Rows(ctx, r.table, t, partition, state)
	if err != nil || !r.due(rows, state.Cleaned[slot].To) {
		return err
	}
	if r.late(ctx) {
		r.report.Left++
		return nil
	}
	if r.o.DryRun {
		r.report.Partitions = append(r.report.Partitions, Partition{Topic: t.Name, Partition: partition, Rows: len(rows)})
		return nil
	}
	if r.o.Progress != nil {
		r.o.Progress(t.Name, partition)
	}
	p := &pass{run: r, topic: t, lane: lane, slot: slot, rows: rows, to: state.Ends[slot], cleaned: state.Cleaned[slot],
		report: Partition{Topic: t.Name, Partition: partition, To: state.Ends[slot], Rows: len(rows)}}
	if err = p.all(ctx); errors.Is(err, store.ErrNotExist) {
		err = archive.Missing(ctx, r.Services, t, partition, rows, err)
	}
	r.report.Partitions = append(r.report.Partitions, p.report)
	return err
}

// due tells whether enough has come since the last pass.
func (r *run) due(rows []*metadata.Row, cleaned int64) bool {
	var dirty, all int64
	for _, row := range rows {
		if all += row.Bytes; row.End > cleaned {
			dirty += row.Bytes
		}
	}
	return dirty > 0 && float64(dirty) >= r.o.Dirty*float64(all)
}

// pass is one over one partition.
type pass struct {
	*run
	topic   *metadata.Topic
	lane    metadata.LaneID
	slot    metadata.Slot
	rows    []*metadata.Row
	to      int64
	cleaned metadata.Cleaning // as the state has it
	purge   int64             // tombstones below it go
	dead    bitmap            // by ordinal: records that a later one of their key makes superfluous, and tombstones that go
	report  Partition

	rewritten int // groups
}

// all finds out what is superfluous, and rewrites.
func (p *pass) all(ctx context.Context) error {
	records := int64(0)
	for _, row := range p.rows {
		records += row.Count
		p.report.Bytes += row.Bytes
	}
	p.report.Records, p.report.Kept = records, records
	now := archive.Now(p.Env, p.table)
	if c := p.cleaned; c.Settled > 0 && now.Sub(c.Since) >= p.o.Tombstones {
		p.purge = c.Settled
	}
	tombstones, err := p.survey(ctx, records)
	if err != nil {
		return err
	}
	if tombstones > 0 {
		c := p.cleaned
		c.Purged, c.Until = p.purge, archive.Now(p.Env, p.table).Add(slack)
		if err := p.clean(ctx, c); err != nil {
			return err
		}
	}
	for _, g := range p.groups(now) {
		if ctx.Err() != nil || p.late(ctx) && p.rewritten > 0 {
			return context.Cause(ctx)
		}
		if err := p.rewrite(ctx, g); err != nil {
			return err
		}
	}
	return p.end(ctx, tombstones > 0)
}

// end notes the pass, now that all of it is published.
func (p *pass) end(ctx context.Context, purged bool) error {
	now, c := archive.Now(p.Env, p.table), p.cleaned
	c.To = p.to
	if purged {
		c.Until = now.Add(skew)
	}
	if c.Settled == 0 || p.purge > 0 { // else the tombstones that wait would never have waited for long enough
		c.Settled, c.Since = p.to, now
	}
	if err := p.clean(ctx, c); err != nil {
		return err
	}
	p.report.Done = true
	return nil
}

// clean notes how far cleaning is, in whole milliseconds as the table does.
func (p *pass) clean(ctx context.Context, c metadata.Cleaning) error {
	c.Since, c.Until = milliseconds(c.Since), milliseconds(c.Until)
	if err := p.table.SetCleaned(ctx, p.lane, p.slot, p.cleaned, c); err != nil {
		return err
	}
	p.cleaned = c
	return nil
}

func milliseconds(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// rewrite rewrites a group, if that makes any difference.
func (p *pass) rewrite(ctx context.Context, g rows) error {
	if len(g.list) == 1 && !p.dead.any(g.first, g.count()) {
		return nil
	}
	var next, dropped, tombstones int64
	keep := func(r *segment.Record) bool {
		n := next
		if next++; !p.dead.has(n) {
			return true
		}
		if dropped++; r.Value == nil {
			tombstones++
		}
		return false
	}
	x := archive.Rewriting{Log: p.log, Topic: p.topic, Partition: p.report.Partition, Groups: [][]*metadata.Row{g.list}, Keep: keep}
	_, size, err := archive.Rewrite(ctx, p.Services, x, func() { next, dropped, tombstones = g.first, 0, 0 })
	if err != nil {
		return err
	}
	p.rewritten++
	p.report.Kept -= dropped
	p.report.Tombstones += tombstones
	p.report.Written += size
	if size > 0 {
		p.report.Segments++
	}
	return nil
}

// rows are some that follow one another, and the ordinal of their first record.
type rows struct {
	list  []*metadata.Row
	first int64
}

func (g *rows) count() (n int64) {
	for _, row := range g.list {
		n += row.Count
	}
	return n
}

// groups cuts the pass's rows into groups, each of which becomes one row: of at most target bytes, as many rows as a publication takes, and append times within the bucket,
// unless that is 0. A row of which nothing goes stays by itself as long as it is young.
func (p *pass) groups(now time.Time) (groups []rows) {
	bucket := p.topic.Config.AgeBucket()
	var bytes, next int64
	var oldest, newest time.Time
	open := false // the last group takes more
	for _, row := range p.rows {
		waits := archive.Young(row, now) && !p.dead.any(next, row.Count)
		first, last := minTime(oldest, row.First), maxTime(newest, row.Last)
		if n := len(groups) - 1; open && !waits && len(groups[n].list) < metadata.MaxPublishRows && bytes+row.Bytes <= p.o.Target && (bucket == 0 || last.Sub(first) <= bucket) {
			groups[n].list = append(groups[n].list, row)
			bytes, oldest, newest = bytes+row.Bytes, first, last
		} else {
			groups = append(groups, rows{[]*metadata.Row{row}, next})
			bytes, oldest, newest, open = row.Bytes, row.First, row.Last, !waits
		}
		next += row.Count
	}
	return groups
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
