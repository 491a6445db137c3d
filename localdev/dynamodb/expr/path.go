package expr

import (
	"strconv"
	"strings"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// path leads from an item to a value in it.
type path []step

// step is a member of a map, or an element of a list if name is empty.
type step struct {
	name  string // with its # if it is a placeholder
	index int
}

// resolve is the step's name in the item.
func (s step) resolve(p Params) string {
	if s.name[0] == '#' {
		return p.Names[s.name]
	}
	return s.name
}

// resolve replaces the placeholders by what they stand for. The result's names may begin with # and must not be
// resolved again.
func (path path) resolve(p Params) resolved {
	out := make(resolved, len(path))
	for i, s := range path {
		if s.name != "" {
			s.name = s.resolve(p)
			out[i] = element{name: s.name}
		} else {
			out[i] = element{index: s.index, list: true}
		}
	}
	return out
}

// in is the value that the path leads to, nil if there is none.
func (path path) in(item value.Map, p Params) value.Value {
	var v value.Value = item
	for _, s := range path {
		switch parent := v.(type) {
		case value.Map:
			if s.name == "" {
				return nil
			}
			v = parent[s.resolve(p)]
		case value.List:
			if s.name != "" || s.index >= len(parent) {
				return nil
			}
			v = parent[s.index]
		default:
			return nil
		}
	}
	return v
}

// resolved is a path whose placeholders have been replaced.
type resolved []element

type element struct {
	name  string
	index int
	list  bool
}

func (r resolved) String() string {
	parts := make([]string, len(r))
	for i, e := range r {
		if e.list {
			parts[i] = "[" + strconv.Itoa(e.index) + "]"
		} else {
			parts[i] = e.name
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
