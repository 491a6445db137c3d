package sdk_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
)

// withTable opens a log in memory with a topic "orders" of one partition, and makes the application's table "shop". On AWS the log is opened at aws://, and
// the client is made as always, for the account and region of the log's table.
func withTable(ctx context.Context) (*sdk.Log, *dynamodb.Client) {
	service, err := embedded.NewMemory(embedded.MemoryOptions{})
	must(err)
	l, err := sdk.Open(ctx, "mem://", sdk.WithDriver(service))
	must(err)
	_, err = l.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "orders", Partitions: 1})
	must(err)
	client := dynamodb.NewFromConfig(service.AWS())
	_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{TableName: aws.String("shop"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}}})
	must(err)
	return l, client
}

// An order and its event: both or none, without a table of events that wait to be sent.
func ExampleProducer_Prepare() {
	ctx := context.Background()
	l, client := withTable(ctx)
	p, err := l.NewProducer()
	must(err)
	place := func(id string) error {
		order := types.TransactWriteItem{Put: &types.Put{TableName: aws.String("shop"), ConditionExpression: aws.String("attribute_not_exists(id)"),
			Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}}}}
		for {
			event := &sdk.Record{Topic: "orders", Value: []byte("placed " + id)}
			prepared, err := p.Prepare(ctx, event)
			if err != nil {
				return err
			}
			items, err := prepared.Items()
			if err != nil {
				return err
			}
			_, err = client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: append(items, order)})
			err = prepared.Done(ctx, err)
			var not *sdk.NotAppliedError
			if errors.As(err, &not) && not.Reason != "" {
				continue // the log has moved on meanwhile
			}
			if err == nil {
				fmt.Printf("%s at offset %d\n", event.Value, event.Offset)
			}
			return err
		}
	}
	must(place("a1"))
	err = place("a1")
	var theirs *types.TransactionCanceledException
	fmt.Println(errors.Is(err, sdk.ErrRefused), errors.As(err, &theirs))
	must(p.Close(ctx))
	must(l.Close())
	// Output:
	// placed a1 at offset 0
	// true true
}

// A count of orders that is exact whatever crashes: it is kept with the offset up to which it goes.
func ExampleConsumer_PrepareCommit() {
	ctx := context.Background()
	l, client := withTable(ctx)
	p, err := l.NewProducer()
	must(err)
	must(p.ProduceSync(ctx, &sdk.Record{Topic: "orders"}, &sdk.Record{Topic: "orders"}, &sdk.Record{Topic: "orders"}).Err())
	must(p.Close(ctx))

	c, err := l.NewConsumer(ctx, "counting", []string{"orders"}, sdk.ManualCommit())
	must(err)
	fetches, err := c.Poll(ctx)
	must(err)
	for _, f := range fetches {
		next := f.Records[len(f.Records)-1].Offset + 1
		prepared, err := c.PrepareCommit(map[sdk.TopicPartition]sdk.CommitOffset{{Topic: f.Topic, Partition: f.Partition}: {Offset: next}})
		must(err)
		items, err := prepared.Items()
		must(err)
		count := types.TransactWriteItem{Update: &types.Update{TableName: aws.String("shop"), UpdateExpression: aws.String("ADD orders :n"),
			Key:                       map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "count"}},
			ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: fmt.Sprint(len(f.Records))}}}}
		_, err = client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: append(items, count)})
		must(prepared.Done(ctx, err))
	}
	must(c.Close(ctx))

	row, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("shop"), Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "count"}}})
	must(err)
	fmt.Println(row.Item["orders"].(*types.AttributeValueMemberN).Value)
	must(l.Close())
	// Output: 3
}
