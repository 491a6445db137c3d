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

// Messages of the service.
const (
	invalidPath    = "The document path provided in the update expression is invalid for update"
	missingOperand = "The provided expression refers to an attribute that does not exist in the item"
	operandType    = "An operand in the update expression has an incorrect data type"
)

// TestUpdateExpressions: before is the item without its keys (- means no item), after what UpdateItem leaves, or
// the message it refuses with.
func TestUpdateExpressions(t *testing.T) {
	rows := []struct{ rule, before, update, names, values, after string }{
		// SET
		{"upsert", "-", "SET a=:v", "", "v:1", "a:1"},
		{"every right side sees the item as it was", "g:5", "SET #o=g, g=g+:one", "#o=o1", "one:1", "g:6 o1:5"},
		{"swap", "a:1 b:2", "SET a=b, b=a", "", "", "a:2 b:1"},
		{"the order of sections does not matter", "a:1", "ADD a :v SET b=a", "", "v:4", "a:5 b:1"},
		{"and several entries in one update", "g:5", "SET #a=g, #b=g+:one, g=g+:two ADD p7 :n", "#a=x #b=y", "one:1 two:2 n:10", "g:7 p7:10 x:5 y:6"},
		{"subtraction", "a:1", "SET a=a-:v", "", "v:2.5", "a:-1.5"},
		{"arithmetic of two values", "-", "SET a=:v-:w", "", "v:1 w:3", "a:-2"},
		{"parentheses", "a:1", "SET a=(a+:v)", "", "v:2", "a:3"},
		{"missing operand", "a:1", "SET a=b+:v", "", "v:2", missingOperand},
		{"missing path", "a:1", "SET a=b", "", "", missingOperand},
		{"wrong operand in the item", `a:"x"`, "SET a=a+:v", "", "v:2", operandType},
		{"wrong operand in the request", "a:1", "SET a=a+:v", "", `v:"x"`, "Invalid UpdateExpression: Incorrect operand type for operator or function; operator or function: +, operand type: S"},
		{"if_not_exists takes what is there", "a:1", "SET a=if_not_exists(a, :v)+:w", "", "v:10 w:5", "a:6"},
		{"if_not_exists takes the other", "-", "SET a=if_not_exists(a, :v)+:w", "", "v:10 w:5", "a:15"},
		{"if_not_exists of another path", "b:3", "SET a=if_not_exists(c, b)", "", "", "a:3 b:3"},
		{"if_not_exists needs a path", "-", "SET a=if_not_exists(:v, :w)", "", "v:1 w:2", "Invalid UpdateExpression: Operator or function requires a document path; operator or function: if_not_exists"},
		{"list_append", "l:[1]", "SET l=list_append(l, :v)", "", "v:[2 3]", "l:[1 2 3]"},
		{"list_append in front", "l:[1]", "SET l=list_append(:v, l)", "", "v:[2 3]", "l:[2 3 1]"},
		{"list_append to nothing", "-", "SET l=list_append(if_not_exists(l, :e), :v)", "", "e:[] v:[1]", "l:[1]"},
		{"list_append of no list", "l:1", "SET l=list_append(l, :v)", "", "v:[1]", operandType},
		{"list_append of a wrong value", "l:[]", "SET l=list_append(l, :v)", "", "v:1", "Invalid UpdateExpression: Incorrect operand type for operator or function; operator or function: list_append, operand type: N"},
		{"empty values are values", "-", "SET a=:a, b=:b, c=:c, d=:d", "", `a:"" b:b"" c:[] d:{}`, `a:"" b:b"" c:[] d:{}`},
		{"nested set", "m:{a:{b:1}}", "SET m.a.c=:v", "", "v:2", "m:{a:{b:1 c:2}}"},
		{"a dot within a name", "m:{a:1}", "SET #x=:v", "#x=m.a", "v:2", "m:{a:1} m.a:2"},
		{"below a missing map", "-", "SET m.a=:v", "", "v:2", invalidPath},
		{"below a scalar", "m:1", "SET m.a=:v", "", "v:2", invalidPath},
		{"an index into a map", "m:{a:1}", "SET m[0]=:v", "", "v:2", invalidPath},
		{"a name in a list", "l:[1]", "SET l.a=:v", "", "v:2", invalidPath},
		{"list element", "l:[1 2 3]", "SET l[1]=:v", "", "v:9", "l:[1 9 3]"},
		{"past the end appends", "l:[1]", "SET l[99999]=:v", "", "v:9", "l:[1 9]"},
		{"several past the end, in order of index", "l:[1]", "SET l[7]=:a, l[5]=:b", "", "a:7 b:5", "l:[1 5 7]"},
		{"below an element past the end", "l:[{}]", "SET l[1].a=:v", "", "v:1", invalidPath},
		{"element computed from another attribute", "b:[] n:7", "SET b[9]=n, n=n+:v", "", "v:1", "b:[7] n:8"},
		{"map in a list", "l:[{a:1}]", "SET l[0].a=:v, l[0].b=:v", "", "v:2", "l:[{a:2 b:2}]"},
		// REMOVE
		{"remove", "a:1 b:2", "REMOVE a", "", "", "b:2"},
		{"remove nothing", "a:1", "REMOVE b", "", "", "a:1"},
		{"remove from a map", "m:{a:1 b:2}", "REMOVE m.a, m.c", "", "", "m:{b:2}"},
		{"remove below nothing", "a:1", "REMOVE m.a", "", "", invalidPath},
		{"remove by original index", "l:[0 1 2 3 4]", "REMOVE l[1], l[2]", "", "", "l:[0 3 4]"},
		{"whatever their order", "l:[0 1 2 3 4]", "REMOVE l[3], l[0], l[9]", "", "", "l:[1 2 4]"},
		{"append and trim", "l:[0 1]", "SET l[99]=:v REMOVE l[0]", "", "v:2", "l:[1 2]"},
		{"set and remove by original index", "l:[0 1 2]", "SET l[2]=:v REMOVE l[0]", "", "v:9", "l:[1 9]"},
		// ADD
		{"add to nothing", "-", "ADD p0 :a, p1 :b", "", "a:5 b:-6", "p0:5 p1:-6"},
		{"add below a map", "m:{}", "ADD m.a :v", "", "v:5", "m:{a:5}"},
		{"add exactly", "a:12345678901234567890123456789012345677", "ADD a :v", "", "v:1", "a:12345678901234567890123456789012345678"},
		{"add fractions exactly", "a:0.1", "ADD a :v", "", "v:0.2", "a:0.3"},
		{"add to text", `a:"x"`, "ADD a :v", "", "v:1", operandType},
		{"add text", "-", "ADD a :v", "", `v:"x"`, "Invalid UpdateExpression: Incorrect operand type for operator or function; operator: ADD, operand type: STRING"},
		{"add to sets", `s:<"a"> n:<1> b:<b"x">`, "ADD s :s, n :n, b :b", "", `s:<"b" "a"> n:<1.0 2> b:<b"y">`, `b:<b"x" b"y"> n:<1 2> s:<"a" "b">`},
		{"add a set to nothing", "-", "ADD s :s", "", `s:<"a">`, `s:<"a">`},
		{"add another kind of set", "s:<1>", "ADD s :s", "", `s:<"a">`, operandType},
		{"too large", "a:9e125", "ADD a :v", "", "v:9e125", "Number overflow. Attempting to store a number with magnitude larger than supported range"},
		{"too precise", "a:1e38", "ADD a :v", "", "v:0.1", "Attempting to store more than 38 significant digits in a Number"},
		// DELETE
		{"delete from a set", `s:<"a" "b" "c">`, "DELETE s :s", "", `s:<"a" "c" "x">`, `s:<"b">`},
		{"delete the last member", "a:1 s:<1 2>", "DELETE s :s", "", "s:<2 1>", "a:1"},
		{"delete from nothing", "a:1", "DELETE s :s", "", "s:<2>", "a:1"},
		{"delete from no set", "s:1", "DELETE s :s", "", "s:<2>", operandType},
		{"delete a number", "s:<1>", "DELETE s :s", "", "s:1", "Invalid UpdateExpression: Incorrect operand type for operator or function; operator: DELETE, operand type: NUMBER"},
		// Paths
		{"same path twice", "-", "SET a=:v, a=:v", "", "v:1", "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [a], path two: [a]"},
		{"same path under two names", "-", "SET a=:v REMOVE #x", "#x=a", "v:1", "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [a], path two: [a]"},
		{"parent and child", "m:{}", "SET m=:v, m.b.c=:v", "", "v:1", "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [m], path two: [m, b, c]"},
		{"child and parent", "l:[1]", "SET l[0]=:v REMOVE l", "", "v:1", "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [l, [0]], path two: [l]"},
		{"map and list at once", "m:{}", "SET m.b=:v, m[1]=:v", "", "v:1", "Invalid UpdateExpression: Two document paths conflict with each other; must remove or rewrite one of these paths; path one: [m, b], path two: [m, [1]]"},
		{"key", "a:1", "SET a=:v REMOVE sk", "", "v:1", "One or more parameter values were invalid: Cannot update attribute sk. This attribute is part of the key"},
		// Syntax
		{"no section", "-", "INVALID SYNTAX HERE", "", "v:1", `Invalid UpdateExpression: Syntax error; token: "INVALID", near: "INVALID SYNTAX"`},
		{"end", "-", "SET a=", "", "", `Invalid UpdateExpression: Syntax error; token: "<EOF>", near: "="`},
		{"character", "-", "SET a=:v ; b", "", "v:1", `Invalid UpdateExpression: Syntax error; token: ";", near: ":v ; b"`},
		{"comma", "-", "SET a=:v,", "", "v:1", `Invalid UpdateExpression: Syntax error; token: "<EOF>", near: ","`},
		{"value as target", "-", "SET :v=:v", "", "v:1", `Invalid UpdateExpression: Syntax error; token: ":v", near: "SET :v="`},
		{"three operands", "-", "SET a=:v+:v+:v", "", "v:1", `Invalid UpdateExpression: Syntax error; token: "+", near: ":v+:v"`},
		{"path in ADD", "a:1 b:1", "ADD a b", "", "", `Invalid UpdateExpression: Syntax error; token: "b", near: "a b"`},
		{"empty", "-", " ", "", "", "Invalid UpdateExpression: The expression can not be empty;"},
		{"section twice", "-", "SET a=:v SET b=:v", "", "v:1", `Invalid UpdateExpression: The "SET" section can only be used once in an update expression;`},
		{"case of keywords", "b:1", "set a=:v remove b", "", "v:1", "a:1"},
		{"index too large", "l:[]", "SET l[99999999999]=:v", "", "v:1", `Invalid UpdateExpression: Syntax error; token: "99999999999", near: "[99999999999]"`},
		{"unknown function", "-", "SET a=size(b)", "", "", "Invalid UpdateExpression: Invalid function name; function: size"},
		{"operands", "-", "SET a=list_append(b)", "", "", "Invalid UpdateExpression: Incorrect number of operands for operator or function; operator or function: list_append, number of operands: 1"},
		// Names
		{"reserved word", "-", "SET size=:v", "", "v:1", "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: size"},
		{"reserved word within a path", "m:{}", "SET m.Year=:v", "", "v:1", "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: Year"},
		{"reserved word by placeholder", "-", "SET #s=:v", "#s=size", "v:1", "size:1"},
		{"undefined name", "-", "SET #s=:v", "", "v:1", "Invalid UpdateExpression: An expression attribute name used in the document path is not defined; attribute name: #s"},
		{"undefined value", "-", "SET a=:v", "", "", "Invalid UpdateExpression: An expression attribute value used in expression is not defined; attribute value: :v"},
		{"unused name", "-", "SET a=:v", "#x=b #w=c", "v:1", "Value provided in ExpressionAttributeNames unused in expressions: keys: {#w, #x}"},
		{"unused value", "-", "SET a=:v", "", "v:1 w:2", "Value provided in ExpressionAttributeValues unused in expressions: keys: {:w}"},
		{"name without #", "-", "SET a=:v", "x=b", "v:1", `ExpressionAttributeNames contains invalid key: Syntax error; key: "x"`},
	}
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		for i, row := range rows {
			f.Run(row.rule, func(t *testing.T) {
				f := &fixture{t, f.engine, f.client}
				pk := fmt.Sprint("row", i)
				keys := fmt.Sprintf(` pk:%q sk:"s"`, pk)
				if row.before != "-" {
					f.put(row.before + keys)
				}
				before := f.get(pk, "s")
				out, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{
					TableName: table, Key: key(pk, "s"), UpdateExpression: &row.update, ReturnValues: types.ReturnValueAllNew,
					ExpressionAttributeNames: placeholders(row.names), ExpressionAttributeValues: values(row.values),
				})
				if err != nil {
					if message(err) != row.after || code(err) != "ValidationException" {
						t.Fatalf("%s: %s, want %s", code(err), message(err), row.after)
					}
					if got := f.get(pk, "s"); got != before {
						t.Errorf("a refused update changed %s to %s", before, got)
					}
					return
				}
				want := notationOf(item(row.after + keys))
				if got := f.get(pk, "s"); got != want || notationOf(out.Attributes) != want {
					t.Errorf("stored %s, answered %s, want %s", got, notationOf(out.Attributes), want)
				}
			})
		}
	})
}

