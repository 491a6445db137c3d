package dynamodb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// The item that the conditions below look at.
const conditionItem = `pk:"p" sk:"s" n:5 t:"hello" u:"añ😀" b:b"abc" l:[1 "x" [2]] m:{k:{d:7}} ss:<"a" "b"> ns:<1 2> bs:<b"q"> yes:true nil:null e:"" el:[]`

// TestConditions: want is "yes", "no", or the message.
func TestConditions(t *testing.T) {
	const invalid = "Invalid ConditionExpression: "
	rows := []struct{ condition, names, values, want string }{
		// Comparison
		{"n = :v", "", "v:5.0", "yes"}, {"n = :v", "", `v:"5"`, "no"}, {"n <> :v", "", `v:"5"`, "yes"}, {"n <> :v", "", "v:5", "no"},
		{"n < :v", "", "v:10", "yes"}, {"n <= :v", "", "v:5", "yes"}, {"n > :v", "", "v:-10", "yes"}, {"n >= :v", "", "v:5.1", "no"},
		{"n < :v", "", `v:"9"`, "no"}, {"t > :v", "", `v:"Z"`, "yes"}, {"b < :v", "", `v:b"abd"`, "yes"},
		{":v = n", "", "v:5", "yes"}, {":v > n", "", "v:6", "yes"}, {":v = :w", "", "v:1 w:1", "yes"},
		{"gone = :v", "", "v:5", "no"}, {"gone <> :v", "", "v:5", "yes"}, {"gone < :v", "", "v:5", "no"}, {"NOT gone < :v", "", "v:5", "yes"},
		{"l = :v", "", `v:[1 "x" [2]]`, "yes"}, {"m = :v", "", "v:{k:{d:7}}", "yes"}, {"m = :v", "", "v:{k:{d:8}}", "no"},
		{"ss = :v", "", `v:<"b" "a">`, "yes"}, {"ns = :v", "", "v:<2 1.0>", "yes"}, {"ns = :v", "", "v:<2 1 3>", "no"},
		{"yes = :v", "", "v:true", "yes"}, {"nil = :v", "", "v:null", "yes"}, {"e = :v", "", `v:""`, "yes"}, {"el = :v", "", "v:[]", "yes"},
		{"yes < :v", "", "v:true", invalid + "Incorrect operand type for operator or function; operator or function: <, operand type: BOOL"},
		{"n = n", "", "", invalid + "The first operand must be distinct from the remaining operands for this operator or function; operator: =, first operand: [n]"},
		{"m.k = #m.k", "#m=m", "", invalid + "The first operand must be distinct from the remaining operands for this operator or function; operator: =, first operand: [m, k]"},
		// Paths
		{"m.k.d = :v", "", "v:7", "yes"}, {"l[2][0] = :v", "", "v:2", "yes"}, {"l[9] = :v", "", "v:2", "no"}, {"n.x = :v", "", "v:2", "no"}, {"m[0] = :v", "", "v:2", "no"},
		{"#a.#b.d = :v", "#a=m #b=k", "v:7", "yes"}, {"l . k = :v", "", "v:2", "no"},
		// Logic: NOT before AND before OR
		{"n = :v AND t = :t", "", `v:5 t:"hello"`, "yes"}, {"n = :w OR n = :v", "", "v:5 w:6", "yes"},
		{"n = :v OR n = :v AND n = :w", "", "v:5 w:6", "yes"}, {"(n = :v OR n = :v) AND n = :w", "", "v:5 w:6", "no"},
		{"NOT n = :w AND n = :v", "", "v:5 w:6", "yes"}, {"NOT (n = :w AND n = :v)", "", "v:5 w:6", "yes"}, {"not not n = :v", "", "v:5", "yes"},
		{"(n) = (:v)", "", "v:5", "yes"},
		{"((n = :v))", "", "v:5", invalid + "The expression has redundant parentheses;"},
		{"((n)) = :v", "", "v:5", invalid + "The expression has redundant parentheses;"},
		{"((n = :v) AND n = :v)", "", "v:5", "yes"},
		// BETWEEN and IN
		{"n BETWEEN :a AND :b", "", "a:5 b:6", "yes"}, {"n BETWEEN :a AND :b", "", "a:6 b:7", "no"}, {"t BETWEEN :a AND :b", "", "a:1 b:9", "no"},
		{"n BETWEEN :a AND :b AND t = :t", "", `a:5 b:6 t:"hello"`, "yes"}, {"gone BETWEEN :a AND :b", "", "a:5 b:6", "no"},
		{":a BETWEEN gone AND n", "", "a:1", "no"}, {":a BETWEEN m.k.d AND :b", "", "a:8 b:9", "yes"},
		{"n BETWEEN :a AND :b", "", "a:7 b:6", invalid + "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: {N:7}, upper bound operand: AttributeValue: {N:6}"},
		{"n BETWEEN :a AND :b", "", `a:7 b:"8"`, invalid + "The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: AttributeValue: {N:7}, upper bound operand: AttributeValue: {S:8}"},
		{"n IN (:a, :b)", "", "a:4 b:5", "yes"}, {"n IN (:a)", "", "a:4", "no"}, {"n in (m, :a, l[0])", "", "a:5", "yes"}, {"gone IN (:a)", "", "a:5", "no"},
		// Functions
		{"attribute_exists(n)", "", "", "yes"}, {"attribute_exists(m.k.d)", "", "", "yes"}, {"attribute_exists(nil)", "", "", "yes"}, {"attribute_exists(l[3])", "", "", "no"},
		{"attribute_not_exists(x)", "", "", "yes"}, {"attribute_not_exists(e)", "", "", "no"},
		{"attribute_type(n, :v)", "", `v:"N"`, "yes"}, {"attribute_type(ss, :v)", "", `v:"SS"`, "yes"}, {"attribute_type(nil, :v)", "", `v:"NULL"`, "yes"}, {"attribute_type(n, :v)", "", `v:"S"`, "no"}, {"attribute_type(x, :v)", "", `v:"S"`, "no"},
		{"attribute_type(n, :v)", "", `v:"X"`, invalid + "Invalid attribute type name found; type: X, valid types: {B,NULL,SS,BOOL,L,BS,N,NS,S,M}"},
		{"attribute_type(n, :v)", "", "v:1", invalid + "Incorrect operand type for operator or function; operator or function: attribute_type, operand type: N"},
		{"begins_with(t, :v)", "", `v:"hell"`, "yes"}, {"begins_with(t, :v)", "", `v:""`, "yes"}, {"begins_with(b, :v)", "", `v:b"ab"`, "yes"}, {"begins_with(t, :v)", "", `v:b"he"`, "no"}, {"begins_with(n, :v)", "", `v:"5"`, "no"},
		{"begins_with(t, :v)", "", "v:1", invalid + "Incorrect operand type for operator or function; operator or function: begins_with, operand type: N"},
		{"contains(t, :v)", "", `v:"ell"`, "yes"}, {"contains(b, :v)", "", `v:b"c"`, "yes"}, {"contains(ss, :v)", "", `v:"b"`, "yes"}, {"contains(ns, :v)", "", "v:2.0", "yes"}, {"contains(bs, :v)", "", `v:b"q"`, "yes"},
		{"contains(l, :v)", "", "v:[2]", "yes"}, {"contains(l, :v)", "", "v:2", "no"}, {"contains(t, :v)", "", "v:1", "no"}, {"contains(l, n)", "", "", "no"}, {"contains(:v, n)", "", "v:[5]", "yes"}, {"contains(l, gone)", "", "", "no"},
		{"contains(t, t)", "", "", invalid + "The first operand must be distinct from the remaining operands for this operator or function; operator: contains, first operand: [t]"},
		{"size(t) = :v", "", "v:5", "yes"}, {"size(u) = :v", "", "v:3", "yes"}, {"size(b) = :v", "", "v:3", "yes"}, {"size(l) = :v", "", "v:3", "yes"}, {"size(m) = :v", "", "v:1", "yes"}, {"size(ss) = :v", "", "v:2", "yes"}, {"size(e) = :v", "", "v:0", "yes"},
		{"size(n) = :v", "", "v:1", "no"}, {"size(x) < :v", "", "v:9", "no"}, {"size(t) BETWEEN :a AND size(l)", "", "a:1", "no"}, {"size(l) IN (:a)", "", "a:3", "yes"},
		{"size(:v) = :w", "", "v:1 w:1", invalid + "Incorrect operand type for operator or function; operator or function: size, operand type: N"},
		{"size(n)", "", "", invalid + "The function is not allowed to be used this way in an expression; function: size"},
		{"attribute_exists(n) = :v", "", "v:true", invalid + "The function is not allowed to be used this way in an expression; function: attribute_exists"},
		{"size(attribute_exists(n)) = :v", "", "v:1", invalid + "The function is not allowed to be used this way in an expression; function: attribute_exists"},
		{"attribute_exists(:v)", "", "v:1", invalid + "Operator or function requires a document path; operator or function: attribute_exists"},
		{"attribute_exists(n, t)", "", "", invalid + "Incorrect number of operands for operator or function; operator or function: attribute_exists, number of operands: 2"},
		{"Attribute_exists(n)", "", "", invalid + "Invalid function name; function: Attribute_exists"},
		{"list_append(n, l)", "", "", invalid + "Invalid function name; function: list_append"},
		// Syntax and names
		{"n", "", "", invalid + `Syntax error; token: "<EOF>", near: "n"`},
		{"n =", "", "", invalid + `Syntax error; token: "<EOF>", near: "="`},
		{"n = :v AND", "", "v:1", invalid + `Syntax error; token: "<EOF>", near: "AND"`},
		{"n = :v :v", "", "v:1", invalid + `Syntax error; token: ":v", near: ":v :v"`},
		{"n == :v", "", "v:1", invalid + `Syntax error; token: "=", near: "== :v"`},
		{"(n = :v", "", "v:1", invalid + `Syntax error; token: "<EOF>", near: ":v"`},
		{"n = :v) OR t = :v", "", "v:1", invalid + `Syntax error; token: ")", near: ":v) OR"`},
		{"(n = :v) = :v", "", "v:1", invalid + `Syntax error; token: "=", near: ") = :v"`},
		{"n IN ()", "", "", invalid + `Syntax error; token: ")", near: "()"`},
		{"n BETWEEN :a, :b", "", "a:1 b:2", invalid + `Syntax error; token: ",", near: ":a, :b"`},
		{"l[:v] = :v", "", "v:1", invalid + `Syntax error; token: ":v", near: "[:v]"`},
		{"# = :v", "", "v:1", invalid + `Syntax error; token: "#", near: "# ="`},
		{"a-b = :v", "", "v:1", invalid + `Syntax error; token: "-", near: "a-b"`},
		{"count = :v", "", "v:1", invalid + "Attribute name is a reserved keyword; reserved keyword: count"},
		{"", "", "", invalid + "The expression can not be empty;"},
		{"n = :v", "", "w:1", invalid + "An expression attribute value used in expression is not defined; attribute value: :v"},
	}
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		f.put(conditionItem)
		for _, row := range rows {
			_, err := f.client.TransactWriteItems(f.ctx(), &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{ConditionCheck: &types.ConditionCheck{
				TableName: table, Key: key("p", "s"), ConditionExpression: &row.condition,
				ExpressionAttributeNames: placeholders(row.names), ExpressionAttributeValues: values(row.values),
			}}}})
			got := "yes"
			switch code(err) {
			case "":
			case "TransactionCanceledException":
				got = "no"
			default:
				got = message(err)
			}
			if got != row.want {
				f.Errorf("%s %s: %s, want %s", row.condition, row.values, got, row.want)
			}
		}
	})
}

