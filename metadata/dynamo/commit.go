package dynamo

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// Commit implements metadata.Sequencer. The update is the commit point of everything a producer does: before it the segment is an
// object that nobody names, after it the records are in the log.
func (t *Table) Commit(ctx context.Context, commit metadata.Commit) (*metadata.Head, error) {
	c := committing("Commit", commit.Lane, metadata.HeadKey(commit.Lane))
	if err := commit.Validate(); err != nil {
		return nil, c.error("", err)
	}
	c.fresh = freshness{commit.Minted, born(commit.Entries), metadata.MaxSegmentAge}
	out, err := attempt(ctx, t, c, c.timeout, t.client.UpdateItem, t.update(c, commitExpr(&commit)))
	if err != nil {
		var failed *refused
		if errors.As(err, &failed) {
			err = c.refusal(failed.item)
		}
		return nil, err
	}
	h, err := c.head(out.Attributes)
	if err != nil { // applied, but by an answer that cannot be believed
		return nil, c.error("", fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, err))
	}
	return h, nil
}

// refusal is the *metadata.RefusedError with the image that stands. One that cannot be decoded is an error of its own, and definite all the same.
func (c *call) refusal(image item) error {
	if image == nil {
		return &metadata.RefusedError{Lane: c.lane}
	}
	h, err := c.head(image)
	if err != nil {
		return err
	}
	return &metadata.RefusedError{Lane: c.lane, Head: h}
}

// commitExpr is one update, whatever the number of partitions and of entries, and it reads no version, so that writers do not conflict.
// Right-hand sides see the item as it was: #o = g records the order of the first entry, g + j that of the one j places behind.
func commitExpr(c *metadata.Commit) *expr {
	x := newExpr()
	next := x.name(attrNext)
	smallest := c.Entries[0].ID
	var counts metadata.Offsets
	for j := range c.Entries {
		e := &c.Entries[j]
		x.assign(metadata.EntryAttr(e.ID), x.value(binary(metadata.AppendEntry(nil, e))))
		order := next
		if j > 0 {
			order += "+" + x.num(int64(j))
		}
		x.assign(metadata.OrderAttr(e.ID), order)
		x.require(x.absent(metadata.EntryAttr(e.ID)))
		if e.ID.Less(smallest) {
			smallest = e.ID
		}
		for _, s := range e.Slots {
			counts[s.Slot] += int64(s.Count)
		}
	}
	x.assign(attrNext, next+"+"+x.num(int64(len(c.Entries))))
	for s, n := range counts {
		if n > 0 {
			x.increase(metadata.EndAttr(metadata.Slot(s)), n)
		}
	}
	x.require(x.isNumber(metadata.EpochAttr(c.Writer), c.Epoch),
		x.absentOrUnder(attrFloor, text(smallest.String())),
		x.under(attrNext, number(c.Cap)))
	for _, e := range c.Expect {
		if e.Offset == 0 {
			x.require(x.absent(metadata.EndAttr(e.Slot)))
		} else {
			x.require(x.isNumber(metadata.EndAttr(e.Slot), e.Offset))
		}
	}
	for _, f := range c.Tokens {
		x.require(x.isNumber(metadata.TokenAttr(f.Slot), f.Token))
	}
	x.producers(c.Producers)
	if c.PadIf {
		x.require(x.isNumber(attrNext, c.PadAt))
	}
	if c.Once {
		x.require(x.name(attrFirst) + "<=" + x.num(c.Since))
	}
	return x
}

// producers are the conditions and changes for requests that may be repeated. Nothing in them depends on an image that may be old, but the step itself.
func (x *expr) producers(steps []metadata.ProducerStep) {
	began := 0
	for _, s := range steps {
		order := x.name(attrNext)
		if s.Entry > 0 {
			order += "+" + x.num(int64(s.Entry))
		}
		state := x.name(metadata.ProducerAttr(s.ID))
		if s.Sequence == 1 {
			began++
			x.assign(metadata.ProducerAttr(s.ID), x.value(&types.AttributeValueMemberL{Value: []types.AttributeValue{number(1)}}))
			x.assign(metadata.ProducerFirstAttr(s.ID), order)
			x.require(x.absent(metadata.ProducerAttr(s.ID)), x.absentOrUnder(attrIDFloor, number(int64(s.ID))))
			continue
		}
		x.require(state + "[0]=" + x.num(s.Sequence-1))
		x.set = append(x.set, state+"[0]="+x.num(s.Sequence), fmt.Sprintf("%s[%d]=%s", state, 1+(s.Sequence-1)%metadata.ProducerWindow, order))
		if s.Sequence == 2 {
			x.set = append(x.set, state+"[1]="+x.name(metadata.ProducerFirstAttr(s.ID)))
			x.remove(metadata.ProducerFirstAttr(s.ID))
		}
	}
	if began > 0 {
		x.increase(attrProducers, int64(began))
		x.require(x.absentOrUnder(attrProducers, number(int64(metadata.MaxProducers+1-began))))
	}
}

