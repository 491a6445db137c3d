package judge

import (
	"fmt"
	"math/rand/v2"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The attributes of items have a usual kind, so that most updates and conditions fit what they meet. Three names can
// only be written as placeholders.
var usual = map[string]string{
	"n1": "N", "n2": "N", "n3": "N", "t1": "S", "t2": "S", "b1": "B", "x1": "BOOL", "l1": "L", "l2": "L", "m1": "M", "m2": "M",
	"s1": "SS", "s2": "NS", "s3": "BS", "size": "N", "a.b": "N", "da-sh": "S",
}

var (
	attributeNames = []string{"n1", "n1", "n2", "n3", "t1", "t2", "b1", "x1", "l1", "l2", "m1", "m2", "s1", "s2", "s3", "size", "a.b", "da-sh"}
	kinds          = []string{"S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"}
	texts          = []string{"", "a", "ab", "abc", "b", "ba", "é", "Z", "10", "9"}
	binaries       = []string{"", "a", "ab", "\x00", "\xff", "\xff\xff"}
	numbers        = []string{"0", "1", "-1", "2", "3", "5", "10", "100", "1.5", "-0.5", "-15", "7", "-3", "0.1", "0.3"}
	// The notations of one number, and the ends of the range.
	oddNumbers = []string{"1E2", "1.0", "0.10", "+5", "-0", "1e-3", "123456789012345678901234567890.12345678",
		"99999999999999999999999999999999999999", "1e-130", "-1E-130", "9.9e125", "-9.9E125"}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func (g *generator) number() string {
	if g.r.IntN(25) == 0 {
		return pick(g.r, oddNumbers)
	}
	return pick(g.r, numbers)
}

// value is a value of the kind; depth bounds lists and maps.
func (g *generator) value(kind string, depth int) types.AttributeValue {
	switch kind {
	case "S":
		return text(pick(g.r, texts))
	case "N":
		return number(g.number())
	case "B":
		return binary(pick(g.r, binaries))
	case "BOOL":
		return &types.AttributeValueMemberBOOL{Value: g.r.IntN(2) == 0}
	case "NULL":
		return &types.AttributeValueMemberNULL{Value: true}
	case "L":
		list := []types.AttributeValue{}
		for range g.r.IntN(4) {
			list = append(list, g.nested(depth))
		}
		return &types.AttributeValueMemberL{Value: list}
	case "M":
		m := attributes{}
		for _, name := range []string{"k1", "k2", "k3"} {
			if g.r.IntN(3) > 0 {
				m[name] = g.nested(depth)
			}
		}
		return &types.AttributeValueMemberM{Value: m}
	}
	return g.set(kind)
}

// nested is a value within a list or map.
func (g *generator) nested(depth int) types.AttributeValue {
	if depth <= 0 || g.r.IntN(2) == 0 {
		return number(g.number())
	}
	return g.value(pick(g.r, kinds), depth-1)
}

func (g *generator) set(kind string) types.AttributeValue {
	n := 1 + g.r.IntN(3)
	from := g.r.IntN(3)
	switch kind {
	case "NS":
		return &types.AttributeValueMemberNS{Value: append([]string{}, []string{"1", "2", "3", "10", "-1.5"}[from:from+min(n, 2)+1]...)}
	case "BS":
		return &types.AttributeValueMemberBS{Value: append([][]byte{}, [][]byte{[]byte("a"), []byte("b"), {0}, {255}, []byte("ab")}[from:from+n]...)}
	}
	return &types.AttributeValueMemberSS{Value: append([]string{}, []string{"a", "b", "ab", "c", "é"}[from:from+n]...)}
}

// usualValue is most often of the attribute's usual kind.
func (g *generator) usualValue(name string) types.AttributeValue {
	kind := usual[name]
	if kind == "" || g.r.IntN(12) == 0 {
		kind = pick(g.r, kinds)
	}
	return g.value(kind, 2)
}

// keyValue is one of the few values that keys have, so that requests meet items.
func (g *generator) keyValue(kind types.ScalarAttributeType, partition bool) types.AttributeValue {
	n := 5
	if partition {
		n = 2
	}
	i := g.r.IntN(n)
	switch kind {
	case types.ScalarAttributeTypeN:
		return number([]string{"1", "-15", "-1.5", "0", "100"}[i])
	case types.ScalarAttributeTypeB:
		return binary([]string{"a", "\xff\xff", "\xff", "\x00", "ab"}[i])
	}
	return text([]string{"a", "b", "ab", "Z", "é"}[i])
}

func (g *generator) key(s schema) attributes {
	key := attributes{"pk": g.keyValue(s.partition, true)}
	if s.sort != "" {
		key["sk"] = g.keyValue(s.sort, false)
	}
	return key
}

func (g *generator) item(s schema) attributes {
	item := g.key(s)
	for range 2 + g.r.IntN(7) {
		name := pick(g.r, attributeNames)
		item[name] = g.usualValue(name)
	}
	return item
}

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func number(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
func binary(s string) types.AttributeValue { return &types.AttributeValueMemberB{Value: []byte(s)} }

// nestedList is a list in a list and so on, levels deep.
func nestedList(levels int) types.AttributeValue {
	v := &types.AttributeValueMemberL{Value: []types.AttributeValue{}}
	for range levels - 1 {
		v = &types.AttributeValueMemberL{Value: []types.AttributeValue{v}}
	}
	return v
}

func (r *request) use(features ...string) { r.used = append(r.used, features...) }

// bind makes a placeholder for a value; equal placeholders are not shared.
func (r *request) bind(v types.AttributeValue) string {
	if r.values == nil {
		r.values = attributes{}
	}
	name := fmt.Sprintf(":v%d", len(r.values))
	r.values[name] = v
	return name
}

// name writes a name: as it is, or as a placeholder where it has to be or by chance.
func (g *generator) name(r *request, name string) string {
	mustHide := name == "size" || name == "a.b" || name == "da-sh"
	if !mustHide && g.r.IntN(6) > 0 {
		return name
	}
	r.use("#name")
	if r.names == nil {
		r.names = map[string]string{}
	}
	for placeholder, other := range r.names {
		if other == name {
			return placeholder
		}
	}
	placeholder := fmt.Sprintf("#n%d", len(r.names))
	r.names[placeholder] = name
	return placeholder
}
