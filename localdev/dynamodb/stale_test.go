package dynamodb_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// TestStaleReads: an item is written once a second; eventual reads see what was there the given time ago, strong
// ones what is there.
func TestStaleReads(t *testing.T) {
	for _, file := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			stale := time.Duration(0)
			o := dynamodb.Options{History: time.Minute, Hook: func(context.Context, dynamodb.Call) dynamodb.Fault { return dynamodb.StaleBy(stale) }}
			if file {
				o.File = t.TempDir() + "/engine.db"
			}
			f := newFixture(t, o)
			read := func(sk string) string {
				out, err := f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: key("a", sk)})
				if err != nil {
					t.Fatal(err)
				}
				return notationOf(out.Item)
			}
			list := func(call func() ([]attributes, error)) string {
				items, err := call()
				if err != nil {
					t.Fatal(err)
				}
				return strings.Join(each(items, func(m attributes) string { return notationOfValue(m["sk"]) + notationOfValue(m["n"]) }), " ")
			}
			query := func(forward bool) string {
				return list(func() ([]attributes, error) {
					out, err := f.client.Query(f.ctx(), &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk=:p AND sk BETWEEN :a AND :z"), ExpressionAttributeValues: values(`p:"a" a:"a" z:"y"`), ScanIndexForward: &forward})
					return out.Items, err
				})
			}
			scan := func() string {
				return list(func() ([]attributes, error) {
					out, err := f.client.Scan(f.ctx(), &sdk.ScanInput{TableName: table})
					return out.Items, err
				})
			}
			// t=0: b:1. t=1: d:1. t=2: b:2, a:1. t=3: d deleted, then nothing until now, t=4.
			f.put(`pk:"a" sk:"b" n:1`)
			time.Sleep(time.Second)
			f.put(`pk:"a" sk:"d" n:1`)
			time.Sleep(time.Second)
			f.put(`pk:"a" sk:"b" n:2`)
			f.put(`pk:"a" sk:"a" n:1`)
			time.Sleep(time.Second)
			if _, err := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("a", "d")}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			for _, row := range []struct {
				stale                time.Duration
				b, forward, backward string
			}{
				{0, `n:2 pk:"a" sk:"b"`, `"a"1 "b"2`, `"b"2 "a"1`},
				{time.Second, `n:2 pk:"a" sk:"b"`, `"a"1 "b"2`, `"b"2 "a"1`}, // as of the deletion's own time
				{time.Second + 1, `n:2 pk:"a" sk:"b"`, `"a"1 "b"2 "d"1`, `"d"1 "b"2 "a"1`},
				{2*time.Second + 1, `n:1 pk:"a" sk:"b"`, `"b"1 "d"1`, `"d"1 "b"1`},
				{3*time.Second + 1, `n:1 pk:"a" sk:"b"`, `"b"1`, `"b"1`},
				{5 * time.Second, "", "", ""},
			} {
				stale = row.stale
				if b, forward, backward, scanned := read("b"), query(true), query(false), scan(); b != row.b || forward != row.forward || backward != row.backward || scanned != row.forward {
					t.Errorf("%v ago: %s | %s | %s | %s", row.stale, b, forward, backward, scanned)
				}
				if strong := f.get("a", "b"); strong != `n:2 pk:"a" sk:"b"` {
					t.Errorf("a strong read was stale: %s", strong)
				}
			}
			batch, err := f.client.BatchGetItem(f.ctx(), &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"tbl": {Keys: []attributes{key("a", "b")}}}})
			if err != nil || len(batch.Responses["tbl"]) != 0 {
				t.Errorf("batch: %v %v", batch.Responses, err)
			}
			// A page that ends within the past goes on within the past.
			stale = time.Second + 1
			one := int32(1)
			in := &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk=:p"), ExpressionAttributeValues: values(`p:"a"`), Limit: &one}
			var pages []string
			for {
				out, err := f.client.Query(f.ctx(), in)
				if err != nil {
					t.Fatal(err)
				}
				pages = append(pages, sortKeys(out.Items))
				if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
					break
				}
			}
			if !slices.Equal(pages, []string{`"a"`, `"b"`, `"d"`, ""}) {
				t.Errorf("pages %q", pages)
			}
		})
	}
}
