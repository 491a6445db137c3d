package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// generator makes requests from one seed, without knowing any answer.
type generator struct {
	r      *rand.Rand
	prefix string // of the names of all its tables
	tables []schema
	tokens int
	again  *request // a transaction that is to be sent a second time
	// without are operations that the judge does not have.
	without []string
	// tour is what is still to be sent before chance decides: each operation with each fault that it can have.
	tour []stop
}

func newGenerator(seed uint64, prefix string, without []string) *generator {
	const s, n, b = types.ScalarAttributeTypeS, types.ScalarAttributeTypeN, types.ScalarAttributeTypeB
	g := &generator{r: rand.New(rand.NewPCG(seed, seed)), prefix: prefix, without: without, tables: []schema{
		{prefix + "text", s, s}, {prefix + "single", s, ""}, {prefix + "number", n, n}, {prefix + "binary", b, b},
	}}
	g.tour = tourWithout(without)
	return g
}

// weights: how often each operation is drawn.
var weights = []struct {
	op     string
	weight int
}{
	{"PutItem", 14}, {"UpdateItem", 26}, {"DeleteItem", 5}, {"GetItem", 8}, {"Query", 12}, {"Scan", 6}, {"BatchGetItem", 4},
	{"BatchWriteItem", 5}, {"TransactWriteItems", 10}, {"TransactGetItems", 4},
	{"CreateTable", 2}, {"DescribeTable", 1}, {"DeleteTable", 1}, {"ListTables", 1}, {"UpdateTimeToLive", 1},
}

// next is the next request. One in seven has something wrong on purpose.
func (g *generator) next() *request {
	if again := g.again; again != nil {
		g.again = nil
		return again
	}
	if r := g.toured(); r != nil {
		return r
	}
	r := g.make(g.draw())
	if g.r.IntN(7) == 0 && g.again == nil {
		g.spoil(r)
	}
	return r
}

func (g *generator) draw() string {
	for {
		n := g.r.IntN(100)
		for _, w := range weights {
			if n -= w.weight; n < 0 {
				if slices.Contains(g.without, w.op) {
					break
				}
				return w.op
			}
		}
	}
}

func (g *generator) make(op string) *request {
	r := &request{op: op}
	s := pick(g.r, g.tables)
	r.table = s.name
	switch op {
	case "PutItem", "UpdateItem", "DeleteItem":
		g.single(r, s, op[:len(op)-len("Item")])
		r.returnValues = g.returnValues(r)
	case "GetItem":
		g.get(r, s)
	case "Query", "Scan":
		g.page(r, s)
	case "BatchGetItem", "BatchWriteItem":
		g.batch(r)
	case "TransactWriteItems":
		g.transaction(r)
	case "TransactGetItems":
		g.transactionalRead(r)
	default:
		g.tableOperation(r)
	}
	return r
}

// single is a put, update, delete or condition check of one item.
func (g *generator) single(r *request, s schema, verb string) {
	if verb == "Put" {
		r.item = g.item(s)
	} else {
		r.key = g.key(s)
	}
	if verb == "Update" && (r.op == "Update" || g.r.IntN(20) > 0) {
		r.update = g.updateOf(r)
	}
	if verb == "ConditionCheck" || g.r.IntN(3) == 0 {
		r.use("condition")
		r.condition = g.conditionOf(r, 2)
	}
	if g.r.IntN(3) == 0 {
		r.onFailure = pick(g.r, []string{"ALL_OLD", "ALL_OLD", "NONE"})
		r.use("on failure " + r.onFailure)
	}
}

func (g *generator) returnValues(r *request) string {
	values := []string{"", "NONE", "ALL_OLD"}
	if r.op == "UpdateItem" {
		values = append(values, "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW")
	}
	v := pick(g.r, values)
	if v != "" {
		r.use("returns " + v)
	}
	return v
}

// transactionalRead is of one to four different items.
func (g *generator) transactionalRead(r *request) {
	r.table = ""
	seen := map[string]bool{}
	for range 1 + g.r.IntN(4) {
		s := pick(g.r, g.tables)
		part := &request{op: "Get", table: s.name}
		g.get(part, s)
		if id := s.name + notation(part.key); !seen[id] {
			seen[id] = true
			r.add(part)
		}
	}
}

func (g *generator) get(r *request, s schema) {
	r.key = g.key(s)
	if g.r.IntN(2) == 0 {
		g.project(r)
	}
	if r.op != "Get" {
		r.consistent = g.r.IntN(2) == 0
	}
}

