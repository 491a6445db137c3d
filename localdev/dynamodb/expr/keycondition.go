package expr

import "github.com/varvelog/varve/localdev/dynamodb/value"

// KeyTerm is what a key condition asks of one key attribute.
type KeyTerm struct {
	Attribute string
	// Op is =, <, <=, >, >=, BETWEEN or begins_with.
	Op string
	// Operand is the value compared with; High is the upper end of BETWEEN.
	Operand, High value.Value
}

// mirrored is the operator with its sides exchanged.
var mirrored = map[string]string{"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

// KeyTerms takes a key condition apart. There are at most two terms, joined by AND.
func (c *Cond) KeyTerms(p Params) ([]KeyTerm, error) {
	k := keyTerms{params: p}
	if err := k.collect(c.root); err != nil {
		return nil, err
	}
	return k.terms, nil
}

type keyTerms struct {
	params Params
	terms  []KeyTerm
}

const errKeyOperator = "Invalid operator used in KeyConditionExpression: "

// ErrKeyCondition is a key condition of a form that no key can be looked up by.
const ErrKeyCondition value.Invalid = "Query key condition not supported"

func (k *keyTerms) collect(c condition) error {
	switch c := c.(type) {
	case and:
		if err := k.collect(c.left); err != nil {
			return err
		}
		return k.collect(c.right)
	case comparison:
		if c.op == "<>" {
			return fail(KeyCondition, errKeyOperator+"<>")
		}
		if _, ok := c.left.(path); ok {
			return k.add(c.left, c.op, c.right, nil)
		}
		return k.add(c.right, mirrored[c.op], c.left, nil)
	case between:
		return k.add(c.x, "BETWEEN", c.low, c.high)
	case call:
		if c.function != "begins_with" {
			return fail(KeyCondition, errKeyOperator+"%s", c.function)
		}
		return k.add(c.args[0], c.function, c.args[1], nil)
	case or:
		return fail(KeyCondition, errKeyOperator+"OR")
	case not:
		return fail(KeyCondition, errKeyOperator+"NOT")
	}
	return fail(KeyCondition, errKeyOperator+"IN")
}

func (k *keyTerms) add(attribute operand, op string, operand, high operand) error {
	at, ok := attribute.(path)
	if !ok {
		return ErrKeyCondition
	}
	if len(at) > 1 {
		return fail(KeyCondition, "KeyConditionExpressions cannot have conditions on nested attributes")
	}
	term := KeyTerm{Attribute: at[0].resolve(k.params), Op: op}
	for _, other := range k.terms {
		if other.Attribute == term.Attribute {
			return value.Invalid("KeyConditionExpressions must only contain one condition per key")
		}
	}
	ref, ok := operand.(valueRef)
	if !ok {
		return ErrKeyCondition
	}
	term.Operand = k.params.Values[string(ref)]
	if op == "BETWEEN" {
		if ref, ok = high.(valueRef); !ok {
			return ErrKeyCondition
		}
		term.High = k.params.Values[string(ref)]
	}
	k.terms = append(k.terms, term)
	return nil
}

// Attributes are the top-level names that the condition looks at.
func (c *Cond) Attributes(p Params) map[string]bool {
	names := map[string]bool{}
	collectNames(c.root, p, names)
	return names
}

func collectNames(x any, p Params, names map[string]bool) {
	switch x := x.(type) {
	case path:
		names[x[0].resolve(p)] = true
	case and:
		collectNames(x.left, p, names)
		collectNames(x.right, p, names)
	case or:
		collectNames(x.left, p, names)
		collectNames(x.right, p, names)
	case not:
		collectNames(x.inner, p, names)
	case comparison:
		collectNames(x.left, p, names)
		collectNames(x.right, p, names)
	case between:
		collectNames(x.x, p, names)
		collectNames(x.low, p, names)
		collectNames(x.high, p, names)
	case in:
		collectNames(x.x, p, names)
		for _, e := range x.list {
			collectNames(e, p, names)
		}
	case call:
		for _, e := range x.args {
			collectNames(e, p, names)
		}
	}
}
