package dynamodb

import (
	"context"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// transactGet performs TransactGetItems.
func transactGet(_ context.Context, c *call) ([]byte, error) {
	if err := checkActions(c.q); err != nil {
		return nil, err
	}
	t := &transaction{call: c, reasons: make([]Reason, len(c.q.actions))}
	gets := make([]*parsed, len(c.q.actions))
	for i, a := range c.q.actions {
		t.reasons[i].Code = "None"
		if a.verb != "Get" {
			return nil, validation("Supplied action is %q, must be Get", a.verb)
		}
		var err error
		if gets[i], err = c.engine.newGet(a.request); err != nil {
			return nil, err
		}
	}
	var found []value.Map
	err := c.engine.store.View(func(r storage.Reader) (err error) {
		found, err = t.get(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	list := []byte{'['}
	for i, item := range found {
		if i > 0 {
			list = append(list, ',')
		}
		var o object
		// An item of which nothing is projected is an empty ItemResponse, as one that is not there.
		if projected := gets[i].projected(item); len(projected) > 0 {
			o.item("Item", projected)
		}
		list = append(list, o.close()...)
	}
	var o object
	o.raw("Responses", append(list, ']'))
	o.capacities(c.q, t.consumed)
	return o.close(), nil
}

// get reads the items of one state; one that a transaction holds is a conflict.
func (t *transaction) get(r storage.Reader) ([]value.Map, error) {
	found := make([]value.Map, len(t.q.actions))
	seen := map[storage.Key]bool{}
	size := 0
	for i, a := range t.q.actions {
		w := write{verb: verbDelete, q: a.request, parsed: &parsed{}}
		if err := w.locate(t.engine, r); err != nil {
			if !t.cancelled(i, err) {
				return nil, err
			}
			continue
		}
		if seen[w.key] {
			return nil, errSameItem
		}
		seen[w.key] = true
		if t.engine.locks.held(w.key) {
			t.reasons[i] = conflictReason
			continue
		}
		var err error
		if found[i], err = r.Get(w.key); err != nil {
			return nil, err
		}
		size += found[i].ItemSize()
		units := transactional * readUnits(found[i].ItemSize(), true)
		t.engine.meter.read(units)
		t.consumed.add(a.table, units)
	}
	if size > maxTransactionBytes {
		return nil, validation("Transaction request cannot be larger than %d bytes: its items have %d", maxTransactionBytes, size)
	}
	return found, t.cancellation()
}
