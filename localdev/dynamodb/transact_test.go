package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// The actions of transactions, in short.
func putting(notation, condition string) types.TransactWriteItem {
	p := &types.Put{TableName: table, Item: item(notation), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
	if condition != "" {
		p.ConditionExpression = &condition
	}
	return types.TransactWriteItem{Put: p}
}

func updating(pk, expression, vals string) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{TableName: table, Key: key(pk, "s"), UpdateExpression: &expression, ExpressionAttributeValues: values(vals)}}
}

func deleting(pk string) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{TableName: table, Key: key(pk, "s")}}
}

func checking(pk, condition string) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: table, Key: key(pk, "s"), ConditionExpression: &condition}}
}

func (f *fixture) transact(token string, actions ...types.TransactWriteItem) error {
	in := &sdk.TransactWriteItemsInput{TransactItems: actions}
	if token != "" {
		in.ClientRequestToken = &token
	}
	_, err := f.client.TransactWriteItems(f.ctx(), in)
	return err
}

func TestTransactionIsAllOrNothing(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		f.put(`pk:"a" sk:"s" n:1`)
		f.put(`pk:"b" sk:"s" n:1`)
		if err := f.transact("", putting(`pk:"c" sk:"s"`, "attribute_not_exists(pk)"), updating("a", "SET n=n+:v", "v:5"), deleting("b"), checking("x", "attribute_not_exists(pk)")); err != nil {
			f.Fatal(err)
		}
		after := []string{f.get("a", "s"), f.get("b", "s"), f.get("c", "s"), f.get("x", "s")}
		if want := []string{`n:6 pk:"a" sk:"s"`, "", `pk:"c" sk:"s"`, ""}; !slices.Equal(after, want) {
			f.Errorf("%q", after)
		}
		err := f.transact("", putting(`pk:"d" sk:"s"`, ""), putting(`pk:"c" sk:"s" v:1`, "attribute_not_exists(pk)"), deleting("a"), checking("a", "attribute_not_exists(pk)"))
		if code(err) != "ValidationException" || message(err) != "Transaction request cannot include multiple operations on one item" {
			f.Error(err)
		}
		err = f.transact("", putting(`pk:"d" sk:"s"`, ""), putting(`pk:"c" sk:"s" v:1`, "attribute_not_exists(pk)"), deleting("a"), checking("x", "attribute_exists(pk)"), updating("y", "SET n=m", ""))
		want := []string{"None", `ConditionalCheckFailed: The conditional request failed pk:"c" sk:"s"`, "None", "ConditionalCheckFailed: The conditional request failed", "ValidationError: " + missingOperand}
		if got := reasons(err); !slices.Equal(got, want) {
			f.Errorf("%q", got)
		}
		if message(err) != "Transaction cancelled, please refer cancellation reasons for specific reasons [None, ConditionalCheckFailed, None, ConditionalCheckFailed, ValidationError]" {
			f.Error(message(err))
		}
		after = []string{f.get("a", "s"), f.get("c", "s"), f.get("d", "s"), f.get("y", "s")}
		if want := []string{`n:6 pk:"a" sk:"s"`, `pk:"c" sk:"s"`, "", ""}; !slices.Equal(after, want) {
			f.Errorf("a cancelled transaction changed %q", after)
		}
	})
}

