package dynamo

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// SetLeases implements metadata.GroupOffsets. A lease once replaced never stands again, so a late or repeated request changes nothing.
func (t *Table) SetLeases(ctx context.Context, group string, lane metadata.LaneID, changes []metadata.LeaseChange) (*metadata.GroupLane, error) {
	c := writing("SetLeases", lane, metadata.OffsetsKey(group, lane))
	if err := metadata.ValidateLeases(changes); err != nil {
		return nil, c.error("", err)
	}
	return t.setLane(ctx, c, leasesExpr(changes), func(l *metadata.GroupLane) bool {
		for _, ch := range changes {
			if l.Slots[ch.Slot].Lease != ch.To {
				return false
			}
		}
		return true
	})
}

func leasesExpr(changes []metadata.LeaseChange) *expr {
	x := newExpr()
	for _, ch := range changes {
		x.assign(metadata.LeaseAttr(ch.Slot), x.value(text(ch.To.String())))
		x.require(x.leaseIs(ch.Slot, ch.From))
	}
	return x
}

// leaseIs is the condition that the slot's lease stands.
func (x *expr) leaseIs(s metadata.Slot, l metadata.Lease) string {
	if l == (metadata.Lease{}) {
		return x.absent(metadata.LeaseAttr(s))
	}
	return x.is(metadata.LeaseAttr(s), text(l.String()))
}

// CommitOffsets implements metadata.GroupOffsets.
func (t *Table) CommitOffsets(ctx context.Context, group string, lane metadata.LaneID, at time.Time, commits []metadata.OffsetCommit) (*metadata.GroupLane, error) {
	c := writing("CommitOffsets", lane, metadata.OffsetsKey(group, lane))
	if err := metadata.ValidateOffsets(commits); err != nil {
		return nil, c.error("", err)
	}
	return t.setLane(ctx, c, commitsExpr(at, commits), func(l *metadata.GroupLane) bool {
		for _, oc := range commits {
			if s := l.Slots[oc.Slot]; s.Lease != oc.Lease || s.Offset != oc.Offset || s.Metadata != oc.Metadata {
				return false
			}
		}
		return true
	})
}

// commitsExpr has two terms a slot, never joined by OR: 64 slots take 255 of the 300 operators of an expression.
func commitsExpr(at time.Time, commits []metadata.OffsetCommit) *expr {
	x := newExpr()
	when := x.num(at.UnixMilli())
	for _, oc := range commits {
		x.commitOffset(oc.Slot, oc.Offset, when, oc.Metadata)
		x.require(x.leaseIs(oc.Slot, oc.Lease))
		if attr := metadata.CommittedAttr(oc.Slot); oc.First {
			x.require(x.absent(attr))
		} else {
			x.require(x.name(attr) + "<=" + x.num(oc.Offset))
		}
	}
	return x
}

// commitOffset sets a slot's offset, when being the placeholder of its time.
func (x *expr) commitOffset(s metadata.Slot, offset int64, when, note string) {
	x.assign(metadata.CommittedAttr(s), x.num(offset))
	x.assign(metadata.CommitTimeAttr(s), when)
	if note == "" {
		x.remove(metadata.CommitNoteAttr(s))
	} else {
		x.assign(metadata.CommitNoteAttr(s), x.value(text(note)))
	}
}

// ResetOffsets implements metadata.GroupOffsets.
func (t *Table) ResetOffsets(ctx context.Context, group string, lane metadata.LaneID, at time.Time, resets []metadata.OffsetReset) (*metadata.GroupLane, error) {
	c := writing("ResetOffsets", lane, metadata.OffsetsKey(group, lane))
	if err := metadata.ValidateResets(resets); err != nil {
		return nil, c.error("", err)
	}
	return t.setLane(ctx, c, resetsExpr(at, resets), func(l *metadata.GroupLane) bool {
		for _, r := range resets {
			if s := l.Slots[r.Slot]; s.Lease != afterReset(r) || s.Offset != r.Offset {
				return false
			}
		}
		return true
	})
}

// afterReset is the lease that a reset leaves.
func afterReset(r metadata.OffsetReset) metadata.Lease {
	return metadata.Lease{Epoch: r.From.Lease.Epoch + 1}
}

