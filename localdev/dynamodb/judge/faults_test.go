package judge

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// woven is a piece of an expression that is wrong wherever it stands. A fault is woven into one of the expressions
// that the request may have and the fault has a text for.
type woven struct {
	condition string // of a condition or filter, joined by AND
	set       string // an action of SET
	remove    string // an action of REMOVE
	add, del  string // the only action of ADD, of DELETE
	project   string // a path of a projection
	values    attributes
}

var (
	boolValue  = attributes{":w": &types.AttributeValueMemberBOOL{Value: true}}
	numberOne  = attributes{":w": number("1")}
	textValue  = attributes{":w": text("a")}
	wrongOrder = attributes{":w": number("5"), ":u": number("-5")}
)

// wovenFaults by the meaning of the message that they are answered with.
var wovenFaults = []struct {
	meaning string
	woven
}{
	{"undefined name", woven{condition: "attribute_exists(#nope)", remove: "#nope", project: "#nope"}},
	{"undefined value", woven{condition: "n1 = :nope", set: "zz = :nope"}},
	{"reserved word", woven{condition: "attribute_exists(Year)", remove: "m1.Year", project: "Year"}},
	{"syntax", woven{condition: "n1 = = n2", remove: "n1 n2", project: "n1..n2"}},
	{"syntax", woven{condition: "(n1 = n2", set: "zz = n1 + n2 + n3", project: "n1[-1]"}},
	{"syntax", woven{condition: "n1 % n2", set: "zz == n1", project: "l1[a]"}},
	{"overlapping paths", woven{remove: "zz.a, zz", project: "zz, zz[0]"}},
	{"overlapping paths", woven{remove: "zz, zz", project: "zz.a, zz.a"}},
	{"conflicting paths", woven{remove: "zz.a, zz[1]", project: "zz[0], zz.a"}},
	{"unknown function", woven{condition: "nosuch(n1)", set: "zz = nosuch(n1)"}},
	{"unknown function", woven{condition: "if_not_exists(n1, n2)", set: "zz = size(n1)"}},
	{"operand count", woven{condition: "attribute_exists(n1, n2)", set: "zz = if_not_exists(n1)"}},
	{"operand count", woven{condition: "contains(t1)", set: "zz = list_append(l1)"}},
	{"misused function", woven{condition: "size(n1)"}},
	{"misused function", woven{condition: "attribute_exists(n1) = :w", values: boolValue}},
	{"operand type", woven{condition: "n1 < :w", set: "zz = n1 + :w", add: "zz :w", del: "zz :w", values: boolValue}},
	{"operand type", woven{condition: "begins_with(t1, :w)", set: "zz = list_append(l1, :w)", del: "zz :w", values: numberOne}},
	{"operand type", woven{condition: "attribute_type(n1, :w)", values: numberOne}},
	{"operand type", woven{set: "zz = :w - n1", add: "zz :w", del: "zz :w", values: textValue}},
	{"path required", woven{condition: "attribute_exists(:w)", set: "zz = if_not_exists(:w, n1)", values: numberOne}},
	{"same operand", woven{condition: "n1 = n1"}},
	{"bounds of BETWEEN", woven{condition: "n1 BETWEEN :w AND :u", values: wrongOrder}},
	{"name of a type", woven{condition: "attribute_type(n1, :w)", values: textValue}},
	{"section twice", woven{remove: "zy REMOVE zz", set: "zy = n1 SET zz = n1"}},
	{"redundant parentheses", woven{condition: "((n1 = n2))"}},
	{"too many operators", woven{condition: "n1 = n2" + strings.Repeat(" OR n1 = n2", 150), set: "zz = n1" + longSet(151)}},
	{"expression too long", woven{condition: "n1 = n2" + strings.Repeat(" ", 4096), remove: "zz" + strings.Repeat(" ", 4096), project: "zz" + strings.Repeat(" ", 4096)}},
	{"too many in IN", woven{condition: "n1 IN (n2" + strings.Repeat(", n2", 100) + ")"}},
	{"key updated", woven{remove: "pk", set: "pk = n1"}},
}

func longSet(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", z%d = n1 + n1", i)
	}
	return b.String()
}

