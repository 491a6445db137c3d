// Package expr is DynamoDB's expression language: conditions (condition, filter and key condition), updates and
// projections. Parsing needs only the text, so that a parsed expression can be kept and shared; the placeholders
// are filled in when it is used.
//
// Parsed expressions are immutable and safe for concurrent use. Errors are *Error with the service's wording.
package expr

import (
	"fmt"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// Kind is the request parameter that an expression came in. It appears in error messages.
type Kind string

// The kinds of expressions.
const (
	Condition    Kind = "ConditionExpression"
	Filter       Kind = "FilterExpression"
	KeyCondition Kind = "KeyConditionExpression"
	Updating     Kind = "UpdateExpression"
	Projecting   Kind = "ProjectionExpression"
)

// Limits of one expression.
const (
	MaxLength    = 4096
	MaxOperators = 300
	MaxInList    = 100
)

// Error is an expression that is refused.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return "Invalid " + string(e.Kind) + ": " + e.Message }

func fail(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Params fill the placeholders: Names those with #, Values those with :.
type Params struct {
	Names  map[string]string
	Values value.Map
}

// References are the placeholders that occur in an expression, each once, in order of occurrence.
type References struct {
	Names  []string
	Values []string
}

// check fails if a placeholder is not defined.
func (r References) check(kind Kind, p Params) error {
	for _, name := range r.Names {
		if _, ok := p.Names[name]; !ok {
			return fail(kind, "An expression attribute name used in the document path is not defined; attribute name: %s", name)
		}
	}
	for _, name := range r.Values {
		if _, ok := p.Values[name]; !ok {
			return fail(kind, "An expression attribute value used in expression is not defined; attribute value: %s", name)
		}
	}
	return nil
}
