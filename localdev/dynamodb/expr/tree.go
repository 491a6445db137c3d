package expr

import (
	"maps"
	"slices"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// tree is a set of paths that do not overlap. A node is a leaf, or leads on by names or by indexes.
type tree struct {
	first  resolved // the first path that came by here
	leaf   bool
	action int // of a leaf: which path of the set it is
	names  map[string]*tree
	elems  map[int]*tree
}

// insert adds path as number action. Two paths overlap if one is the beginning of the other; they conflict if one
// takes for a map what the other takes for a list.
func (t *tree) insert(kind Kind, path resolved, action int) error {
	node := t
	for _, e := range path {
		if node.leaf {
			return clash(kind, "overlap", node.first, path)
		}
		if e.list && node.names != nil || !e.list && node.elems != nil {
			return clash(kind, "conflict", node.first, path)
		}
		node = node.child(e, path)
	}
	if node.leaf || node.names != nil || node.elems != nil {
		return clash(kind, "overlap", node.first, path)
	}
	node.leaf, node.action = true, action
	return nil
}

func clash(kind Kind, how string, one, two resolved) error {
	return fail(kind, "Two document paths %s with each other; must remove or rewrite one of these paths; path one: %s, path two: %s", how, one, two)
}

func (t *tree) child(e element, path resolved) *tree {
	if e.list {
		if t.elems == nil {
			t.elems = map[int]*tree{}
		}
		if t.elems[e.index] == nil {
			t.elems[e.index] = &tree{first: path}
		}
		return t.elems[e.index]
	}
	if t.names == nil {
		t.names = map[string]*tree{}
	}
	if t.names[e.name] == nil {
		t.names[e.name] = &tree{first: path}
	}
	return t.names[e.name]
}

// project keeps what the paths lead to: nil if that is nothing.
func (t *tree) project(v value.Value) value.Value {
	if t.leaf {
		return v
	}
	switch v := v.(type) {
	case value.Map:
		if t.names != nil {
			return t.projectMap(v)
		}
	case value.List:
		var out value.List
		for _, i := range slices.Sorted(maps.Keys(t.elems)) {
			if i < len(v) {
				if e := t.elems[i].project(v[i]); e != nil {
					out = append(out, e)
				}
			}
		}
		if out != nil {
			return out
		}
	}
	return nil
}

func (t *tree) projectMap(m value.Map) value.Value {
	out := value.Map{}
	for name, node := range t.names {
		if v, ok := m[name]; ok {
			if v = node.project(v); v != nil {
				out[name] = v
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// edit is what an action of an update does at its path.
type edit struct {
	set    value.Value // nil: nothing is set
	remove bool
}

// apply is v with the edits made; v itself stays as it was. Every path's parent must be there.
func (t *tree) apply(v value.Value, edits []edit) (value.Value, error) {
	switch v := v.(type) {
	case value.Map:
		if t.elems == nil {
			return t.applyMap(v, edits)
		}
	case value.List:
		if t.names == nil {
			return t.applyList(v, edits)
		}
	}
	return nil, ErrInvalidPath
}

func (t *tree) applyMap(m value.Map, edits []edit) (value.Map, error) {
	out := make(value.Map, len(m)+len(t.names))
	maps.Copy(out, m)
	for name, node := range t.names {
		if !node.leaf {
			v, err := node.apply(m[name], edits)
			if err != nil {
				return nil, err
			}
			out[name] = v
			continue
		}
		switch e := edits[node.action]; {
		case e.set != nil:
			out[name] = e.set
		case e.remove:
			delete(out, name)
		}
	}
	return out, nil
}

// applyList: all indexes are those of the list as it was. What is set past its end is appended in the order of the
// indexes, without holes.
func (t *tree) applyList(list value.List, edits []edit) (value.List, error) {
	out := slices.Clone(list)
	for _, i := range slices.Sorted(maps.Keys(t.elems)) {
		node := t.elems[i]
		switch inside := i < len(list); {
		case !node.leaf && !inside:
			return nil, ErrInvalidPath
		case !node.leaf:
			v, err := node.apply(list[i], edits)
			if err != nil {
				return nil, err
			}
			out[i] = v
		case edits[node.action].set != nil && inside:
			out[i] = edits[node.action].set
		case edits[node.action].set != nil:
			out = append(out, edits[node.action].set)
		case edits[node.action].remove && inside:
			out[i] = nil
		}
	}
	return slices.DeleteFunc(out, func(v value.Value) bool { return v == nil }), nil
}
