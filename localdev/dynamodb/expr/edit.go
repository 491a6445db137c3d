package expr

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// Errors that depend on the item an update meets. Their texts are the service's.
const (
	ErrInvalidPath      value.Invalid = "The document path provided in the update expression is invalid for update"
	ErrMissingAttribute value.Invalid = "The provided expression refers to an attribute that does not exist in the item"
	ErrOperandType      value.Invalid = "An operand in the update expression has an incorrect data type"
)

// edit evaluates one action against the item as it was.
func (b *Bound) edit(a action, item value.Map) (edit, error) {
	if a.verb == remove {
		return edit{remove: true}, nil
	}
	operand, err := b.value(a.operand, item)
	if err != nil {
		return edit{}, err
	}
	if a.verb == set {
		return edit{set: operand}, nil
	}
	old := a.path.in(item, b.params)
	if a.verb == add {
		sum, err := addTo(old, operand)
		return edit{set: sum}, err
	}
	return deleteFrom(old, operand)
}

// value evaluates the right-hand side of SET.
func (b *Bound) value(x operand, item value.Map) (value.Value, error) {
	switch x := x.(type) {
	case valueRef:
		return b.params.Values[string(x)], nil
	case path:
		v := x.in(item, b.params)
		if v == nil {
			return nil, ErrMissingAttribute
		}
		return v, nil
	case arithmetic:
		return b.arithmetic(x, item)
	}
	c := x.(call)
	if c.function == "if_not_exists" {
		if v := c.args[0].(path).in(item, b.params); v != nil {
			return v, nil
		}
		return b.value(c.args[1], item)
	}
	return b.listAppend(c, item)
}

func (b *Bound) arithmetic(x arithmetic, item value.Map) (value.Value, error) {
	left, right, err := both[value.Number](b, x.left, x.right, item)
	if err != nil {
		return nil, err
	}
	if x.op == "-" {
		right = right.Negate()
	}
	sum, err := left.Add(right)
	if err != nil {
		return nil, err
	}
	return sum, nil
}

func (b *Bound) listAppend(c call, item value.Map) (value.Value, error) {
	left, right, err := both[value.List](b, c.args[0], c.args[1], item)
	if err != nil {
		return nil, err
	}
	return slices.Concat(left, right), nil
}

// both evaluates two operands that must be of type T.
func both[T value.Value](b *Bound, x, y operand, item value.Map) (left, right T, err error) {
	v, err := b.value(x, item)
	if err != nil {
		return left, right, err
	}
	w, err := b.value(y, item)
	if err != nil {
		return left, right, err
	}
	left, ok := v.(T)
	if !ok {
		return left, right, ErrOperandType
	}
	if right, ok = w.(T); !ok {
		return left, right, ErrOperandType
	}
	return left, right, nil
}

// addTo adds a number to a number, or the members of a set to a set. What is missing is 0 or the empty set.
func addTo(old, operand value.Value) (value.Value, error) {
	if old == nil {
		return operand, nil
	}
	switch operand := operand.(type) {
	case value.Number:
		if old, ok := old.(value.Number); ok {
			sum, err := old.Add(operand)
			return sum, err
		}
	case value.StringSet:
		if old, ok := old.(value.StringSet); ok {
			return union(old, operand, cmp.Compare), nil
		}
	case value.BinarySet:
		if old, ok := old.(value.BinarySet); ok {
			return union(old, operand, cmp.Compare), nil
		}
	case value.NumberSet:
		if old, ok := old.(value.NumberSet); ok {
			return union(old, operand, value.Number.Compare), nil
		}
	}
	return nil, ErrOperandType
}

func union[S ~[]E, E comparable](a, b S, order func(x, y E) int) S {
	all := slices.Concat(a, b)
	slices.SortFunc(all, order)
	return slices.Compact(all)
}

// deleteFrom takes members out of a set; a set that would be empty is removed.
func deleteFrom(old, operand value.Value) (edit, error) {
	if old == nil {
		return edit{}, nil
	}
	switch operand := operand.(type) {
	case value.StringSet:
		if old, ok := old.(value.StringSet); ok {
			return without(old, operand), nil
		}
	case value.BinarySet:
		if old, ok := old.(value.BinarySet); ok {
			return without(old, operand), nil
		}
	case value.NumberSet:
		if old, ok := old.(value.NumberSet); ok {
			return without(old, operand), nil
		}
	}
	return edit{}, ErrOperandType
}

func without[S interface {
	~[]E
	value.Value
}, E comparable](set, members S) edit {
	left := slices.DeleteFunc(slices.Clone(set), func(e E) bool { return slices.Contains(members, e) })
	if len(left) == 0 {
		return edit{remove: true}
	}
	return edit{set: left}
}