func resetsExpr(at time.Time, resets []metadata.OffsetReset) *expr {
	x := newExpr()
	for _, r := range resets {
		x.assign(metadata.LeaseAttr(r.Slot), x.value(text(afterReset(r).String())))
		x.require(x.leaseIs(r.Slot, r.From.Lease), x.offsetIs(r.Slot, r.From.Offset))
		if r.Offset == metadata.NoOffset {
			x.remove(metadata.CommittedAttr(r.Slot))
			x.remove(metadata.CommitTimeAttr(r.Slot))
			x.remove(metadata.CommitNoteAttr(r.Slot))
		} else {
			x.commitOffset(r.Slot, r.Offset, x.num(at.UnixMilli()), "")
		}
	}
	return x
}

// offsetIs is the condition that the slot's committed offset stands.
func (x *expr) offsetIs(s metadata.Slot, offset int64) string {
	if offset == metadata.NoOffset {
		return x.absent(metadata.CommittedAttr(s))
	}
	return x.isNumber(metadata.CommittedAttr(s), offset)
}

// stepExpr moves offsets from exactly where they were.
func stepExpr(o *metadata.StepOffsets) *expr {
	x := newExpr()
	when := x.num(o.At.UnixMilli())
	for _, m := range o.Moves {
		x.commitOffset(m.Slot, m.To, when, m.Metadata)
		x.require(x.leaseIs(m.Slot, m.Lease), x.offsetIs(m.Slot, m.From))
	}
	return x
}

// setLane updates the item of a group's lane. done tells whether an image shows what was asked for: a repeat after a lost answer is refused by
// what it has done itself.
func (t *Table) setLane(ctx context.Context, c *call, x *expr, done func(*metadata.GroupLane) bool) (*metadata.GroupLane, error) {
	image, ok, err := t.set(ctx, c, x)
	if err != nil {
		return nil, err
	}
	l, err := c.groupLane(image)
	if err == nil && !ok && !(c.doubt && done(l)) {
		return l, c.error("", metadata.ErrChanged)
	}
	return l, err
}

// deleteIf removes an item under a condition; ok is false when it failed. A repeat that finds nothing after a lost answer is taken for a success.
func (t *Table) deleteIf(ctx context.Context, c *call, x *expr) (ok bool, err error) {
	_, err = repeat(ctx, t, c, t.client.DeleteItem, &dynamodb.DeleteItemInput{
		TableName:                           &t.name,
		Key:                                 keyOf(c.key),
		ConditionExpression:                 x.condition(),
		ExpressionAttributeNames:            x.names,
		ExpressionAttributeValues:           x.given(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	})
	var failed *refused
	if errors.As(err, &failed) {
		return c.doubt && failed.item == nil, nil
	}
	return err == nil, err
}

// DeleteGroup implements metadata.GroupAdmin. The row goes last, so that as long as anything is left the group can be listed.
func (t *Table) DeleteGroup(ctx context.Context, group string) (done bool, err error) {
	c := reading("DeleteGroup", "", metadata.PlanKey(group)).within(pageTimeout)
	q := t.query(c.key.PK, true)
	q.ProjectionExpression = aws.String("pk, sk")
	items, more, err := t.pages(ctx, c, q, piece)
	if err != nil {
		return false, err
	}
	for len(items) > 0 {
		n := min(len(items), batch)
		if err := t.deleteAll(ctx, c.op, "", items[:n]); err != nil {
			return false, err
		}
		items = items[n:]
	}
	if more {
		return false, nil
	}
	return true, t.delete(ctx, writing(c.op, "", metadata.GroupKey(group)))
}

// ForgetOffsets implements metadata.GroupAdmin.
func (t *Table) ForgetOffsets(ctx context.Context, group string, lanes []metadata.LaneID) error {
	for some := range slices.Chunk(lanes, batch) {
		keys := make([]item, len(some))
		for i, lane := range some {
			keys[i] = keyOf(metadata.OffsetsKey(group, lane))
		}
		if err := t.deleteAll(ctx, "ForgetOffsets", "", keys); err != nil {
			return err
		}
	}
	return nil
}
