package sim

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// Outbox appends by transactions of the application's own, which write an item of the application's as well: both or none.
type Outbox struct {
	Name, Topic string
	Appends     int
	Lull        int // as of a Producer

	sent []*Together
}

// Play implements Actor.
func (x *Outbox) Play(w *World) {
	w.turns(x.Name, x.Topic, x.Appends, x.Lull, func(a *appender) func() { return func() { x.append(a) } })
}

// Prove implements Actor: it appends, and then, as nothing is under way any more, looks for what all its transactions have written.
func (x *Outbox) Prove(w *World) {
	w.prove(x.Name, x.append)
	client := dynamodb.NewFromConfig(w.aws(w.engine.Load()))
	for _, t := range x.sent {
		out, err := client.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String(tableName), Key: applications(t)})
		w.must(err)
		written := out.Item != nil
		t.Written = &written
	}
}

// applications is the key of the item that a transaction writes besides.
func applications(t *Together) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "APPLICATION"}, "sk": &types.AttributeValueMemberS{Value: t.Ops[0].Value}}
}

// append sends one transaction, once or, as clients do, again after an error.
func (x *Outbox) append(a *appender) *Together {
	c, t := a.Chance("outbox"), &Together{Loose: true}
	records := a.records(c.Below(2), t)
	x.sent = append(x.sent, t)
	prepared, err := a.producer.Prepare(a.ctx, records...)
	if err != nil {
		a.together(records, t, err)
		return t
	}
	items, err := prepared.Items()
	if err != nil {
		prepared.Abandon()
		a.together(records, t, err)
		return t
	}
	put := &types.Put{TableName: aws.String(tableName), Item: applications(t)}
	if c.OneIn(2) {
		put.ConditionExpression = aws.String("attribute_not_exists(pk)")
	}
	request := &dynamodb.TransactWriteItemsInput{TransactItems: append(items, types.TransactWriteItem{Put: put})}
	for range 1 + c.Below(3) {
		if c.OneIn(3) || request.ClientRequestToken == nil { // a client that does not know its own request again
			request.ClientRequestToken = aws.String(c.Token())
		}
		if err = x.send(a, request); err == nil {
			break
		}
	}
	err = prepared.Done(a.ctx, err)
	a.together(records, t, err)
	a.came("outbox: " + map[bool]string{true: "applied", false: "not applied, or not known"}[err == nil])
	return t
}

func (x *Outbox) send(a *appender, request *dynamodb.TransactWriteItemsInput) error {
	ctx, cancel := a.world.env.WithTimeout(a.ctx, 5*time.Second)
	defer cancel()
	_, err := dynamodb.NewFromConfig(a.world.aws(line{a.Process}), func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }).TransactWriteItems(ctx, request)
	return err
}

// BothOrNone: what a transaction of an application's own has appended is in the log, and its item in the table, or neither.
func BothOrNone(h *History, l *Log) {
	for _, o := range h.Ops {
		if o.With == nil || o.With.Written == nil {
			continue
		}
		if _, there := l.Find(o); there != *o.With.Written {
			h.BadOp(o, "%v in the log: %v, but the application's item is there: %v", o, there, *o.With.Written)
		}
	}
}

// Items is for those who prepare transactions.
func (t watched) Items(commits []metadata.Commit, offsets []metadata.StepOffsets) ([]types.TransactWriteItem, error) {
	return t.Table.(interface {
		Items([]metadata.Commit, []metadata.StepOffsets) ([]types.TransactWriteItem, error)
	}).Items(commits, offsets)
}
