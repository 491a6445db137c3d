package dynamodb_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/varvelog/varve/localdev/dynamodb"
)

func deletes(pks ...string) []types.WriteRequest {
	return each(pks, func(pk string) types.WriteRequest {
		return types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: key(pk, "s")}}
	})
}

func puts(pks ...string) []types.WriteRequest {
	return each(pks, func(pk string) types.WriteRequest {
		return types.WriteRequest{PutRequest: &types.PutRequest{Item: key(pk, "s")}}
	})
}

func pks(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("p%02d", i)
	}
	return out
}

// TestBR44_UnprocessedItems: the service hands back three actions of a batch, twice; whoever repeats them is done in
// three calls, and whoever does not has lost three rows. More than 25 are refused whole.
func TestBR44_UnprocessedItems(t *testing.T) {
	handBack := 0
	o := dynamodb.Options{Hook: func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if c.Op == "BatchWriteItem" && handBack > 0 {
			handBack--
			return dynamodb.Fault{Unprocessed: 3}
		}
		return dynamodb.Fault{}
	}}
	eachStorage(t, o, func(f *fixture) {
		all := pks(26)
		for _, pk := range all {
			f.put(fmt.Sprintf(`pk:%q sk:"s"`, pk))
		}
		write := func(requests []types.WriteRequest) ([]types.WriteRequest, error) {
			out, err := f.client.BatchWriteItem(f.ctx(), &sdk.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"tbl": requests}})
			if err != nil {
				return nil, err
			}
			return out.UnprocessedItems["tbl"], nil
		}
		if _, err := write(deletes(all...)); message(err) != "Too many items requested for the BatchWriteItem call" {
			f.Errorf("26 deletes: %v", err)
		}
		left := func() (n int) {
			for _, pk := range all {
				if f.get(pk, "s") != "" {
					n++
				}
			}
			return n
		}
		if left() != 26 {
			f.Error("a refused batch deleted something")
		}
		handBack = 2
		rest, err := write(deletes(all[:25]...))
		if err != nil || len(rest) != 3 || left() != 4 {
			f.Fatalf("first: %d handed back, %d left, %v", len(rest), left(), err)
		}
		got := each(rest, func(r types.WriteRequest) string { return notationOf(r.DeleteRequest.Key) })
		if want := []string{`pk:"p22" sk:"s"`, `pk:"p23" sk:"s"`, `pk:"p24" sk:"s"`}; !slices.Equal(got, want) {
			f.Errorf("handed back %q", got)
		}
		if rest, err = write(rest); err != nil || len(rest) != 3 || left() != 4 {
			f.Fatalf("second: %d handed back, %d left, %v", len(rest), left(), err)
		}
		if rest, err = write(rest); err != nil || len(rest) != 0 || left() != 1 {
			f.Fatalf("third: %d handed back, %d left, %v", len(rest), left(), err)
		}
	})
}

func TestBatchWrite(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		f.createTable("other", types.ScalarAttributeTypeS, types.ScalarAttributeTypeS)
		f.put(`pk:"old" sk:"s"`)
		write := func(items map[string][]types.WriteRequest) string {
			out, err := f.client.BatchWriteItem(f.ctx(), &sdk.BatchWriteItemInput{RequestItems: items})
			if err == nil && len(out.UnprocessedItems) != 0 {
				f.Errorf("handed back %v", out.UnprocessedItems)
			}
			return text(err)
		}
		if got := write(map[string][]types.WriteRequest{"tbl": append(puts("a", "b"), deletes("old", "none")...), "other": puts("a")}); got != "" {
			f.Fatal(got)
		}
		if got := f.get("a", "s") + f.get("old", "s"); got != `pk:"a" sk:"s"` {
			f.Error(got)
		}
		for _, row := range []struct {
			items map[string][]types.WriteRequest
			want  string
		}{
			{map[string][]types.WriteRequest{"tbl": append(puts("c"), deletes("c")...)}, "Provided list of item keys contains duplicates"},
			{map[string][]types.WriteRequest{"tbl": puts("c"), "none": puts("c")}, "Requested resource not found"},
			{map[string][]types.WriteRequest{"tbl": append(puts("c"), puts("")...)}, "cannot contain an empty string value. Key: pk"},
			{map[string][]types.WriteRequest{"tbl": {{}}}, "must contain exactly one"},
			{map[string][]types.WriteRequest{}, "Member must have length greater than or equal to 1"},
		} {
			if got := write(row.items); !strings.Contains(got, row.want) || got == "" {
				f.Errorf("%v: %s, want %s", row.items, got, row.want)
			}
		}
		if got := f.get("c", "s"); got != "" {
			f.Error("a refused batch wrote", got)
		}
	})
}

