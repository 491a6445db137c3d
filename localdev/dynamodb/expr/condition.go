package expr

import (
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// conditionFunctions are the functions of conditions with the number of their operands.
var conditionFunctions = map[string]int{
	"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2, "size": 1,
}

// condition is one of: and, or, not, comparison, between, in, call.
type condition any

type (
	and        struct{ left, right condition }
	or         struct{ left, right condition }
	not        struct{ inner condition }
	comparison struct {
		op          string // = <> < <= > >=
		left, right operand
	}
	between struct{ x, low, high operand }
	in      struct {
		x    operand
		list []operand
	}
)

// Cond is a parsed condition, filter or key condition.
type Cond struct {
	kind Kind
	root condition
	refs References
}

// References are the placeholders that the condition uses.
func (c *Cond) References() References { return c.refs }

// ParseCondition parses a condition, filter or key condition.
func ParseCondition(kind Kind, text string) (*Cond, error) {
	p, err := newParser(kind, text)
	if err != nil {
		return nil, err
	}
	c := conditionParser{parser: p}
	root, err := c.condition()
	if err != nil {
		return nil, err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return &Cond{kind: kind, root: root, refs: p.refs}, nil
}

// conditionParser reads what stands between parentheses without knowing yet whether it is a condition or an
// operand: both (a = :b) and (a) = :b are right.
type conditionParser struct {
	*parser
	// The last thing in parentheses was tokens[openedAt:closedAt].
	openedAt, closedAt int
}

func (p *conditionParser) condition() (condition, error) {
	x, err := p.or()
	if err != nil {
		return nil, err
	}
	return p.asCondition(x)
}

// asCondition refuses operands, except calls of functions that are true or false.
func (p *conditionParser) asCondition(x any) (condition, error) {
	switch x := x.(type) {
	case path, valueRef:
		return nil, p.unexpected()
	case call:
		if x.function == "size" {
			p.misused(x)
		}
	}
	return x, nil
}

// asOperand refuses conditions, and functions that are not values.
func (p *conditionParser) asOperand(x any) (operand, error) {
	switch x := x.(type) {
	case path, valueRef:
		return x, nil
	case call:
		if x.function != "size" {
			p.misused(x)
		}
		return x, nil
	}
	return nil, p.unexpected()
}

func (p *conditionParser) misused(c call) {
	p.note(misusedFunction, "The function is not allowed to be used this way in an expression; function: %s", c.function)
}

func (p *conditionParser) or() (any, error) {
	return p.binary("OR", p.and, func(l, r condition) condition { return or{l, r} })
}

func (p *conditionParser) and() (any, error) {
	return p.binary("AND", p.not, func(l, r condition) condition { return and{l, r} })
}

func (p *conditionParser) binary(word string, operand func() (any, error), join func(l, r condition) condition) (any, error) {
	left, err := operand()
	if err != nil {
		return nil, err
	}
	for p.peek().is(word) {
		if left, err = p.asCondition(left); err != nil {
			return nil, err
		}
		p.pos++
		p.operators++
		right, err := operand()
		if err != nil {
			return nil, err
		}
		if right, err = p.asCondition(right); err != nil {
			return nil, err
		}
		left = join(left, right)
	}
	return left, nil
}

func (p *conditionParser) not() (any, error) {
	negations := 0
	for p.peek().is("NOT") {
		p.pos++
		p.operators++
		negations++
	}
	x, err := p.comparison()
	if err != nil || negations == 0 {
		return x, err
	}
	if x, err = p.asCondition(x); err != nil {
		return nil, err
	}
	for range negations {
		x = not{x}
	}
	return x, nil
}

// comparison reads something in parentheses or an operand, and what it is compared with.
func (p *conditionParser) comparison() (any, error) {
	x, err := p.primary()
	if err != nil {
		return nil, err
	}
	t := p.peek()
	switch {
	case t.is("=") || t.is("<>") || t.is("<") || t.is("<=") || t.is(">") || t.is(">="):
		return p.compared(x, t.text)
	case t.is("BETWEEN"):
		return p.between(x)
	case t.is("IN"):
		return p.in(x)
	}
	return x, nil
}

func (p *conditionParser) compared(x any, op string) (any, error) {
	left, err := p.asOperand(x)
	if err != nil {
		return nil, err
	}
	p.pos++
	p.operators++
	right, err := p.operand()
	return comparison{op: op, left: left, right: right}, err
}

func (p *conditionParser) between(x any) (any, error) {
	b := between{}
	var err error
	if b.x, err = p.asOperand(x); err != nil {
		return nil, err
	}
	p.pos++
	p.operators++
	if b.low, err = p.operand(); err != nil {
		return nil, err
	}
	if err = p.expect("AND"); err != nil {
		return nil, err
	}
	b.high, err = p.operand()
	return b, err
}

func (p *conditionParser) in(x any) (any, error) {
	i := in{}
	var err error
	if i.x, err = p.asOperand(x); err != nil {
		return nil, err
	}
	p.pos++
	p.operators++
	if err = p.expect("("); err != nil {
		return nil, err
	}
	for {
		candidate, err := p.operand()
		if err != nil {
			return nil, err
		}
		i.list = append(i.list, candidate)
		if p.accept(")") {
			break
		}
		if err = p.expect(","); err != nil {
			return nil, err
		}
	}
	if len(i.list) > MaxInList {
		p.note(operandCount, "The IN operator is provided with too many operands; number of operands: %d", len(i.list))
	}
	return i, nil
}

// operand reads an operand, perhaps in parentheses.
func (p *conditionParser) operand() (operand, error) {
	x, err := p.primary()
	if err != nil {
		return nil, err
	}
	return p.asOperand(x)
}

func (p *conditionParser) primary() (any, error) {
	opened := p.pos
	if !p.accept("(") {
		return p.simpleOperand(conditionFunctions, p.operand)
	}
	x, err := p.or()
	if err != nil {
		return nil, err
	}
	// Key conditions are let off: the service was seen to accept ((pk = :a)) there.
	if p.openedAt == opened+1 && p.closedAt == p.pos && p.kind != KeyCondition {
		p.note(redundantParentheses, "The expression has redundant parentheses;")
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	p.openedAt, p.closedAt = opened, p.pos
	return x, nil
}

// Eval reports whether item meets the condition. A missing item is an empty one. p has been checked by Check.
func (c *Cond) Eval(item value.Map, p Params) bool { return evaluation{item, p}.holds(c.root) }