// CommitAll implements metadata.Transactor.
func (t *Table) CommitAll(ctx context.Context, token string, commits []metadata.Commit) error {
	return t.appendAll(ctx, "CommitAll", token, commits, nil)
}

// CommitStep implements metadata.Stepper.
func (t *Table) CommitStep(ctx context.Context, token string, commits []metadata.Commit, offsets []metadata.StepOffsets) error {
	return t.appendAll(ctx, "CommitStep", token, commits, offsets)
}

func (t *Table) appendAll(ctx context.Context, op, token string, commits []metadata.Commit, offsets []metadata.StepOffsets) error {
	c := committing(op, "", metadata.Key{}).within(transactTimeout)
	if err := validateAll(token, commits, offsets); err != nil {
		return c.error("", err)
	}
	items := t.items(commits, offsets)
	c.key = parseKey(items[0].Update.Key)
	if len(commits) > 0 { // all of one segment
		c.fresh = freshness{commits[0].Minted, born(commits[0].Entries), metadata.MaxSegmentAge}
	}
	_, err := attempt(ctx, t, c, c.timeout, t.client.TransactWriteItems, t.transaction(token, items))
	var stopped *cancelled
	if !errors.As(err, &stopped) {
		return err
	}
	for i, r := range stopped.reasons {
		if value(r.Code) != codeConditionFailed || i >= len(items) {
			continue
		}
		if i < len(commits) {
			return committing(op, commits[i].Lane, metadata.HeadKey(commits[i].Lane)).refusal(r.Item)
		}
		o := offsets[i-len(commits)]
		image, err := committing(op, o.Lane, metadata.OffsetsKey(o.Group, o.Lane)).groupLane(r.Item)
		if err != nil {
			return err
		}
		return &metadata.OffsetsRefusedError{Group: o.Group, Image: image}
	}
	return err
}

func validateAll(token string, commits []metadata.Commit, offsets []metadata.StepOffsets) error {
	if n := len(token); n < 1 || n > maxToken {
		return &metadata.FieldError{Field: "token", Value: token, Valid: fmt.Sprintf("1 to %d characters", maxToken)}
	}
	return validateParts(commits, offsets, maxActions)
}

// validateParts checks what goes into one transaction, as at most limit actions.
func validateParts(commits []metadata.Commit, offsets []metadata.StepOffsets, limit int) error {
	if n := len(commits) + len(offsets); n < 1 || n > limit {
		return &metadata.FieldError{Field: "number of lanes in one transaction", Value: fmt.Sprint(n), Valid: fmt.Sprintf("1 to %d", limit)}
	}
	touched := map[metadata.Key]bool{}
	for i := range commits {
		c := &commits[i]
		if err := c.Validate(); err != nil {
			return err
		}
		touched[metadata.HeadKey(c.Lane)] = true
	}
	for i := range offsets {
		o := &offsets[i]
		if err := o.Validate(); err != nil {
			return err
		}
		touched[metadata.OffsetsKey(o.Group, o.Lane)] = true
	}
	if n := len(commits) + len(offsets); len(touched) != n {
		return &metadata.FieldError{Field: "lanes", Value: fmt.Sprintf("%d, %d of them different", n, len(touched)), Valid: "each lane once in a transaction"}
	}
	return nil
}

// Limits of a transaction, the service's.
const (
	maxActions = 100
	maxToken   = 36
)

func (t *Table) transaction(token string, items []types.TransactWriteItem) *dynamodb.TransactWriteItemsInput {
	return &dynamodb.TransactWriteItemsInput{
		TransactItems:          items,
		ClientRequestToken:     &token,
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
}

// updateIn is the expression as an action of a transaction.
func (t *Table) updateIn(key metadata.Key, x *expr) *types.Update {
	return &types.Update{
		TableName:                           &t.name,
		Key:                                 keyOf(key),
		UpdateExpression:                    x.text(),
		ConditionExpression:                 x.condition(),
		ExpressionAttributeNames:            x.names,
		ExpressionAttributeValues:           x.given(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}
