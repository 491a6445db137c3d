package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func millis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// Topic implements metadata.TopicReader.
func (t *Table) Topic(ctx context.Context, name string) (*metadata.Topic, error) {
	c := reading("Topic", "", metadata.TopicKey(name))
	if err := metadata.ValidateName("topic", name); err != nil {
		return nil, c.error("", err)
	}
	it, err := t.get(ctx, c, true)
	if err != nil {
		return nil, err
	}
	if it == nil {
		return nil, c.error("", metadata.ErrUnknownTopic)
	}
	topic, err := decodeTopic(it)
	if err != nil {
		return nil, c.error("", err)
	}
	return topic, nil
}

// Topics implements metadata.TopicReader.
func (t *Table) Topics(ctx context.Context, after string, limit int) ([]*metadata.Topic, bool, error) {
	c := reading("Topics", "", metadata.TopicKey(after)).within(pageTimeout)
	if limit < 1 {
		return nil, true, nil
	}
	q := t.query(c.key.PK, true)
	if after != "" {
		q.KeyConditionExpression = aws.String("pk = :pk AND sk > :after")
		q.ExpressionAttributeValues[":after"] = text(after)
	}
	items, more, err := t.pages(ctx, c, q, limit)
	if err != nil {
		return nil, false, err
	}
	topics := make([]*metadata.Topic, 0, len(items))
	for _, it := range items {
		topic, err := decodeTopic(it)
		if err != nil {
			c.key = parseKey(it)
			return topics, true, c.error("", err)
		}
		topics = append(topics, topic)
	}
	return topics, more, nil
}

// Gone implements metadata.TopicReader.
func (t *Table) Gone(ctx context.Context) ([]*metadata.GoneTopic, error) {
	c := reading("Gone", "", metadata.GoneKey("")).within(pageTimeout)
	var gone []*metadata.GoneTopic
	items, _, err := t.pages(ctx, c, t.query(c.key.PK, true), 1<<31-1)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		g, err := decodeGone(it)
		if err != nil {
			return nil, c.error("", err)
		}
		gone = append(gone, g)
	}
	return gone, nil
}

// CreateTopic implements metadata.TopicWriter.
func (t *Table) CreateTopic(ctx context.Context, topic *metadata.Topic, floor segment.ID) error {
	c := writing("CreateTopic", "", metadata.TopicKey(topic.Name)).within(transactTimeout)
	if err := t.checkTopic(topic, len(topic.Lanes)); err != nil {
		return c.error("", err)
	}
	row := topicItem(topic)
	row["pk"], row["sk"] = text(c.key.PK), text(c.key.SK)
	if topic.Keyed {
		row[attrKeyed] = yes()
	}
	items := append([]types.TransactWriteItem{t.putNew(row), t.floorIs(floor)}, t.newLanes(topic, 0, floor)...)
	return t.transact(ctx, c, items, metadata.ErrTopicExists)
}

// ReplaceTopic implements metadata.TopicWriter. Keyed is part of the condition: growth asks it, and a keyed record may come meanwhile.
func (t *Table) ReplaceTopic(ctx context.Context, topic *metadata.Topic, firstNew int, floor segment.ID) error {
	return t.replaceTopic(ctx, writing("ReplaceTopic", "", metadata.TopicKey(topic.Name)), topic.Version-1, topic, firstNew, floor)
}

// AmendTopic implements metadata.Repairer.
func (t *Table) AmendTopic(ctx context.Context, was int64, topic *metadata.Topic, firstNew int, floor segment.ID) error {
	return t.replaceTopic(ctx, writing("AmendTopic", "", metadata.TopicKey(topic.Name)), was, topic, firstNew, floor)
}