// slots are the expressions that a part of root may have.
func slots(root, part *request) (condition, filter, update, projection *string) {
	switch part.op {
	case "PutItem", "DeleteItem", "UpdateItem", "ConditionCheck":
		condition = &part.condition
	case "Put", "Delete", "Update":
		if root.op == "TransactWriteItems" {
			condition = &part.condition
		}
	case "Query", "Scan":
		filter, projection = &part.filter, &part.projection
		if part.selection != "" {
			projection = nil
		}
	case "GetItem", "Get", "Keys":
		projection = &part.projection
	}
	if part.op == "UpdateItem" || part.op == "Update" {
		update = &part.update
	}
	return condition, filter, update, projection
}

// weave puts the fault into a random expression. It does nothing if none can take it.
func (g *generator) weave(root, part *request, w woven) bool {
	condition, filter, update, projection := slots(root, part)
	if condition == nil {
		condition = filter
	}
	type place struct {
		text *string
		do   func()
	}
	var places []place
	offer := func(text *string, piece string, do func()) {
		if text != nil && piece != "" {
			places = append(places, place{text, do})
		}
	}
	join := func(text *string, piece, by string) func() {
		return func() {
			if *text != "" {
				piece = *text + by + piece
			}
			*text = piece
		}
	}
	offer(condition, w.condition, join(condition, w.condition, " AND "))
	offer(projection, w.project, join(projection, w.project, ", "))
	for _, section := range []struct{ verb, piece string }{{"SET ", w.set}, {"REMOVE ", w.remove}, {"ADD ", w.add}, {"DELETE ", w.del}} {
		offer(update, section.piece, func() { *update = inSection(*update, section.verb, section.piece) })
	}
	if len(places) == 0 {
		return false
	}
	pick(g.r, places).do()
	for name, v := range w.values {
		if strings.Contains(part.condition+part.filter+part.update+" ", name) {
			part.values = withValue(part.values, name, v)
		}
	}
	return true
}

// inSection puts an action in front of a section's others.
func inSection(update, verb, action string) string {
	if !strings.Contains(update, verb) {
		return strings.TrimSpace(update + " " + verb + action)
	}
	if strings.Contains(action, verb) { // the section comes a second time
		return update + " " + verb + action
	}
	return strings.Replace(update, verb, verb+action+", ", 1)
}

func withValue(values attributes, name string, v types.AttributeValue) attributes {
	if values == nil {
		values = attributes{}
	}
	values[name] = v
	return values
}

type badValue struct {
	meaning string
	value   types.AttributeValue
}

// badValues are values that no item may hold, by the meaning of the refusal.
var badValues = []badValue{
	{"not a number", number("abc")},
	{"not a number", number("1e")},
	{"not a number", number("")},
	{"number overflow", number("1e126")},
	{"number underflow", number("-1e-131")},
	{"number precision", number("1.00000000000000000000000000000000000001")},
	{"empty set", &types.AttributeValueMemberSS{Value: []string{}}},
	{"empty set", &types.AttributeValueMemberNS{Value: []string{}}},
	{"empty set", &types.AttributeValueMemberBS{Value: [][]byte{}}},
	{"empty member", &types.AttributeValueMemberSS{Value: []string{"a", ""}}},
	{"empty member", &types.AttributeValueMemberBS{Value: [][]byte{{}, []byte("a")}}},
	{"duplicates in a set", &types.AttributeValueMemberSS{Value: []string{"a", "b", "a"}}},
	{"duplicates in a set", &types.AttributeValueMemberNS{Value: []string{"1", "1.0"}}},
	{"duplicates in a set", &types.AttributeValueMemberBS{Value: [][]byte{[]byte("a"), []byte("a")}}},
	{"nesting", nestedList(33)},
	{"item too large", text(strings.Repeat("x", 400<<10))},
}

// badValue puts a value that is refused into an item or an update.
func (g *generator) badValue(part *request, bad badValue) (meaning string) {
	switch {
	case part.item != nil:
		part.item["zz"] = bad.value
	case part.update != "" && bad.meaning == "item too large": // the last thing that is looked at
		part.update, part.condition, part.names, part.values = "SET zz = :bad", "", nil, attributes{":bad": bad.value}
		return "updated item too large"
	case part.update != "":
		part.update = inSection(part.update, "SET ", "zz = :bad")
		part.values = withValue(part.values, ":bad", bad.value)
	default:
		return ""
	}
	return bad.meaning
}