func TestBatchGet(t *testing.T) {
	unprocessed := 0
	o := dynamodb.Options{Hook: func(context.Context, dynamodb.Call) dynamodb.Fault {
		return dynamodb.Fault{Unprocessed: unprocessed}
	}}
	eachStorage(t, o, func(f *fixture) {
		unprocessed = 0
		f.put(`pk:"a" sk:"s" n:1 size:2`)
		f.put(`pk:"b" sk:"s" n:2`)
		keys := []attributes{key("a", "s"), key("x", "s"), key("b", "s")}
		names := map[string]string{"#n": "n"}
		in := map[string]types.KeysAndAttributes{"tbl": {Keys: keys, ProjectionExpression: aws.String("#n"), ExpressionAttributeNames: names, ConsistentRead: aws.Bool(true)}}
		get := func(in map[string]types.KeysAndAttributes) (string, map[string]types.KeysAndAttributes, error) {
			out, err := f.client.BatchGetItem(f.ctx(), &sdk.BatchGetItemInput{RequestItems: in})
			if err != nil {
				return "", nil, err
			}
			return strings.Join(each(out.Responses["tbl"], notationOf), " "), out.UnprocessedKeys, nil
		}
		if got, rest, err := get(in); got != "n:1 n:2" || len(rest) != 0 || err != nil {
			f.Error(got, rest, err)
		}
		unprocessed = 2
		got, rest, err := get(in)
		if got != "n:1" || err != nil || len(rest["tbl"].Keys) != 2 || *rest["tbl"].ProjectionExpression != "#n" || !*rest["tbl"].ConsistentRead {
			f.Error(got, rest, err)
		}
		unprocessed = 0
		if got, rest, err := get(rest); got != "n:2" || len(rest) != 0 || err != nil {
			f.Error(got, rest, err)
		}
		for _, row := range []struct {
			keys []attributes
			want string
		}{
			{[]attributes{key("a", "s"), key("a", "s")}, "Provided list of item keys contains duplicates"},
			{each(pks(101), func(pk string) attributes { return key(pk, "s") }), "Too many items requested for the BatchGetItem call"},
			{[]attributes{}, "Member must have length greater than or equal to 1"},
			{[]attributes{item(`pk:"a"`)}, "The provided key element does not match the schema"},
		} {
			if _, _, err := get(map[string]types.KeysAndAttributes{"tbl": {Keys: row.keys}}); err == nil || !strings.Contains(message(err), row.want) {
				f.Errorf("%v, want %s", err, row.want)
			}
		}
	})
}

// TestBatchGetOfSixteenMegabytes: 50 items of 400,000 bytes are asked for; 41 are 16,400,000 bytes, 42 would be over
// 16,777,216.
func TestBatchGetOfSixteenMegabytes(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	var keys []attributes
	for _, pk := range pks(50) {
		it := sized("s", 400_000)
		it["pk"] = &types.AttributeValueMemberS{Value: pk[2:]} // one byte, as sized expects; ten of each
		it["sk"] = &types.AttributeValueMemberS{Value: pk[1:2]}
		if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: it}); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key(pk[2:], pk[1:2]))
	}
	out, err := f.client.BatchGetItem(f.ctx(), &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"tbl": {Keys: keys}}})
	if err != nil || len(out.Responses["tbl"]) != 41 || len(out.UnprocessedKeys["tbl"].Keys) != 9 {
		t.Errorf("%d items, %d keys left, %v", len(out.Responses["tbl"]), len(out.UnprocessedKeys["tbl"].Keys), err)
	}
}
