package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// set updates one item under a condition, and repeats. ok is false when the condition failed; the image is then the one that stands, nil if none does.
func (t *Table) set(ctx context.Context, c *call, x *expr) (image item, ok bool, err error) {
	out, err := repeat(ctx, t, c, t.client.UpdateItem, t.update(c, x))
	var failed *refused
	switch {
	case errors.As(err, &failed):
		return failed.item, false, nil
	case err != nil:
		return nil, false, err
	}
	return out.Attributes, true, nil
}

// RaiseEpoch implements metadata.Sequencer. A repeat after a lost answer finds the epoch raised, which is what was asked for.
func (t *Table) RaiseEpoch(ctx context.Context, lane metadata.LaneID, writer int, from int64) (*metadata.Head, error) {
	c := writing("RaiseEpoch", lane, metadata.HeadKey(lane))
	if writer < 0 || writer >= metadata.Epochs {
		return nil, c.error("", &metadata.FieldError{Field: "writer", Value: fmt.Sprint(writer), Valid: fmt.Sprintf("0 to %d", metadata.Epochs-1)})
	}
	x := newExpr()
	x.assign(metadata.EpochAttr(writer), x.num(from+1))
	x.require(x.isNumber(metadata.EpochAttr(writer), from))
	image, _, err := t.set(ctx, c, x)
	if err != nil {
		return nil, err
	}
	return c.head(image)
}

// EvictProducers implements metadata.Sequencer. A repeat after a lost answer finds the producers gone.
func (t *Table) EvictProducers(ctx context.Context, image *metadata.Head, floor metadata.ProducerID, ids ...metadata.ProducerID) (*metadata.Head, error) {
	c := writing("EvictProducers", image.Lane, metadata.HeadKey(image.Lane))
	x := newExpr()
	for _, id := range ids {
		state, known := image.Producers[id]
		if !known {
			return nil, c.error("", &metadata.FieldError{Field: "producer", Value: id.String(), Valid: "one of the image's"})
		}
		floor = max(floor, id)
		x.require(x.name(metadata.ProducerAttr(id)) + "[0]=" + x.num(state.Sequence))
		x.remove(metadata.ProducerAttr(id))
		if state.Sequence == 1 {
			x.remove(metadata.ProducerFirstAttr(id))
		}
	}
	floor = max(floor, image.ProducerFloor)
	x.require(x.exists(attrNext), x.unchanged(attrIDFloor, int64(image.ProducerFloor)), x.unchanged(attrProducers, int64(len(image.Producers))))
	x.assign(attrIDFloor, x.num(int64(floor)))
	x.assign(attrProducers, x.num(int64(len(image.Producers)-len(ids))))
	it, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil:
		return nil, err
	case it == nil:
		return nil, c.error("", metadata.ErrNoLane)
	}
	h, err := c.head(it)
	if err != nil || ok {
		return h, err
	}
	gone := h.ProducerFloor >= floor
	for _, id := range ids {
		_, there := h.Producers[id]
		gone = gone && !there
	}
	if !gone {
		return h, c.error("", metadata.ErrChanged)
	}
	return h, nil
}

// Trim implements metadata.Sequencer. That First already is where it was to go is success: whoever trimmed removed the same entries.
func (t *Table) Trim(ctx context.Context, lane metadata.LaneID, from, to int64, ids []segment.ID) (*metadata.Head, error) {
	c := writing("Trim", lane, metadata.HeadKey(lane))
	if int64(len(ids)) != to-from || len(ids) < 1 || len(ids) > metadata.MaxHeadEntries {
		return nil, c.error("", &metadata.FieldError{Field: "ids", Value: fmt.Sprint(len(ids)),
			Valid: fmt.Sprintf("one for each of the orders %d to %d, at most %d", from, to-1, metadata.MaxHeadEntries)})
	}
	x := newExpr()
	x.assign(attrFirst, x.num(to))
	x.require(x.isNumber(attrFirst, from))
	for i, id := range ids {
		x.remove(metadata.EntryAttr(id))
		x.remove(metadata.OrderAttr(id))
		x.require(x.isNumber(metadata.OrderAttr(id), from+int64(i)))
	}
	image, ok, err := t.set(ctx, c, x)
	if err != nil {
		return nil, err
	}
	h, err := c.head(image)
	if err == nil && !ok && h.First != to {
		return h, c.error("", metadata.ErrChanged)
	}
	return h, err
}

// PutChunk implements metadata.Sequencer.
func (t *Table) PutChunk(ctx context.Context, chunk *metadata.Chunk) error {
	c := writing("PutChunk", chunk.Lane, metadata.ChunkKey(chunk.Lane, max(chunk.First, 0)))
	if err := chunk.Validate(); err != nil {
		return c.error("", err)
	}
	it := chunkItem(chunk)
	there, err := t.putIfAbsent(ctx, c, it)
	if err != nil || there == nil {
		return err
	}
	f := &fields{key: c.key, item: there}
	if found, wanted := f.binary(attrPacked), metadata.AppendChunk(nil, chunk); f.err == nil && string(found) != string(wanted) {
		f.bad(attrPacked, metadata.ErrCorrupt, "holds another chunk of the same orders (%d bytes, %d were to be put)", len(found), len(wanted))
	}
	if f.err != nil {
		return c.error("", f.err)
	}
	return nil
}

