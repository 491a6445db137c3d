package dynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Attributes of LOG|SWEEP.
const (
	attrMark     = "mark"
	attrMarkNext = "next"
	attrMarkPast = "past"
)

// RaiseFloor implements metadata.Sweeper.
func (t *Table) RaiseFloor(ctx context.Context, floor segment.ID) error {
	_, err := t.raise(ctx, writing("RaiseFloor", "", metadata.FloorKey()), attrFloor, floor, "")
	return err
}

// RaiseHeadFloor implements metadata.Sweeper.
func (t *Table) RaiseHeadFloor(ctx context.Context, lane metadata.LaneID, floor segment.ID) error {
	c := writing("RaiseHeadFloor", lane, metadata.HeadKey(lane))
	there, err := t.raise(ctx, c, attrFloor, floor, metadata.EpochAttr(0))
	if err == nil && !there {
		return c.error("", metadata.ErrNoLane)
	}
	return err
}

// RaiseStateFloor implements metadata.Sweeper.
func (t *Table) RaiseStateFloor(ctx context.Context, lane metadata.LaneID, floor segment.ID) error {
	c := writing("RaiseStateFloor", lane, metadata.StateKey(lane))
	there, err := t.raise(ctx, c, attrStateFloor, floor, attrArchived)
	if err == nil && !there {
		return c.error("", metadata.ErrNoState)
	}
	return err
}

// raise sets an attribute that only grows, if the item has the attribute must (where one is named). A repeat after a lost answer finds it raised. there tells
// whether the item exists.
func (t *Table) raise(ctx context.Context, c *call, attr string, to segment.ID, must string) (there bool, err error) {
	x := newExpr()
	x.assign(attr, x.value(text(to.String())))
	if must != "" {
		x.require(x.exists(must))
	}
	x.require(x.absentOrUnder(attr, text(to.String())))
	image, ok, err := t.set(ctx, c, x)
	return ok || image != nil, err
}

// SweepMark implements metadata.Sweeper.
func (t *Table) SweepMark(ctx context.Context) (m metadata.SweepMark, err error) {
	c := reading("SweepMark", "", metadata.SweepKey())
	it, err := t.get(ctx, c, true)
	if err != nil || it == nil {
		return m, err
	}
	f := &fields{key: c.key, item: it}
	m.To, m.Next, m.Past = f.id(attrMark), f.id(attrMarkNext), f.text(attrMarkPast)
	if f.err != nil {
		return metadata.SweepMark{}, c.error("", f.err)
	}
	return m, nil
}

// SetSweepMark implements metadata.Sweeper.
func (t *Table) SetSweepMark(ctx context.Context, m metadata.SweepMark) error {
	c := writing("SetSweepMark", "", metadata.SweepKey())
	x := newExpr()
	x.assign(attrMark, x.value(text(m.To.String())))
	x.assign(attrMarkNext, x.value(text(m.Next.String())))
	x.assign(attrMarkPast, x.value(text(m.Past)))
	x.require("(" + x.absent(attrMark) + " OR " + x.name(attrMark) + "<=" + x.value(text(m.To.String())) + ")")
	_, _, err := t.set(ctx, c, x)
	return err
}

// between is a query over the sort keys in [low, high] of one partition key.
func (t *Table) between(pk, low, high string, consistent bool) *dynamodb.QueryInput {
	q := t.query(pk, consistent)
	q.KeyConditionExpression = aws.String("pk = :pk AND sk BETWEEN :low AND :high")
	q.ExpressionAttributeValues[":low"], q.ExpressionAttributeValues[":high"] = text(low), text(high)
	return q
}

// byID is one page of the items of a collection by ids, in (after, before).
func (t *Table) byID(ctx context.Context, c *call, after, before segment.ID, limit int, only string) (items []item, more bool, err error) {
	if limit < 1 || !after.Less(before) {
		return nil, false, nil
	}
	q := t.between(c.key.PK, after.String(), before.String(), true)
	q.Limit = aws.Int32(int32(min(limit, maxPage-2) + 2)) // the two that bound the range are no part of it
	if only != "" {
		q.ProjectionExpression = aws.String(only)
	}
	out, err := repeat(ctx, t, c, t.client.Query, q)
	if err != nil {
		return nil, false, err
	}
	for _, it := range out.Items {
		if sk := parseKey(it).SK; sk > after.String() && sk < before.String() {
			items = append(items, it)
		}
	}
	more = len(out.LastEvaluatedKey) > 0 && parseKey(out.LastEvaluatedKey).SK < before.String() || len(items) > limit
	return items[:min(limit, len(items))], more, nil
}

// Replaced implements metadata.Sweeper.
func (t *Table) Replaced(ctx context.Context, hash string, after, before segment.ID, limit int) (entries []*metadata.Replaced, more bool, err error) {
	c := reading("Replaced", "", metadata.ReplacedCollection(hash)).within(pageTimeout)
	items, more, err := t.byID(ctx, c, after, before, limit, "")
	for _, it := range items {
		r, err := decodeReplaced(it)
		if err != nil {
			c.key = parseKey(it)
			return nil, false, c.error("", err)
		}
		entries = append(entries, r)
	}
	return entries, more, err
}

