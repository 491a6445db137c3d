package sdk

import (
	"context"
	"errors"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
)

// PrepareCommit makes ready to commit offsets in a transaction that the application sends, together with items of its own that hold what the records up to
// there have led to: so each record has its effect there exactly once. Offsets are of the next record to be read, of partitions that the consumer
// holds, and at least one is above what is committed. Commits must be manual (ManualCommit), and none of these partitions is committed otherwise meanwhile. With
// Producer.Prepare in the same transaction it is a Step that writes the application's items too.
//
// After Done has returned nil, or a *NotAppliedError, the consumer goes on. ErrNotHeld (of PrepareCommit too, and with ErrUnknown of Done): the partition is
// another member's by now. With it, ErrBehind or ErrUnknown drop what was read of the partitions; after ErrUnknown the consumer gives them up, and reads them
// again from what turns out to be committed. A log that is not on DynamoDB is ErrNotSupported.
func (c *Consumer) PrepareCommit(offsets map[TopicPartition]CommitOffset) (*Prepared, error) {
	table, err := c.log.transactable()
	if err != nil {
		return nil, err
	}
	if c.config.autoCommit > 0 {
		return nil, &FieldError{Field: "commit interval", Value: c.config.autoCommit.String(), Valid: "none, by ManualCommit, for a consumer that commits with state"}
	}
	if len(offsets) == 0 {
		return nil, &FieldError{Field: "offsets", Value: "none", Valid: "at least one"}
	}
	wanted, err := c.wanted(offsets)
	if err != nil {
		return nil, err
	}
	moves, err := c.member.Moves(wanted)
	if err != nil {
		return nil, groupError(c.group, err)
	}
	items, err := table.Items(nil, moves)
	if err != nil {
		return nil, err
	}
	return &Prepared{items: items, what: &preparedOffsets{c, wanted, moves}}, nil
}

// preparedOffsets are offsets whose commit another sends.
type preparedOffsets struct {
	consumer *Consumer
	offsets  []group.Offset
	moves    []metadata.StepOffsets
}

func (o *preparedOffsets) expired() error { return nil } // the leases tell

func (o *preparedOffsets) release() {}

func (o *preparedOffsets) settle(ctx context.Context, sent error) error {
	c := o.consumer
	if sent == nil {
		return c.stepped(o.offsets, nil)
	}
	applied, err := c.member.Settle(ctx, o.moves)
	switch {
	case applied:
		return c.stepped(o.offsets, nil)
	case err == nil:
		return &NotAppliedError{Err: sent}
	case !errors.Is(err, ErrNotHeld):
		err = reachable(err)
	}
	return c.stepped(o.offsets, unsettled(groupError(c.group, err), sent))
}
