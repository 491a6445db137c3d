package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// get reads one item; nil if the service says that there is none.
func (t *Table) get(ctx context.Context, c *call, consistent bool) (item, error) {
	out, err := repeat(ctx, t, c, t.client.GetItem, &dynamodb.GetItemInput{
		TableName:              &t.name,
		Key:                    keyOf(c.key),
		ConsistentRead:         &consistent,
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}

// Head implements metadata.HeadReader.
func (t *Table) Head(ctx context.Context, lane metadata.LaneID, consistency metadata.Consistency) (*metadata.Head, error) {
	c := reading("Head", lane, metadata.HeadKey(lane))
	it, err := t.get(ctx, c, bool(consistency))
	if err != nil {
		return nil, err
	}
	return c.head(it)
}

// head decodes the image of the call's lane.
func (c *call) head(it item) (*metadata.Head, error) {
	if it == nil {
		return nil, c.error("", metadata.ErrNoLane)
	}
	h, err := decodeHead(c.lane, it)
	if err != nil {
		return nil, c.error("", err)
	}
	return h, nil
}

// State implements metadata.LaneReader.
func (t *Table) State(ctx context.Context, lane metadata.LaneID, consistency metadata.Consistency) (*metadata.State, error) {
	c := reading("State", lane, metadata.StateKey(lane))
	it, err := t.get(ctx, c, bool(consistency))
	if err != nil {
		return nil, err
	}
	return c.state(it)
}

func (c *call) state(it item) (*metadata.State, error) {
	if it == nil {
		return nil, c.error("", metadata.ErrNoState)
	}
	s, err := decodeState(c.lane, it)
	if err != nil {
		return nil, c.error("", err)
	}
	return s, nil
}

// Chunk implements metadata.LaneReader.
func (t *Table) Chunk(ctx context.Context, lane metadata.LaneID, first int64, consistency metadata.Consistency) (*metadata.Chunk, error) {
	c := reading("Chunk", lane, metadata.ChunkKey(lane, first))
	it, err := t.get(ctx, c, bool(consistency))
	if err != nil {
		return nil, err
	}
	if it == nil {
		return nil, c.error("", metadata.ErrNoChunk)
	}
	chunk, err := decodeChunk(c.key, it)
	if err != nil {
		return nil, c.error("", err)
	}
	return chunk, nil
}

// Chunks implements metadata.LaneReader.
func (t *Table) Chunks(ctx context.Context, lane metadata.LaneID, from, to int64, limit int, consistency metadata.Consistency) ([]*metadata.Chunk, bool, error) {
	from = max(from, 0)
	c := reading("Chunks", lane, metadata.ChunkKey(lane, from)).within(pageTimeout)
	if from >= to || limit < 1 {
		return nil, from < to, nil
	}
	q := t.query(c.key.PK, bool(consistency))
	q.KeyConditionExpression = aws.String("pk = :pk AND sk BETWEEN :from AND :to")
	q.ExpressionAttributeValues[":from"] = text(c.key.SK)
	q.ExpressionAttributeValues[":to"] = text(metadata.ChunkKey(lane, to-1).SK)
	q.Limit = aws.Int32(int32(min(limit, maxPage)))
	out, err := repeat(ctx, t, c, t.client.Query, q)
	if err != nil {
		return nil, false, err
	}
	chunks := make([]*metadata.Chunk, 0, len(out.Items))
	for _, it := range out.Items {
		chunk, err := decodeChunk(parseKey(it), it)
		if err != nil {
			return nil, false, c.error("", err)
		}
		chunks = append(chunks, chunk)
	}
	return chunks, len(out.LastEvaluatedKey) > 0, nil
}

// maxPage bounds what one query is asked for; the service's page is full before that at some 250 bytes an item.
const maxPage = 4096

// query is a query over one partition key, without its condition on the sort key.
func (t *Table) query(pk string, consistent bool) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{
		TableName:                 &t.name,
		KeyConditionExpression:    aws.String("pk = :pk"),
		ExpressionAttributeValues: item{":pk": text(pk)},
		ConsistentRead:            &consistent,
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	}
}

// pages follows a query to its end, or until enough items are there. more tells whether it stopped before the end.
func (t *Table) pages(ctx context.Context, c *call, q *dynamodb.QueryInput, enough int) (items []item, more bool, err error) {
	for {
		q.Limit = aws.Int32(int32(min(enough-len(items), maxPage)))
		out, err := repeat(ctx, t, c, t.client.Query, q)
		if err != nil {
			return nil, false, err
		}
		items = append(items, out.Items...)
		if len(out.LastEvaluatedKey) == 0 {
			return items, false, nil
		}
		if len(items) >= enough {
			return items, true, nil
		}
		if parseKey(out.LastEvaluatedKey) == parseKey(q.ExclusiveStartKey) {
			return nil, false, c.error("", fmt.Errorf("%w: a page ends where it begins", metadata.ErrUnavailable)) // and so would all that follow
		}
		q.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// ServiceTime implements metadata.LogKeeper.
func (t *Table) ServiceTime() (time.Time, bool) { return t.time.now(t.env.Mono()) }

// Moment implements metadata.LogKeeper.
func (t *Table) Moment() metadata.Stamp { return metadata.Stamp{Wall: t.env.Now(), Mono: t.env.Mono()} }
