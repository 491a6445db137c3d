package expr

import (
	"strings"
	"unicode/utf8"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// evaluation is a condition's view of one item.
type evaluation struct {
	item   value.Map
	params Params
}

func (e evaluation) holds(c condition) bool {
	switch c := c.(type) {
	case and:
		return e.holds(c.left) && e.holds(c.right)
	case or:
		return e.holds(c.left) || e.holds(c.right)
	case not:
		return !e.holds(c.inner)
	case comparison:
		return compare(c.op, e.value(c.left), e.value(c.right))
	case between:
		x := e.value(c.x)
		return compare(">=", x, e.value(c.low)) && compare("<=", x, e.value(c.high))
	case in:
		x := e.value(c.x)
		for _, candidate := range c.list {
			if compare("=", x, e.value(candidate)) {
				return true
			}
		}
	case call:
		return e.predicate(c)
	}
	return false
}

// value is what an operand stands for, nil if the item has nothing there.
func (e evaluation) value(x operand) value.Value {
	switch x := x.(type) {
	case path:
		return x.in(e.item, e.params)
	case valueRef:
		return e.params.Values[string(x)]
	case call: // size, the only function that is a value
		if n, ok := size(e.value(x.args[0])); ok {
			return value.Int(int64(n))
		}
	}
	return nil
}

// compare: what is missing equals nothing, differs from everything, and has no order. So do values of different
// kinds.
func compare(op string, a, b value.Value) bool {
	switch op {
	case "=":
		return a != nil && b != nil && value.Equal(a, b)
	case "<>":
		return a == nil || b == nil || !value.Equal(a, b)
	}
	order, ok := value.Compare(a, b)
	if !ok {
		return false
	}
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

func (e evaluation) predicate(c call) bool {
	first := e.value(c.args[0])
	switch c.function {
	case "attribute_exists":
		return first != nil
	case "attribute_not_exists":
		return first == nil
	}
	second := e.value(c.args[1])
	switch c.function {
	case "attribute_type":
		kind, ok := second.(value.String)
		return ok && first != nil && first.Kind() == value.Kind(kind)
	case "begins_with":
		return beginsWith(first, second)
	}
	return contains(first, second)
}

func beginsWith(v, prefix value.Value) bool {
	switch v := v.(type) {
	case value.String:
		prefix, ok := prefix.(value.String)
		return ok && strings.HasPrefix(string(v), string(prefix))
	case value.Binary:
		prefix, ok := prefix.(value.Binary)
		return ok && strings.HasPrefix(string(v), string(prefix))
	}
	return false
}

// contains: a part of a string or binary, a member of a set, an element of a list.
func contains(whole, part value.Value) bool {
	if part == nil {
		return false
	}
	switch whole := whole.(type) {
	case value.String:
		part, ok := part.(value.String)
		return ok && strings.Contains(string(whole), string(part))
	case value.Binary:
		part, ok := part.(value.Binary)
		return ok && strings.Contains(string(whole), string(part))
	case value.StringSet:
		return member(whole, part)
	case value.NumberSet:
		return member(whole, part)
	case value.BinarySet:
		return member(whole, part)
	case value.List:
		return member(whole, part)
	}
	return false
}

func member[T value.Value](list []T, v value.Value) bool {
	for _, e := range list {
		if value.Equal(e, v) {
			return true
		}
	}
	return false
}

// size is the number of characters, bytes or members; other kinds have none.
func size(v value.Value) (int, bool) {
	switch v := v.(type) {
	case value.String:
		return utf8.RuneCountInString(string(v)), true
	case value.Binary:
		return len(v), true
	case value.StringSet:
		return len(v), true
	case value.NumberSet:
		return len(v), true
	case value.BinarySet:
		return len(v), true
	case value.List:
		return len(v), true
	case value.Map:
		return len(v), true
	}
	return 0, false
}
