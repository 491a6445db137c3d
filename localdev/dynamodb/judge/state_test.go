package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// items are those that a request names, by table and key, as the client has them. What is no key names none.
func (c *court) items(ctx context.Context, client *sdk.Client, r *request) (map[string]attributes, error) {
	out := map[string]attributes{}
	for _, part := range r.actions() {
		s, ok := c.schema(part.table)
		if !ok {
			continue
		}
		keys := part.keys
		if part.item != nil {
			keys = append(keys, s.keyOf(part.item))
		} else {
			keys = append(keys, part.key)
		}
		for _, key := range keys {
			if key == nil || out[s.name+notation(key)] != nil {
				continue
			}
			got, err := again(func() (*sdk.GetItemOutput, error) {
				return client.GetItem(ctx, &sdk.GetItemInput{TableName: &s.name, Key: key, ConsistentRead: ptrTo(true)})
			})
			if code := answerOf(got, err).code; code == "transport" || code == "ResourceNotFoundException" {
				return nil, err
			}
			if err == nil && got.Item != nil {
				out[s.name+notation(key)] = got.Item
			}
		}
	}
	return out, nil
}

// again reads once more if the answer was lost.
func again[T any](read func() (T, error)) (T, error) {
	out, err := read()
	if isLost(err) {
		return read()
	}
	return out, err
}

func ptrTo[T any](v T) *T { return &v }

func (c *court) schema(table string) (schema, bool) {
	i := slices.IndexFunc(c.g.tables, func(s schema) bool { return s.name == table })
	if i < 0 {
		return schema{}, false
	}
	return c.g.tables[i], true
}

// compareItems compares what a write has left of the items that it named.
func (c *court) compareItems(ctx context.Context, r *request) ([]difference, error) {
	engine, err := c.items(ctx, c.engine, r)
	if err != nil {
		return nil, err
	}
	judged, err := c.items(ctx, c.other, r)
	if err != nil {
		return nil, err
	}
	return compareFields(stateFields(engine), stateFields(judged)), nil
}

func stateFields(items map[string]attributes) map[string]string {
	a := answer{fields: map[string]string{}}
	for at, item := range items {
		a.item("state["+at+"]", item)
	}
	return a.fields
}

func shown(items map[string]attributes) map[string]string {
	out := map[string]string{}
	for at, item := range items {
		out[at] = at + ": " + notation(item)
	}
	return out
}

// table is a whole table by keys.
func table(ctx context.Context, client *sdk.Client, s schema) (map[string]attributes, error) {
	out, err := again(func() (*sdk.ScanOutput, error) {
		return scan(ctx, client, &request{table: s.name, consistent: true, pages: true})
	})
	if err != nil {
		return nil, err
	}
	items := map[string]attributes{}
	for _, item := range out.Items {
		items[s.name+notation(s.keyOf(item))] = item
	}
	return items, nil
}

// compareTables: no entry excuses a difference that is found here.
func (c *court) compareTables(ctx context.Context) error {
	for _, s := range c.g.tables {
		engine, err := table(ctx, c.engine, s)
		if err != nil {
			return err
		}
		judged, err := table(ctx, c.other, s)
		if err != nil {
			return err
		}
		if d := compareFields(stateFields(engine), stateFields(judged)); len(d) > 0 {
			return fmt.Errorf("table %s differs without any answer that did: %s: engine %s, %s %s", s.name, d[0].field, d[0].engine, c.judge, d[0].judged)
		}
	}
	return nil
}

// align makes the judge's tables those of the engine after a difference.
func (c *court) align(ctx context.Context, r *request) error {
	for _, s := range c.g.tables {
		if !slices.ContainsFunc(r.actions(), func(p *request) bool { return p.table == s.name }) {
			continue
		}
		engine, err := table(ctx, c.engine, s)
		if err != nil {
			return err
		}
		judged, err := table(ctx, c.other, s)
		if err != nil { // it holds something that it cannot read
			if judged, err = c.anew(ctx, s); err != nil {
				return err
			}
		}
		if err := c.alignTable(ctx, s, engine, judged); err != nil {
			return err
		}
	}
	return nil
}

// alignTable puts and deletes what differs. Items that the judge does not take are deleted from both.
func (c *court) alignTable(ctx context.Context, s schema, engine, judged map[string]attributes) error {
	for at, item := range judged {
		if engine[at] == nil {
			if err := remove(ctx, c.other, s, item); err != nil {
				return err
			}
		}
	}
	for at, item := range engine {
		if notation(item) == notation(judged[at]) || c.copies(ctx, s, item) {
			continue
		}
		if err := errors.Join(remove(ctx, c.engine, s, item), remove(ctx, c.other, s, item)); err != nil {
			return err
		}
	}
	return nil
}

// anew drops the judge's table and makes it again, empty.
func (c *court) anew(ctx context.Context, s schema) (map[string]attributes, error) {
	for _, r := range []*request{{op: "DeleteTable", table: s.name}, {op: "CreateTable", table: s.name, create: &tableRequest{schema: s, onDemand: true}}} {
		if _, err := send(ctx, c.other, r); err != nil {
			return nil, err
		}
		if err := settled(ctx, c.other, r); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// copies puts an item of the engine into the judge's table and reports whether the judge then has it as it is.
func (c *court) copies(ctx context.Context, s schema, item attributes) bool {
	if _, err := c.other.PutItem(ctx, &sdk.PutItemInput{TableName: &s.name, Item: item}); err != nil {
		return false
	}
	got, err := c.other.GetItem(ctx, &sdk.GetItemInput{TableName: &s.name, Key: s.keyOf(item), ConsistentRead: ptrTo(true)})
	return err == nil && notation(got.Item) == notation(item)
}

func remove(ctx context.Context, client *sdk.Client, s schema, item attributes) error {
	_, err := client.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: &s.name, Key: map[string]types.AttributeValue(s.keyOf(item))})
	return err
}
