package dynamodb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// sortKeys are the sort keys of items, in notation, in their order.
func sortKeys(items []attributes) string {
	return strings.Join(each(items, func(m attributes) string { return notationOfValue(m["sk"]) }), " ")
}

// TestKeyConditions on sort keys of each type: want are the sort keys that come back, or the message.
func TestKeyConditions(t *testing.T) {
	tables := map[string]struct {
		kind types.ScalarAttributeType
		keys []string // in ascending order
	}{
		"str": {types.ScalarAttributeTypeS, []string{`"A"`, `"a"`, `"aa"`, `"ab"`, `"b"`, `"é"`, `"💡"`}},
		"num": {types.ScalarAttributeTypeN, []string{"-1" + strings.Repeat("0", 125), "-15", "-10", "-2", "-1.5", "-0.5", "0", "0.0001", "0.1", "1", "1.05", "2", "9", "10", "100"}},
		"bin": {types.ScalarAttributeTypeB, []string{`b"\x00"`, `b"a"`, `b"a\x00"`, `b"a\xfe\x01"`, `b"a\xff"`, `b"\xff"`, `b"\xff\xff"`}},
	}
	rows := []struct{ table, condition, values, want string }{
		{"str", "pk=:p", "", `"A" "a" "aa" "ab" "b" "é" "💡"`},
		{"num", "pk=:p AND sk<:a", "a:0", "-1" + strings.Repeat("0", 125) + " -15 -10 -2 -1.5 -0.5"},
		{"num", "pk=:p AND sk>=:a", "a:1.05", "1.05 2 9 10 100"},
		{"num", "pk=:p AND sk BETWEEN :a AND :b", "a:-10.0 b:-1", "-10 -2 -1.5"},
		{"num", "pk=:p AND sk=:a", "a:1.0500", "1.05"},
		{"str", "pk=:p AND sk<:a", `a:"aa"`, `"A" "a"`}, {"str", "pk=:p AND sk<=:a", `a:"aa"`, `"A" "a" "aa"`},
		{"str", "pk=:p AND sk>:a", `a:"aa"`, `"ab" "b" "é" "💡"`}, {"str", ":a<=sk AND :p=pk", `a:"aa"`, `"aa" "ab" "b" "é" "💡"`}, {"str", "pk=:p AND :a>sk", `a:"aa"`, `"A" "a"`},
		{"str", "pk=:p AND begins_with(sk, :a)", `a:"a"`, `"a" "aa" "ab"`}, {"bin", "pk=:p AND begins_with(sk, :a)", `a:b"a"`, `b"a" b"a\x00" b"a\xfe\x01" b"a\xff"`}, {"bin", "pk=:p AND begins_with(sk, :a)", `a:b"a\xfe"`, `b"a\xfe\x01"`},
		{"bin", "pk=:p AND begins_with(sk, :a)", `a:b"\xff"`, `b"\xff" b"\xff\xff"`}, {"bin", "pk=:p AND begins_with(sk, :a)", `a:b"a\xff"`, `b"a\xff"`},
		{"str", "((pk=:p)) AND ((sk=:a))", `a:"a"`, `"a"`}, {"str", "(pk=:p AND sk=:a)", `a:"a"`, `"a"`},
		{"str", "pk=:p AND sk=:a", `a:"none"`, ""},
		{"str", "sk=:p", "", "Query condition missed key schema element: pk"},
		{"str", "x=:p", "", "Query condition missed key schema element: pk"},
		{"str", "pk=:p AND x=:a", "a:1", "Query condition missed key schema element: sk"},
		{"str", "pk>:p", "", "Query key condition not supported"},
		{"str", "pk=:p AND sk<>:a", `a:"a"`, "Invalid KeyConditionExpression: Invalid operator used in KeyConditionExpression: <>"},
		{"str", "pk=:p OR sk=:a", `a:"a"`, "Invalid KeyConditionExpression: Invalid operator used in KeyConditionExpression: OR"},
		{"str", "NOT pk=:p", "", "Invalid KeyConditionExpression: Invalid operator used in KeyConditionExpression: NOT"},
		{"str", "pk=:p AND sk IN (:a)", `a:"a"`, "Invalid KeyConditionExpression: Invalid operator used in KeyConditionExpression: IN"},
		{"str", "pk=:p AND contains(sk, :a)", `a:"a"`, "Invalid KeyConditionExpression: Invalid operator used in KeyConditionExpression: contains"},
		{"str", "pk=:p AND sk.x=:a", `a:"a"`, "Invalid KeyConditionExpression: KeyConditionExpressions cannot have conditions on nested attributes"},
		{"str", "pk=:p AND sk>:a AND sk<:b", `a:"a" b:"b"`, "KeyConditionExpressions must only contain one condition per key"},
		{"str", "pk=:p AND sk=pk", "", "Query key condition not supported"},
		{"str", "pk=:p AND sk=:a", "a:1", "One or more parameter values were invalid: Condition parameter type does not match schema type"},
		{"str", "pk=:p AND sk=:a", `a:""`, "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: sk"},
		{"str", "", "", "Invalid KeyConditionExpression: The expression can not be empty;"},
	}
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		for name, c := range tables {
			f.createTable(name, types.ScalarAttributeTypeS, c.kind)
			for i := range c.keys { // written in another order than they sort
				k := c.keys[(i*11+3)%len(c.keys)]
				for _, pk := range []string{"p", "o", "p\x00"} {
					it := attributes{"pk": val(fmt.Sprintf("%q", pk)), "sk": val(k)}
					if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: &name, Item: it}); err != nil {
						f.Fatal(err)
					}
				}
			}
		}
		for _, row := range rows {
			out, err := f.client.Query(f.ctx(), &sdk.QueryInput{TableName: &row.table, KeyConditionExpression: &row.condition, ExpressionAttributeValues: values(`p:"p" ` + row.values)})
			if err != nil {
				if message(err) != row.want {
					f.Errorf("%s %s: %s, want %s", row.condition, row.values, message(err), row.want)
				}
				continue
			}
			if got := sortKeys(out.Items); got != row.want || out.LastEvaluatedKey != nil {
				f.Errorf("%s %s: %s, want %s", row.condition, row.values, got, row.want)
			}
			back, err := f.client.Query(f.ctx(), &sdk.QueryInput{TableName: &row.table, KeyConditionExpression: &row.condition, ExpressionAttributeValues: values(`p:"p" ` + row.values), ScanIndexForward: aws.Bool(false)})
			slices.Reverse(out.Items)
			if err != nil || sortKeys(back.Items) != sortKeys(out.Items) {
				f.Errorf("%s %s backwards: %s (%v)", row.condition, row.values, sortKeys(back.Items), err)
			}
		}
	})
}