func TestUpdateExpressionLimits(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	update := func(expression string) error {
		_, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key("a", "b"), UpdateExpression: &expression, ExpressionAttributeValues: values("v:1")})
		return err
	}
	// = and + are an operator each: 150 times two are 300.
	sums := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("a%d=:v+:v", i))
		}
		return "SET " + strings.Join(list, ",")
	}
	if err := update(sums(150)); err != nil {
		t.Error(err)
	}
	if err := update(sums(151)); !strings.Contains(message(err), "too many operators; operator count: 302") {
		t.Error(err)
	}
	adds := strings.Repeat(" ", 4096-len("ADD a :v")) + "ADD a :v"
	if err := update(adds); err != nil {
		t.Error(err)
	}
	if err := update(adds + " "); !strings.Contains(message(err), "Expression size has exceeded the maximum allowed size; expression size: 4097") {
		t.Error(err)
	}
	// Nesting is bounded by the length alone, and does no harm.
	if err := update("SET a=" + strings.Repeat("(", 2000) + ":v" + strings.Repeat(")", 2000)); err != nil {
		t.Error(err)
	}
}

// TestUpdateCannotNestTooDeep: 32 levels are the limit however they come about, and the item stays readable.
func TestUpdateCannotNestTooDeep(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		nest := func() error {
			_, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key("p", "s"), UpdateExpression: aws.String("SET m.a=l, l=:v"), ExpressionAttributeValues: values("v:[]")})
			return err
		}
		f.put(`pk:"p" sk:"s" l:` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + ` m:{}`)
		if err := nest(); err != nil { // 1 + 31
			f.Fatal(err)
		}
		f.put(`pk:"p" sk:"s" l:` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + ` m:{}`)
		if err := nest(); !strings.HasPrefix(message(err), "Nesting Levels have exceeded supported limits") {
			f.Error(err)
		}
		if f.get("p", "s") == "" {
			f.Error("the item is gone")
		}
	})
}

