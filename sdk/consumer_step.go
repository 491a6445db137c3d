package sdk

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
)

// Step appends records and commits the offsets that they were made from in one transaction of the table, all or none: so each input has its effect exactly once,
// whatever crashes when. Commits must be manual: one by the clock would count as done what a step did not do. Offsets are of the next record to be read, of partitions that the consumer holds; records are of topics of one retention
// class. It needs at least one of each: without results CommitOffsets does, and costs half. It is as fit for as many calls a second as AppendAtomic.
//
// ErrNotHeld and ErrBehind: the partition is another member's by now, or further on, and nothing was appended; what was read of it is to be dropped. After ErrUnknown
// the consumer gives the partitions up, and reads them again from what turns out to be committed: drop what was read of them. After any other error
// nothing was appended or committed, and the step may be tried again.
func (c *Consumer) Step(ctx context.Context, p *Producer, offsets map[TopicPartition]CommitOffset, records ...*Record) error {
	if err := c.log.direct("step"); err != nil {
		return err
	}
	if c.config.autoCommit > 0 {
		return &FieldError{Field: "commit interval", Value: c.config.autoCommit.String(), Valid: "none, by ManualCommit, for a consumer that steps"}
	}
	if len(offsets) == 0 || len(records) == 0 {
		return &FieldError{Field: "step", Value: fmt.Sprintf("%d offsets, %d records", len(offsets), len(records)), Valid: "at least one of each"}
	}
	if theirs, ours := p.log.identity.Log, c.log.identity.Log; theirs != ours {
		return &FieldError{Field: "log of the producer", Value: fmt.Sprint(theirs), Valid: fmt.Sprintf("the consumer's, %s: one table takes the whole step", ours)}
	}
	wanted, err := c.wanted(offsets)
	if err != nil {
		return err
	}
	moves, err := c.member.Moves(wanted)
	if err != nil {
		return groupError(c.group, err)
	}
	w := newWaiter(records)
	if err := p.acceptAtomic(ctx, records, moves, w); err != nil {
		return err
	}
	return c.stepped(wanted, w.wait(ctx).Err())
}

// stepped notes the outcome of a step, and returns it as its caller sees it.
func (c *Consumer) stepped(offsets []group.Offset, err error) error {
	var refused *metadata.OffsetsRefusedError
	switch {
	case err == nil:
		c.member.Moved(offsets)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, o := range offsets {
			if own := c.owned[o.Partition]; own != nil && own.lease == o.Lease {
				own.committed = max(own.committed, o.Offset)
			}
		}
	case errors.As(err, &refused):
		// The lease is another's, or an offset is not where this member has put it: what it has read is not what comes next.
		c.member.Doubt(offsets)
		return groupError(c.group, fmt.Errorf("%w: %w", ErrNotHeld, err))
	case errors.Is(err, ErrUnknown):
		c.member.Doubt(offsets) // from now on nothing of them is delivered; the next heartbeat claims them anew
	}
	return err
}

// CommitAtomic is CommitOffsets all or none, also of several lanes: one transaction of the table, which costs twice. With only some of the offsets committed a
// group that reads several partitions as one, such as both sides of a join, would go on at a state that never was. At least one of the offsets must be
// higher than what is committed, none lower; otherwise it is ErrBehind.
//
// ErrNotHeld and ErrBehind: nothing is committed. After ErrUnknown, when the table has not answered for long, the consumer gives the partitions up and reads them
// again from what turns out to be committed.
func (c *Consumer) CommitAtomic(ctx context.Context, offsets map[TopicPartition]CommitOffset) error {
	wanted, err := c.wanted(offsets)
	if err != nil {
		return err
	}
	err = c.member.CommitAtomic(ctx, wanted)
	if errors.Is(err, metadata.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err = c.stepped(wanted, err); err != nil && !errors.Is(err, ErrUnknown) {
		return groupError(c.group, err)
	}
	return err
}

// wanted is the offsets as the member takes them; partitions that are not held, and offsets that nobody can commit, are an error.
func (c *Consumer) wanted(offsets map[TopicPartition]CommitOffset) (wanted []group.Offset, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tp, o := range offsets {
		p, own, err := c.find(tp)
		if err == nil {
			err = o.check(tp)
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		wanted = append(wanted, group.Offset{Partition: p, Lease: own.lease, Offset: o.Offset, Metadata: o.Metadata})
	}
	return wanted, failed
}
