package expr

import "github.com/varvelog/varve/localdev/dynamodb/value"

// Projection is a parsed projection: a list of paths.
type Projection struct {
	paths []path
	refs  References
}

// References are the placeholders that the projection uses.
func (p *Projection) References() References { return p.refs }

// ParseProjection parses a projection.
func ParseProjection(text string) (*Projection, error) {
	p, err := newParser(Projecting, text)
	if err != nil {
		return nil, err
	}
	var paths []path
	for {
		path, err := p.path()
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
		if !p.accept(",") {
			break
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return &Projection{paths: paths, refs: p.refs}, nil
}

// Bind fills in the placeholders. The result keeps of an item what the paths lead to.
func (p *Projection) Bind(params Params) (func(value.Map) value.Map, error) {
	if err := p.refs.check(Projecting, params); err != nil {
		return nil, err
	}
	root, err := treeOf(Projecting, p.paths, params)
	if err != nil {
		return nil, err
	}
	return root.keep, nil
}

func treeOf(kind Kind, paths []path, params Params) (*tree, error) {
	root := &tree{}
	for i, path := range paths {
		if err := root.insert(kind, path.resolve(params), i); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// keep is the part of an item that the tree's paths lead to, empty if none.
func (t *tree) keep(item value.Map) value.Map {
	if out, ok := t.project(item).(value.Map); ok {
		return out
	}
	return value.Map{}
}
