package sdk

import (
	"context"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// sink is where a producer's flushes go: to store and table, or to a function over HTTP. All that is before it, from accepting a record to cutting
// a flush, and all that is after it, promises and what a failure takes with it, is the producer's.
type sink interface {
	// topic reads the topic's row.
	topic(ctx context.Context, name string) (*metadata.Topic, error)
	// writer makes the writer of the partition's lane. Producer.mu is held.
	writer(at *partitionHandle) laneWriter
	// send ends the tickets of all parts of the flush, each with Commit once its bytes may be committed, or with Fail. What it returns is
	// recycled when the flush is settled.
	send(ctx context.Context, f *flush) []*upload
}

// laneWriter commits to one lane, in the order of reserve. Its contract, and the tickets', is lane.Writer's.
type laneWriter interface {
	reserve(slots []metadata.Slot, done func(lane.Result)) (ticket, error)
	Close(ctx context.Context) error
	Idle(ctx context.Context) error
}

type ticket interface {
	Commit(s *lane.Segment)
	Fail(err error) bool
	Told()
}

// directSink is the log's own store and table.
type directSink struct{ *Producer }

func (s directSink) topic(ctx context.Context, name string) (*metadata.Topic, error) {
	return s.log.table.Topic(ctx, name)
}

func (s directSink) send(ctx context.Context, f *flush) []*upload { return s.Producer.send(ctx, f) }

func (s directSink) writer(at *partitionHandle) laneWriter {
	p, t, id, first := s.Producer, at.topic, at.place.Lane, at.index-int(at.place.Slot)
	gone := func(slot metadata.Slot) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if used := t.row.Used(id); int(slot) >= len(used) {
			return noPartition(t.row.Name, first+int(slot), t.row.Partitions)
		}
		return nil
	}
	return &directLane{p.log.lanes, id, lane.New(lane.Config{
		Lane: id, Table: p.log.table, Env: p.log.env, Writer: p.epoch, SettleBudget: p.config.settleBudget(), Remint: p.remint,
		Refresh: func(ctx context.Context, _ int64) (int64, error) { return p.refresh(ctx, t) },
		Gone:    gone, OnImage: p.observe, Hooks: p.laneHooks(),
	})}
}

// directLane is a lane.Writer that learns from the log's readers.
type directLane struct {
	lanes *lanes
	id    metadata.LaneID
	*lane.Writer
}

func (l *directLane) reserve(slots []metadata.Slot, done func(lane.Result)) (ticket, error) {
	if image := l.lanes.known(l.id); image != nil {
		l.Observe(image) // a reader of this process may have seen a newer one
	}
	t, err := l.Reserve(slots, done)
	if err != nil {
		return nil, err
	}
	return t, nil
}
