package dynamodb_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// TestValues: what is put as v, what comes back, or the message.
func TestValues(t *testing.T) {
	deep := func(levels int) string {
		return strings.Repeat("[", levels) + strings.Repeat("]", levels)
	}
	nines := strings.Repeat("9", 38)
	rows := []struct{ put, want string }{
		{`""`, `""`}, {`"a\u0000\"\\\n\t💡é"`, `"a\x00\"\\\n\t💡é"`}, {`b""`, `b""`}, {`b"\x00\xff"`, `b"\x00\xff"`},
		{"true", "true"}, {"null", "null"}, {"[]", "[]"}, {"{}", "{}"}, {`[1 "" null {a:[]}]`, `[1 "" null {a:[]}]`},
		{`<"b" "a">`, `<"a" "b">`}, {"<10 9 1.0>", "<1 9 10>"}, {`<b"b" b"a">`, `<b"a" b"b">`},
		// Numbers
		{"0", "0"}, {"-0", "0"}, {"0.000", "0"}, {"0e500", "0"}, {"+7", "7"}, {"00042", "42"}, {"1.500", "1.5"}, {".5", "0.5"}, {"5.", "5"}, {"1.5E2", "150"}, {"-1e-3", "-0.001"},
		{nines, nines}, {"-0." + nines, "-0." + nines}, {"1" + nines, "Attempting to store more than 38 significant digits in a Number"},
		{"1" + strings.Repeat("0", 60), "1" + strings.Repeat("0", 60)},
		{"1e125", "1" + strings.Repeat("0", 125)}, {"1e126", "Number overflow. Attempting to store a number with magnitude larger than supported range"}, {"-1e126", "Number overflow. Attempting to store a number with magnitude larger than supported range"},
		{"1e-130", "0." + strings.Repeat("0", 129) + "1"}, {"1e-131", "Number underflow. Attempting to store a number with magnitude smaller than supported range"}, {"1e99999999999999999999", "Number overflow. Attempting to store a number with magnitude larger than supported range"},
		{"1x", "The parameter cannot be converted to a numeric value: 1x"}, {"NaN", "The parameter cannot be converted to a numeric value: NaN"}, {"0x1", "The parameter cannot be converted to a numeric value: 0x1"}, {".", "The parameter cannot be converted to a numeric value: ."}, {"1e", "The parameter cannot be converted to a numeric value: 1e"}, {"--1", "The parameter cannot be converted to a numeric value: --1"},
		// Sets
		{`<"a" "a">`, "One or more parameter values were invalid: Input collection [a, a] contains duplicates."}, {"<1 1.0>", "Input collection contains duplicates"}, {`<b"a" b"a">`, "One or more parameter values were invalid: Input collection of type BS contains duplicates."},
		{"<>", "One or more parameter values were invalid: An string set  may not be empty"}, {`<"">`, "One or more parameter values were invalid: An string set may not have a empty string as a member"}, {`<b"">`, "One or more parameter values were invalid: Binary sets may not contain null or empty values"},
		// Depth: 32 levels
		{deep(32), deep(32)}, {deep(33), "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit"},
	}
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		for _, row := range rows {
			it := key("p", "s")
			it["v"] = val(row.put)
			_, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: it})
			if err != nil {
				if message(err) != row.want || code(err) != "ValidationException" {
					f.Errorf("%.60s: %v, want %.60s", row.put, message(err), row.want)
				}
				continue
			}
			if got := f.get("p", "s"); got != `pk:"p" sk:"s" v:`+row.want {
				f.Errorf("%.60s: %s, want %.60s", row.put, got, row.want)
			}
		}
	})
}

// TestMalformedRequests are refused by the decoder, without the SDK in between.
func TestMalformedRequests(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	for _, row := range []struct{ body, code string }{
		{``, "SerializationException"},
		{`[]`, "SerializationException"},
		{`{"TableName": 5}`, "SerializationException"},
		{`{"TableName":"tbl","Key":{"pk":"text"}}`, "SerializationException"},
		{`{"TableName":"tbl","Key":{"pk":{"S":5}}}`, "SerializationException"},
		{`{"TableName":"tbl","Key":{"pk":{"B":"not base 64"}}}`, "SerializationException"},
		{`{"TableName":"tbl","Key":{"pk":{"S":"\ud800"}}}`, "SerializationException"},
		{`{"TableName":"tbl"} x`, "SerializationException"},
		{`{"TableName":"tbl","X":` + strings.Repeat("[", 100_000), "SerializationException"},
		{`{"TableName":"tbl","Key":{"pk":{}}}`, "ValidationException"},
		{`{"TableName":"tbl","Key":{"pk":{"S":"a","N":"1"}}}`, "ValidationException"},
		{`{"TableName":"tbl","Key":{"pk":{"X":"a"}}}`, "ValidationException"},
		{`{"TableName":"tbl","Key":null}`, "ValidationException"},
		{`{"TableName":"tbl","Unknown":{"a":[1.5e3,true,null,"x"]},"Key":{"pk":{"S":"a","N":null},"sk":{"S":"\u0061\ud83d\ude00"}}}`, ""},
	} {
		response := f.raw("DynamoDB_20120810.GetItem", row.body)
		if got := response.code; got != row.code {
			t.Errorf("%.80s: %s, want %s (%s)", row.body, got, row.code, response.body)
		}
	}
}

