package dynamodb

import (
	"context"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// getItem performs GetItem.
func getItem(_ context.Context, c *call) ([]byte, error) {
	q := c.q
	if err := checkReturnCapacity(q); err != nil {
		return nil, err
	}
	p, err := c.engine.newGet(q)
	if err != nil {
		return nil, err
	}
	var found value.Map
	err = c.view(q.consistent, func(r storage.Reader) error {
		found, err = c.engine.get(r, q.table, q.key)
		return err
	})
	if err != nil {
		return nil, err
	}
	units := readUnits(found.ItemSize(), q.consistent)
	c.engine.meter.read(units)
	var o object
	if found != nil {
		o.item("Item", p.projected(found))
	}
	o.capacity(q, units)
	return o.close(), nil
}

// newGet checks what can be checked without the table.
func (e *Engine) newGet(q *request) (*parsed, error) {
	if err := checkTableName(q.table); err != nil {
		return nil, err
	}
	if q.key == nil && q.keys == nil {
		return nil, constraint("null", "key", "Member must not be null")
	}
	return e.expressions.parse(q, expr.Projecting)
}

func (e *Engine) get(r storage.Reader, tableName string, key value.Map) (value.Map, error) {
	t, err := e.schemas.load(r, tableName)
	if err != nil {
		return nil, err
	}
	k, err := t.keyOf(key)
	if err != nil {
		return nil, err
	}
	return r.Get(k)
}

func (p *parsed) projected(item value.Map) value.Map {
	if p.project == nil {
		return item
	}
	return p.project(item)
}