func TestConditionLimits(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	f.put(conditionItem)
	check := func(condition, vals string) error {
		_, err := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("p", "x"), ConditionExpression: &condition, ExpressionAttributeValues: values(vals)})
		return err
	}
	// 150 comparisons and 149 ANDs are 299 operators; a NOT is the 300th.
	terms := strings.Repeat("AND a=:v ", 149)
	if err := check("NOT b=:v "+terms, "v:1"); code(err) != "ConditionalCheckFailedException" {
		t.Error(err)
	}
	if err := check("NOT NOT b=:v "+terms, "v:1"); !strings.Contains(message(err), "operator count: 301") {
		t.Error(err)
	}
	if err := check("a IN (:v"+strings.Repeat(",:v", 99)+")", "v:1"); code(err) != "ConditionalCheckFailedException" {
		t.Error(err)
	}
	if err := check("a IN (:v"+strings.Repeat(",:v", 100)+")", "v:1"); !strings.Contains(message(err), "number of operands: 101") {
		t.Error(err)
	}
	if err := check("a = :v", `v:"`+strings.Repeat("x", 2<<20)+`"`); code(err) != "ValidationException" {
		t.Error(err)
	}
}

// TestConditionFailure: nothing changes, and the item is shown to who asks for it.
func TestConditionFailure(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		f.put(`pk:"p" sk:"s" v:1`)
		never := aws.String("v > :n")
		allOld := types.ReturnValuesOnConditionCheckFailureAllOld
		calls := map[string]func(k attributes, show types.ReturnValuesOnConditionCheckFailure) error{
			"put": func(k attributes, show types.ReturnValuesOnConditionCheckFailure) error {
				_, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: k, ConditionExpression: never, ExpressionAttributeValues: values("n:9"), ReturnValuesOnConditionCheckFailure: show})
				return err
			},
			"update": func(k attributes, show types.ReturnValuesOnConditionCheckFailure) error {
				_, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: k, UpdateExpression: aws.String("SET v=:n"), ConditionExpression: never, ExpressionAttributeValues: values("n:9"), ReturnValuesOnConditionCheckFailure: show})
				return err
			},
			"delete": func(k attributes, show types.ReturnValuesOnConditionCheckFailure) error {
				_, err := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: k, ConditionExpression: never, ExpressionAttributeValues: values("n:9"), ReturnValuesOnConditionCheckFailure: show})
				return err
			},
		}
		for name, call := range calls {
			for _, c := range []struct {
				sk   string
				show types.ReturnValuesOnConditionCheckFailure
				want string
			}{{"s", allOld, `pk:"p" sk:"s" v:1`}, {"s", "", ""}, {"missing", allOld, ""}} {
				err := call(key("p", c.sk), c.show)
				var failed *types.ConditionalCheckFailedException
				if !errors.As(err, &failed) || notationOf(failed.Item) != c.want || failed.ErrorMessage() != "The conditional request failed" {
					f.Errorf("%s %v: %v", name, c, err)
				}
			}
		}
		if got := f.get("p", "s") + f.get("p", "missing"); got != `pk:"p" sk:"s" v:1` {
			f.Error("changed to", got)
		}
	})
}