func TestTransactionRefusals(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	many := func(n int) []types.TransactWriteItem {
		var list []types.TransactWriteItem
		for i := range n {
			list = append(list, putting(fmt.Sprintf(`pk:"m%d" sk:"s"`, i), ""))
		}
		return list
	}
	big := func(n int) []types.TransactWriteItem { // of 400,000 bytes each
		var list []types.TransactWriteItem
		for i := range n {
			it := sized("s", 400_000)
			it["pk"] = val(fmt.Sprintf(`"%c"`, 'A'+i))
			list = append(list, types.TransactWriteItem{Put: &types.Put{TableName: table, Item: it}})
		}
		return list
	}
	for _, row := range []struct {
		name    string
		err     error
		code    string
		message string
	}{
		{"100 actions", f.transact("", many(100)...), "", ""},
		{"101 actions", f.transact("", many(101)...), "ValidationException", "Member must have length less than or equal to 100"},
		{"no action", f.transact("", []types.TransactWriteItem{}...), "ValidationException", "1 validation error detected: Value '[]' at 'transactItems' failed to satisfy constraint: Member must have length greater than or equal to 1"},
		{"4,000,000 of 4,194,304 bytes", f.transact("", big(10)...), "", ""},
		{"4,400,000 bytes", f.transact("", big(11)...), "ValidationException", "Transaction request cannot be larger than 4194304 bytes: its items have 4400000"},
		{"empty key", f.transact("", putting(`pk:"" sk:"s"`, "")), "ValidationException", "cannot contain an empty string value. Key: pk"},
		{"no table", f.transact("", types.TransactWriteItem{Put: &types.Put{TableName: aws.String("none"), Item: key("a", "s")}}), "ResourceNotFoundException", "Requested resource not found"},
		{"long token", f.transact(strings.Repeat("t", 37), putting(`pk:"a" sk:"s"`, "")), "ValidationException", "Member must have length less than or equal to 36"},
		{"two in one", f.transact("", types.TransactWriteItem{Put: putting(`pk:"a" sk:"s"`, "").Put, Delete: deleting("a").Delete}), "ValidationException", "must contain exactly one"},
		{"bad expression", f.transact("", updating("a", "SET a", "")), "ValidationException", `Invalid UpdateExpression: Syntax error; token: "<EOF>", near: "a"`},
		{"key update", f.transact("", updating("a", "SET pk=:v", "v:1")), "TransactionCanceledException", "[ValidationError]"},
		{"wrong key type", f.transact("", putting(`pk:1 sk:"s"`, "")), "TransactionCanceledException", "[ValidationError]"},
		{"key of an update", f.transact("", types.TransactWriteItem{Delete: &types.Delete{TableName: table, Key: item(`pk:"a"`)}}), "TransactionCanceledException", "[ValidationError]"},
	} {
		if code(row.err) != row.code || row.code != "" && !strings.Contains(message(row.err), row.message) {
			t.Errorf("%s: %v", row.name, row.err)
		}
	}
}

func TestTransactGet(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		f.put(`pk:"a" sk:"s" n:1 m:2`)
		f.put(`pk:"b" sk:"s" n:1 m:2`)
		get := func(k attributes, projection *string) types.TransactGetItem {
			return types.TransactGetItem{Get: &types.Get{TableName: table, Key: k, ProjectionExpression: projection}}
		}
		out, err := f.client.TransactGetItems(f.ctx(), &sdk.TransactGetItemsInput{TransactItems: []types.TransactGetItem{get(key("a", "s"), nil), get(key("x", "s"), nil), get(key("b", "s"), aws.String("m"))}})
		if err != nil {
			f.Fatal(err)
		}
		got := each(out.Responses, func(r types.ItemResponse) string { return notationOf(r.Item) })
		if want := []string{`m:2 n:1 pk:"a" sk:"s"`, "", "m:2"}; !slices.Equal(got, want) || out.Responses[1].Item != nil {
			f.Errorf("%q", got)
		}
		_, err = f.client.TransactGetItems(f.ctx(), &sdk.TransactGetItemsInput{TransactItems: []types.TransactGetItem{get(key("a", "s"), nil), get(item(`pk:"a"`), nil)}})
		if got := reasons(err); !slices.Equal(got, []string{"None", "ValidationError: The provided key element does not match the schema"}) {
			f.Errorf("%q %v", got, err)
		}
	})
}

