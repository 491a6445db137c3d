package dynamodb

import (
	"crypto/sha256"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// A client request token makes a transaction repeatable for tokenLife after it was committed.
const (
	tokenLife = 10 * time.Minute
	maxToken  = 36 // characters
)

// recall looks the token up.
func (t *transaction) recall(r storage.Reader) error {
	if t.q.token == "" {
		return nil
	}
	digest, at, ok, err := r.Token(t.q.token)
	if err != nil || !ok || t.engine.options.Now().Sub(at) > tokenLife {
		return err
	}
	if digest != t.digest {
		return clientError("IdempotentParameterMismatchException", "The request token is in use for a request with other parameters")
	}
	t.replayed = true
	return nil
}

// replay bills what a repetition costs: reading the items.
func (t *transaction) replay(r storage.Reader) error {
	for _, w := range t.writes {
		if err := w.locate(t.engine, r); err != nil {
			return err
		}
		item, err := r.Get(w.key)
		if err != nil {
			return err
		}
		units := transactional * readUnits(item.ItemSize(), true)
		t.engine.meter.read(units)
		t.consumed.add(w.table.Name, units)
	}
	return nil
}

// digest tells two lists of actions apart; the order of members in maps does not matter.
func digest(actions []action) string {
	h := sha256.New()
	for _, a := range actions {
		var o object
		o.text("verb", a.verb)
		o.text("table", a.table)
		o.text("onFailure", a.returnOnFailure)
		for _, expression := range []*string{a.condition, a.update} {
			if expression == nil {
				expression = new(string)
			}
			o.text("expression", *expression)
		}
		names := value.Map{}
		for key, name := range a.names {
			names[key] = value.String(name)
		}
		o.item("names", names)
		for _, m := range []value.Map{a.item, a.key, a.values} {
			o.item("map", m)
		}
		h.Write(o.close())
	}
	return string(h.Sum(nil))
}
