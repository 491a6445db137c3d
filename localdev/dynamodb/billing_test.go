package dynamodb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// sized is an item of exactly n bytes: pk (2) + "p" (1) + sk (2) + one letter (1) + d (1) = 7, the rest is d's text.
func sized(sk string, n int) attributes {
	return attributes{"pk": val(`"p"`), "sk": val(`"` + sk + `"`), "d": &types.AttributeValueMemberS{Value: strings.Repeat("x", n-7)}}
}

var total = types.ReturnConsumedCapacityTotal

// billed is what a call answers as its consumed capacity, the sum over its tables.
func billed(t *testing.T, err error, capacities ...types.ConsumedCapacity) float64 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	units := 0.0
	for _, c := range capacities {
		units += *c.CapacityUnits
	}
	return units
}

// TestBillingOfWrites. Every row says what is there, what is written, and the units with their arithmetic: a write
// costs one unit for each KB, begun ones whole, of the larger of the item before and after.
func TestBillingOfWrites(t *testing.T) {
	put := func(n int) func(*fixture) float64 {
		return func(f *fixture) float64 {
			out, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: sized("a", n), ReturnConsumedCapacity: total})
			return billed(f.T, err, *out.ConsumedCapacity)
		}
	}
	// grow sets d so that the item has n bytes afterwards; touch adds an attribute of 1 + 2 bytes.
	update := func(expression, vals string) func(*fixture) float64 {
		return func(f *fixture) float64 {
			out, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key("p", "a"), UpdateExpression: &expression, ExpressionAttributeValues: values(vals), ReturnConsumedCapacity: total})
			return billed(f.T, err, *out.ConsumedCapacity)
		}
	}
	grow := func(n int) func(*fixture) float64 {
		return update("SET d=:v", `v:"`+strings.Repeat("y", n-7)+`"`)
	}
	touch := update("SET n=:v", "v:1")
	remove := func(f *fixture) float64 {
		out, err := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("p", "a"), ReturnConsumedCapacity: total})
		return billed(f.T, err, *out.ConsumedCapacity)
	}
	rows := []struct {
		name   string
		before int // bytes of the item that is there, 0 for none
		write  func(*fixture) float64
		units  float64
	}{
		{"put of 7 bytes: the least is 1", 0, put(7), 1},
		{"put of 1024: 1024/1024", 0, put(1024), 1},
		{"put of 1025: 1.001 up", 0, put(1025), 2},
		{"put of 100 over 3000: the larger, 3000/1024 = 2.93 up", 3000, put(100), 3},
		{"put of 3000 over 100", 100, put(3000), 3},
		{"put of the largest: 409600/1024", 0, put(409600), 400},
		{"update from 1024 to 2048", 1024, grow(2048), 2},
		{"update from 5000 to 100: 5000/1024 = 4.88 up", 5000, grow(100), 5},
		{"update of one attribute is billed for the whole item: 4096-3 before, 4096 after", 4093, touch, 4},
		{"and one byte more: 4097/1024 up", 4094, touch, 5},
		{"upsert: 6 bytes of key and 3 of n", 0, touch, 1},
		{"delete of 2500: 2.44 up", 2500, remove, 3},
		{"delete of nothing", 0, remove, 1},
	}
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		for _, row := range rows {
			remove(f)
			if row.before > 0 {
				put(row.before)(f)
			}
			before := f.engine.Consumed()
			if got := row.write(f); got != row.units {
				f.Errorf("%s: %v units, want %v", row.name, got, row.units)
			}
			if spent := f.engine.Consumed().WriteUnits - before.WriteUnits; spent != row.units {
				f.Errorf("%s: the meter says %v, want %v", row.name, spent, row.units)
			}
		}
	})
}

