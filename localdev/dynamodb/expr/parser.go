package expr

import (
	"slices"
	"strconv"
)

// operand is a path, a valueRef, a call or, in updates, an arithmetic.
type operand any

// valueRef is a placeholder for a value, with its colon.
type valueRef string

// call is a function with its operands.
type call struct {
	function string
	args     []operand
}

// problem ranks what is wrong with an expression that is syntactically right: of several, the service reports the
// one of the lowest rank.
type problem int

const (
	redundantParentheses problem = iota
	unknownFunction
	misusedFunction
	reservedWord
	repeatedSection
	operatorCount
	operandCount
	noProblem
)

type parser struct {
	kind      Kind
	text      string
	tokens    []token
	pos       int
	refs      References
	operators int
	worst     problem
	problem   error
}

func newParser(kind Kind, text string) (*parser, error) {
	tokens, err := scan(kind, text)
	if err != nil {
		return nil, err
	}
	return &parser{kind: kind, text: text, tokens: tokens, worst: noProblem}, nil
}

// finish reports what is wrong apart from syntax.
func (p *parser) finish() error {
	if p.peek().kind != tokenEnd {
		return p.unexpected()
	}
	if p.operators > MaxOperators {
		p.note(operatorCount, "The expression contains too many operators; operator count: %d, maximum: %d", p.operators, MaxOperators)
	}
	return p.problem
}

func (p *parser) note(rank problem, format string, args ...any) {
	if rank < p.worst {
		p.worst, p.problem = rank, fail(p.kind, format, args...)
	}
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) accept(text string) bool {
	if p.peek().is(text) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if !p.accept(text) {
		return p.unexpected()
	}
	return nil
}

func (p *parser) unexpected() error {
	return syntaxError(p.kind, p.text, p.tokens[:p.pos], p.peek())
}

// path reads name, name.name, name[3] and so on.
func (p *parser) path() (path, error) {
	first, err := p.pathName()
	if err != nil {
		return nil, err
	}
	path := path{first}
	for {
		switch {
		case p.accept("."):
			s, err := p.pathName()
			if err != nil {
				return nil, err
			}
			path = append(path, s)
		case p.accept("["):
			t := p.peek()
			index, err := strconv.ParseInt(t.text, 10, 32)
			if t.kind != tokenIndex || err != nil {
				return nil, p.unexpected()
			}
			p.pos++
			if err := p.expect("]"); err != nil {
				return nil, err
			}
			path = append(path, step{index: int(index)})
		default:
			return path, nil
		}
	}
}

func (p *parser) pathName() (step, error) {
	t := p.peek()
	switch t.kind {
	case tokenWord:
		if isReserved(t.text) {
			p.note(reservedWord, "Attribute name is a reserved keyword; reserved keyword: %s", t.text)
		}
	case tokenName:
		if !slices.Contains(p.refs.Names, t.text) {
			p.refs.Names = append(p.refs.Names, t.text)
		}
	default:
		return step{}, p.unexpected()
	}
	p.pos++
	return step{name: t.text}, nil
}

// valueRef reads a placeholder for a value.
func (p *parser) valueRef() (valueRef, error) {
	t := p.peek()
	if t.kind != tokenValue {
		return "", p.unexpected()
	}
	p.pos++
	if !slices.Contains(p.refs.Values, t.text) {
		p.refs.Values = append(p.refs.Values, t.text)
	}
	return valueRef(t.text), nil
}

// simpleOperand reads a path, a value placeholder or a call; argument reads each operand of the call.
func (p *parser) simpleOperand(arity map[string]int, argument func() (operand, error)) (operand, error) {
	switch t := p.peek(); {
	case t.kind == tokenValue:
		return p.valueRef()
	case t.kind == tokenWord && p.tokens[p.pos+1].is("("):
		p.pos += 2
		p.operators++
		c := call{function: t.text}
		for {
			arg, err := argument()
			if err != nil {
				return nil, err
			}
			c.args = append(c.args, arg)
			if p.accept(")") {
				break
			}
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		if n, ok := arity[c.function]; !ok {
			p.note(unknownFunction, "Invalid function name; function: %s", c.function)
		} else if n != len(c.args) {
			p.note(operandCount, "Incorrect number of operands for operator or function; operator or function: %s, number of operands: %d", c.function, len(c.args))
		}
		return c, nil
	}
	return p.path()
}
