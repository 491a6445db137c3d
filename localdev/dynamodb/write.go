package dynamodb

import (
	"context"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// write is a put, update, delete or condition check of one item: as an operation of its own, or as part of a batch
// or transaction.
type write struct {
	verb   string // as in a transaction
	q      *request
	parsed *parsed
	table  *table      // once located
	key    storage.Key // once located
}

const (
	verbPut    = "Put"
	verbUpdate = "Update"
	verbDelete = "Delete"
	verbCheck  = "ConditionCheck"
)

// newWrite parses and checks what can be checked without the table.
func (e *Engine) newWrite(verb string, q *request) (*write, error) {
	if err := checkTableName(q.table); err != nil {
		return nil, err
	}
	kinds := []expr.Kind{expr.Condition}
	missing := ""
	switch {
	case verb == verbUpdate:
		kinds = []expr.Kind{expr.Updating, expr.Condition}
		fallthrough
	case verb == verbDelete || verb == verbCheck:
		if q.key == nil {
			missing = "key"
		}
	case q.item == nil:
		missing = "item"
	}
	if missing != "" {
		return nil, constraint("null", missing, "Member must not be null")
	}
	if err := checkEnum(q.returnOnFailure, "returnValuesOnConditionCheckFailure", "ALL_OLD", "NONE"); err != nil {
		return nil, err
	}
	parsed, err := e.expressions.parse(q, kinds...)
	if err != nil {
		return nil, err
	}
	if verb == verbPut && q.item.ItemSize() > maxItem {
		return nil, validation("Item size has exceeded the maximum allowed size")
	}
	return &write{verb: verb, q: q, parsed: parsed}, nil
}

// locate finds the table and the item's place in it.
func (w *write) locate(e *Engine, r storage.Reader) error {
	var err error
	if w.table, err = e.schemas.load(r, w.q.table); err != nil {
		return err
	}
	if w.verb == verbPut {
		w.key, err = w.table.keyOfItem(w.q.item)
		return err
	}
	if w.key, err = w.table.keyOf(w.q.key); err != nil {
		return err
	}
	if w.parsed.update != nil {
		for _, a := range w.table.keyAttributes() {
			if w.parsed.update.Changes(a.Name) {
				return validation("One or more parameter values were invalid: Cannot update attribute %s. This attribute is part of the key", a.Name)
			}
		}
	}
	return nil
}

// outcome is what a write comes to. Nothing has been written yet.
type outcome struct {
	old, new value.Map // nil: no item
	refused  bool      // the condition does not hold
	size     int       // bytes of the larger of the two
	units    float64
}

// evaluate decides the write against the item as it is. A refused write is billed too: for the item that it met
// and, for a put, the one that it brought.
func (w *write) evaluate(r storage.Reader) (outcome, error) {
	old, err := r.Get(w.key)
	if err != nil {
		return outcome{}, err
	}
	out := outcome{old: old}
	out.refused = w.parsed.condition != nil && !w.parsed.condition.Eval(old, w.parsed.params)
	switch {
	case w.verb == verbPut:
		out.new = w.q.item
	case w.verb == verbCheck || out.refused && w.verb == verbUpdate:
		out.new = old
	case w.verb == verbUpdate:
		if out.new, err = w.updated(old); err != nil {
			return outcome{}, err
		}
	}
	size := out.new.ItemSize()
	if w.verb == verbUpdate && !out.refused && size > maxItem {
		return outcome{}, validation("Item size to update has exceeded the maximum allowed size")
	}
	out.size = max(size, out.old.ItemSize())
	out.units = writeUnits(out.size)
	return out, nil
}

// updated is the item after the update. An item that was not there begins as its key alone.
func (w *write) updated(old value.Map) (value.Map, error) {
	if old == nil {
		old = w.q.key
	}
	if w.parsed.update == nil {
		return old, nil
	}
	updated, err := w.parsed.update.Apply(old)
	if err == nil && updated.TooDeep() {
		return nil, value.ErrTooDeep
	}
	return updated, err
}

// store writes the outcome and remembers what was there before.
func (w *write) store(e *Engine, s storage.Writer, out outcome) error {
	if w.verb == verbCheck {
		return nil
	}
	e.history.record(w.key, out.old, e.options.Now())
	if out.new == nil {
		return s.Delete(w.key)
	}
	return s.Put(w.key, out.new)
}

// refusal is the answer to a write whose condition does not hold.
func (w *write) refusal(out outcome) *Error {
	e := clientError("ConditionalCheckFailedException", "The conditional request failed")
	if w.q.returnOnFailure == "ALL_OLD" {
		e.Item = out.old
	}
	return e
}

// writeItem performs PutItem, UpdateItem and DeleteItem.
func writeItem(_ context.Context, c *call) ([]byte, error) {
	e, q := c.engine, c.q
	verb := c.op[:len(c.op)-len("Item")]
	if err := checkReturnCapacity(q); err != nil {
		return nil, err
	}
	if err := checkReturnValues(q, verb); err != nil {
		return nil, err
	}
	w, err := e.newWrite(verb, q)
	if err != nil {
		return nil, err
	}
	var out outcome
	err = e.store.Update(func(s storage.Writer) error {
		if err := w.locate(e, s); err != nil {
			return err
		}
		if e.locks.held(w.key) {
			return errConflict()
		}
		if out, err = w.evaluate(s); err != nil {
			return err
		}
		if err := e.limiter.take(w.key, out.units, e.options.Now()); err != nil {
			return err
		}
		e.meter.wrote(out.units)
		if out.refused {
			return w.refusal(out)
		}
		return w.store(e, s, out)
	})
	if err != nil {
		return nil, err
	}
	var o object
	if m := w.returned(out); m != nil {
		o.item("Attributes", m)
	}
	o.capacity(q, out.units)
	return o.close(), nil
}

func checkReturnValues(q *request, verb string) error {
	if err := checkEnum(q.returnValues, "returnValues", "ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"); err != nil {
		return err
	}
	if verb != verbUpdate && q.returnValues != "" && q.returnValues != "NONE" && q.returnValues != "ALL_OLD" {
		return validation("Return values set to invalid value")
	}
	return nil
}

// returned are the attributes that ReturnValues asks for, nil if there are none.
func (w *write) returned(out outcome) value.Map {
	var m value.Map
	switch w.q.returnValues {
	case "ALL_OLD":
		return out.old
	case "ALL_NEW":
		return out.new
	case "UPDATED_OLD":
		m = w.changed(out.old)
	case "UPDATED_NEW":
		m = w.changed(out.new)
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

func (w *write) changed(item value.Map) value.Map {
	if w.parsed.update == nil {
		return nil
	}
	return w.parsed.update.Changed(item)
}