// TestQueryPages reads 10 items in pages of every size and both directions, with a filter that keeps every other one.
func TestQueryPages(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		want := ""
		for i := range 10 {
			f.put(fmt.Sprintf(`pk:"p" sk:"%d" n:%d`, i, i%2))
			if i%2 == 1 {
				want += fmt.Sprint(i)
			}
		}
		for limit := int32(1); limit <= 11; limit++ {
			for _, forward := range []bool{true, false} {
				in := &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk=:p AND sk>=:z"), FilterExpression: aws.String("n=:one"),
					ExpressionAttributeValues: values(`p:"p" z:"0" one:1`), Limit: &limit, ScanIndexForward: &forward}
				got, scanned, pages := "", int32(0), 0
				for {
					out, err := f.client.Query(f.ctx(), in)
					if err != nil {
						f.Fatal(err)
					}
					for _, it := range out.Items {
						got += it["sk"].(*types.AttributeValueMemberS).Value
					}
					if int(out.Count) != len(out.Items) || out.ScannedCount > limit {
						f.Errorf("limit %d: count %d, scanned %d", limit, out.Count, out.ScannedCount)
					}
					scanned += out.ScannedCount
					pages++
					if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
						break
					}
				}
				if !forward {
					b := []byte(got)
					slices.Reverse(b)
					got = string(b)
				}
				// A page that is full says that there is more, even if it ends with the last item.
				if wantPages := 10/int(limit) + 1; got != want || scanned != 10 || pages != wantPages {
					f.Errorf("limit %d, forward %v: %s in %d pages, %d scanned; want %s in %d", limit, forward, got, pages, scanned, want, wantPages)
				}
			}
		}
	})
}

// TestPagesOfOneMegabyte: 30 items of 50,000 bytes; 20 are 1,000,000 bytes, 21 would be over 1,048,576.
func TestPagesOfOneMegabyte(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		for i := range 30 {
			it := sized(string(rune('a'+i)), 50_000)
			if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: it}); err != nil {
				f.Fatal(err)
			}
		}
		first, err := f.client.Query(f.ctx(), &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk=:p"), ExpressionAttributeValues: values(`p:"p"`), Select: types.SelectCount})
		if err != nil || first.Count != 20 || first.Items != nil || notationOf(first.LastEvaluatedKey) != `pk:"p" sk:"t"` {
			f.Fatal(first, err)
		}
		second, err := f.client.Query(f.ctx(), &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk=:p"), ExpressionAttributeValues: values(`p:"p"`), ExclusiveStartKey: first.LastEvaluatedKey})
		if err != nil || second.Count != 10 || second.LastEvaluatedKey != nil {
			f.Error(second.Count, second.LastEvaluatedKey, err)
		}
		scan, err := f.client.Scan(f.ctx(), &sdk.ScanInput{TableName: table, FilterExpression: aws.String("attribute_exists(x)")})
		if err != nil || scan.Count != 0 || scan.ScannedCount != 20 || scan.LastEvaluatedKey == nil {
			f.Error(scan.Count, scan.ScannedCount, err)
		}
	})
}