func TestPlaceholderRules(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	put := func(condition *string, names map[string]string, vals attributes) string {
		_, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: key("a", "b"), ConditionExpression: condition, ExpressionAttributeNames: names, ExpressionAttributeValues: vals})
		return message(err)
	}
	exists := aws.String("attribute_not_exists(#a)")
	for i, row := range []struct{ got, want string }{
		{put(nil, map[string]string{"#a": "b"}, nil), "ExpressionAttributeNames can only be specified when using expressions: ConditionExpression is null"},
		{put(nil, nil, values("v:1")), "ExpressionAttributeValues can only be specified when using expressions: ConditionExpression is null"},
		{put(exists, map[string]string{}, nil), "ExpressionAttributeNames must not be empty"},
		{put(exists, map[string]string{"#a": ""}, nil), "ExpressionAttributeNames contains invalid value: Empty attribute name for key #a"},
		{put(exists, map[string]string{"#a": "b"}, attributes{"v": val("1")}), `ExpressionAttributeValues contains invalid key: Syntax error; key: "v"`},
		{put(exists, map[string]string{"#a": "b"}, attributes{":v": val("1x")}), "ExpressionAttributeValues contains invalid value: The parameter cannot be converted to a numeric value: 1x for key :v"},
		{put(aws.String("attribute_exists(#a)"), nil, nil), "Invalid ConditionExpression: An expression attribute name used in the document path is not defined; attribute name: #a"},
	} {
		if row.got != row.want {
			t.Errorf("%d: %s, want %s", i, row.got, row.want)
		}
	}
	// What came before expressions is refused, not ignored.
	_, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: key("a", "b"), Expected: map[string]types.ExpectedAttributeValue{"v": {Exists: aws.Bool(false)}}})
	if code(err) != "ValidationException" || !strings.Contains(message(err), "{Expected}") {
		t.Error(err)
	}
	_, err = f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: key("a", "b"), AttributesToGet: []string{"x"}, ProjectionExpression: aws.String("y")})
	if want := "Can not use both expression and non-expression parameters in the same request: Non-expression parameters: {AttributesToGet} Expression parameters: {ProjectionExpression}"; message(err) != want {
		t.Error(err)
	}
}