// TestBillingOfRefusals: a write whose condition fails is billed all the same, though no answer says so.
func TestBillingOfRefusals(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	never := aws.String("attribute_exists(nowhere)")
	for _, row := range []struct {
		name   string
		before int
		call   func() error
		units  float64
	}{
		{"update of 5000: 4.88 up", 5000, func() error {
			_, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key("p", "a"), UpdateExpression: aws.String("SET n=:v"), ConditionExpression: never, ExpressionAttributeValues: values("v:1")})
			return err
		}, 5},
		{"put of 3000 over 100: the larger", 100, func() error {
			_, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: sized("a", 3000), ConditionExpression: never})
			return err
		}, 3},
		{"delete of 2500", 2500, func() error {
			_, err := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("p", "a"), ConditionExpression: never})
			return err
		}, 3},
		{"update of nothing", 100, func() error {
			_, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key("p", "b"), UpdateExpression: aws.String("SET n=:v"), ConditionExpression: never, ExpressionAttributeValues: values("v:1")})
			return err
		}, 1},
		{"transaction: 2 for the check of nothing, 2 x 3 for the put of 3000", 100, func() error {
			_, err := f.client.TransactWriteItems(f.ctx(), &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
				{ConditionCheck: &types.ConditionCheck{TableName: table, Key: key("p", "b"), ConditionExpression: never}},
				{Put: &types.Put{TableName: table, Item: sized("a", 3000)}},
			}})
			return err
		}, 8},
	} {
		if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: sized("a", row.before)}); err != nil {
			t.Fatal(err)
		}
		before := f.engine.Consumed()
		if c := code(row.call()); c != "ConditionalCheckFailedException" && c != "TransactionCanceledException" {
			t.Fatalf("%s: %q", row.name, c)
		}
		if spent := f.engine.Consumed().WriteUnits - before.WriteUnits; spent != row.units {
			t.Errorf("%s: %v units, want %v", row.name, spent, row.units)
		}
	}
}

// TestBillingOfReads: strong reads cost one unit for 4 KB, eventual ones half, transactional ones double; Query and
// Scan add up the items that they evaluate, then round once; the batch rounds every item.
func TestBillingOfReads(t *testing.T) {
	get := func(sk string, strong bool) func(*fixture) float64 {
		return func(f *fixture) float64 {
			out, err := f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: key("p", sk), ConsistentRead: &strong, ProjectionExpression: aws.String("pk"), ReturnConsumedCapacity: total})
			return billed(f.T, err, *out.ConsumedCapacity)
		}
	}
	query := func(pk, filter string, limit int32, strong bool) func(*fixture) float64 {
		return func(f *fixture) float64 {
			in := &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk=:p"), ExpressionAttributeValues: values(`p:"` + pk + `"`), ConsistentRead: &strong, ReturnConsumedCapacity: total}
			if filter != "" {
				in.FilterExpression = &filter
			}
			if limit > 0 {
				in.Limit = &limit
			}
			out, err := f.client.Query(f.ctx(), in)
			return billed(f.T, err, *out.ConsumedCapacity)
		}
	}
	batch := func(strong bool, sks ...string) func(*fixture) float64 {
		return func(f *fixture) float64 {
			keys := each(sks, func(sk string) attributes { return key("p", sk) })
			out, err := f.client.BatchGetItem(f.ctx(), &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"tbl": {Keys: keys, ConsistentRead: &strong}}, ReturnConsumedCapacity: total})
			return billed(f.T, err, out.ConsumedCapacity...)
		}
	}
	transact := func(sks ...string) func(*fixture) float64 {
		return func(f *fixture) float64 {
			gets := each(sks, func(sk string) types.TransactGetItem {
				return types.TransactGetItem{Get: &types.Get{TableName: table, Key: key("p", sk)}}
			})
			out, err := f.client.TransactGetItems(f.ctx(), &sdk.TransactGetItemsInput{TransactItems: gets, ReturnConsumedCapacity: total})
			return billed(f.T, err, out.ConsumedCapacity...)
		}
	}
	scan := func(f *fixture) float64 {
		out, err := f.client.Scan(f.ctx(), &sdk.ScanInput{TableName: table, ConsistentRead: aws.Bool(true), ReturnConsumedCapacity: total})
		return billed(f.T, err, *out.ConsumedCapacity)
	}
	rows := []struct {
		name  string
		read  func(*fixture) float64
		units float64
	}{
		{"4096 strong: 4096/4096", get("a", true), 1},
		{"4096 eventual", get("a", false), 0.5},
		{"4097 strong: 1.0002 up", get("b", true), 2},
		{"4097 eventual: 2/2", get("b", false), 1},
		{"missing strong", get("x", true), 1},
		{"missing eventual", get("x", false), 0.5},
		{"query: 4096+4097+107 = 8300/4096 = 2.03 up", query("p", "", 0, true), 3},
		{"query eventual: 3/2", query("p", "", 0, false), 1.5},
		{"query whose filter keeps nothing: the same", query("p", "attribute_exists(x)", 0, true), 3},
		{"query of two: 8193/4096 up", query("p", "", 2, true), 3},
		{"query of one: 4096/4096", query("p", "", 1, true), 1},
		{"query of nothing", query("q", "", 0, true), 1},
		{"query of nothing, eventual", query("q", "", 0, false), 0.5},
		{"scan: 8300/4096 up", scan, 3},
		{"batch: 1 + 2 + 1", batch(true, "a", "b", "c"), 4},
		{"batch eventual: 0.5 + 1 + 0.5 of nothing", batch(false, "a", "b", "x"), 2},
		{"transaction: 2 x (1 + 2 + 1)", transact("a", "b", "x"), 8},
	}
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		for sk, n := range map[string]int{"a": 4096, "b": 4097, "c": 107} {
			if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: sized(sk, n)}); err != nil {
				f.Fatal(err)
			}
		}
		for _, row := range rows {
			before := f.engine.Consumed().ReadUnits
			if got := row.read(f); got != row.units {
				f.Errorf("%s: %v units, want %v", row.name, got, row.units)
			}
			if spent := f.engine.Consumed().ReadUnits - before; spent != row.units {
				f.Errorf("%s: the meter says %v, want %v", row.name, spent, row.units)
			}
		}
	})
}