func TestReturnValues(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		rows := []struct {
			returned types.ReturnValue
			want     string
		}{
			{"", ""},
			{types.ReturnValueNone, ""},
			{types.ReturnValueAllOld, `a:1 m:{x:1 y:2} pk:"p" sk:"s" z:9`},
			{types.ReturnValueAllNew, `a:2 b:3 m:{x:5 y:2} pk:"p" sk:"s"`},
			{types.ReturnValueUpdatedOld, "a:1 m:{x:1} z:9"},
			{types.ReturnValueUpdatedNew, "a:2 b:3 m:{x:5}"},
		}
		for _, row := range rows {
			f.put(`pk:"p" sk:"s" a:1 m:{x:1 y:2} z:9`)
			out, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{
				TableName: table, Key: key("p", "s"), ReturnValues: row.returned,
				UpdateExpression: aws.String("SET a=:a, b=:b, m.x=:x REMOVE z"), ExpressionAttributeValues: values("a:2 b:3 x:5"),
			})
			if err != nil || notationOf(out.Attributes) != row.want {
				f.Errorf("%s: %s, want %s (%v)", row.returned, notationOf(out.Attributes), row.want, err)
			}
		}
		// An item that was not there has no old attributes, and a bare upsert makes its key.
		out, err := f.client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key("n", "s"), ReturnValues: types.ReturnValueAllOld})
		if err != nil || out.Attributes != nil || f.get("n", "s") != `pk:"n" sk:"s"` {
			f.Error(out, err)
		}
		put, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: item(`pk:"n" sk:"s" v:1`), ReturnValues: types.ReturnValueAllOld})
		if err != nil || notationOf(put.Attributes) != `pk:"n" sk:"s"` {
			f.Error(put, err)
		}
		_, err = f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: item(`pk:"n" sk:"s" v:1`), ReturnValues: types.ReturnValueAllNew})
		if message(err) != "Return values set to invalid value" {
			f.Error(err)
		}
		deleted, err := f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("n", "s"), ReturnValues: types.ReturnValueAllOld})
		if err != nil || notationOf(deleted.Attributes) != `pk:"n" sk:"s" v:1` || f.get("n", "s") != "" {
			f.Error(deleted, err)
		}
	})
}