// ReplaceChunk implements metadata.Sequencer.
func (t *Table) ReplaceChunk(ctx context.Context, chunk, there *metadata.Chunk) error {
	c := writing("ReplaceChunk", chunk.Lane, metadata.ChunkKey(chunk.Lane, max(chunk.First, 0)))
	if err := chunk.Validate(); err != nil {
		return c.error("", err)
	}
	x := newExpr()
	x.require(x.is(attrPacked, binary(metadata.AppendChunk(nil, there))))
	_, err := repeat(ctx, t, c, t.client.PutItem, &dynamodb.PutItemInput{
		TableName:                           &t.name,
		Item:                                chunkItem(chunk),
		ConditionExpression:                 x.condition(),
		ExpressionAttributeNames:            x.names,
		ExpressionAttributeValues:           x.given(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	})
	var failed *refused
	if !errors.As(err, &failed) {
		return err
	}
	f := &fields{key: c.key, item: failed.item}
	if failed.item != nil && string(f.binary(attrPacked)) == string(metadata.AppendChunk(nil, chunk)) && f.err == nil {
		return nil
	}
	return c.error("", metadata.ErrChanged)
}

// putIfAbsent creates an item. If there is one already it is returned and nothing is written.
func (t *Table) putIfAbsent(ctx context.Context, c *call, it item) (there item, err error) {
	_, err = repeat(ctx, t, c, t.client.PutItem, &dynamodb.PutItemInput{
		TableName:                           &t.name,
		Item:                                it,
		ConditionExpression:                 aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	})
	var failed *refused
	if !errors.As(err, &failed) {
		return nil, err
	}
	if failed.item == nil {
		return nil, c.error("", fmt.Errorf("%w: refused, but without the item that is there", metadata.ErrUnavailable))
	}
	return failed.item, nil
}

// SetToken implements metadata.Sequencer. Two holders may want the same number, so after a lost answer a token that reads as wanted
// does not tell whose it is: that is ErrOutcomeUnknown, and the holder takes a higher one.
func (t *Table) SetToken(ctx context.Context, lane metadata.LaneID, slot metadata.Slot, from, to int64) error {
	c := writing("SetToken", lane, metadata.HeadKey(lane))
	if slot >= metadata.SlotsPerLane || from < 0 || to <= from {
		return c.error("", &metadata.FieldError{Field: "token", Value: fmt.Sprintf("slot %d: %d to %d", slot, from, to),
			Valid: fmt.Sprintf("a slot below %d, and a token above the last", metadata.SlotsPerLane)})
	}
	attr := metadata.TokenAttr(slot)
	x := newExpr()
	x.assign(attr, x.num(to))
	if from == 0 {
		x.require(x.exists(attrNext), x.absent(attr))
	} else {
		x.require(x.isNumber(attr, from))
	}
	image, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil && c.doubt:
		return c.error("", fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, err))
	case err != nil || ok:
		return err
	}
	h, err := c.head(image)
	switch {
	case err != nil:
		return err
	case c.doubt && h.Tokens[slot] == to:
		return c.error("", fmt.Errorf("%w: token of slot %d is %d, set by this call or by another", metadata.ErrOutcomeUnknown, slot, to))
	}
	return c.error("", fmt.Errorf("%w: token of slot %d is %d, not %d", metadata.ErrChanged, slot, h.Tokens[slot], from))
}

// SetStart implements metadata.Sequencer.
func (t *Table) SetStart(ctx context.Context, lane metadata.LaneID, slot metadata.Slot, start int64) (*metadata.State, error) {
	c := writing("SetStart", lane, metadata.StateKey(lane))
	if slot >= metadata.SlotsPerLane || start < 0 {
		return nil, c.error("", &metadata.FieldError{Field: "log start", Value: fmt.Sprintf("slot %d: %d", slot, start),
			Valid: fmt.Sprintf("a slot below %d, and an offset", metadata.SlotsPerLane)})
	}
	attr := metadata.StartAttr(slot)
	x := newExpr()
	x.assign(attr, x.num(start))
	x.require(x.exists(attrArchived), x.absentOrUnder(attr, number(start)))
	image, _, err := t.set(ctx, c, x)
	if err != nil {
		return nil, err
	}
	return c.state(image)
}

// SetOldest implements metadata.Sequencer.
func (t *Table) SetOldest(ctx context.Context, lane metadata.LaneID, oldest time.Time) error {
	c := writing("SetOldest", lane, metadata.StateKey(lane))
	ms := number(oldest.UnixMilli())
	x := newExpr()
	x.assign(attrOldest, x.value(ms))
	x.require(x.exists(attrArchived), x.absentOrUnder(attrOldest, ms))
	return t.setState(ctx, c, x)
}

// setState is an update of a lane's state that may find nothing to do.
func (t *Table) setState(ctx context.Context, c *call, x *expr) error {
	image, ok, err := t.set(ctx, c, x)
	if err == nil && !ok && image == nil {
		return c.error("", metadata.ErrNoState)
	}
	return err
}
