package sdk_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// shop is an application with a table and a client of its own on the service that has the log.
type shop struct {
	*bench
	client *dynamodb.Client
	mu     sync.Mutex
	chance *rand.Rand
	seed   uint64

	careless bool      // its items have no conditions
	dark     time.Time // the service does not answer until then
}

const shopTable = "shop"

type attributes = map[string]types.AttributeValue

func newShop(t *testing.T, seed uint64) *shop {
	b := newBench(t)
	s := &shop{bench: b, client: dynamodb.NewFromConfig(b.memory.AWS()), chance: rand.New(rand.NewPCG(seed, 7)), seed: seed}
	_, err := s.client.CreateTable(b.ctx, &dynamodb.CreateTableInput{TableName: aws.String(shopTable), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}}})
	check(t, err)
	return s
}

func (s *shop) maybe(p float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chance.Float64() < p
}

func (s *shop) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.chance.Int64N(int64(d)))
}

func text1(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
func num1(n int) types.AttributeValue     { return &types.AttributeValueMemberN{Value: strconv.Itoa(n)} }

// unlessThere puts an item unless there is one.
func unlessThere(item attributes) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{TableName: aws.String(shopTable), Item: item, ConditionExpression: aws.String("attribute_not_exists(id)")}}
}

// plus adds to a number, under no condition.
func plus(id string, n int) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{TableName: aws.String(shopTable), Key: attributes{"id": text1(id)},
		UpdateExpression: aws.String("ADD n :n"), ExpressionAttributeValues: attributes{":n": num1(n)}}}
}

// send sends the application's items with what varve has prepared.
func (s *shop) send(own types.TransactWriteItem, all ...*sdk.Prepared) error {
	items := []types.TransactWriteItem{own}
	for _, p := range all {
		more, err := p.Items()
		check(s.t, err)
		items = append(items, more...)
	}
	retries := func(o *dynamodb.Options) {}
	if s.maybe(0.5) {
		retries = func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }
	}
	_, err := s.client.TransactWriteItems(s.ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items}, retries)
	return err
}

// row is an item of the application's, nil if there is none. It asks until it is answered.
func (s *shop) row(id string) attributes {
	for {
		out, err := s.client.GetItem(s.ctx, &dynamodb.GetItemInput{TableName: aws.String(shopTable), Key: attributes{"id": text1(id)}, ConsistentRead: aws.Bool(true)})
		if err == nil {
			return out.Item
		}
		time.Sleep(time.Second)
	}
}

func (s *shop) number(id string) int {
	n, _ := s.row(id)["n"].(*types.AttributeValueMemberN)
	if n == nil {
		return 0
	}
	i, err := strconv.Atoi(n.Value)
	check(s.t, err)
	return i
}

func (s *shop) outage(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dark = time.Now().Add(d)
}

func (s *shop) isDark() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.dark)
}

// misfortune is what befalls transactions, and more rarely everything else.
func (s *shop) misfortune(_ context.Context, c engine.Call) engine.Fault {
	p := 0.03
	if c.Op == "TransactWriteItems" {
		p = 0.2
	}
	switch {
	case s.isDark() || s.maybe(p):
		return engine.Dropped()
	case s.maybe(p):
		return engine.AnswerLost()
	case c.Op == "TransactWriteItems" && s.maybe(p):
		late := s.upTo(2 * time.Minute)
		if s.maybe(0.1) {
			late = s.upTo(time.Hour)
		}
		return engine.AppliedLate(func(context.Context) { time.Sleep(late) })
	}
	return engine.Fault{}
}

// where is the values of a topic's records by partition and offset.
func (s *shop) where(topic string) map[string]string {
	s.t.Helper()
	all := map[string]string{}
	r, err := s.log.NewReader(s.ctx, topic, sdk.To(sdk.Latest))
	check(s.t, err)
	defer r.Close()
	for {
		fetches, err := r.Poll(s.ctx)
		if err == io.EOF {
			return all
		}
		check(s.t, err)
		for _, f := range fetches {
			for _, rec := range f.Records {
				all[fmt.Sprintf("%d/%d", rec.Partition, rec.Offset)] = string(rec.Value)
			}
		}
	}
}