// TestTransactGetOfNoAttributes: an item of which nothing is projected is answered by an empty ItemResponse.
func TestTransactGetOfNoAttributes(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	f.put(`pk:"a" sk:"s" n:1`)
	out, err := f.client.TransactGetItems(f.ctx(), &sdk.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
		{Get: &types.Get{TableName: table, Key: key("a", "s"), ProjectionExpression: aws.String("m")}}}})
	if err != nil || len(out.Responses) != 1 || out.Responses[0].Item != nil {
		t.Errorf("%v %v", out, err)
	}
}

// TestTransactGetOfOneItemTwice is refused, as it is in TransactWriteItems.
func TestTransactGetOfOneItemTwice(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	get := types.TransactGetItem{Get: &types.Get{TableName: table, Key: key("a", "s")}}
	_, err := f.client.TransactGetItems(f.ctx(), &sdk.TransactGetItemsInput{TransactItems: []types.TransactGetItem{get, get}})
	if code(err) != "ValidationException" || message(err) != "Transaction request cannot include multiple operations on one item" {
		t.Error(err)
	}
}

// TestRequestTokens: a repetition within 10 minutes changes nothing, other parameters are refused, and after that
// the token is forgotten. A transaction that was cancelled leaves its token free.
func TestRequestTokens(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	eachStorage(t, dynamodb.Options{Now: func() time.Time { return now }}, func(f *fixture) {
		add := updating("a", "ADD n :v", "v:1")
		run := func(step string, err error, wantCode, wantItem string) {
			f.Helper()
			if got := f.get("a", "s"); code(err) != wantCode || got != wantItem {
				f.Errorf("%s: %q (%v), want %q", step, got, err, wantItem)
			}
		}
		one, two := `n:1 pk:"a" sk:"s"`, `n:2 pk:"a" sk:"s"`
		run("first", f.transact("t", add), "", one)
		run("again", f.transact("t", add), "", one)
		run("other value", f.transact("t", updating("a", "ADD n :v", "v:2")), "IdempotentParameterMismatchException", one)
		run("other condition", f.transact("t", types.TransactWriteItem{Update: &types.Update{TableName: table, Key: add.Update.Key, UpdateExpression: add.Update.UpdateExpression, ExpressionAttributeValues: add.Update.ExpressionAttributeValues, ConditionExpression: aws.String("attribute_exists(pk)")}}), "IdempotentParameterMismatchException", one)
		now = now.Add(10 * time.Minute)
		run("after 10 minutes", f.transact("t", add), "", one)
		now = now.Add(time.Second)
		run("after more", f.transact("t", add), "", two)
		run("cancelled", f.transact("u", add, checking("x", "attribute_exists(pk)")), "TransactionCanceledException", two)
		if err := f.transact("", putting(`pk:"x" sk:"s"`, "")); err != nil {
			f.Fatal(err)
		}
		run("and then not", f.transact("u", add, checking("x", "attribute_exists(pk)")), "", `n:3 pk:"a" sk:"s"`)
	})
}