func TestProjection(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		f.put(conditionItem)
		for _, row := range []struct{ projection, names, want string }{
			{"n, t", "", `n:5 t:"hello"`},
			{"m.k.d", "", "m:{k:{d:7}}"},
			{"l[2], l[0]", "", "l:[1 [2]]"},
			{"l[2][0], l[7], gone, n.x", "", "l:[[2]]"},
			{"gone", "", ""},
			{"#x", "#x=yes", "yes:true"},
			{"m, m.k", "", "Invalid ProjectionExpression: Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [m], path two: [m, k]"},
			{"m.a, m[1]", "", "Invalid ProjectionExpression: Two document paths conflict with each other; must remove or rewrite one of these paths; path one: [m, a], path two: [m, [1]]"},
			{"n,", "", `Invalid ProjectionExpression: Syntax error; token: "<EOF>", near: ","`},
			{"n t", "", `Invalid ProjectionExpression: Syntax error; token: "t", near: "n t"`},
			{"size", "", "Invalid ProjectionExpression: Attribute name is a reserved keyword; reserved keyword: size"},
			{"#y", "#x=yes", "Invalid ProjectionExpression: An expression attribute name used in the document path is not defined; attribute name: #y"},
		} {
			out, err := f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: key("p", "s"), ProjectionExpression: &row.projection, ExpressionAttributeNames: placeholders(row.names)})
			got := message(err)
			if err == nil {
				got = notationOf(out.Item)
				if out.Item == nil {
					got = "no item"
				}
			}
			if got != row.want {
				f.Errorf("%s: %s, want %s", row.projection, got, row.want)
			}
		}
	})
}
