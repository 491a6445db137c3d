package judge

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// clientOf is the SDK's client, without retries: each request is sent once. The credentials of the environment count if
// there are any, and are made up otherwise.
func clientOf(endpoint string, client aws.HTTPClient) *sdk.Client {
	env := func(name, otherwise string) string { return cmp.Or(os.Getenv(name), otherwise) }
	config := aws.Config{
		Region:      env("AWS_REGION", "us-east-1"),
		Credentials: credentials.NewStaticCredentialsProvider(env("AWS_ACCESS_KEY_ID", "judge"), env("AWS_SECRET_ACCESS_KEY", "judge"), os.Getenv("AWS_SESSION_TOKEN")),
		HTTPClient:  client,
		Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
	}
	if endpoint != "" {
		config.BaseEndpoint = &endpoint
	}
	return sdk.NewFromConfig(config)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// send performs the request, to its last page if it is to be read page by page. The outputs are the SDK's.
func send(ctx context.Context, c *sdk.Client, r *request) (any, error) {
	switch r.op {
	case "PutItem":
		return c.PutItem(ctx, &sdk.PutItemInput{
			TableName: &r.table, Item: r.item, ConditionExpression: optional(r.condition), ExpressionAttributeNames: r.names,
			ExpressionAttributeValues: r.values, ReturnValues: types.ReturnValue(r.returnValues),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailure(r.onFailure),
		})
	case "UpdateItem":
		return c.UpdateItem(ctx, &sdk.UpdateItemInput{
			TableName: &r.table, Key: r.key, UpdateExpression: optional(r.update), ConditionExpression: optional(r.condition),
			ExpressionAttributeNames: r.names, ExpressionAttributeValues: r.values, ReturnValues: types.ReturnValue(r.returnValues),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailure(r.onFailure),
		})
	case "DeleteItem":
		return c.DeleteItem(ctx, &sdk.DeleteItemInput{
			TableName: &r.table, Key: r.key, ConditionExpression: optional(r.condition), ExpressionAttributeNames: r.names,
			ExpressionAttributeValues: r.values, ReturnValues: types.ReturnValue(r.returnValues),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailure(r.onFailure),
		})
	case "GetItem":
		return c.GetItem(ctx, &sdk.GetItemInput{
			TableName: &r.table, Key: r.key, ProjectionExpression: optional(r.projection), ExpressionAttributeNames: r.names, ConsistentRead: aws.Bool(r.consistent),
		})
	case "Query":
		return query(ctx, c, r)
	case "Scan":
		return scan(ctx, c, r)
	case "BatchGetItem":
		return c.BatchGetItem(ctx, &sdk.BatchGetItemInput{RequestItems: r.batchGets()})
	case "BatchWriteItem":
		return c.BatchWriteItem(ctx, &sdk.BatchWriteItemInput{RequestItems: r.batchWrites()})
	case "TransactWriteItems": // where there is no token the SDK makes one up, which is as good as none
		return c.TransactWriteItems(ctx, &sdk.TransactWriteItemsInput{TransactItems: each(r.parts, transactWrite), ClientRequestToken: optional(r.token)})
	case "TransactGetItems":
		return c.TransactGetItems(ctx, &sdk.TransactGetItemsInput{TransactItems: each(r.parts, transactGet)})
	}
	return sendTable(ctx, c, r)
}

// maxPages is more than any walk needs; whoever gets there never comes to an end.
const maxPages = 40

func query(ctx context.Context, c *sdk.Client, r *request) (*sdk.QueryOutput, error) {
	in := &sdk.QueryInput{
		TableName: &r.table, KeyConditionExpression: optional(r.keyCondition), FilterExpression: optional(r.filter), ProjectionExpression: optional(r.projection),
		ExpressionAttributeNames: r.names, ExpressionAttributeValues: r.values, ConsistentRead: aws.Bool(r.consistent), Limit: r.limit,
		ExclusiveStartKey: r.start, Select: types.Select(r.selection),
	}
	if r.descending {
		in.ScanIndexForward = aws.Bool(false)
	}
	all, err := c.Query(ctx, in)
	for page, n := all, 1; r.pages && err == nil && page.LastEvaluatedKey != nil && n < maxPages; n++ {
		in.ExclusiveStartKey = page.LastEvaluatedKey
		if page, err = c.Query(ctx, in); err == nil {
			all.Items, all.Count, all.ScannedCount = append(all.Items, page.Items...), all.Count+page.Count, all.ScannedCount+page.ScannedCount
			all.LastEvaluatedKey = page.LastEvaluatedKey
		}
	}
	return all, err
}

func scan(ctx context.Context, c *sdk.Client, r *request) (*sdk.ScanOutput, error) {
	in := &sdk.ScanInput{
		TableName: &r.table, FilterExpression: optional(r.filter), ProjectionExpression: optional(r.projection), ExpressionAttributeNames: r.names,
		ExpressionAttributeValues: r.values, ConsistentRead: aws.Bool(r.consistent), Limit: r.limit, ExclusiveStartKey: r.start,
		Select: types.Select(r.selection), Segment: r.segment, TotalSegments: r.total,
	}
	all, err := c.Scan(ctx, in)
	for page, n := all, 1; r.pages && err == nil && page.LastEvaluatedKey != nil && n < maxPages; n++ {
		in.ExclusiveStartKey = page.LastEvaluatedKey
		if page, err = c.Scan(ctx, in); err == nil {
			all.Items, all.Count, all.ScannedCount = append(all.Items, page.Items...), all.Count+page.Count, all.ScannedCount+page.ScannedCount
			all.LastEvaluatedKey = page.LastEvaluatedKey
		}
	}
	return all, err
}

func (r *request) batchGets() map[string]types.KeysAndAttributes {
	tables := map[string]types.KeysAndAttributes{}
	for _, p := range r.parts {
		tables[p.table] = types.KeysAndAttributes{Keys: p.keys, ProjectionExpression: optional(p.projection), ExpressionAttributeNames: p.names, ConsistentRead: aws.Bool(p.consistent)}
	}
	return tables
}

func (r *request) batchWrites() map[string][]types.WriteRequest {
	tables := map[string][]types.WriteRequest{}
	for _, p := range r.parts {
		var w types.WriteRequest
		if p.item != nil {
			w.PutRequest = &types.PutRequest{Item: p.item}
		} else {
			w.DeleteRequest = &types.DeleteRequest{Key: p.key}
		}
		tables[p.table] = append(tables[p.table], w)
	}
	return tables
}

func transactWrite(p *request) types.TransactWriteItem {
	onFailure := types.ReturnValuesOnConditionCheckFailure(p.onFailure)
	switch p.op {
	case "Put":
		return types.TransactWriteItem{Put: &types.Put{TableName: &p.table, Item: p.item, ConditionExpression: optional(p.condition),
			ExpressionAttributeNames: p.names, ExpressionAttributeValues: p.values, ReturnValuesOnConditionCheckFailure: onFailure}}
	case "Update":
		return types.TransactWriteItem{Update: &types.Update{TableName: &p.table, Key: p.key, UpdateExpression: optional(p.update), ConditionExpression: optional(p.condition),
			ExpressionAttributeNames: p.names, ExpressionAttributeValues: p.values, ReturnValuesOnConditionCheckFailure: onFailure}}
	case "Delete":
		return types.TransactWriteItem{Delete: &types.Delete{TableName: &p.table, Key: p.key, ConditionExpression: optional(p.condition),
			ExpressionAttributeNames: p.names, ExpressionAttributeValues: p.values, ReturnValuesOnConditionCheckFailure: onFailure}}
	}
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: &p.table, Key: p.key, ConditionExpression: optional(p.condition),
		ExpressionAttributeNames: p.names, ExpressionAttributeValues: p.values, ReturnValuesOnConditionCheckFailure: onFailure}}
}

