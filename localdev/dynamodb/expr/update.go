package expr

import (
	"slices"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// updateFunctions are the functions of updates with the number of their operands.
var updateFunctions = map[string]int{"if_not_exists": 2, "list_append": 2}

// verb is the section that an action stands in.
type verb string

const (
	set    verb = "SET"
	remove verb = "REMOVE"
	add    verb = "ADD"
	del    verb = "DELETE"
)

var verbs = []verb{set, remove, add, del}

// action is one change: SET path = operand, REMOVE path, ADD path :value, DELETE path :value.
type action struct {
	verb    verb
	path    path
	operand operand // nil for REMOVE
}

// arithmetic is left + right or left - right.
type arithmetic struct {
	op          string
	left, right operand
}

// Update is a parsed update.
type Update struct {
	actions []action
	refs    References
}

// References are the placeholders that the update uses.
func (u *Update) References() References { return u.refs }

// ParseUpdate parses an update.
func ParseUpdate(text string) (*Update, error) {
	parser, err := newParser(Updating, text)
	if err != nil {
		return nil, err
	}
	p := updateParser{parser: parser}
	for p.peek().kind != tokenEnd {
		if err := p.section(); err != nil {
			return nil, err
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return &Update{actions: p.actions, refs: p.refs}, nil
}

type updateParser struct {
	*parser
	actions []action
	seen    []verb
}

func (p *updateParser) section() error {
	i := slices.IndexFunc(verbs, func(v verb) bool { return p.accept(string(v)) })
	if i < 0 {
		return p.unexpected()
	}
	v := verbs[i]
	if slices.Contains(p.seen, v) {
		p.note(repeatedSection, "The \"%s\" section can only be used once in an update expression;", v)
	}
	p.seen = append(p.seen, v)
	for {
		if err := p.action(v); err != nil {
			return err
		}
		if !p.accept(",") {
			return nil
		}
	}
}

func (p *updateParser) action(v verb) error {
	path, err := p.path()
	if err != nil {
		return err
	}
	a := action{verb: v, path: path}
	switch v {
	case set:
		if err := p.expect("="); err != nil {
			return err
		}
		p.operators++
		a.operand, err = p.sum()
	case add, del:
		a.operand, err = p.valueRef()
	}
	p.actions = append(p.actions, a)
	return err
}

// sum reads an operand or an addition or subtraction of two, perhaps in parentheses.
func (p *updateParser) sum() (operand, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	t := p.peek()
	if !t.is("+") && !t.is("-") {
		return left, nil
	}
	p.pos++
	p.operators++
	right, err := p.operand()
	return arithmetic{op: t.text, left: left, right: right}, err
}

func (p *updateParser) operand() (operand, error) {
	if !p.accept("(") {
		return p.simpleOperand(updateFunctions, p.operand)
	}
	x, err := p.sum()
	if err != nil {
		return nil, err
	}
	return x, p.expect(")")
}

// Bound is an update whose placeholders are filled in.
type Bound struct {
	update *Update
	params Params
	root   *tree
}

// Bind fills in the placeholders and reports what cannot be right whatever the item.
func (u *Update) Bind(p Params) (*Bound, error) {
	if err := u.refs.check(Updating, p); err != nil {
		return nil, err
	}
	root := &tree{names: make(map[string]*tree, len(u.actions))}
	for i, a := range u.actions {
		if err := root.insert(Updating, a.path.resolve(p), i); err != nil {
			return nil, err
		}
	}
	for _, a := range u.actions {
		if err := checkAction(a, p); err != nil {
			return nil, err
		}
	}
	return &Bound{update: u, params: p, root: root}, nil
}

// Changes reports whether the update changes an attribute or something in it.
func (b *Bound) Changes(attribute string) bool { return b.root.names[attribute] != nil }

// Changed is the part of an item that the update's paths lead to.
func (b *Bound) Changed(item value.Map) value.Map { return b.root.keep(item) }

// Apply is the item after the update. Every right-hand side sees the item as it was.
func (b *Bound) Apply(item value.Map) (value.Map, error) {
	edits := make([]edit, len(b.update.actions))
	for i, a := range b.update.actions {
		var err error
		if edits[i], err = b.edit(a, item); err != nil {
			return nil, err
		}
	}
	return b.root.applyMap(item, edits)
}

var typeNames = map[value.Kind]string{
	value.KindString: "STRING", value.KindNumber: "NUMBER", value.KindBinary: "BINARY", value.KindNull: "NULL",
	value.KindBool: "BOOLEAN", value.KindList: "LIST", value.KindMap: "MAP",
}

// checkAction refuses operands whose type is known to be wrong before the item is seen.
func checkAction(a action, p Params) error {
	if a.verb == set {
		return checkOperand(a.operand, p)
	}
	ref, ok := a.operand.(valueRef)
	if !ok {
		return nil
	}
	kind := p.Values[string(ref)].Kind()
	if name, scalar := typeNames[kind]; scalar && (a.verb == del || kind != value.KindNumber) {
		return fail(Updating, "Incorrect operand type for operator or function; operator: %s, operand type: %s", a.verb, name)
	}
	return nil
}

func checkOperand(x operand, p Params) error {
	switch x := x.(type) {
	case arithmetic:
		return checkKinds(x.op, value.KindNumber, p, x.left, x.right)
	case call:
		if x.function == "list_append" {
			return checkKinds(x.function, value.KindList, p, x.args...)
		}
		if _, ok := x.args[0].(path); !ok {
			return fail(Updating, "Operator or function requires a document path; operator or function: %s", x.function)
		}
		return checkOperand(x.args[1], p)
	}
	return nil
}

func checkKinds(name string, want value.Kind, p Params, operands ...operand) error {
	for _, x := range operands {
		if ref, ok := x.(valueRef); ok {
			if kind := p.Values[string(ref)].Kind(); kind != want {
				return fail(Updating, "%s", wrongType(name, kind))
			}
		}
		if err := checkOperand(x, p); err != nil {
			return err
		}
	}
	return nil
}
