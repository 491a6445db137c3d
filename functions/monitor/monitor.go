// Package monitor measures a log from outside, by what its table says, and what a process does to it from inside, by hooks (Counts); and writes both as CloudWatch's
// embedded metrics.
//
// From outside can be seen: how far each group is behind, and how much of the retention time that is; how much waits for compaction, and since when; how full
// the heads are; how often epochs were raised; how old the floor is. Outcomes that were unknown for a while, and throttling, leave no trace in the table that
// tells them from anything else: those each process counts for itself.
//
// A run asks for the topics, the groups, the identity and the floor, for each group's items, and twice for each lane. A lane with a backlog that has left the head
// costs one more, a partition of which a group has something to read a search for its age.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment"
)

// Table is what monitor needs of a log's table.
type Table interface {
	walk.Table
	metadata.TopicReader
	metadata.GroupReader
	Identity(ctx context.Context) (id metadata.Identity, ok bool, err error)
	Floor(ctx context.Context) (segment.ID, error)
	ServiceTime() (now time.Time, ok bool)
}

// Report is what a run has measured. What concerns partitions is the largest of them: one that is behind is not made up for by others that are not.
type Report struct {
	Log    string        `json:"log"` // LogName
	At     time.Time     `json:"at"`  // by the table's clock
	Floor  time.Duration `json:"floor_age"`
	Swept  bool          `json:"swept"` // there is a floor
	Topics []Topic       `json:"topics"`
	Groups []Group       `json:"groups"`
}

// Topic is what was measured of a topic.
type Topic struct {
	Topic       string        `json:"topic"`
	Unarchived  int64         `json:"unarchived_commits"` // all lanes together
	Oldest      time.Duration `json:"oldest_unarchived"`  // age of the oldest of them
	Unspilled   int64         `json:"unspilled_commits"`  // of the lane that has most; metadata.MaxHeadEntries is a head that is full
	EpochRaises int64         `json:"epoch_raises"`       // since the topic was created; changes of its configuration raise all
}

// Group is what was measured of a group and a topic that it reads.
type Group struct {
	Group string        `json:"group"`
	Topic string        `json:"topic"`
	Lag   int64         `json:"lag"`            // records
	Age   time.Duration `json:"lag_age"`        // of the next record to be read; in the archive of the first in its extent
	Used  float64       `json:"retention_used"` // share of the retention time that has passed for it; at 1 it is being deleted
	Lost  int64         `json:"lost"`           // records that were committed to be read next and are gone by retention
}

// parallel is how many lanes or groups are asked about at once.
const parallel = 8

// Run measures a log. The report has what could be measured, also with an error.
func Run(ctx context.Context, table Table, e env.Env) (*Report, error) {
	r := &run{table: &heads{Table: table, known: map[metadata.LaneID]*metadata.Head{}}, env: e, lanes: map[metadata.LaneID]laneView{}, report: &Report{Topics: []Topic{}, Groups: []Group{}}}
	r.walker = walk.New(r.table)
	return r.report, r.all(ctx)
}

type run struct {
	table  *heads
	walker *walk.Walker
	env    env.Env
	report *Report

	mu    sync.Mutex
	lanes map[metadata.LaneID]laneView
}

// laneView is a lane as the run has read it.
type laneView struct {
	head  *metadata.Head
	state *metadata.State
}

func (r *run) all(ctx context.Context) error {
	identity, ok, err := r.table.Identity(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: the table has no log", metadata.ErrWrongLog)
	}
	r.report.Log = LogName(identity.Bucket, identity.Prefix)
	r.report.At = r.env.Now()
	if now, ok := r.table.ServiceTime(); ok {
		r.report.At = now
	}
	floor, err := r.table.Floor(ctx)
	if err != nil {
		return err
	}
	if r.report.Swept = !floor.IsZero(); r.report.Swept {
		r.report.Floor = max(r.report.At.Sub(floor.Time()), 0)
	}
	states, err := r.groups(ctx) // before the heads: an end is then not below what was committed
	topics, failed := r.topics(ctx)
	if err = errors.Join(err, failed); topics == nil {
		return err
	}
	err = errors.Join(err, r.readLanes(ctx, topics))
	for _, t := range topics {
		measured, failed := r.topic(ctx, t)
		err = errors.Join(err, failed)
		if measured != nil {
			r.report.Topics = append(r.report.Topics, *measured)
		}
	}
	for _, g := range states {
		for _, t := range topics {
			measured, failed := r.group(ctx, g, t)
			err = errors.Join(err, failed)
			if measured != nil {
				r.report.Groups = append(r.report.Groups, *measured)
			}
		}
	}
	return err
}

// LogName is how a log is called in metrics: known to who deploys it before there is one.
func LogName(bucket, prefix string) string {
	if prefix == "" {
		return bucket
	}
	return bucket + "/" + prefix
}

func (r *run) topics(ctx context.Context) (all []*metadata.Topic, err error) {
	all = []*metadata.Topic{}
	for after, more := "", true; more; {
		var page []*metadata.Topic
		if page, more, err = r.table.Topics(ctx, after, 1000); err != nil {
			return nil, err
		}
		for _, t := range page {
			all, after = append(all, t), t.Name
		}
	}
	return all, nil
}

// groupState is a group and what its members agree on.
type groupState struct {
	name  string
	lanes map[metadata.LaneID]*metadata.GroupLane
	plan  map[segment.TopicID]bool // topics that it has
}

