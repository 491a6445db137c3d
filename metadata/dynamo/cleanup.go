package dynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

const (
	// piece is how many chunks one DeleteLaneRest removes: four requests, some 500 write units, a second's worth at a pace that leaves
	// the table to others.
	piece = 100
	// batch is what the service takes in one BatchWriteItem.
	batch = 25
)

// DeleteLaneRest implements metadata.TopicWriter. The state goes last, so that as long as anything is left the lane can be told from one that never was.
func (t *Table) DeleteLaneRest(ctx context.Context, lane metadata.LaneID) (done bool, err error) {
	c := reading("DeleteLaneRest", lane, metadata.ChunkKey(lane, 0)).within(pageTimeout)
	q := t.query(c.key.PK, true)
	q.ProjectionExpression = aws.String("pk, sk")
	items, more, err := t.pages(ctx, c, q, piece)
	if err != nil {
		return false, err
	}
	for len(items) > 0 {
		n := min(len(items), batch)
		if err := t.deleteAll(ctx, c.op, lane, items[:n]); err != nil {
			return false, err
		}
		items = items[n:]
	}
	if more {
		return false, nil
	}
	return true, t.delete(ctx, writing("DeleteLaneRest", lane, metadata.StateKey(lane)))
}

// deleteAll removes at most batch items by their keys. The service may answer "done" and hand some back; those are asked for again, and if
// it keeps handing them back the error says how many and from which on.
func (t *Table) deleteAll(ctx context.Context, op string, lane metadata.LaneID, keys []item) error {
	c := writing(op, lane, parseKey(keys[0])).within(pageTimeout)
	left := make([]types.WriteRequest, len(keys))
	for i, k := range keys {
		left[i].DeleteRequest = &types.DeleteRequest{Key: item{"pk": k["pk"], "sk": k["sk"]}}
	}
	for p := t.patience(repeatFor); ; {
		out, err := repeat(ctx, t, c, t.client.BatchWriteItem, &dynamodb.BatchWriteItemInput{
			RequestItems:           map[string][]types.WriteRequest{t.name: left},
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		})
		if err != nil {
			return err
		}
		if left = out.UnprocessedItems[t.name]; len(left) == 0 {
			return nil
		}
		if !p.pause(ctx) {
			c.key = metadata.Key{}
			if r := left[0].DeleteRequest; r != nil {
				c.key = parseKey(r.Key)
			}
			return gaveUp(ctx, c.error("UnprocessedItems", fmt.Errorf("%w: %d items were not deleted, from this one on", metadata.ErrThrottled, len(left))))
		}
	}
}
