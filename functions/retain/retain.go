// Package retain lets records expire. It moves log starts, which takes effect at once and exactly; it keeps the bucket's lifecycle rules, which delete most of
// what lies below them, as the topics' classes want them (the sweep deletes what rules cannot see, and all of it where the store has no rules); and it finishes
// changes of retention: lanes that a change has not reached, and classes that nothing is stored under any more.
//
// A log start moves by whole extents: archive rows, and the entries of chunks and heads. What has expired is decided in package metadata (Expired), by append
// time. By time, the extents from the log start on go up to the first that has not expired. By bytes, the newest extents stay that together have at least
// as many bytes as the topic's retention.bytes, as in Kafka. The end stays where it is, also when nothing is left.
//
// Costs. A lane in which nothing can have expired costs one eventual read, because its state says how old the oldest is (State.Oldest, which every run that
// looked raises). Another one costs, by time: two reads; one bisection over its chunks; one query for each 64 chunks, and one for each 1,000 rows of a partition,
// that expire. By bytes, each run sums up what is kept: one query for each 64 chunks and for each 1,000 rows of a partition, at most. Memory does not grow
// with either.
//
// Every step that is taken stays taken, so a run that is cut off leaves the rest to the next one. Any number may run at once.
package retain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Table is what retain needs of a log's table.
type Table interface {
	metadata.LaneReader
	metadata.RowReader
	metadata.TopicReader
	metadata.TopicWriter
	SetStart(ctx context.Context, lane metadata.LaneID, slot metadata.Slot, start int64) (*metadata.State, error)
	SetOldest(ctx context.Context, lane metadata.LaneID, oldest time.Time) error
	Identity(ctx context.Context) (id metadata.Identity, ok bool, err error)
	Floor(ctx context.Context) (segment.ID, error)
	ServiceTime() (now time.Time, ok bool)
}

// Options say what to do.
type Options struct {
	// Topics restricts the run to these; none means all. The bucket's rules, which are the whole log's, are then left alone.
	Topics []string
	// DryRun changes nothing; the report says what would be done.
	DryRun bool
	// Lifecycle is the bucket's, nil where the store has none.
	Lifecycle store.Lifecycle
	// Moves are when what is kept for ever goes to other storage classes. nil leaves as it is what a run has set before, none at all takes it away.
	Moves []store.Move
	Env   env.Env
}

// Run lets expire what has expired. Its error joins those of all topics, and of the rules: what could be done is done and in the report. metadata.ErrUnknownTopic
// is a topic of Options.Topics that the log does not have.
func Run(ctx context.Context, table Table, o Options) (*Report, error) {
	r := &run{table: table, keeper: topics.New(table, o.Env), o: o, report: &Report{DryRun: o.DryRun, Topics: []*TopicReport{}}}
	if err := CheckMoves(o.Moves); err != nil {
		return r.report, err
	}
	// The time is from before the rows: what had expired then had expired before any change of a row that is read later.
	identity, ok, err := table.Identity(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the table has no log", metadata.ErrWrongLog)
	}
	if err == nil {
		r.now, ok = table.ServiceTime()
	}
	if err == nil && !ok {
		err = fmt.Errorf("%w: the table has not told its time", metadata.ErrUnavailable)
	}
	if err != nil {
		return r.report, err
	}
	r.report.Now = r.now
	rows, err := r.topics(ctx)
	failed := []error{err}
	for _, t := range rows {
		failed = append(failed, r.topic(ctx, t))
	}
	if len(o.Topics) == 0 && err == nil {
		failed = append(failed, r.rules(ctx, place{identity.Log, identity.Prefix}, rows))
	}
	return r.report, errors.Join(failed...)
}

// run is one run.
type run struct {
	table  Table
	keeper *topics.Keeper
	o      Options
	now    time.Time
	report *Report
}

const topicsPage = 100

// topics are the rows of the topics of the run. One that cannot be read is an error, and the others go on.
func (r *run) topics(ctx context.Context) (rows []*metadata.Topic, err error) {
	if len(r.o.Topics) > 0 {
		var failed []error
		for _, name := range r.o.Topics {
			t, err := r.table.Topic(ctx, name)
			if err != nil {
				failed = append(failed, fmt.Errorf("topic %q: %w", name, err))
				continue
			}
			rows = append(rows, t)
		}
		return rows, errors.Join(failed...)
	}
	var failed []error
	for after, more := "", true; more; {
		var page []*metadata.Topic
		page, more, err = r.table.Topics(ctx, after, topicsPage)
		for _, t := range page {
			rows, after = append(rows, t), t.Name
		}
		if err == nil {
			continue
		}
		failed = append(failed, err)
		name, ok := unreadable(err)
		if !ok || name <= after {
			break
		}
		after, more = name, true
	}
	return rows, errors.Join(failed...)
}