// page is a Query or Scan.
func (g *generator) page(r *request, s schema) {
	if r.op == "Query" {
		g.keyConditionOf(r, s)
		r.descending = g.r.IntN(3) == 0
	}
	if g.r.IntN(3) == 0 {
		r.use("filter")
		r.filter = g.conditionOf(r, 2)
	}
	switch g.r.IntN(6) {
	case 0:
		r.selection = "COUNT"
		r.use("select COUNT")
	case 1:
		r.selection = "ALL_ATTRIBUTES"
		r.use("select ALL_ATTRIBUTES")
	case 2, 3:
		g.project(r)
	}
	r.consistent = g.r.IntN(2) == 0
	if g.r.IntN(2) == 0 {
		n := int32(1 + g.r.IntN(6))
		r.limit = &n
		r.use("limit")
	}
	if r.op == "Scan" {
		r.pages = r.limit != nil
		if g.r.IntN(4) == 0 { // one segment of one: how items are spread over several is each implementation's own
			r.segment, r.total = ptr(0), ptr(1)
			r.use("segments")
		}
		return
	}
	if r.pages = r.limit != nil && g.r.IntN(3) == 0; r.pages {
		r.use("page by page")
	}
}

func (g *generator) keyConditionOf(r *request, s schema) {
	r.use("key condition")
	partition := g.keyValue(s.partition, true)
	r.keyCondition = g.name(r, "pk") + " = " + r.bind(partition)
	if s.sort == "" {
		return
	}
	if g.r.IntN(3) > 0 {
		r.keyCondition += " AND " + g.sortTerm(r, s)
	} else if g.r.IntN(4) == 0 {
		r.start = attributes{"pk": partition, "sk": g.keyValue(s.sort, false)}
		r.use("start key")
	}
}

func (g *generator) sortTerm(r *request, s schema) string {
	name := g.name(r, "sk")
	switch n := g.r.IntN(8); {
	case n == 0:
		r.use("BETWEEN")
		low, high := g.bounds(string(s.sort))
		return name + " BETWEEN " + r.bind(low) + " AND " + r.bind(high)
	case n < 3 && s.sort != types.ScalarAttributeTypeN:
		r.use("begins_with")
		return "begins_with(" + name + ", " + r.bind(g.keyValue(s.sort, false)) + ")"
	}
	op := pick(g.r, []string{"=", "<", "<=", ">", ">="})
	r.use(op)
	return name + " " + op + " " + r.bind(g.keyValue(s.sort, false))
}

func (r *request) add(part *request) { r.parts = append(r.parts, part) }

// batch is over one or two tables, without naming a key twice.
func (g *generator) batch(r *request) {
	r.table = ""
	tables := slices.Clone(g.tables)
	g.r.Shuffle(len(tables), func(i, j int) { tables[i], tables[j] = tables[j], tables[i] })
	for _, s := range tables[:1+g.r.IntN(2)] {
		part := &request{op: "Keys", table: s.name, consistent: g.r.IntN(2) == 0}
		seen := map[string]bool{}
		for range 1 + g.r.IntN(5) {
			key := g.key(s)
			if seen[notation(key)] {
				continue
			}
			seen[notation(key)] = true
			switch {
			case r.op == "BatchGetItem":
				part.keys = append(part.keys, key)
			case g.r.IntN(3) == 0:
				r.use("delete request")
				r.add(&request{op: "Delete", table: s.name, key: key})
			default:
				r.use("put request")
				item := g.item(s)
				for name, v := range key {
					item[name] = v
				}
				r.add(&request{op: "Put", table: s.name, item: item})
			}
		}
		if r.op == "BatchGetItem" {
			if g.r.IntN(2) == 0 {
				g.project(part)
			}
			r.add(part)
		}
	}
}

// transaction is of one to five actions on different items. Some are sent twice with one token, or with the same
// token and something else.
func (g *generator) transaction(r *request) {
	r.table = ""
	seen := map[string]bool{}
	for range 1 + g.r.IntN(5) {
		s := pick(g.r, g.tables)
		part := &request{op: pick(g.r, []string{"Put", "Update", "Update", "Delete", "ConditionCheck"}), table: s.name}
		g.single(part, s, part.op)
		key := part.key
		if part.op == "Put" {
			key = s.keyOf(part.item)
		}
		if id := s.name + notation(key); !seen[id] {
			seen[id] = true
			r.add(part)
		}
	}
	if g.r.IntN(5) > 0 {
		return
	}
	g.tokens++
	r.token = fmt.Sprintf("%stoken-%d", g.prefix[max(0, len(g.prefix)-24):], g.tokens) // of this run and worker; 36 characters at most
	switch g.r.IntN(3) {
	case 0:
		again := *r
		again.use("token again")
		g.again = &again
	case 1:
		again := *r
		again.parts = again.parts[:len(again.parts):len(again.parts)]
		again.add(&request{op: "Delete", table: g.prefix + "single", key: attributes{"pk": text("token")}})
		again.use("token for another request")
		g.again = &again
	}
}

func ptr(n int32) *int32 { return &n }
