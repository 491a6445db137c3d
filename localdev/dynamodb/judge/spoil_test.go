package judge

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// spoil makes one thing wrong with a request and notes as its fault what the answer is to mean. A request that the
// drawn faults do not fit stays as it is.
func (g *generator) spoil(r *request) {
	for range 6 {
		part := pick(g.r, r.actions())
		before := r.fault
		switch g.r.IntN(5) {
		case 0, 1:
			if w := pick(g.r, wovenFaults); g.weave(r, part, w.woven) {
				r.fault = w.meaning
			}
		case 2:
			r.fault = g.badValue(part, pick(g.r, badValues))
		case 3:
			r.fault = g.badPlaceholder(r, part)
		default:
			r.fault = pick(g.r, []func(r, part *request) string{g.badKey, g.badKey, g.badTable, g.badParameter, g.badParameter, g.badList})(r, part)
		}
		if r.fault != before {
			return
		}
	}
}

// badPlaceholder gives placeholders that nothing uses, or that are none.
func (g *generator) badPlaceholder(root, part *request) string {
	condition, filter, _, projection := slots(root, part)
	takesValues := condition != nil || filter != nil
	if !takesValues && projection == nil {
		return ""
	}
	expressions := part.condition + part.filter + part.keyCondition + part.update + part.projection
	fault, isName := "", g.r.IntN(2) == 0 || !takesValues
	switch {
	case expressions == "" && isName:
		fault = "names without expression"
	case expressions == "":
		fault = "values without expression"
	case isName:
		fault = pick(g.r, []string{"unused name", "key of a name"})
	default:
		fault = pick(g.r, []string{"unused value", "key of a value"})
	}
	switch {
	case isName && part.names == nil:
		part.names = map[string]string{}
		fallthrough
	case isName:
		part.names[map[bool]string{true: "nohash", false: "#unused"}[fault == "key of a name"]] = "n1"
	default:
		part.values = withValue(part.values, map[bool]string{true: "nocolon", false: ":unused"}[fault == "key of a value"], number("1"))
	}
	return fault
}

// badKey spoils the key or, of a put, the key within the item.
func (g *generator) badKey(root, part *request) string {
	key := part.key
	inItem := part.item != nil
	switch {
	case inItem:
		key = part.item
	case len(part.keys) > 0:
		key = pick(g.r, part.keys)
	case key == nil:
		return ""
	}
	name := "pk"
	if key["sk"] != nil && g.r.IntN(2) == 0 {
		name = "sk"
	}
	which := g.r.IntN(5)
	_, isNumber := key[name].(*types.AttributeValueMemberN)
	switch {
	case which == 0:
		delete(key, name)
		if inItem {
			return "key missing"
		}
		return "key schema"
	case which == 1:
		key[name] = &types.AttributeValueMemberBOOL{Value: true}
		if inItem {
			return "type of a key"
		}
		return "key schema"
	case which == 2 && !inItem:
		key["other"] = number("1")
		return "key schema"
	case isNumber:
		return ""
	case which == 3:
		key[name] = longValue(key[name], 0)
		return "empty key"
	case which == 4 && name == "pk":
		key[name] = longValue(key[name], 2049)
		return "partition key too long"
	case which == 4:
		key[name] = longValue(key[name], 1025)
		return "sort key too long"
	}
	return ""
}

func longValue(like types.AttributeValue, n int) types.AttributeValue {
	if _, ok := like.(*types.AttributeValueMemberB); ok {
		return binary(strings.Repeat("k", n))
	}
	return text(strings.Repeat("k", n))
}

func (g *generator) badTable(root, part *request) string {
	if root.op == "CreateTable" || root.op == "ListTables" {
		return ""
	}
	if g.r.IntN(3) > 0 {
		part.table = g.prefix + "none"
		return "no such table"
	}
	part.table = "no!table"
	return "constraint"
}

