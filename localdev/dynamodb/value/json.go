package value

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

// MaxDepth is how deeply lists and maps may nest.
const MaxDepth = 32

// Invalid is a well-formed value that DynamoDB refuses. Its text is the service's.
type Invalid string

func (e Invalid) Error() string { return string(e) }

// Errors of values that DynamoDB does not hold.
const (
	ErrEmptyValue      Invalid = "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
	ErrSeveralTypes    Invalid = "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes"
	ErrTooDeep         Invalid = "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit"
	ErrEmptyStringSet  Invalid = "One or more parameter values were invalid: An string set  may not be empty"
	ErrEmptyNumberSet  Invalid = "One or more parameter values were invalid: An number set  may not be empty"
	ErrEmptyBinarySet  Invalid = "One or more parameter values were invalid: Binary sets should not be empty"
	ErrEmptyMember     Invalid = "One or more parameter values were invalid: An string set may not have a empty string as a member"
	ErrEmptyBinary     Invalid = "One or more parameter values were invalid: Binary sets may not contain null or empty values"
	ErrNumberDuplicate Invalid = "Input collection contains duplicates"
)

// Read reads one attribute value, e.g. {"S": "text"}. Errors are *wire.Error for JSON of a wrong shape, Invalid for
// a value that is refused.
func Read(r *wire.Reader) (Value, error) { return read(r, 0) }

// ReadMap reads an item: an object of attribute values.
func ReadMap(r *wire.Reader) (Map, error) { return readMap(r, 0) }

// readMap reads the members of a map that lies depth lists and maps deep in an item.
func readMap(r *wire.Reader, depth int) (Map, error) {
	if depth > MaxDepth {
		return nil, ErrTooDeep
	}
	m := Map{}
	err := r.Object(func(name string) error {
		v, err := read(r, depth)
		if err == nil {
			m[name] = v
		}
		return err
	})
	return m, err
}

func read(r *wire.Reader, depth int) (Value, error) {
	var v Value
	err := r.Object(func(kind string) error {
		if r.Null() {
			return nil // as absent
		}
		if v != nil {
			return ErrSeveralTypes
		}
		var err error
		v, err = readKind(r, Kind(kind), depth)
		return err
	})
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, ErrEmptyValue
	}
	return v, nil
}

func readKind(r *wire.Reader, kind Kind, depth int) (Value, error) {
	switch kind {
	case KindString:
		s, err := r.String()
		return String(s), err
	case KindNumber:
		return readNumber(r)
	case KindBinary:
		return readBinary(r)
	case KindBool:
		b, err := r.Bool()
		return Bool(b), err
	case KindNull:
		_, err := r.Bool() // false is taken for true, as the service does
		return Null{}, err
	case KindStringSet:
		return readStringSet(r)
	case KindNumberSet:
		return readNumberSet(r)
	case KindBinarySet:
		return readBinarySet(r)
	case KindList:
		return readList(r, depth+1)
	case KindMap:
		return readMap(r, depth+1)
	}
	return nil, r.Skip()
}

func readList(r *wire.Reader, depth int) (Value, error) {
	if depth > MaxDepth {
		return nil, ErrTooDeep
	}
	list := List{}
	err := r.Array(func() error {
		v, err := read(r, depth)
		list = append(list, v)
		return err
	})
	return list, err
}

func readNumber(r *wire.Reader) (Number, error) {
	s, err := r.String()
	if err != nil {
		return Number{}, err
	}
	return ParseNumber(s)
}

func readBinary(r *wire.Reader) (Binary, error) {
	s, err := r.String()
	if err != nil {
		return "", err
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return "", r.Fail("expected Base64: %v", err)
	}
	return Binary(raw), nil
}

func readStringSet(r *wire.Reader) (Value, error) {
	var set StringSet
	err := r.Array(func() error {
		s, err := r.String()
		set = append(set, String(s))
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(set) == 0:
		return nil, ErrEmptyStringSet
	case slices.Contains(set, ""):
		return nil, ErrEmptyMember
	}
	sorted := slices.Sorted(slices.Values(set))
	if len(slices.Compact(sorted)) < len(set) {
		return nil, Invalid(fmt.Sprintf("One or more parameter values were invalid: Input collection %s contains duplicates.", list(set)))
	}
	return StringSet(sorted), nil
}

func readNumberSet(r *wire.Reader) (Value, error) {
	var set NumberSet
	err := r.Array(func() error {
		n, err := readNumber(r)
		set = append(set, n)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(set) == 0:
		return nil, ErrEmptyNumberSet
	}
	slices.SortFunc(set, Number.Compare)
	if len(slices.Compact(slices.Clone(set))) < len(set) {
		return nil, ErrNumberDuplicate
	}
	return set, nil
}

func readBinarySet(r *wire.Reader) (Value, error) {
	var set BinarySet
	err := r.Array(func() error {
		b, err := readBinary(r)
		set = append(set, b)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(set) == 0:
		return nil, ErrEmptyBinarySet
	case slices.Contains(set, ""):
		return nil, ErrEmptyBinary
	}
	slices.Sort(set)
	if len(slices.Compact(slices.Clone(set))) < len(set) {
		return nil, Invalid("One or more parameter values were invalid: Input collection of type BS contains duplicates.")
	}
	return set, nil
}

func list[T ~string](set []T) string {
	texts := make([]string, len(set))
	for i, s := range set {
		texts[i] = string(s)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// AppendJSON appends v as the API writes it. Members come in ascending order of their names, so that equal values
// have equal JSON.
func AppendJSON(b []byte, v Value) []byte {
	b = append(b, '{', '"')
	b = append(b, v.Kind()...)
	b = append(b, '"', ':')
	switch v := v.(type) {
	case String:
		b = wire.AppendString(b, string(v))
	case Number:
		b = appendNumber(b, v)
	case Binary:
		b = appendBinary(b, v)
	case Bool:
		b = strconv.AppendBool(b, bool(v))
	case Null:
		b = append(b, "true"...)
	case StringSet:
		b = appendList(b, v, func(b []byte, s String) []byte { return wire.AppendString(b, string(s)) })
	case NumberSet:
		b = appendList(b, v, appendNumber)
	case BinarySet:
		b = appendList(b, v, appendBinary)
	case List:
		b = appendList(b, v, AppendJSON)
	case Map:
		b = AppendMap(b, v)
	}
	return append(b, '}')
}

// AppendMap appends an item: an object of attribute values.
func AppendMap(b []byte, m Map) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(b, name)
		b = append(b, ':')
		b = AppendJSON(b, m[name])
	}
	return append(b, '}')
}

func appendList[T any](b []byte, list []T, appendOne func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendOne(b, e)
	}
	return append(b, ']')
}

func appendNumber(b []byte, n Number) []byte {
	return append(n.append(append(b, '"')), '"')
}

func appendBinary(b []byte, v Binary) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, []byte(v))
	return append(b, '"')
}