// unreadable is the topic whose row an error of Topics says cannot be read.
func unreadable(err error) (name string, ok bool) {
	var e *metadata.Error
	if !errors.As(err, &e) || !errors.Is(err, metadata.ErrCorrupt) && !errors.Is(err, metadata.ErrVersion) {
		return "", false
	}
	return strings.CutPrefix(e.Key, metadata.TopicKey("").String())
}

// topic does all for one topic. One that is deleted meanwhile has nothing left to do.
func (r *run) topic(ctx context.Context, t *metadata.Topic) error {
	keep := t.EffectiveRetention()
	report := &TopicReport{Topic: t.Name, RetentionMs: -1, RetentionBytes: keep.Bytes, Stored: names(t.Stored), Moves: []Move{}}
	if keep.Time >= 0 {
		report.RetentionMs = keep.Time.Milliseconds()
	}
	r.report.Topics = append(r.report.Topics, report)
	err := r.expire(ctx, t, keep, report)
	if err == nil && len(report.Behind) > 0 && !r.o.DryRun {
		err = r.keeper.Finish(ctx, t)
	}
	if err == nil && len(t.Leaving()) > 0 {
		var left []segment.Class
		left, err = r.release(ctx, t)
		report.Left = names(left)
	}
	if errors.Is(err, metadata.ErrNoLane) || errors.Is(err, metadata.ErrNoState) || errors.Is(err, metadata.ErrTopicGone) {
		report.Gone, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("topic %q: %w", t.Name, err)
	}
	return nil
}

// expire moves the log starts of the topic's lanes.
func (r *run) expire(ctx context.Context, t *metadata.Topic, keep metadata.Retention, report *TopicReport) error {
	for _, id := range t.Lanes {
		state, err := r.table.State(ctx, id, metadata.Eventual)
		if errors.Is(err, metadata.ErrNoState) {
			state, err = r.table.State(ctx, id, metadata.Strong)
		}
		if err != nil {
			return err
		}
		if t.Version > 1 && state.Version < t.Version {
			report.Behind = append(report.Behind, id)
		}
		if !r.due(state, keep) {
			continue
		}
		l, err := r.open(ctx, t, id, keep)
		if err == nil {
			err = l.expire(ctx)
		}
		if errors.Is(err, errMoved) {
			continue // others move it just now; the next run looks again
		}
		if err != nil {
			return fmt.Errorf("lane %s: %w", id, err)
		}
		if err := r.raise(ctx, l, report); err != nil {
			return fmt.Errorf("lane %s: %w", id, err)
		}
	}
	return nil
}

// due tells whether anything in the lane can have expired.
func (r *run) due(s *metadata.State, keep metadata.Retention) bool {
	return keep.Bytes >= 0 || keep.Time >= 0 && (s.Oldest.IsZero() || metadata.Expired(s.Oldest, r.now, keep.Time))
}

// raise moves the log starts that were found, and notes how old the oldest is after that. The note comes last: it is true only when all have been moved.
func (r *run) raise(ctx context.Context, l *lane, report *TopicReport) error {
	for _, s := range l.slots {
		if s.next == s.start {
			continue
		}
		if !r.o.DryRun {
			if _, err := r.table.SetStart(ctx, l.id, s.at, s.next); err != nil {
				return err
			}
		}
		report.Moves = append(report.Moves, Move{Partition: s.partition, From: s.start, To: s.next, End: s.end, By: s.by})
	}
	if r.o.DryRun || l.oldest.IsZero() || !l.oldest.After(l.state.Oldest) {
		return nil
	}
	return r.table.SetOldest(ctx, l.id, l.oldest)
}

// rules makes the bucket's rules those of the classes that topics have had, deleted ones too as long as they are being cleaned.
func (r *run) rules(ctx context.Context, p place, rows []*metadata.Topic) error {
	r.report.Rules = &RulesReport{Supported: r.o.Lifecycle != nil}
	if r.o.Lifecycle == nil {
		return nil
	}
	gone, err := r.table.Gone(ctx)
	if err != nil {
		return err
	}
	var classes []segment.Class
	for _, t := range rows {
		classes = append(append(classes, t.Classes...), t.Class())
	}
	for _, g := range gone {
		classes = append(classes, g.Classes...)
	}
	slices.Sort(classes)
	wanted := p.wanted(slices.Compact(classes), r.o.Moves)
	now, err := r.o.Lifecycle.Rules(ctx)
	if err != nil {
		return err
	}
	var plan *rulesPlan
	if r.o.DryRun {
		plan = p.plan(now, wanted)
	} else {
		plan, err = p.apply(ctx, r.o.Lifecycle, now, wanted)
	}
	r.report.Rules.Changes, r.report.Rules.Notes = plan.Changes, plan.Notes
	return err
}