// TestConflicts is the golden table of what meets an item that a transaction holds between prepare and commit.
// The transaction holds a and b and will set n to 2 on both.
func TestConflicts(t *testing.T) {
	var prepared func()
	hook := func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if c.Op == "TransactWriteItems" && prepared != nil {
			run := prepared
			prepared = nil // those that the rows send are not held up
			return dynamodb.Fault{Prepared: func(context.Context) { run() }}
		}
		return dynamodb.Fault{}
	}
	const ongoing = "TransactionConflict: Transaction is ongoing for the item"
	eachStorage(t, dynamodb.Options{Hook: hook}, func(f *fixture) {
		f.put(`pk:"a" sk:"s" n:1`)
		f.put(`pk:"b" sk:"s" n:1`)
		update := func(pk string) error {
			_, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key(pk, "s"), UpdateExpression: aws.String("ADD m :v"), ExpressionAttributeValues: values("v:1")})
			return err
		}
		seen := false
		prepared = func() {
			seen = true
			_, put := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: key("a", "s")})
			_, remove := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("b", "s")})
			for name, err := range map[string]error{"put": put, "update": update("a"), "delete": remove} {
				var conflict *types.TransactionConflictException
				if !errors.As(err, &conflict) {
					f.Errorf("%s of a held item: %v", name, err)
				}
			}
			if err := update("c"); err != nil {
				f.Errorf("update of a free item: %v", err)
			}
			// Plain reads see the state before.
			if got := f.get("a", "s"); got != `n:1 pk:"a" sk:"s"` {
				f.Errorf("read of a held item: %s", got)
			}
			out, err := f.client.BatchWriteItem(f.ctx(), &sdk.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"tbl": {{PutRequest: &types.PutRequest{Item: key("a", "s")}}, {PutRequest: &types.PutRequest{Item: key("d", "s")}}}}})
			if err != nil || len(out.UnprocessedItems["tbl"]) != 1 || notationOf(out.UnprocessedItems["tbl"][0].PutRequest.Item) != `pk:"a" sk:"s"` {
				f.Errorf("batch with a held item: %v %v", out, err)
			}
			for _, row := range []struct {
				name string
				err  error
				want []string
			}{
				{"transaction with a held item", f.transact("", checking("e", "attribute_not_exists(pk)"), updating("b", "ADD m :v", "v:1")), []string{"None", ongoing}},
				{"check of a held item", f.transact("", checking("a", "attribute_exists(pk)")), []string{ongoing}},
				{"transaction beside it", f.transact("", putting(`pk:"e" sk:"s"`, "")), nil},
				{"transactional read", func() error {
					_, err := f.client.TransactGetItems(f.ctx(), &sdk.TransactGetItemsInput{TransactItems: []types.TransactGetItem{{Get: &types.Get{TableName: table, Key: key("c", "s")}}, {Get: &types.Get{TableName: table, Key: key("a", "s")}}}})
					return err
				}(), []string{"None", ongoing}},
			} {
				if got := reasons(row.err); !slices.Equal(got, row.want) {
					f.Errorf("%s: %q, want %q (%v)", row.name, got, row.want, row.err)
				}
			}
			var busy *types.TransactionInProgressException
			if err := f.transact("token", updating("z", "SET n=:v", "v:2")); !errors.As(err, &busy) {
				f.Errorf("same token meanwhile: %v", err)
			}
		}
		if err := f.transact("token", updating("a", "SET n=:v", "v:2"), updating("b", "SET n=:v", "v:2")); err != nil || !seen {
			f.Fatal(err, seen)
		}
		// All of it is over with the commit.
		if err := update("a"); err != nil || f.get("a", "s") != `m:1 n:2 pk:"a" sk:"s"` || f.get("b", "s") != `n:2 pk:"b" sk:"s"` {
			f.Error(err, f.get("a", "s"), f.get("b", "s"))
		}
	})
}

// TestTableDeletedUnderATransaction between its prepare and its commit.
func TestTableDeletedUnderATransaction(t *testing.T) {
	var f *fixture
	hook := func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if c.Op != "TransactWriteItems" {
			return dynamodb.Fault{}
		}
		return dynamodb.Fault{Prepared: func(ctx context.Context) {
			if _, err := f.client.DeleteTable(ctx, &sdk.DeleteTableInput{TableName: table}); err != nil {
				f.Error(err)
			}
		}}
	}
	eachStorage(t, dynamodb.Options{Hook: hook}, func(each *fixture) {
		f = each
		if err := f.transact("", putting(`pk:"a" sk:"s"`, "")); code(err) != "ResourceNotFoundException" {
			f.Error(err)
		}
		f.createTable("tbl", types.ScalarAttributeTypeS, types.ScalarAttributeTypeS)
		if got := f.get("a", "s"); got != "" {
			f.Error(got)
		}
	})
}