func TestQueryRefusals(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	f.put(`pk:"p" sk:"s"`)
	base := func(change func(*sdk.QueryInput)) string {
		in := &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk=:p AND sk>:a"), ExpressionAttributeValues: values(`p:"p" a:"a"`)}
		change(in)
		_, err := f.client.Query(f.ctx(), in)
		return text(err)
	}
	for i, row := range []struct{ got, want string }{
		{base(func(*sdk.QueryInput) {}), ""},
		{base(func(in *sdk.QueryInput) { in.IndexName = aws.String("gsi") }), "The table does not have the specified index: gsi"},
		{base(func(in *sdk.QueryInput) { in.Limit = aws.Int32(0) }), "1 validation error detected: Value at 'Limit' failed to satisfy constraint: Member must have value greater than or equal to 1"},
		{base(func(in *sdk.QueryInput) { in.Select = "INVALID_VALUE" }), "1 validation error detected: Value 'INVALID_VALUE' at 'select' failed to satisfy constraint: Member must satisfy enum value set: [SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]"},
		{base(func(in *sdk.QueryInput) { in.FilterExpression = aws.String("sk > :a") }), "Filter Expression can only contain non-primary key attributes: Primary key attribute: sk"},
		{base(func(in *sdk.QueryInput) { in.FilterExpression = aws.String("#missing = :a") }), "Invalid FilterExpression: An expression attribute name used in the document path is not defined; attribute name: #missing"},
		{base(func(in *sdk.QueryInput) {
			in.FilterExpression = aws.String("(x = :a OR NOT (y.pk[0] IN (:a))) AND size(z) BETWEEN x AND w")
		}), ""},
		{base(func(in *sdk.QueryInput) { in.ExclusiveStartKey = item(`pk:"p"`) }), "The provided starting key is invalid: The provided key element does not match the schema"},
		{base(func(in *sdk.QueryInput) { in.ExclusiveStartKey = key("o", "s") }), "The provided starting key is outside query boundaries based on provided conditions"},
		{base(func(in *sdk.QueryInput) { in.ExclusiveStartKey = key("p", "A") }), "The provided starting key is outside query boundaries based on provided conditions"},
		{base(func(in *sdk.QueryInput) { in.KeyConditionExpression, in.ExpressionAttributeValues = nil, nil }), "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request."},
		{base(func(in *sdk.QueryInput) { in.Select = types.SelectCount; in.ProjectionExpression = aws.String("x") }), "Cannot specify the ProjectionExpression when choosing to get COUNT"},
	} {
		if row.got != row.want {
			t.Errorf("%d: %s, want %s", i, row.got, row.want)
		}
	}
}

// TestScan reads all partitions, in pages and in segments, each item once, and not in the order of the keys.
func TestScan(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		want := map[string]bool{}
		for p := range 20 {
			for s := range 3 {
				f.put(fmt.Sprintf(`pk:"p%d" sk:"%d"`, p, s))
				want[fmt.Sprintf("p%d/%d", p, s)] = true
			}
		}
		for _, segments := range []int32{0, 1, 4, 7, 1000000} {
			for _, limit := range []int32{1, 7, 100} {
				seen := map[string]int{}
				var order []string
				for segment := range max(1, min(segments, 8)) {
					in := &sdk.ScanInput{TableName: table, Limit: &limit}
					if segments > 0 {
						if segments > 8 { // the segments that hold something
							segment = segmentOf(fmt.Sprint("p", segment), segments)
						}
						in.Segment, in.TotalSegments = &segment, &segments
					}
					for {
						out, err := f.client.Scan(f.ctx(), in)
						if err != nil {
							f.Fatal(err)
						}
						for _, it := range out.Items {
							name := it["pk"].(*types.AttributeValueMemberS).Value + "/" + it["sk"].(*types.AttributeValueMemberS).Value
							seen[name]++
							order = append(order, name)
						}
						if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
							break
						}
					}
				}
				if segments > 8 {
					for p := range 8 {
						if seen[fmt.Sprintf("p%d/1", p)] != 1 {
							f.Errorf("%d segments, limit %d: p%d seen %d times", segments, limit, p, seen[fmt.Sprintf("p%d/1", p)])
						}
					}
					continue
				}
				if len(seen) != len(want) || len(order) != len(want) {
					f.Errorf("%d segments, limit %d: %d of %d items, %d rows", segments, limit, len(seen), len(want), len(order))
				}
				if slices.IsSorted(order) {
					f.Error("a scan comes in the order of the keys")
				}
			}
		}
		for _, row := range []struct {
			segment, total *int32
		}{{aws.Int32(0), nil}, {nil, aws.Int32(2)}, {aws.Int32(2), aws.Int32(2)}, {aws.Int32(0), aws.Int32(0)}} {
			if _, err := f.client.Scan(f.ctx(), &sdk.ScanInput{TableName: table, Segment: row.segment, TotalSegments: row.total}); code(err) != "ValidationException" {
				f.Error(err)
			}
		}
	})
}

// segmentOf is where a partition key's scan segment lies: FNV-1a of its bytes, as a share of 2^32.
func segmentOf(partition string, segments int32) int32 {
	hash := uint32(2166136261)
	for _, c := range []byte(partition) {
		hash = (hash ^ uint32(c)) * 16777619
	}
	return int32(int64(hash) * int64(segments) >> 32)
}