// TestUnknownOperations are refused by name.
func TestUnknownOperations(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	for _, target := range []string{"DynamoDB_20120810.ExecuteStatement", "DynamoDB_20120810.UpdateTable", "DynamoDBStreams_20120810.ListStreams", "", "GetItem"} {
		response := f.raw(target, `{}`)
		if response.code != "UnknownOperationException" || response.status != http.StatusBadRequest || !strings.Contains(response.body, fmt.Sprintf("%q", target)[1:max(1, len(target))]) {
			t.Errorf("%s: %+v", target, response)
		}
	}
	_, err := f.client.DescribeLimits(f.ctx(), &sdk.DescribeLimitsInput{})
	if code(err) != "UnknownOperationException" || !strings.Contains(message(err), "DescribeLimits") {
		t.Error(err)
	}
}

// TestKeyRules of every operation that takes a key or an item.
func TestKeyRules(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		f.createTable("bin", types.ScalarAttributeTypeB, types.ScalarAttributeTypeN)
		long := func(n int) string { return `"` + strings.Repeat("k", n) + `"` }
		const schema = "The provided key element does not match the schema"
		const invalid = "One or more parameter values were invalid: "
		const empty = "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty "
		for _, row := range []struct{ table, item, get, put string }{
			{"tbl", `pk:"a"`, schema, invalid + "Missing the key sk in the item"},
			{"tbl", `pk:"a" sk:1`, schema, invalid + "Type mismatch for key sk expected: S actual: N"},
			{"tbl", `pk:["a"] sk:"s"`, schema, invalid + "Type mismatch for key pk expected: S actual: L"},
			{"tbl", `pk:"a" sk:"s" x:1`, schema, ""},
			{"tbl", `pk:"" sk:"s"`, empty + "string value. Key: pk", empty + "string value. Key: pk"},
			{"tbl", `pk:"a" sk:""`, empty + "string value. Key: sk", empty + "string value. Key: sk"},
			{"bin", `pk:b"" sk:1`, empty + "binary value. Key: pk", empty + "binary value. Key: pk"},
			{"tbl", "pk:" + long(2048) + " sk:" + long(1024), "", ""},
			{"tbl", "pk:" + long(2049) + ` sk:"s"`, invalid + "Size of hashkey has exceeded the maximum size limit of2048 bytes", invalid + "Size of hashkey has exceeded the maximum size limit of2048 bytes"},
			{"tbl", `pk:"a" sk:` + long(1025), invalid + "Aggregated size of all range keys has exceeded the size limit of 1024 bytes", invalid + "Aggregated size of all range keys has exceeded the size limit of 1024 bytes"},
			{"none", `pk:"a" sk:"s"`, "Requested resource not found", "Requested resource not found"},
			{"bad name!", `pk:"a" sk:"s"`, "1 validation error detected: Value 'bad name!' at 'tableName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+", "1 validation error detected: Value 'bad name!' at 'tableName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"},
		} {
			k := item(row.item)
			_, get := f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: &row.table, Key: k})
			_, update := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: &row.table, Key: k})
			_, remove := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: &row.table, Key: k})
			_, put := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: &row.table, Item: k})
			for name, got := range map[string]error{"get": get, "update": update, "delete": remove} {
				if text(got) != row.get {
					f.Errorf("%s %.40s: %s, want %s", name, row.item, text(got), row.get)
				}
			}
			if text(put) != row.put {
				f.Errorf("put %.40s: %s, want %s", row.item, text(put), row.put)
			}
		}
	})
}

// text is an error's message, "" for success.
func text(err error) string {
	if err == nil {
		return ""
	}
	return message(err)
}

func TestItemSizeLimit(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		const tooLarge, updatedTooLarge = "Item size has exceeded the maximum allowed size", "Item size to update has exceeded the maximum allowed size"
		put := func(n int) string {
			_, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: sized("a", n)})
			return text(err)
		}
		if got := put(409600); got != "" {
			f.Error(got)
		}
		if got := put(409601); got != tooLarge {
			f.Error(got)
		}
		_, err := f.client.BatchWriteItem(f.ctx(), &sdk.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"tbl": {{PutRequest: &types.PutRequest{Item: sized("b", 409601)}}}}})
		if text(err) != tooLarge {
			f.Error(err)
		}
		grow := &sdk.UpdateItemInput{TableName: table, Key: key("p", "a"), UpdateExpression: aws.String("SET n=:v"), ExpressionAttributeValues: values("v:1")}
		if _, err := f.client.UpdateItem(f.ctx(), grow); text(err) != updatedTooLarge {
			f.Error(err)
		}
		// In a transaction a put that is too large is refused outright; an update cancels.
		_, err = f.client.TransactWriteItems(f.ctx(), &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: table, Item: sized("b", 409601)}}}})
		if code(err) != "ValidationException" || text(err) != tooLarge {
			f.Error(err)
		}
		_, err = f.client.TransactWriteItems(f.ctx(), &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: &types.Update{TableName: table, Key: grow.Key, UpdateExpression: grow.UpdateExpression, ExpressionAttributeValues: grow.ExpressionAttributeValues}}}})
		if got := reasons(err); !slices.Equal(got, []string{"ValidationError: " + updatedTooLarge}) {
			f.Error(got, err)
		}
	})
}