// TestBillingOfBatchesAndTransactions of writes.
func TestBillingOfBatchesAndTransactions(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	out, err := f.client.BatchWriteItem(f.ctx(), &sdk.BatchWriteItemInput{ReturnConsumedCapacity: total, RequestItems: map[string][]types.WriteRequest{"tbl": {
		{PutRequest: &types.PutRequest{Item: sized("a", 1500)}},   // 1.46 up: 2
		{PutRequest: &types.PutRequest{Item: sized("b", 100)}},    // 1
		{DeleteRequest: &types.DeleteRequest{Key: key("p", "x")}}, // nothing: 1
	}}})
	if got := billed(t, err, out.ConsumedCapacity...); got != 4 {
		t.Errorf("batch: %v, want 2+1+1", got)
	}
	token := aws.String("token")
	transaction := &sdk.TransactWriteItemsInput{ReturnConsumedCapacity: total, ClientRequestToken: token, TransactItems: []types.TransactWriteItem{
		{Put: &types.Put{TableName: table, Item: sized("c", 1025)}},                                                                                       // 2 x 2
		{Delete: &types.Delete{TableName: table, Key: key("p", "a")}},                                                                                     // 1500 bytes: 2 x 2
		{Update: &types.Update{TableName: table, Key: key("p", "b"), UpdateExpression: aws.String("SET n=:v"), ExpressionAttributeValues: values("v:1")}}, // 103 bytes: 2 x 1
		{ConditionCheck: &types.ConditionCheck{TableName: table, Key: key("p", "x"), ConditionExpression: aws.String("attribute_not_exists(pk)")}},        // nothing: 2 x 1
	}}
	first, err := f.client.TransactWriteItems(f.ctx(), transaction)
	if got := billed(t, err, first.ConsumedCapacity...); got != 12 {
		t.Errorf("transaction: %v, want 4+4+2+2", got)
	}
	// Its repetition changes nothing and reads four items, each within 4 KB, in a transaction: 4 x 2 x 1.
	again, err := f.client.TransactWriteItems(f.ctx(), transaction)
	if got := billed(t, err, again.ConsumedCapacity...); got != 8 {
		t.Errorf("repetition: %v, want 8", got)
	}
	// Several tables are listed one by one; INDEXES shows the table's share, which is all.
	f.createTable("other", types.ScalarAttributeTypeS, types.ScalarAttributeTypeS)
	both, err := f.client.BatchGetItem(f.ctx(), &sdk.BatchGetItemInput{ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes, RequestItems: map[string]types.KeysAndAttributes{
		"tbl": {Keys: []attributes{key("p", "c"), key("p", "b")}}, "other": {Keys: []attributes{key("p", "c")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, c := range both.ConsumedCapacity {
		got[*c.TableName] = *c.CapacityUnits
		if *c.Table.CapacityUnits != *c.CapacityUnits {
			t.Errorf("%s: table %v of %v", *c.TableName, *c.Table.CapacityUnits, *c.CapacityUnits)
		}
	}
	if got["tbl"] != 1 || got["other"] != 0.5 {
		t.Errorf("%v, want 0.5+0.5 and 0.5", got)
	}
	// Who does not ask is not told.
	silent, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: sized("a", 100)})
	if err != nil || silent.ConsumedCapacity != nil {
		t.Error(silent, err)
	}
}

// TestSizesOfValues pads an item with the value to 1024 bytes by the size given here, and one byte beyond: 1 unit,
// then 2. The sizes of numbers are those measured on the service.
func TestSizesOfValues(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	rows := []struct {
		notation string
		bytes    int
	}{
		{"0", 1}, {"1", 2}, {"12", 2}, {"123", 3}, {"1234", 3}, {"12345678901234567890123456789012345678", 20},
		{"0042", 2}, {"100", 2}, {"1010", 3}, {"0.0000001", 2}, {"1E125", 2}, {"1E-100", 2}, {"1.5", 3}, {"15", 2},
		{"1.2", 3}, {"1.200", 3}, {"1.234", 4}, {"3.14159", 5}, {"123456", 4}, {"100.5", 4}, {"0.15", 2}, {"-42", 3}, {"-0", 1},
		{`"text"`, 4}, {`""`, 0}, {`"ü"`, 2}, {`"😀"`, 4}, {`b"abc"`, 3}, {"true", 1}, {"null", 1},
		{`<"a" "bb">`, 3},                   // members only
		{`<b"abc">`, 3},                     //
		{"<1 -12>", 5},                      // 2 + 3
		{"[]", 3},                           // a list's own 3
		{`[1 "ab"]`, 9},                     // 3 + (1+2) + (1+2)
		{"{}", 3},                           //
		{`{key:1 k:"ab"}`, 3 + 6 + 4},       // each member 1 more: 1+3+2, 1+1+2
		{`[[1] {k:[]}]`, 3 + 7 + 1 + 3 + 5}, // list in list 1+(3+1+2) = 7; map 1+3, its member 1+1+3
	}
	for _, row := range rows {
		for extra, want := range []float64{1, 2} {
			// pk, sk and a letter each: 6. The names v and d: 2.
			text := 1024 - 6 - 2 - row.bytes + extra
			it := key("p", string(rune('a'+extra)))
			it["v"], it["d"] = val(row.notation), &types.AttributeValueMemberS{Value: strings.Repeat("x", text)}
			if _, err := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("p", string(rune('a'+extra)))}); err != nil {
				t.Fatal(err)
			}
			out, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: it, ReturnConsumedCapacity: total})
			if got := billed(t, err, *out.ConsumedCapacity); got != want {
				t.Errorf("%s should have %d bytes: %d bytes cost %v, want %v", row.notation, row.bytes, 1024+extra, got, want)
			}
		}
	}
}

