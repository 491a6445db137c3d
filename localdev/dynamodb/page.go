package dynamodb

import (
	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// maxPage is how many bytes of items one page of Query or Scan evaluates.
const maxPage = 1 << 20

// page collects the answer of Query and Scan.
type page struct {
	q      *request
	parsed *parsed
	table  *table
	items  []value.Map
	count  int64 // that met the filter
	seen   int64
	size   int
	last   value.Map // the last item evaluated
	more   bool      // the page ended before the items did
}

// visit evaluates one item. It refuses the first one that does not fit the page any more.
func (p *page) visit(_ string, item value.Map) (bool, error) {
	size := item.ItemSize()
	if p.size+size > maxPage && p.seen > 0 {
		p.more = true
		return false, nil
	}
	p.size += size
	p.seen++
	p.last = item
	if p.parsed.filter == nil || p.parsed.filter.Eval(item, p.parsed.params) {
		p.count++
		if p.q.selection != "COUNT" {
			p.items = append(p.items, p.parsed.projected(item))
		}
	}
	// With a limit, a page says that there is more even if it ends with the last item; so does the service.
	p.more = p.q.limit != nil && p.seen == *p.q.limit
	return !p.more, nil
}

func (p *page) answer(e *Engine) []byte {
	units := readUnits(p.size, p.q.consistent)
	e.meter.read(units)
	var o object
	o.number("Count", float64(p.count))
	o.number("ScannedCount", float64(p.seen))
	if p.q.selection != "COUNT" {
		o.items("Items", p.items)
	}
	if p.more {
		o.item("LastEvaluatedKey", p.table.keyIn(p.last))
	}
	o.capacity(p.q, units)
	return o.close()
}

// newPage checks what Query and Scan have in common and needs no table.
func (e *Engine) newPage(q *request, kinds ...expr.Kind) (*page, error) {
	if err := checkTableName(q.table); err != nil {
		return nil, err
	}
	if err := checkReturnCapacity(q); err != nil {
		return nil, err
	}
	if err := checkEnum(q.selection, "select", "SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"); err != nil {
		return nil, err
	}
	if q.limit != nil && *q.limit < 1 {
		return nil, validation("1 validation error detected: Value at 'Limit' failed to satisfy constraint: Member must have value greater than or equal to 1")
	}
	switch {
	case q.index != nil:
		return nil, validation("The table does not have the specified index: %s", *q.index)
	case q.selection == "ALL_PROJECTED_ATTRIBUTES":
		return nil, validation("One or more parameter values were invalid: ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName")
	case q.selection == "SPECIFIC_ATTRIBUTES" && q.projection == nil:
		return nil, validation("One or more parameter values were invalid: Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES")
	case q.projection != nil && q.selection != "" && q.selection != "SPECIFIC_ATTRIBUTES":
		return nil, validation("Cannot specify the ProjectionExpression when choosing to get %s", q.selection)
	}
	parsed, err := e.expressions.parse(q, kinds...)
	return &page{q: q, parsed: parsed}, err
}