func transactGet(p *request) types.TransactGetItem {
	return types.TransactGetItem{Get: &types.Get{TableName: &p.table, Key: p.key, ProjectionExpression: optional(p.projection), ExpressionAttributeNames: p.names}}
}

// sendTable performs the operations on tables.
func sendTable(ctx context.Context, c *sdk.Client, r *request) (any, error) {
	switch t := r.create; r.op {
	case "CreateTable":
		return c.CreateTable(ctx, t.input())
	case "DescribeTable":
		return c.DescribeTable(ctx, &sdk.DescribeTableInput{TableName: &r.table})
	case "DeleteTable":
		return c.DeleteTable(ctx, &sdk.DeleteTableInput{TableName: &r.table})
	case "UpdateTimeToLive":
		return c.UpdateTimeToLive(ctx, &sdk.UpdateTimeToLiveInput{TableName: &r.table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &t.ttl, Enabled: &t.enabled}})
	default:
		return c.ListTables(ctx, &sdk.ListTablesInput{ExclusiveStartTableName: &t.startTable, Limit: r.limit})
	}
}

func (t *tableRequest) input() *sdk.CreateTableInput {
	in := &sdk.CreateTableInput{TableName: &t.schema.name}
	kinds := map[string]types.ScalarAttributeType{"pk": t.schema.partition}
	if t.schema.sort != "" {
		kinds["sk"] = t.schema.sort
	}
	if t.extra {
		kinds["zz"] = types.ScalarAttributeTypeS
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &name, AttributeType: kinds[name]})
	}
	for i, name := range t.schema.keyNames() {
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &name, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
	}
	if t.onDemand {
		in.BillingMode = types.BillingModePayPerRequest
	}
	if t.throughput > 0 {
		in.ProvisionedThroughput = &types.ProvisionedThroughput{ReadCapacityUnits: &t.throughput, WriteCapacityUnits: &t.throughput}
	}
	if t.protected {
		in.DeletionProtectionEnabled = &t.protected
	}
	return in
}