// TestBillingOfALaneHead: 64 slots with next offsets of seven digits, the head of a busy lane, and one commit that
// touches 14 of them.
func TestBillingOfALaneHead(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	head := "pk:\"L#0000000001\" sk:\"HEAD\" g:1234567"
	for i := range 64 {
		head += fmt.Sprintf(" p%d:1234567", i)
	}
	f.put(head)
	// pk 2+12, sk 2+4, g 1+5 = 26. p0..p9: 10 x (2+5) = 70, p10..p63: 54 x (3+5) = 432. In all 528.
	// The commit adds an entry: name 21 ("e" and 20), value 112 bytes (14 slots of 8) = 133, and its order: 21+5 = 26.
	// Seven commits fit before the eighth: 528+6x159 = 1482 -> 2 units for the seventh; 1 unit for the first three
	// (528+3x159 = 1005), 2 from the fourth on (1164).
	var update strings.Builder
	update.WriteString("SET #e=:e, #o=g, g=g+:one ADD ")
	for i := range 14 {
		if i > 0 {
			update.WriteString(", ")
		}
		fmt.Fprintf(&update, "p%d :n", i)
	}
	for commit := 1; commit <= 7; commit++ {
		id := fmt.Sprintf("%020d", commit)
		out, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{
			TableName: table, Key: attributes{"pk": val(`"L#0000000001"`), "sk": val(`"HEAD"`)}, UpdateExpression: aws.String(update.String()),
			ConditionExpression:      aws.String("attribute_not_exists(#e) AND g < :cap"),
			ExpressionAttributeNames: map[string]string{"#e": "e" + id, "#o": "o" + id},
			ExpressionAttributeValues: attributes{":e": &types.AttributeValueMemberB{Value: make([]byte, 112)}, ":one": val("1"), ":n": val("1"),
				":cap": val("9999999")},
			ReturnConsumedCapacity: total,
		})
		want := 1.0
		if commit > 3 {
			want = 2
		}
		if got := billed(t, err, *out.ConsumedCapacity); got != want {
			t.Errorf("commit %d: %v units, want %v", commit, got, want)
		}
	}
}
