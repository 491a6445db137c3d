package judge

import "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

// tableOperation works on three tables that no item is ever put into.
func (g *generator) tableOperation(r *request) {
	r.table = g.prefix + pick(g.r, []string{"x", "y", "z"})
	c := &tableRequest{}
	switch r.op {
	case "CreateTable":
		kinds := []types.ScalarAttributeType{"S", "N", "B"}
		c.schema = schema{r.table, pick(g.r, kinds), pick(g.r, append(kinds, ""))}
		c.onDemand = g.r.IntN(2) == 0
		if !c.onDemand {
			c.throughput = int64(1 + g.r.IntN(3))
		}
		if c.protected = g.r.IntN(8) == 0; c.protected {
			r.table += "kept" // nothing can delete it any more
			c.schema.name = r.table
		}
	case "UpdateTimeToLive":
		c.ttl, c.enabled = pick(g.r, []string{"t1", "until"}), g.r.IntN(3) > 0
	case "ListTables":
		r.table = ""
		c.startTable = g.prefix + pick(g.r, []string{"", "a", "number", "x", "zz"})
		if g.r.IntN(2) == 0 {
			r.limit = ptr(int32(1 + g.r.IntN(5)))
		}
	default:
		switch g.r.IntN(3) {
		case 0:
			r.table += "kept"
		case 1:
			if r.op == "DescribeTable" {
				r.table = pick(g.r, g.tables).name
			}
		}
	}
	r.create = c
}
