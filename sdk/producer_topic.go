package sdk

import (
	"context"
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// topicHandle is one topic, in one creation of it, as the producer knows it. Guarded by Producer.mu.
type topicHandle struct {
	row        *metadata.Topic // immutable; a newer one replaces it
	partitions []*partitionHandle
	choose     func(*Record, int) int
	keyed      bool          // the table knows that keyed records may come
	read       time.Duration // when the row was, monotonic; over HTTP it is read again now and then
}

// partitionHandle is one partition. Guarded by Producer.mu.
type partitionHandle struct {
	topic *topicHandle
	index int
	place metadata.Place
	open  *batch   // its batch in the open flush, nil if it has none
	queue []*batch // accepted and not yet ready for delivery, oldest first

	// failures are the batches that failed by themselves and whose owner is not told yet: promises before theirs may
	// take their time. What is accepted meanwhile was accepted before the failure was told, and may not follow it.
	failures int
}

// topic returns the topic's handle, reading the row when it is not known, and with mu held unless there is an error.
func (p *Producer) topic(ctx context.Context, name string) (*topicHandle, error) {
	if err := p.log.live(); err != nil {
		return nil, err
	}
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		if t := p.topics[name]; t != nil {
			return t, nil
		}
		if err := metadata.ValidateName("topic", name); err != nil {
			p.mu.Unlock()
			return nil, err
		}
		if other := p.loading[name]; other != nil {
			p.mu.Unlock()
			select {
			case <-other: // if it failed, this call tries for itself
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		done := make(chan struct{})
		p.loading[name] = done
		p.mu.Unlock()
		row, err := p.sink.topic(ctx, name)
		p.mu.Lock()
		delete(p.loading, name)
		close(done)
		if err == nil {
			p.topics[name] = p.newTopic(row)
		}
		p.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("topic %q: %w", name, reachable(err))
		}
	}
}

func (p *Producer) newTopic(row *metadata.Topic) *topicHandle {
	t := &topicHandle{choose: p.config.partitioner(row.Name, p.log.env.Uint64), read: p.log.env.Mono()}
	t.learn(row)
	return t
}

// learn takes in a row. mu is held.
func (t *topicHandle) learn(row *metadata.Topic) {
	t.keyed = t.keyed || row.Keyed
	if t.row != nil && t.row.Version >= row.Version {
		return
	}
	t.row = row
	for i, at := range t.partitions { // a table that was put back may have forgotten a growth, and had another since
		if i >= row.Partitions || at.place != row.Place(i) {
			t.partitions = t.partitions[:i:i]
			break
		}
	}
	for i := len(t.partitions); i < row.Partitions; i++ {
		t.partitions = append(t.partitions, &partitionHandle{topic: t, index: i, place: row.Place(i)})
	}
}

// refresh reads the topic's row again, because a head has shown a config version above the one that is known, and
// returns the version that is known now.
func (p *Producer) refresh(ctx context.Context, t *topicHandle) (int64, error) {
	p.mu.Lock()
	row := t.row
	p.mu.Unlock()
	fresh, err := p.sink.topic(ctx, row.Name)
	if err != nil {
		return 0, err
	}
	if fresh.ID != row.ID {
		return 0, fmt.Errorf("topic %q: %w: created anew as %s", row.Name, metadata.ErrTopicGone, fresh.ID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.learn(fresh)
	return t.row.Version, nil
}

// markKeyed makes the table know that keyed records may come, which has to be so before the first is appended: it
// decides whether the topic may grow.
func (p *Producer) markKeyed(ctx context.Context, t *topicHandle) error {
	p.mu.Lock()
	row, known := t.row, t.keyed
	p.mu.Unlock()
	if known {
		return nil
	}
	err := p.persist(ctx, func() error { return p.log.table.MarkKeyed(ctx, row.Name, row.ID) }, retryTable)
	if err == nil {
		p.mu.Lock()
		t.keyed = true
		p.mu.Unlock()
	}
	return err
}

// forget drops a topic that was deleted, so that the next record of its name finds out what is there now. Records that
// are still on their way to it fail as this one did. mu is held.
func (p *Producer) forget(t *topicHandle) {
	if p.topics[t.row.Name] == t {
		delete(p.topics, t.row.Name)
	}
}

// writer is the lane's writer. mu is held. One is kept for each lane that was ever used; without work it is a few
// hundred bytes.
func (p *Producer) writer(at *partitionHandle) laneWriter {
	id := at.place.Lane
	w := p.lanes[id]
	if w == nil {
		w = p.sink.writer(at)
		p.lanes[id] = w
	}
	return w
}

// observe takes in an image of a head.
func (p *Producer) observe(h *metadata.Head) {
	p.ids.raise(h.Floor)
	p.seen.note(h)
	p.log.lanes.observe(h)
}

func (p *Producer) laneHooks() lane.Hooks {
	return lane.Hooks{
		Commit: func(e lane.CommitEvent) {
			fire(p.log.hooks, func(h CommitHook) {
				h.OnCommit(CommitEvent{Lane: string(e.Lane), Segments: e.Segments, Attempts: e.Attempt, Duration: e.Duration,
					Outcome: outcomeOfCommit(e.Err), Err: e.Err})
			})
		},
		Settle: func(e lane.SettleEvent) {
			fire(p.log.hooks, func(h SettleHook) {
				h.OnSettle(SettleEvent{Lane: string(e.Lane), Branch: string(e.Branch), Duration: e.Duration})
			})
		},
		Throttled: func(time.Duration) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.linger.throttled()
		},
	}
}
