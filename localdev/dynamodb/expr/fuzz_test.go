package expr

import (
	"testing"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// FuzzExpressions: no text makes the parser, the checks or the evaluation panic, parsing is bounded by the limits,
// and an update leaves the item that it was given as it was.
func FuzzExpressions(f *testing.F) {
	for _, seed := range []string{
		"SET #a=g, g=g+:n ADD p0 :n, p1 :n REMOVE l[1], l[2] DELETE s :s", "SET m.a.b[3]=list_append(if_not_exists(l, :l), :l)",
		"attribute_not_exists(#a) AND (g < :n OR NOT size(l) BETWEEN :n AND :n) AND g IN (:n, l)", "((a)) = :n", "a, b.c[2], #a",
		"begins_with(t, :t) AND contains(s, :t) AND attribute_type(t, :t)", "pk = :t AND sk BETWEEN :t AND :t", "NOT NOT NOT a", "", "[", "SET", "a.b..c", "a[99999999999999999999]",
	} {
		f.Add(seed)
	}
	set := value.StringSet{"a", "b"}
	params := Params{
		Names:  map[string]string{"#a": "a", "#b": "l", "#c": "#a"},
		Values: value.Map{":n": value.Int(1), ":t": value.String("S"), ":l": value.List{value.Int(7)}, ":s": set},
	}
	newItem := func() value.Map {
		return value.Map{"g": value.Int(5), "t": value.String("text"), "s": set, "l": value.List{value.Int(1), value.List{}, value.Map{"a": value.Null{}}}, "m": value.Map{"a": value.Map{}}}
	}
	f.Fuzz(func(t *testing.T, text string) {
		item := newItem()
		if u, err := ParseUpdate(text); err == nil {
			if len(text) > MaxLength {
				t.Fatal("longer than the limit")
			}
			if bound, err := u.Bind(params); err == nil {
				_, _ = bound.Apply(item)
				bound.Changed(item)
			}
		}
		if p, err := ParseProjection(text); err == nil {
			if project, err := p.Bind(params); err == nil {
				project(item)
			}
		}
		for _, kind := range []Kind{Condition, KeyCondition} {
			if c, err := ParseCondition(kind, text); err == nil && c.Check(params) == nil {
				c.Eval(item, params)
				c.Eval(nil, params)
				c.Attributes(params)
				_, _ = c.KeyTerms(params)
			}
		}
		if !value.Equal(item, newItem()) {
			t.Fatalf("%q changed its item to %v", text, item)
		}
	})
}