// badList makes a batch or transaction too long, or lets it name an item twice.
func (g *generator) badList(root, _ *request) string {
	part := root.actions()[0]
	single := g.prefix + "single"
	many := func(n int, action string) {
		root.parts = nil
		for i := range n {
			r := &request{op: action, table: single, key: attributes{"pk": text(string(rune('A'+i%26)) + string(rune('a'+i/26)))}}
			if action == "Update" {
				r.update = "REMOVE zz"
			}
			root.add(r)
		}
	}
	twice := g.r.IntN(2) == 0
	switch {
	case root.op == "BatchGetItem" && twice:
		part.keys = append(part.keys, part.keys[0])
		return "duplicate keys"
	case root.op == "BatchGetItem":
		many(101, "Keys")
		for _, p := range root.parts {
			root.parts[0].keys = append(root.parts[0].keys, p.key)
		}
		root.parts = root.parts[:1]
		root.parts[0].key = nil
		return "too many items"
	case root.op == "BatchWriteItem" && twice:
		root.add(&request{op: part.op, table: part.table, key: part.key, item: part.item})
		return "duplicate keys"
	case root.op == "BatchWriteItem":
		many(26, "Delete")
		return "too many items"
	case root.op == "TransactWriteItems" && twice:
		many(2, "Update")
		root.parts[1].key = root.parts[0].key
		return "one item twice"
	case root.op == "TransactWriteItems":
		many(101, "Delete")
		return "too many actions"
	case root.op == "TransactGetItems" && twice:
		root.add(&request{op: "Get", table: part.table, key: part.key})
		return "one item twice"
	case root.op == "TransactGetItems":
		many(101, "Get")
		return "too many actions"
	}
	return ""
}

// badParameter is a parameter outside its limits, or one that does not go with another.
func (g *generator) badParameter(root, part *request) string {
	switch root.op {
	case "PutItem", "DeleteItem":
		root.returnValues = pick(g.r, []string{"ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"})
		return "return values"
	case "UpdateItem":
		if g.r.IntN(2) == 0 {
			root.returnValues = "SOME"
		} else {
			root.onFailure = "ALL_NEW"
		}
		return "constraint"
	case "TransactWriteItems":
		root.token = strings.Repeat("t", 37)
		return "constraint"
	case "Query":
		if g.r.IntN(2) == 0 {
			return g.badQuery(root)
		}
		return g.badPage(root)
	case "Scan":
		if g.r.IntN(2) == 0 {
			return g.badSegments(root)
		}
		return g.badPage(root)
	case "CreateTable", "ListTables", "DescribeTable", "DeleteTable":
		return g.badTableRequest(root)
	}
	return ""
}

func (g *generator) badPage(r *request) string {
	switch g.r.IntN(6) {
	case 0:
		r.limit, r.pages = ptr(0), false
		return "constraint"
	case 1:
		if r.projection != "" {
			return ""
		}
		r.selection = "SOME"
		return "constraint"
	case 2:
		if r.projection != "" {
			return ""
		}
		r.selection = "SPECIFIC_ATTRIBUTES"
		return "select"
	case 3:
		if r.projection == "" {
			return ""
		}
		r.selection = pick(g.r, []string{"ALL_ATTRIBUTES", "COUNT"})
		return "select"
	case 4:
		if r.projection != "" {
			return ""
		}
		r.selection = "ALL_PROJECTED_ATTRIBUTES"
		return "select"
	}
	r.pages = false
	r.start = attributes{"pk": &types.AttributeValueMemberBOOL{Value: true}}
	return "start key"
}

func (g *generator) badSegments(r *request) string {
	r.pages = false
	r.segment, r.total = nil, nil
	switch g.r.IntN(4) {
	case 0:
		r.segment = ptr(0)
	case 1:
		r.total = ptr(2)
	case 2:
		r.segment, r.total = ptr(2), ptr(2)
	default:
		r.segment, r.total = ptr(0), ptr(0)
		return "constraint"
	}
	return "segments"
}
