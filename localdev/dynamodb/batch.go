package dynamodb

import (
	"context"
	"fmt"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// Limits of batches.
const (
	maxBatchGet      = 100
	maxBatchGetBytes = 16 << 20
	maxBatchWrite    = 25
)

const errDuplicateKeys value.Invalid = "Provided list of item keys contains duplicates"

// batchGet performs BatchGetItem. Keys that do not fit into the answer, or that the hook hands back, are
// UnprocessedKeys.
func batchGet(_ context.Context, c *call) ([]byte, error) {
	if err := checkReturnCapacity(c.q); err != nil {
		return nil, err
	}
	total := 0
	for _, a := range c.q.actions {
		total += len(a.keys)
	}
	switch {
	case len(c.q.actions) == 0 || total == 0:
		return nil, constraint("'{}'", "requestItems", "Member must have length greater than or equal to 1")
	case total > maxBatchGet:
		return nil, validation("Too many items requested for the BatchGetItem call")
	}
	b := batchGetter{call: c, left: total - min(c.fault.Unprocessed, total)}
	var responses, unprocessed object
	for _, a := range c.q.actions {
		if err := b.table(a.request, &responses, &unprocessed); err != nil {
			return nil, err
		}
	}
	var o object
	o.raw("Responses", responses.close())
	o.raw("UnprocessedKeys", unprocessed.close())
	o.capacities(c.q, b.consumed)
	return o.close(), nil
}

type batchGetter struct {
	*call
	left     int // keys that may still be processed
	size     int // bytes found so far
	consumed consumption
}

// table reads one table's keys.
func (b *batchGetter) table(q *request, responses, unprocessed *object) error {
	p, err := b.engine.newGet(q)
	if err != nil {
		return err
	}
	var items, rest []value.Map
	err = b.view(q.consistent, func(r storage.Reader) error {
		items, rest, err = b.read(r, q)
		return err
	})
	if err != nil {
		return err
	}
	for i, item := range items {
		items[i] = p.projected(item)
	}
	responses.items(q.table, items)
	if len(rest) > 0 {
		unprocessed.raw(q.table, unprocessedKeys(q, rest))
	}
	return nil
}

func (b *batchGetter) read(r storage.Reader, q *request) (items, rest []value.Map, err error) {
	t, err := b.engine.schemas.load(r, q.table)
	if err != nil {
		return nil, nil, err
	}
	seen := map[storage.Key]bool{}
	for _, key := range q.keys {
		k, err := t.keyOf(key)
		if err != nil {
			return nil, nil, err
		}
		if seen[k] {
			return nil, nil, errDuplicateKeys
		}
		seen[k] = true
		item, err := r.Get(k)
		if err != nil {
			return nil, nil, err
		}
		size := item.ItemSize()
		if b.left == 0 || b.size+size > maxBatchGetBytes {
			rest = append(rest, key)
			continue
		}
		b.left--
		b.size += size
		units := readUnits(size, q.consistent)
		b.engine.meter.read(units)
		b.consumed.add(q.table, units)
		if item != nil {
			items = append(items, item)
		}
	}
	return items, rest, nil
}

// unprocessedKeys is the request for what is left.
func unprocessedKeys(q *request, keys []value.Map) []byte {
	var o object
	o.items("Keys", keys)
	if q.projection != nil {
		o.text("ProjectionExpression", *q.projection)
	}
	if q.names != nil {
		var names object
		for key, name := range q.names {
			names.text(key, name)
		}
		o.raw("ExpressionAttributeNames", names.close())
	}
	if q.consistent {
		o.raw("ConsistentRead", []byte("true"))
	}
	return o.close()
}

// batchWrite performs BatchWriteItem. Items that are throttled, held by a transaction, or handed back by the hook
// are UnprocessedItems.
func batchWrite(_ context.Context, c *call) ([]byte, error) {
	if err := checkReturnCapacity(c.q); err != nil {
		return nil, err
	}
	switch n := len(c.q.actions); {
	case n == 0:
		return nil, constraint("'{}'", "requestItems", "Member must have length greater than or equal to 1")
	case n > maxBatchWrite:
		return nil, validation("Too many items requested for the BatchWriteItem call")
	}
	b := batchWriter{call: c}
	for _, a := range c.q.actions {
		w, err := c.engine.newBatchWrite(a)
		if err != nil {
			return nil, err
		}
		b.writes = append(b.writes, w)
	}
	if err := c.engine.store.Update(b.perform); err != nil {
		return nil, err
	}
	if len(b.rest) == len(b.writes) && b.throttled != nil {
		return nil, b.throttled
	}
	var o object
	o.raw("UnprocessedItems", b.unprocessed())
	o.capacities(c.q, b.consumed)
	return o.close(), nil
}

func (e *Engine) newBatchWrite(a action) (*write, error) {
	switch a.verb {
	case "PutRequest":
		return e.newWrite(verbPut, a.request)
	case "DeleteRequest":
		return e.newWrite(verbDelete, a.request)
	}
	return nil, validation("Supplied request is %q, must be PutRequest or DeleteRequest", a.verb)
}

type batchWriter struct {
	*call
	writes    []*write
	rest      []*write
	throttled error
	consumed  consumption
}

func (b *batchWriter) perform(s storage.Writer) error {
	b.rest = nil
	seen := map[storage.Key]bool{}
	for _, w := range b.writes {
		if err := w.locate(b.engine, s); err != nil {
			return err
		}
		if seen[w.key] {
			return errDuplicateKeys
		}
		seen[w.key] = true
	}
	processed := len(b.writes) - min(b.fault.Unprocessed, len(b.writes))
	for i, w := range b.writes {
		if i >= processed || b.engine.locks.held(w.key) {
			b.rest = append(b.rest, w)
			continue
		}
		if err := b.one(s, w); err != nil {
			return err
		}
	}
	return nil
}

func (b *batchWriter) one(s storage.Writer, w *write) error {
	out, err := w.evaluate(s)
	if err != nil {
		return err
	}
	if err := b.engine.limiter.take(w.key, out.units, b.engine.options.Now()); err != nil {
		b.throttled = err
		b.rest = append(b.rest, w)
		return nil
	}
	b.engine.meter.wrote(out.units)
	b.consumed.add(w.table.Name, out.units)
	return w.store(b.engine, s, out)
}

// unprocessed is the request for what is left, by table.
func (b *batchWriter) unprocessed() []byte {
	lists := map[string][]byte{}
	var tables []string
	for _, w := range b.rest {
		list, ok := lists[w.table.Name]
		if !ok {
			tables = append(tables, w.table.Name)
			list = []byte{'['}
		} else {
			list = append(list, ',')
		}
		var inner, outer object
		if w.verb == verbPut {
			inner.item("Item", w.q.item)
			outer.raw("PutRequest", inner.close())
		} else {
			inner.item("Key", w.q.key)
			outer.raw("DeleteRequest", inner.close())
		}
		lists[w.table.Name] = append(list, outer.close()...)
	}
	var o object
	for _, table := range tables {
		o.raw(table, fmt.Appendf(lists[table], "]"))
	}
	return o.close()
}
