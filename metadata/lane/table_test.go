package lane_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment"
)

// database is the adapter over the engine, in memory and in virtual time inside a bubble.
type database struct {
	engine *engine.Engine
	config aws.Config
	lanes  []metadata.LaneID
}

const tableName = "varve"

// newDatabase creates a topic with so many lanes.
func newDatabase(t testing.TB, v env.Env, o engine.Options, lanes int) *database {
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	d := &database{engine: e, config: aws.Config{
		Region: "us-east-1", HTTPClient: e, BaseEndpoint: aws.String("http://engine"),
		Credentials: aws.AnonymousCredentials{}, // nobody looks at signatures, and they take time
	}}
	table := d.open(t, v, nil)
	if err := table.EnsureTable(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range lanes {
		d.lanes = append(d.lanes, metadata.LaneID([]string{"lane-0", "lane-1", "lane-2", "lane-3"}[i]))
	}
	topic := &metadata.Topic{Name: "orders", ID: "0123456789av", Version: 1, Partitions: 64 * lanes, LaneWidth: 64, Lanes: d.lanes,
		Partitioner: "murmur2", History: []metadata.Growth{{Version: 1, Partitions: 64 * lanes}}, Classes: []segment.Class{class}, Config: metadata.DefaultTopicConfig()}
	if err := table.CreateTopic(context.Background(), topic, segment.ID{}); err != nil {
		t.Fatal(err)
	}
	return d
}

// open is the table as one process has it.
func (d *database) open(t testing.TB, e env.Env, onCall func(metadata.Call)) *dynamo.Table {
	table, err := dynamo.Open(dynamo.Config{AWS: d.config, TableName: tableName, Env: e, OnCall: onCall})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// setFloor does what a sweep will do to a head.
func (b *bench) setFloor(floor segment.ID) {
	b.t.Helper()
	k := metadata.HeadKey(b.lane)
	_, err := dynamodb.NewFromConfig(b.db.config).UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: aws.String(tableName), UpdateExpression: aws.String("SET #f = :f"), ExpressionAttributeNames: map[string]string{"#f": "floor"},
		Key:                       map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: k.PK}, "sk": &types.AttributeValueMemberS{Value: k.SK}},
		ExpressionAttributeValues: map[string]types.AttributeValue{":f": &types.AttributeValueMemberS{Value: floor.String()}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) setConfig(version int64, c segment.Class) {
	b.t.Helper()
	if err := b.table.Table.SetHeadConfig(context.Background(), b.lane, version, c); err != nil {
		b.t.Fatal(err)
	}
}