func (t *Table) replaceTopic(ctx context.Context, c *call, was int64, topic *metadata.Topic, firstNew int, floor segment.ID) error {
	c = c.within(transactTimeout)
	if firstNew < 0 || firstNew > len(topic.Lanes) {
		return c.error("", &metadata.FieldError{Topic: topic.Name, Field: "first new lane", Value: strconv.Itoa(firstNew), Valid: fmt.Sprintf("0 to %d", len(topic.Lanes))})
	}
	if err := t.checkTopic(topic, len(topic.Lanes)-firstNew); err != nil {
		return c.error("", err)
	}
	x := newExpr()
	for attr, v := range topicItem(topic) {
		x.assign(attr, x.value(v))
	}
	x.require(x.is(attrTopicID, text(string(topic.ID))), x.isNumber(attrVersion, was), x.keyed(topic.Keyed))
	update := t.updateIn(c.key, x)
	items := append([]types.TransactWriteItem{{Update: update}, t.floorIs(floor)}, t.newLanes(topic, firstNew, floor)...)
	return t.transact(ctx, c, items, metadata.ErrChanged)
}

// MarkKeyed implements metadata.TopicWriter.
func (t *Table) MarkKeyed(ctx context.Context, name string, id segment.TopicID) error {
	c := writing("MarkKeyed", "", metadata.TopicKey(name))
	x := newExpr()
	x.assign(attrKeyed, x.value(yes()))
	x.require(x.is(attrTopicID, text(string(id))))
	image, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil || ok:
		return err
	case image == nil:
		return c.error("", metadata.ErrUnknownTopic)
	}
	return c.error("", fmt.Errorf("%w: the name belongs to another topic now", metadata.ErrTopicGone))
}

// DeleteTopic implements metadata.TopicWriter.
func (t *Table) DeleteTopic(ctx context.Context, topic *metadata.Topic, gone *metadata.GoneTopic) error {
	c := writing("DeleteTopic", "", metadata.TopicKey(topic.Name)).within(transactTimeout)
	x := newExpr()
	x.require(x.is(attrTopicID, text(string(topic.ID))), x.isNumber(attrVersion, topic.Version))
	remove := &types.Delete{
		TableName:                 &t.name,
		Key:                       keyOf(c.key),
		ConditionExpression:       x.condition(),
		ExpressionAttributeNames:  x.names,
		ExpressionAttributeValues: x.given(),
	}
	put := &types.Put{TableName: &t.name, Item: goneItem(gone)}
	return t.transact(ctx, c, []types.TransactWriteItem{{Delete: remove}, {Put: put}}, metadata.ErrChanged)
}

func (t *Table) checkTopic(topic *metadata.Topic, lanes int) error {
	if err := topic.Validate(); err != nil {
		return err
	}
	if lanes > metadata.MaxLanes {
		return &metadata.FieldError{Topic: topic.Name, Field: "new lanes", Value: strconv.Itoa(lanes), Valid: fmt.Sprintf("at most %d at a time", metadata.MaxLanes)}
	}
	return nil
}

// transact sends one transaction, repeating it under one token, by which the service knows it again for ten minutes; repeatFor is far less.
// If the condition of action 0 fails the error is first; if only another does, ErrChanged.
func (t *Table) transact(ctx context.Context, c *call, items []types.TransactWriteItem, first error) error {
	token := fmt.Sprintf("%016x%016x", t.env.Uint64(), t.env.Uint64())
	_, err := repeat(ctx, t, c, t.client.TransactWriteItems, t.transaction(token, items))
	var stopped *cancelled
	if !errors.As(err, &stopped) {
		return err
	}
	for i, r := range stopped.reasons {
		if value(r.Code) == codeConditionFailed {
			if i == 0 {
				return c.error("", first)
			}
			return c.error("", fmt.Errorf("%w: action %d of the transaction", metadata.ErrChanged, i))
		}
	}
	return err
}

func yes() types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: true} }

func (x *expr) keyed(is bool) string {
	if is {
		return x.exists(attrKeyed)
	}
	return x.absent(attrKeyed)
}

func (t *Table) putNew(it item) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{TableName: &t.name, Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)")}}
}

// floorIs checks that LOG|FLOOR is as it was read, so that no head is created below a floor that a sweep has just raised and will not set there.
func (t *Table) floorIs(floor segment.ID) types.TransactWriteItem {
	x := newExpr()
	if floor.IsZero() {
		x.require(x.absent(attrFloor))
	} else {
		x.require(x.is(attrFloor, text(floor.String())))
	}
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                 &t.name,
		Key:                       keyOf(metadata.FloorKey()),
		ConditionExpression:       x.condition(),
		ExpressionAttributeNames:  x.names,
		ExpressionAttributeValues: x.given(),
	}}
}

