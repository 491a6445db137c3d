package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// step is a member of a map or, if name is empty, an element of a list.
type step struct {
	name  string
	index int
}

// path is a random path into an item. Most are an attribute; the rest lead into one that usually is a list or map.
func (g *generator) path() []step {
	p := []step{{name: pick(g.r, attributeNames)}}
	for range 2 {
		if g.r.IntN(3) == 0 {
			return p
		}
		kind := ""
		if len(p) == 1 {
			kind = usual[p[0].name]
		}
		switch {
		case kind == "L" || kind == "" && g.r.IntN(4) == 0:
			p = append(p, step{index: g.r.IntN(5)})
		case kind == "M" || kind == "" && g.r.IntN(4) == 0:
			p = append(p, step{name: pick(g.r, []string{"k1", "k2", "k3"})})
		case g.r.IntN(40) == 0:
			p = append(p, step{name: "k1"})
		default:
			return p
		}
	}
	return p
}

// write is the path as text.
func (g *generator) write(r *request, p []step) string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.name == "":
			r.use("[index]")
			fmt.Fprintf(&b, "[%d]", s.index)
		case i > 0:
			r.use(".member")
			b.WriteString("." + g.name(r, s.name))
		default:
			b.WriteString(g.name(r, s.name))
		}
	}
	return b.String()
}

func (g *generator) aPath(r *request) string { return g.write(r, g.path()) }

// kindOf is what a path usually leads to.
func kindOf(p []step) string {
	if len(p) == 1 {
		return usual[p[0].name]
	}
	return "N"
}

// clashes reports whether two paths may not be in one update or projection.
func clashes(p, q []step) bool {
	for i := range min(len(p), len(q)) {
		if (p[i].name == "") != (q[i].name == "") {
			return true
		}
		if p[i] != q[i] {
			return false
		}
	}
	return true
}

// paths are up to n paths that do not clash.
func (g *generator) paths(n int) [][]step {
	var out [][]step
	for range n {
		p := g.path()
		if !slices.ContainsFunc(out, func(q []step) bool { return clashes(p, q) }) {
			out = append(out, p)
		}
	}
	return out
}

// conditionOf is a condition about the attributes, depth levels of AND, OR and NOT deep.
func (g *generator) conditionOf(r *request, depth int) string {
	if depth > 0 {
		switch g.r.IntN(6) {
		case 0:
			r.use("AND")
			return g.conditionOf(r, depth-1) + " AND " + g.conditionOf(r, depth-1)
		case 1:
			r.use("OR")
			return g.conditionOf(r, depth-1) + " OR " + g.conditionOf(r, depth-1)
		case 2:
			r.use("NOT")
			return "NOT " + g.leaf(r)
		case 3:
			r.use("( )")
			return "NOT (" + g.leaf(r) + " AND " + g.leaf(r) + ")"
		}
	}
	return g.leaf(r)
}

var comparators = []string{"=", "<>", "<", "<=", ">", ">="}

// leaf is a condition without AND, OR and NOT.
func (g *generator) leaf(r *request) string {
	p := g.path()
	switch g.r.IntN(12) {
	case 0, 1, 2, 3:
		return g.comparison(r, p)
	case 4:
		r.use("BETWEEN")
		low, high := g.bounds(g.orderedKind(p))
		return g.write(r, p) + " BETWEEN " + r.bind(low) + " AND " + r.bind(high)
	case 5:
		r.use("IN")
		list := make([]string, 1+g.r.IntN(4))
		for i := range list {
			list[i] = r.bind(g.likely(p))
		}
		return g.write(r, p) + " IN (" + strings.Join(list, ", ") + ")"
	case 6:
		r.use("attribute_exists")
		return "attribute_exists(" + g.write(r, p) + ")"
	case 7:
		r.use("attribute_not_exists")
		return "attribute_not_exists(" + g.write(r, p) + ")"
	case 8:
		r.use("attribute_type")
		kind := kindOf(p)
		if g.r.IntN(2) == 0 {
			kind = pick(g.r, kinds)
		}
		return "attribute_type(" + g.write(r, p) + ", " + r.bind(text(kind)) + ")"
	case 9:
		r.use("begins_with")
		name, kind := pick(g.r, []string{"t1", "t2", "b1", "da-sh"}), "S"
		if name == "b1" {
			kind = "B"
		}
		return "begins_with(" + g.name(r, name) + ", " + r.bind(g.value(kind, 0)) + ")"
	case 10:
		return g.contains(r)
	}
	r.use("size")
	return "size(" + g.write(r, p) + ") " + pick(g.r, comparators) + " " + r.bind(number(fmt.Sprint(g.r.IntN(4))))
}

func (g *generator) comparison(r *request, p []step) string {
	op := pick(g.r, comparators)
	r.use(op)
	if g.r.IntN(5) == 0 {
		q := g.path()
		if !slices.Equal(p, q) {
			r.use("path " + op + " path")
			return g.write(r, p) + " " + op + " " + g.write(r, q)
		}
	}
	v := g.likely(p)
	if op != "=" && op != "<>" {
		v = g.value(g.orderedKind(p), 0)
	}
	if g.r.IntN(6) == 0 {
		return r.bind(v) + " " + op + " " + g.write(r, p)
	}
	return g.write(r, p) + " " + op + " " + r.bind(v)
}

