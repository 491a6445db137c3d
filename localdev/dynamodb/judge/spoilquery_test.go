package judge

import "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

// badQuery gives a query a key condition that no key can be looked up by, or a filter on the key.
func (g *generator) badQuery(r *request) string {
	*r = request{op: r.op, table: g.prefix + "text", values: attributes{":p": text("a")}}
	two := func(condition string, v types.AttributeValue) {
		r.keyCondition = condition
		r.values[":s"] = v
	}
	switch g.r.IntN(10) {
	case 0:
		two("sk = :p AND n1 = :s", text("a"))
		return "key condition misses the key"
	case 1:
		two("pk = :p AND n1 = :s", text("a"))
		return "key condition misses the key"
	case 2:
		r.keyCondition = "pk > :p"
		return "key condition"
	case 3:
		two("pk = :p AND sk <> :s", text("a"))
		return "key condition"
	case 4:
		two("pk = :p OR sk = :s", text("a"))
		return "key condition"
	case 5:
		two("pk = :p AND contains(sk, :s)", text("a"))
		return "key condition"
	case 6:
		two("pk = :p AND sk > :s AND sk < :p", text("a"))
		return "key condition"
	case 7:
		two("pk = :p AND sk = :s", number("1"))
		return "type in a key condition"
	case 8:
		two("pk = :p AND sk = :s", text(""))
		return "empty key"
	}
	r.keyCondition, r.filter = "pk = :p", "attribute_exists(sk)"
	return "filter on the key"
}

func (g *generator) badTableRequest(r *request) string {
	c := r.create
	switch {
	case r.op == "ListTables":
		r.limit = ptr(pick(g.r, []int32{0, 101}))
		return "constraint"
	case r.op == "DeleteTable" || r.op == "DescribeTable":
		r.table = g.prefix + "none"
		return "no such table"
	}
	r.table = g.prefix + "never"
	c.schema.name, c.protected = r.table, false
	switch g.r.IntN(4) {
	case 0:
		c.extra = true
		return "attribute definitions"
	case 1:
		c.onDemand, c.throughput = true, 1
		return "throughput"
	case 2:
		c.onDemand, c.throughput = false, 0
		return "throughput"
	}
	r.table = "x!y!z"
	c.schema.name = r.table
	return "constraint"
}
