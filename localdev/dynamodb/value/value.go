// Package value holds DynamoDB's attribute values: their kinds, their exact numbers, their sizes as billed, their
// order as sort keys, and their JSON.
//
// Values are immutable: whoever changes one makes a new one and shares the rest.
package value

import (
	"slices"
	"strings"
)

// Value is one of String, Number, Binary, Bool, Null, StringSet, NumberSet, BinarySet, List and Map.
type Value interface {
	// Kind is the type's name in JSON.
	Kind() Kind
}

// Kind names a type as the API does: S, N, B, BOOL, NULL, SS, NS, BS, L, M.
type Kind string

// The kinds of values.
const (
	KindString    Kind = "S"
	KindNumber    Kind = "N"
	KindBinary    Kind = "B"
	KindBool      Kind = "BOOL"
	KindNull      Kind = "NULL"
	KindStringSet Kind = "SS"
	KindNumberSet Kind = "NS"
	KindBinarySet Kind = "BS"
	KindList      Kind = "L"
	KindMap       Kind = "M"
)

type (
	// String is UTF-8 text, possibly empty.
	String string
	// Binary is raw bytes, kept in a string so that they cannot change.
	Binary string
	// Bool is true or false.
	Bool bool
	// Null is the NULL value.
	Null struct{}
	// StringSet holds distinct strings in ascending order; never empty.
	StringSet []String
	// NumberSet holds distinct numbers in ascending order; never empty.
	NumberSet []Number
	// BinarySet holds distinct binaries in ascending order; never empty.
	BinarySet []Binary
	// List is an ordered list, possibly empty.
	List []Value
	// Map maps names to values, possibly empty. An item is a Map.
	Map map[string]Value
)

// Kind implements Value.
func (String) Kind() Kind    { return KindString }
func (Number) Kind() Kind    { return KindNumber }
func (Binary) Kind() Kind    { return KindBinary }
func (Bool) Kind() Kind      { return KindBool }
func (Null) Kind() Kind      { return KindNull }
func (StringSet) Kind() Kind { return KindStringSet }
func (NumberSet) Kind() Kind { return KindNumberSet }
func (BinarySet) Kind() Kind { return KindBinarySet }
func (List) Kind() Kind      { return KindList }
func (Map) Kind() Kind       { return KindMap }

// Equal reports whether two values are of one kind and the same. Sets are equal whatever order they came in.
func Equal(a, b Value) bool {
	switch a := a.(type) {
	case StringSet:
		b, ok := b.(StringSet)
		return ok && slices.Equal(a, b)
	case NumberSet:
		b, ok := b.(NumberSet)
		return ok && slices.Equal(a, b)
	case BinarySet:
		b, ok := b.(BinarySet)
		return ok && slices.Equal(a, b)
	case List:
		b, ok := b.(List)
		return ok && slices.EqualFunc(a, b, Equal)
	case Map:
		b, ok := b.(Map)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, v := range a {
			if w, ok := b[name]; !ok || !Equal(v, w) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case StringSet, NumberSet, BinarySet, List, Map:
		return false
	}
	return a == b
}

// Compare orders two values of one ordered kind: strings by their UTF-8 bytes, binaries by unsigned bytes, numbers
// by size. ok is false for different kinds and for kinds without order.
func Compare(a, b Value) (order int, ok bool) {
	switch a := a.(type) {
	case String:
		if b, ok := b.(String); ok {
			return strings.Compare(string(a), string(b)), true
		}
	case Binary:
		if b, ok := b.(Binary); ok {
			return strings.Compare(string(a), string(b)), true
		}
	case Number:
		if b, ok := b.(Number); ok {
			return a.Compare(b), true
		}
	}
	return 0, false
}

// TooDeep reports whether lists and maps nest deeper in an item than it may be stored.
func (m Map) TooDeep() bool {
	for _, v := range m {
		if tooDeep(v, 0) {
			return true
		}
	}
	return false
}

// tooDeep judges a value that lies within depth lists and maps.
func tooDeep(v Value, depth int) bool {
	deeper := func(v Value) bool { return tooDeep(v, depth+1) }
	switch v := v.(type) {
	case List:
		return depth == MaxDepth || slices.ContainsFunc(v, deeper)
	case Map:
		if depth == MaxDepth {
			return true
		}
		for _, e := range v {
			if deeper(e) {
				return true
			}
		}
	}
	return false
}