func (g *generator) contains(r *request) string {
	r.use("contains")
	name := pick(g.r, []string{"t1", "t2", "b1", "s1", "s2", "s3", "l1", "l2", "m1", "n1"})
	kind := map[string]string{"S": "S", "B": "B", "SS": "S", "NS": "N", "BS": "B", "L": "N"}[usual[name]]
	if kind == "" || g.r.IntN(6) == 0 {
		kind = pick(g.r, kinds)
	}
	return "contains(" + g.name(r, name) + ", " + r.bind(g.value(kind, 1)) + ")"
}

// likely is a value that may equal what the path leads to.
func (g *generator) likely(p []step) types.AttributeValue {
	if kind := kindOf(p); kind != "" && g.r.IntN(8) > 0 {
		return g.value(kind, 1)
	}
	return g.value(pick(g.r, kinds), 1)
}

func (g *generator) orderedKind(p []step) string {
	if kind := kindOf(p); kind == "S" || kind == "B" || kind == "N" {
		return kind
	}
	return pick(g.r, []string{"S", "N", "B"})
}

// bounds are two values of a kind, the lower one first.
func (g *generator) bounds(kind string) (low, high types.AttributeValue) {
	switch kind {
	case "N":
		return number(pick(g.r, []string{"-15", "-1", "0", "1"})), number(pick(g.r, []string{"1", "1.5", "5", "100"}))
	case "B":
		return binary(pick(g.r, []string{"", "\x00", "a"})), binary(pick(g.r, []string{"a", "ab", "\xff"}))
	}
	return text(pick(g.r, []string{"10", "Z", "a"})), text(pick(g.r, []string{"ab", "b", "é"}))
}

// updateOf is an update of up to five paths. Its sections come in random order.
func (g *generator) updateOf(r *request) string {
	sections := map[string][]string{}
	for _, p := range g.paths(1 + g.r.IntN(5)) {
		verb, text := g.action(r, p)
		r.use(verb)
		sections[verb] = append(sections[verb], text)
	}
	order := []string{"SET", "REMOVE", "ADD", "DELETE"}
	g.r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var out []string
	for _, verb := range order {
		if len(sections[verb]) > 0 {
			out = append(out, verb+" "+strings.Join(sections[verb], ", "))
		}
	}
	return strings.Join(out, " ")
}

// action is one action at the path that its usual kind allows.
func (g *generator) action(r *request, p []step) (verb, text string) {
	kind := kindOf(p)
	isSet := kind == "SS" || kind == "NS" || kind == "BS"
	switch {
	case g.r.IntN(6) == 0:
		return "REMOVE", g.write(r, p)
	case isSet && g.r.IntN(3) == 0:
		return "DELETE", g.write(r, p) + " " + r.bind(g.set(kind))
	case (isSet || kind == "N") && g.r.IntN(3) == 0:
		return "ADD", g.write(r, p) + " " + r.bind(g.value(kind, 0))
	}
	return "SET", g.write(r, p) + " = " + g.operand(r, p)
}

// operand is the right side of a SET.
func (g *generator) operand(r *request, p []step) string {
	switch kind := kindOf(p); {
	case kind == "N" && g.r.IntN(2) == 0:
		return g.arithmetic(r, p)
	case kind == "L" && g.r.IntN(2) == 0:
		return g.listAppend(r, p)
	}
	switch g.r.IntN(6) {
	case 0:
		r.use("SET path = path")
		return g.aPath(r)
	case 1:
		r.use("if_not_exists")
		return "if_not_exists(" + g.aPath(r) + ", " + r.bind(g.likely(p)) + ")"
	case 2:
		r.use("if_not_exists")
		return "if_not_exists(" + g.aPath(r) + ", " + g.write(r, p) + ")"
	}
	return r.bind(g.likely(p))
}

func (g *generator) arithmetic(r *request, p []step) string {
	op := pick(g.r, []string{"+", "-"})
	r.use(op)
	other := func() string {
		return g.write(r, []step{{name: pick(g.r, []string{"n1", "n2", "n3", "size", "a.b"})}})
	}
	n := func() string { return r.bind(number(g.number())) }
	switch g.r.IntN(5) {
	case 0:
		return g.write(r, p) + " " + op + " " + n()
	case 1:
		return n() + " " + op + " " + other()
	case 2:
		return other() + " " + op + " " + other()
	case 3:
		return n() + " " + op + " " + n()
	}
	r.use("if_not_exists")
	return "if_not_exists(" + other() + ", " + n() + ") " + op + " " + n()
}

func (g *generator) listAppend(r *request, p []step) string {
	r.use("list_append")
	list := r.bind(g.value("L", 1))
	switch g.r.IntN(4) {
	case 0:
		return "list_append(" + g.write(r, p) + ", " + list + ")"
	case 1:
		return "list_append(" + list + ", " + g.write(r, p) + ")"
	case 2:
		return "list_append(" + list + ", " + r.bind(g.value("L", 1)) + ")"
	}
	r.use("if_not_exists")
	return "list_append(if_not_exists(" + g.write(r, p) + ", " + r.bind(&types.AttributeValueMemberL{Value: []types.AttributeValue{}}) + "), " + list + ")"
}

// project gives the request a projection, which may name the key.
func (g *generator) project(r *request) {
	paths := each(g.paths(1+g.r.IntN(4)), func(p []step) string { return g.write(r, p) })
	if g.r.IntN(3) == 0 {
		paths = append(paths, g.name(r, "pk"))
	}
	r.use("projection")
	r.projection = strings.Join(paths, ", ")
}
