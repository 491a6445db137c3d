package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
)

// begin starts to read partitions that were claimed. If that fails they are tried again by the next Poll. Those that the member does not hold by that
// lease any more are passed over.
func (c *Consumer) begin(ctx context.Context, e event) error {
	e.claims = slices.DeleteFunc(slices.Clone(e.claims), func(claim group.Claim) bool { return !c.member.Holds(claim.Partition, claim.Committed.Lease) })
	if len(e.claims) == 0 {
		return nil
	}
	c.mu.Lock()
	for _, claim := range e.claims {
		c.owned[claim.Partition] = newOwnership(claim)
	}
	c.mu.Unlock()
	if !e.told && c.config.onAssigned != nil {
		var partitions []group.Partition
		for _, claim := range e.claims {
			partitions = append(partitions, claim.Partition)
		}
		e.given = c.config.onAssigned(ctx, topicPartitions(partitions))
	}
	e.told = true
	starts, err := c.starts(ctx, e)
	if err != nil && starts == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append([]event{e}, c.events...)
		return groupError(c.group, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, start := range starts {
		c.owned[p].begun = true
		_, given := e.given[TopicPartition{c.readers[p.ID].topic.Name, p.Partition}]
		c.readers[p.ID].begins(p.Partition, start, !given)
	}
	if err != nil {
		return groupError(c.group, err)
	}
	return nil
}

func newOwnership(claim group.Claim) *ownership {
	o := &ownership{lease: claim.Committed.Lease, delivered: noOffset, finished: noOffset, committed: claim.Committed.Offset}
	if o.committed == metadata.NoOffset {
		o.committed = noOffset
	}
	return o
}

// starts is where each claim's partition starts. Those without wait for a Seek, and are named by the error, ErrNoCommit or ErrInvalid, or to be lost, since their topic
// is gone; any other error comes without starts. What the start policy comes to is committed, so that it is the same for whoever has the partition next, should this
// member end before its first commit.
func (c *Consumer) starts(ctx context.Context, e event) (starts map[group.Partition]int64, failed error) {
	starts = map[group.Partition]int64{}
	known := map[*part]bounds{}
	var fixed []group.Offset
	for _, claim := range e.claims {
		offset, given := e.given[TopicPartition{claim.Topic, claim.Partition.Partition}]
		r := c.reader(claim)
		switch {
		case given:
			if err := (CommitOffset{Offset: offset}).check(TopicPartition{claim.Topic, claim.Partition.Partition}); err != nil {
				failed = errors.Join(failed, fmt.Errorf("what OnAssigned has returned: %w", err))
				continue
			}
			starts[claim.Partition] = offset
			continue
		case claim.Committed.Offset != metadata.NoOffset:
			starts[claim.Partition] = claim.Committed.Offset
			to, err := r.missed(ctx, claim.Partition.Partition, claim.Committed.Offset, claim.Committed.At, known)
			if err != nil && !errors.Is(err, ErrTopicGone) {
				return nil, err
			}
			if to > 0 {
				fire(c.log.hooks, func(h TombstonesHook) {
					h.OnTombstones(TombstonesEvent{c.group, claim.Topic, claim.Partition.Partition, claim.Committed.Offset, to, claim.Committed.At})
				})
			}
			continue
		}
		offset, err := c.policy(ctx, claim, r, known)
		switch {
		case errors.Is(err, ErrTopicGone):
			c.member.LookAgain()
			continue
		case errors.Is(err, ErrNoCommit):
			failed = errors.Join(failed, fmt.Errorf("topic %q partition %d: %w", claim.Topic, claim.Partition.Partition, err))
			continue
		case err != nil:
			return nil, err
		}
		starts[claim.Partition] = offset
		fixed = append(fixed, group.Offset{Partition: claim.Partition, Lease: claim.Committed.Lease, Offset: offset})
	}
	if err := c.fix(ctx, fixed); err != nil {
		return nil, err
	}
	return starts, failed
}

// fix commits starts. One that was lost meanwhile, or committed by the application, needs none; another error beside those is not hidden by them.
func (c *Consumer) fix(ctx context.Context, starts []group.Offset) error {
	for len(starts) > 0 {
		done, err := c.member.Commit(ctx, starts)
		var refused *group.PartitionError
		if !errors.As(err, &refused) {
			return err
		}
		starts = slices.DeleteFunc(starts, func(o group.Offset) bool { return slices.Contains(done, o) || o.Partition == refused.Partition })
	}
	return nil
}

// policy is where a partition starts for which nothing is committed.
func (c *Consumer) policy(ctx context.Context, claim group.Claim, r *Reader, known map[*part]bounds) (int64, error) {
	at := c.config.start
	if claim.Added {
		at = Earliest
	}
	if at.kind == startFail {
		return 0, ErrNoCommit
	}
	return r.startOf(ctx, claim.Partition.Partition, at, known)
}

// reader is the reader of a claim's topic, made or grown if need be. All its partitions are paused until begins.
func (c *Consumer) reader(claim group.Claim) *Reader {
	r := c.readers[claim.ID]
	if r == nil {
		r = c.log.idleReader(claim.Row, c.config.reading, c.news)
		c.readers[claim.ID] = r
		c.order = append(c.order, claim.ID)
		c.shareBuffer()
	}
	r.grow(claim.Row)
	return r
}

// shareBuffer divides the buffer's bytes among the topics.
func (c *Consumer) shareBuffer() {
	for _, r := range c.readers {
		r.resize(max(c.config.reading.bufferBytes/len(c.readers), 1))
	}
}