// DeleteReplaced implements metadata.Sweeper.
func (t *Table) DeleteReplaced(ctx context.Context, id segment.ID) error {
	return t.delete(ctx, writing("DeleteReplaced", "", metadata.ReplacedKey(id)))
}

// SetFirst implements metadata.Sweeper.
func (t *Table) SetFirst(ctx context.Context, lane metadata.LaneID, first int64) (*metadata.State, error) {
	c := writing("SetFirst", lane, metadata.StateKey(lane))
	if first < 0 {
		return nil, c.error("", &metadata.FieldError{Field: "first order", Value: fmt.Sprint(first), Valid: "an order"})
	}
	x := newExpr()
	x.assign(attrKept, x.num(first))
	x.require(x.under(attrKept, number(first)))
	image, _, err := t.set(ctx, c, x)
	if err != nil {
		return nil, err
	}
	return c.state(image)
}

// DeleteChunks implements metadata.Sweeper.
func (t *Table) DeleteChunks(ctx context.Context, lane metadata.LaneID, from, to int64) error {
	c := reading("DeleteChunks", lane, metadata.ChunkKey(lane, max(from, 0))).within(pageTimeout)
	if from < 0 || from >= to {
		return nil
	}
	q := t.between(c.key.PK, c.key.SK, metadata.ChunkKey(lane, to-1).SK, true)
	q.ProjectionExpression = aws.String("pk, sk")
	keys, _, err := t.pages(ctx, c, q, 1<<31-1)
	if err != nil {
		return err
	}
	return t.deleteKeys(ctx, c.op, lane, keys)
}

func (t *Table) deleteKeys(ctx context.Context, op string, lane metadata.LaneID, keys []item) error {
	for len(keys) > 0 {
		n := min(len(keys), batch)
		if err := t.deleteAll(ctx, op, lane, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// DeleteRows implements metadata.Sweeper.
func (t *Table) DeleteRows(ctx context.Context, rows []*metadata.Row) error {
	for _, r := range rows {
		if _, err := t.deleteIf(ctx, writing("DeleteRows", "", r.Key()), unchanged(r)); err != nil {
			return err
		}
	}
	return nil
}

// DeleteSmall implements metadata.Sweeper.
func (t *Table) DeleteSmall(ctx context.Context, ids []segment.ID) error {
	keys := make([]item, len(ids))
	for i, id := range ids {
		keys[i] = keyOf(metadata.SmallKey(id))
	}
	return t.deleteKeys(ctx, "DeleteSmall", "", keys)
}

const attrBody = "b" // of a small segment

// PutSmall implements metadata.SmallSegments.
func (t *Table) PutSmall(ctx context.Context, id segment.ID, body []byte) error {
	c := writing("PutSmall", "", metadata.SmallKey(id))
	if n := len(body); n < 1 || n > metadata.MaxSmallBytes || id.Place() != segment.InTable {
		return c.error("", &metadata.FieldError{Field: "small segment " + id.String(), Value: fmt.Sprint(n, " bytes"), Valid: fmt.Sprintf("an id in the table, and 1 to %d bytes", metadata.MaxSmallBytes)})
	}
	it := keyOf(c.key)
	it[attrBody] = binary(body)
	there, err := t.putIfAbsent(ctx, c, it)
	if err != nil || there == nil {
		return err
	}
	f := &fields{key: c.key, item: there}
	if found := f.binary(attrBody); f.err == nil && string(found) != string(body) {
		return c.error("", fmt.Errorf("%w: other bytes have the id", metadata.ErrChanged))
	}
	if f.err != nil {
		return c.error("", f.err)
	}
	return nil
}

// Small implements metadata.SmallSegments.
func (t *Table) Small(ctx context.Context, id segment.ID) ([]byte, error) {
	c := reading("Small", "", metadata.SmallKey(id))
	it, err := t.get(ctx, c, true)
	if err != nil {
		return nil, err
	}
	if it == nil {
		return nil, c.error("", metadata.ErrNoSegment)
	}
	f := &fields{key: c.key, item: it}
	body := f.binary(attrBody)
	if len(body) == 0 {
		f.bad(attrBody, metadata.ErrCorrupt, "is empty")
	}
	if f.err != nil {
		return nil, c.error("", f.err)
	}
	return body, nil
}

// SmallIDs implements metadata.SmallSegments.
func (t *Table) SmallIDs(ctx context.Context, hash string, after, before segment.ID, limit int) (ids []segment.ID, more bool, err error) {
	c := reading("SmallIDs", "", metadata.SmallCollection(hash)).within(pageTimeout)
	items, more, err := t.byID(ctx, c, after, before, limit, "pk, sk")
	for _, it := range items {
		id, err := metadata.ParseSegmentKey(parseKey(it))
		if err != nil {
			return nil, false, c.error("", err)
		}
		ids = append(ids, id)
	}
	return ids, more, err
}
