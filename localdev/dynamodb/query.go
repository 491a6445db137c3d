package dynamodb

import (
	"context"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// query performs Query.
func query(_ context.Context, c *call) ([]byte, error) {
	p, err := c.engine.newPage(c.q, expr.KeyCondition, expr.Filter, expr.Projecting)
	if err != nil {
		return nil, err
	}
	if p.parsed.keyCondition == nil {
		return nil, validation("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
	}
	err = c.view(c.q.consistent, func(r storage.Reader) error {
		if p.table, err = c.engine.schemas.load(r, c.q.table); err != nil {
			return err
		}
		partition, within, visit, err := p.plan()
		if err != nil {
			return err
		}
		return r.Range(p.table.Name, partition, within, c.q.descending, visit)
	})
	if err != nil {
		return nil, err
	}
	return p.answer(c.engine), nil
}

// plan finds what a query has to visit.
func (p *page) plan() (partition string, within storage.Bounds, visit storage.Visit, err error) {
	if err := p.checkFilter(); err != nil {
		return "", within, nil, err
	}
	partitionTerm, sortTerm, err := p.terms()
	if err != nil {
		return "", within, nil, err
	}
	partition, _ = value.EncodeKey(partitionTerm.Operand)
	visit = p.visit
	if sortTerm != nil {
		var excluded string
		within, excluded = bounds(sortTerm)
		if excluded != "" {
			visit = except(excluded, visit)
		}
	}
	if p.q.startKey == nil {
		return partition, within, visit, nil
	}
	start, err := p.table.keyOf(p.q.startKey)
	if err != nil {
		return "", within, nil, validation("The provided starting key is invalid: %v", err)
	}
	if start.Partition != partition || !within.Contains(start.Sort) {
		return "", within, nil, validation("The provided starting key is outside query boundaries based on provided conditions")
	}
	if p.q.descending {
		within.To, within.HasTo = start.Sort, true
	} else {
		within.From = start.Sort
	}
	return partition, within, except(start.Sort, visit), nil
}

// except passes over one sort key.
func except(sort string, visit storage.Visit) storage.Visit {
	return func(s string, item value.Map) (bool, error) {
		if s == sort {
			return true, nil
		}
		return visit(s, item)
	}
}

// checkFilter: a query's filter may not look at the key, which the key condition is for.
func (p *page) checkFilter() error {
	if p.parsed.filter == nil {
		return nil
	}
	looked := p.parsed.filter.Attributes(p.parsed.params)
	for _, a := range p.table.keyAttributes() {
		if looked[a.Name] {
			return validation("Filter Expression can only contain non-primary key attributes: Primary key attribute: %s", a.Name)
		}
	}
	return nil
}

// terms are the key condition's terms for the table's keys.
func (p *page) terms() (partition expr.KeyTerm, sort *expr.KeyTerm, err error) {
	terms, err := p.parsed.keyCondition.KeyTerms(p.parsed.params)
	if err != nil {
		return partition, nil, err
	}
	found := false
	for _, term := range terms {
		switch {
		case term.Attribute == p.table.Partition.Name:
			partition, found = term, true
			if term.Op != "=" {
				return partition, nil, expr.ErrKeyCondition
			}
			err = checkTerm(term, p.table.Partition)
		case p.table.Sort != nil && term.Attribute == p.table.Sort.Name:
			sort = &term
			err = checkTerm(term, *p.table.Sort)
		}
		if err != nil {
			return partition, nil, err
		}
	}
	switch {
	case !found:
		return partition, nil, validation("Query condition missed key schema element: %s", p.table.Partition.Name)
	case len(terms) == 2 && sort == nil && p.table.Sort != nil:
		return partition, nil, validation("Query condition missed key schema element: %s", p.table.Sort.Name)
	case len(terms) > 1 && sort == nil || len(terms) > 2:
		return partition, nil, expr.ErrKeyCondition
	}
	return partition, sort, nil
}

func checkTerm(term expr.KeyTerm, a keyAttribute) error {
	for _, v := range []value.Value{term.Operand, term.High} {
		if v == nil {
			continue
		}
		if v.Kind() != a.Kind {
			return validation("One or more parameter values were invalid: Condition parameter type does not match schema type")
		}
		if err := refuseEmpty(v, a.Name); err != nil {
			return err
		}
	}
	if term.Op == "begins_with" && a.Kind == value.KindNumber {
		return &expr.Error{Kind: expr.KeyCondition, Message: "Incorrect operand type for operator or function; operator or function: begins_with, operand type: N"}
	}
	return nil
}

// bounds are a sort term's limits; excluded is a key that is within them and not meant, empty if there is none.
func bounds(term *expr.KeyTerm) (within storage.Bounds, excluded string) {
	at, _ := value.EncodeKey(term.Operand)
	switch term.Op {
	case "=":
		return storage.Bounds{From: at, To: at, HasTo: true}, ""
	case "<":
		return storage.Bounds{To: at, HasTo: true}, at
	case "<=":
		return storage.Bounds{To: at, HasTo: true}, ""
	case ">":
		return storage.Bounds{From: at}, at
	case ">=":
		return storage.Bounds{From: at}, ""
	case "BETWEEN":
		high, _ := value.EncodeKey(term.High)
		return storage.Bounds{From: at, To: high, HasTo: true}, ""
	}
	return prefixBounds(at)
}

// prefixBounds: from the prefix up to the next one of its length, which is excluded. A prefix of nothing but the
// highest byte has no next one.
func prefixBounds(prefix string) (storage.Bounds, string) {
	next := []byte(prefix)
	for len(next) > 0 && next[len(next)-1] == 0xff {
		next = next[:len(next)-1]
	}
	if len(next) == 0 {
		return storage.Bounds{From: prefix}, ""
	}
	next[len(next)-1]++
	return storage.Bounds{From: prefix, To: string(next), HasTo: true}, string(next)
}