func (t *Table) newLanes(topic *metadata.Topic, from int, floor segment.ID) (items []types.TransactWriteItem) {
	for _, lane := range topic.Lanes[from:] {
		items = append(items, t.putNew(newHead(lane, topic.Version, topic.Class(), floor)), t.putNew(newState(lane, floor)))
	}
	return items
}

// SetHeadConfig implements metadata.TopicWriter.
func (t *Table) SetHeadConfig(ctx context.Context, lane metadata.LaneID, version int64, class segment.Class) error {
	c := writing("SetHeadConfig", lane, metadata.HeadKey(lane))
	x := newExpr()
	x.assign(attrConfig, x.num(version))
	x.assign(attrClass, x.value(text(class.String())))
	for i := range metadata.Epochs {
		x.increase(metadata.EpochAttr(i), 1)
	}
	x.require(x.under(attrConfig, number(version)))
	image, ok, err := t.set(ctx, c, x)
	if err == nil && !ok && image == nil {
		return c.error("", metadata.ErrNoLane)
	}
	return err
}

// SetStateConfig implements metadata.TopicWriter.
func (t *Table) SetStateConfig(ctx context.Context, lane metadata.LaneID, version int64, class segment.Class) error {
	c := writing("SetStateConfig", lane, metadata.StateKey(lane))
	x := newExpr()
	x.assign(attrConfig, x.num(version))
	x.assign(attrClass, x.value(text(class.String())))
	x.require(x.exists(attrArchived), x.absentOrUnder(attrConfig, number(version)))
	return t.setState(ctx, c, x)
}

// SetStored implements metadata.TopicWriter.
func (t *Table) SetStored(ctx context.Context, topic *metadata.Topic, stored []segment.Class) error {
	c := writing("SetStored", "", metadata.TopicKey(topic.Name))
	x := newExpr()
	x.assign(attrStored, x.value(classNames(stored)))
	x.require(x.is(attrTopicID, text(string(topic.ID))), x.isNumber(attrVersion, topic.Version), x.is(attrStored, classNames(topic.Stored)))
	image, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil || ok:
		return err
	case image == nil:
		return c.error("", metadata.ErrUnknownTopic)
	}
	now, err := decodeTopic(image)
	switch {
	case err != nil:
		return c.error("", err)
	case now.ID == topic.ID && now.Version == topic.Version && slices.Equal(now.Stored, stored):
		return nil
	}
	return c.error("", fmt.Errorf("%w: version %d with classes %v", metadata.ErrChanged, now.Version, now.Stored))
}

// DeleteHead implements metadata.TopicWriter.
func (t *Table) DeleteHead(ctx context.Context, lane metadata.LaneID) error {
	return t.delete(ctx, writing("DeleteHead", lane, metadata.HeadKey(lane)))
}

// PutGone implements metadata.TopicWriter.
func (t *Table) PutGone(ctx context.Context, g *metadata.GoneTopic) error {
	c := writing("PutGone", "", metadata.GoneKey(g.ID))
	_, err := repeat(ctx, t, c, t.client.PutItem, &dynamodb.PutItemInput{
		TableName:              &t.name,
		Item:                   goneItem(g),
		ConditionExpression:    aws.String("attribute_exists(pk)"),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	var failed *refused
	if errors.As(err, &failed) {
		return nil // another pass has finished with it
	}
	return err
}

// DeleteGone implements metadata.TopicWriter.
func (t *Table) DeleteGone(ctx context.Context, id segment.TopicID) error {
	return t.delete(ctx, writing("DeleteGone", "", metadata.GoneKey(id)))
}

// delete removes one item; one that is gone already is success.
func (t *Table) delete(ctx context.Context, c *call) error {
	_, err := repeat(ctx, t, c, t.client.DeleteItem, &dynamodb.DeleteItemInput{
		TableName:              &t.name,
		Key:                    keyOf(c.key),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	return err
}
