package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// Check reports what is wrong with a condition once its placeholders are known: undefined ones, and operands that
// cannot be right whatever the item.
func (c *Cond) Check(p Params) error {
	if err := c.refs.check(c.kind, p); err != nil {
		return err
	}
	if message := (checker{p}).condition(c.root); message != "" {
		return fail(c.kind, "%s", message)
	}
	return nil
}

// checker's methods are the message of the first thing that is wrong, empty if nothing is.
type checker struct{ params Params }

func (c checker) condition(x condition) string {
	switch x := x.(type) {
	case and:
		return first(c.condition(x.left), func() string { return c.condition(x.right) })
	case or:
		return first(c.condition(x.left), func() string { return c.condition(x.right) })
	case not:
		return c.condition(x.inner)
	case comparison:
		return c.comparison(x)
	case between:
		return first(c.operands(x.x, x.low, x.high), func() string { return c.between(x) })
	case in:
		return c.operands(append([]operand{x.x}, x.list...)...)
	case call:
		return c.call(x)
	}
	return ""
}

func first(message string, then func() string) string {
	if message != "" {
		return message
	}
	return then()
}

func (c checker) operands(list ...operand) string {
	for _, x := range list {
		if x, ok := x.(call); ok {
			if message := c.call(x); message != "" {
				return message
			}
		}
	}
	return ""
}

// literal is the kind of a value placeholder, or N for size; empty for paths.
func (c checker) literal(x operand) value.Kind {
	switch x := x.(type) {
	case valueRef:
		return c.params.Values[string(x)].Kind()
	case call:
		return value.KindNumber
	}
	return ""
}

func (c checker) comparison(x comparison) string {
	if message := c.operands(x.left, x.right); message != "" {
		return message
	}
	if message := c.distinct(x.op, x.left, x.right); message != "" {
		return message
	}
	if x.op == "=" || x.op == "<>" {
		return ""
	}
	for _, side := range []operand{x.left, x.right} {
		if kind := c.literal(side); kind != "" && !ordered(kind) {
			return wrongType(x.op, kind)
		}
	}
	return ""
}

func ordered(kind value.Kind) bool {
	return kind == value.KindString || kind == value.KindNumber || kind == value.KindBinary
}

func wrongType(name string, kind value.Kind) string {
	return fmt.Sprintf("Incorrect operand type for operator or function; operator or function: %s, operand type: %s", name, kind)
}

// distinct refuses to compare a path with itself.
func (c checker) distinct(op string, a, b operand) string {
	left, ok := a.(path)
	if !ok {
		return ""
	}
	right, ok := b.(path)
	if !ok {
		return ""
	}
	one, two := left.resolve(c.params), right.resolve(c.params)
	if !slices.Equal(one, two) {
		return ""
	}
	return fmt.Sprintf("The first operand must be distinct from the remaining operands for this operator or function; operator: %s, first operand: %s", op, one)
}

func (c checker) between(x between) string {
	for _, side := range []operand{x.x, x.low, x.high} {
		if kind := c.literal(side); kind != "" && !ordered(kind) {
			return wrongType("BETWEEN", kind)
		}
	}
	lowRef, ok := x.low.(valueRef)
	if !ok {
		return ""
	}
	highRef, ok := x.high.(valueRef)
	if !ok {
		return ""
	}
	low, high := c.params.Values[string(lowRef)], c.params.Values[string(highRef)]
	rule := ""
	if order, comparable := value.Compare(low, high); !comparable {
		rule = "same data type for lower and upper bounds"
	} else if order > 0 {
		rule = "upper bound to be greater than or equal to lower bound"
	}
	if rule == "" {
		return ""
	}
	return fmt.Sprintf("The BETWEEN operator requires %s; lower bound operand: AttributeValue: %s, upper bound operand: AttributeValue: %s", rule, show(low), show(high))
}

// show prints an ordered value as the service does: {S:text}.
func show(v value.Value) string {
	return fmt.Sprintf("{%s:%v}", v.Kind(), v)
}

func (c checker) call(x call) string {
	if len(x.args) == 2 {
		if message := c.distinct(x.function, x.args[0], x.args[1]); message != "" {
			return message
		}
	}
	if message := c.operands(x.args...); message != "" {
		return message
	}
	switch x.function {
	case "attribute_exists", "attribute_not_exists":
		if _, ok := x.args[0].(path); !ok {
			return "Operator or function requires a document path; operator or function: " + x.function
		}
	case "begins_with":
		for _, arg := range x.args {
			if kind := c.literal(arg); kind != "" && kind != value.KindString && kind != value.KindBinary {
				return wrongType(x.function, kind)
			}
		}
	case "size":
		switch kind := c.literal(x.args[0]); kind {
		case value.KindNumber, value.KindBool, value.KindNull:
			return wrongType(x.function, kind)
		}
	case "attribute_type":
		return c.attributeType(x.args[1])
	}
	return ""
}

var kindNames = []value.Kind{"B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M"}

func (c checker) attributeType(x operand) string {
	ref, ok := x.(valueRef)
	if !ok {
		return wrongType("attribute_type", "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}")
	}
	kind, ok := c.params.Values[string(ref)].(value.String)
	if !ok {
		return wrongType("attribute_type", c.literal(x))
	}
	if !slices.Contains(kindNames, value.Kind(kind)) {
		names := make([]string, len(kindNames))
		for i, k := range kindNames {
			names[i] = string(k)
		}
		return fmt.Sprintf("Invalid attribute type name found; type: %s, valid types: {%s}", kind, strings.Join(names, ","))
	}
	return ""
}