func (r *run) groups(ctx context.Context) (all []groupState, err error) {
	var names []string
	for after, more := "", true; more; {
		var page []*metadata.Group
		if page, more, err = r.table.Groups(ctx, after, 1000); err != nil {
			return nil, err
		}
		for _, g := range page {
			names, after = append(names, g.Name), g.Name
		}
	}
	all = make([]groupState, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, name := range names {
		g.Go(func() error {
			s, err := r.table.GroupState(ctx, name)
			if err != nil {
				return fmt.Errorf("group %s: %w", name, err)
			}
			all[i] = groupState{name, map[metadata.LaneID]*metadata.GroupLane{}, map[segment.TopicID]bool{}}
			for _, l := range s.Lanes {
				all[i].lanes[l.Lane] = l
			}
			if s.Plan != nil {
				for _, t := range s.Plan.Topics {
					all[i].plan[t.ID] = true
				}
			}
			return nil
		})
	}
	return all, g.Wait()
}

// readLanes reads state and head of every lane, eventually: what is a moment old measures as well. Lanes of a topic that is deleted meanwhile are left out.
func (r *run) readLanes(ctx context.Context, topics []*metadata.Topic) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, t := range topics {
		for _, id := range t.Lanes {
			g.Go(func() error {
				state, err := r.table.State(ctx, id, metadata.Eventual)
				var head *metadata.Head
				if err == nil {
					head, err = r.table.Table.Head(ctx, id, metadata.Eventual)
				}
				switch {
				case errors.Is(err, metadata.ErrNoLane), errors.Is(err, metadata.ErrNoState):
					return nil
				case err != nil:
					return fmt.Errorf("topic %s, lane %s: %w", t.Name, id, err)
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				r.lanes[id] = laneView{head, state}
				r.table.known[id] = head
				return nil
			})
		}
	}
	return g.Wait()
}

// topic measures a topic; nil if none of its lanes was read.
func (r *run) topic(ctx context.Context, t *metadata.Topic) (measured *Topic, failed error) {
	for _, id := range t.Lanes {
		l, ok := r.lanes[id]
		if !ok {
			continue
		}
		if measured == nil {
			measured = &Topic{Topic: t.Name}
		}
		measured.Unarchived += max(l.head.Next-l.state.Archived, 0)
		measured.Unspilled = max(measured.Unspilled, l.head.Next-l.head.First)
		for _, e := range l.head.Epochs {
			measured.EpochRaises += e
		}
		oldest, err := r.oldest(ctx, l)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("topic %s, lane %s: %w", t.Name, id, err))
		}
		if !oldest.IsZero() {
			measured.Oldest = max(measured.Oldest, r.report.At.Sub(oldest))
		}
	}
	return measured, failed
}

// oldest is when the first commit that is not in the archive was made; zero if there is none, or it is on its way there.
func (r *run) oldest(ctx context.Context, l laneView) (time.Time, error) {
	first := l.state.Archived
	if first >= l.head.Next {
		return time.Time{}, nil
	}
	entries := l.head.Entries
	if first < l.head.First {
		c, err := r.table.Chunk(ctx, l.head.Lane, first-first%l.head.K, metadata.Eventual)
		if errors.Is(err, metadata.ErrNoChunk) {
			return time.Time{}, nil
		}
		if err != nil {
			return time.Time{}, err
		}
		entries = c.Entries
	}
	for _, e := range entries {
		if e.Order >= first {
			return e.ID.Time(), nil
		}
	}
	return time.Time{}, nil
}

// group measures a group and a topic; nil if it does not read the topic.
func (r *run) group(ctx context.Context, g groupState, t *metadata.Topic) (*Group, error) {
	reads := g.plan[t.ID]
	for _, id := range t.Lanes {
		reads = reads || g.lanes[id] != nil
	}
	if !reads {
		return nil, nil
	}
	m := &Group{Group: g.name, Topic: t.Name}
	var failed error
	for p := range t.Partitions {
		at := t.Place(p)
		l, ok := r.lanes[at.Lane]
		if !ok {
			continue
		}
		next := l.state.Starts[at.Slot] // where members start unless told otherwise, for what nothing is committed for
		if c := g.lanes[at.Lane]; c != nil && c.Slots[at.Slot].Offset != metadata.NoOffset {
			m.Lost = max(m.Lost, next-c.Slots[at.Slot].Offset)
			next = max(next, c.Slots[at.Slot].Offset)
		}
		lag := l.head.Ends[at.Slot] - next
		if lag <= 0 {
			continue
		}
		m.Lag = max(m.Lag, lag)
		age, err := r.age(ctx, t, p, next)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("group %s, topic %s partition %d: %w", g.name, t.Name, p, err))
		}
		m.Age = max(m.Age, age)
	}
	if keep := t.EffectiveRetention().Time; keep > 0 {
		m.Used = m.Age.Seconds() / keep.Seconds()
	}
	return m, failed
}

// age is how long ago the record at the offset, or the next that is left, was appended; 0 if there is none.
func (r *run) age(ctx context.Context, t *metadata.Topic, partition int, offset int64) (time.Duration, error) {
	for c := walk.At(t, partition, offset).Within(); ; {
		extents, next, err := r.walker.Next(ctx, c)
		var outside *walk.RangeError
		switch {
		case errors.As(err, &outside), errors.Is(err, metadata.ErrNoLane), err == nil && len(extents) == 0: // retention or a deletion was faster
			return 0, nil
		case err != nil:
			return 0, err
		}
		for _, e := range extents {
			if e.Count > 0 {
				return max(r.report.At.Sub(e.First), 0), nil
			}
		}
		c = next
	}
}

// heads answers eventual reads of heads from what the run has read: a walker asks for one with every step.
type heads struct {
	Table
	known map[metadata.LaneID]*metadata.Head
}

func (h *heads) Head(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	if known := h.known[lane]; known != nil && c == metadata.Eventual {
		return known, nil
	}
	return h.Table.Head(ctx, lane, c)
}
