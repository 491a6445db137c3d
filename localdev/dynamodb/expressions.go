package dynamodb

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// maxCachedExpressions bounds the cache: 4 KB of text each at most.
const maxCachedExpressions = 2048

// maxParameters is how many bytes the placeholders of one request may stand for.
const maxParameters = 2 << 20

// expressions parses, and keeps what it parsed.
type expressions struct {
	mu     sync.Mutex
	parsed map[expressionKey]any
}

type expressionKey struct {
	kind expr.Kind
	text string
}

// cached is parse(text), from the cache if it is there. A full cache is emptied: what is in use comes back.
func cached[T any](e *expressions, kind expr.Kind, text string, parse func() (T, error)) (T, error) {
	key := expressionKey{kind, text}
	e.mu.Lock()
	hit, ok := e.parsed[key]
	e.mu.Unlock()
	if ok {
		return hit.(T), nil
	}
	parsed, err := parse()
	if err != nil {
		return parsed, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parsed == nil || len(e.parsed) >= maxCachedExpressions {
		e.parsed = map[expressionKey]any{}
	}
	e.parsed[key] = parsed
	return parsed, nil
}

// parsed are a request's expressions, each nil if it is not given.
type parsed struct {
	params       expr.Params
	condition    *expr.Cond
	filter       *expr.Cond
	keyCondition *expr.Cond
	update       *expr.Bound
	project      func(value.Map) value.Map
}

// parse parses those expressions of q that its operation knows, and refuses placeholders that are undefined or
// unused.
func (e *expressions) parse(q *request, kinds ...expr.Kind) (*parsed, error) {
	if err := q.refuseOld(kinds); err != nil {
		return nil, err
	}
	if err := q.checkPlaceholders(kinds); err != nil {
		return nil, err
	}
	p := &parsed{params: expr.Params{Names: q.names, Values: q.values}}
	used := usage{}
	for _, kind := range kinds {
		text := q.expression(kind)
		if text == nil {
			continue
		}
		if err := e.parseOne(p, kind, *text, used); err != nil {
			return nil, err
		}
	}
	return p, used.check(p.params)
}

func (e *expressions) parseOne(p *parsed, kind expr.Kind, text string, used usage) error {
	switch kind {
	case expr.Updating:
		u, err := cached(e, kind, text, func() (*expr.Update, error) { return expr.ParseUpdate(text) })
		if err != nil {
			return err
		}
		used.add(u.References())
		p.update, err = u.Bind(p.params)
		return err
	case expr.Projecting:
		projection, err := cached(e, kind, text, func() (*expr.Projection, error) { return expr.ParseProjection(text) })
		if err != nil {
			return err
		}
		used.add(projection.References())
		p.project, err = projection.Bind(p.params)
		return err
	}
	c, err := cached(e, kind, text, func() (*expr.Cond, error) { return expr.ParseCondition(kind, text) })
	if err != nil {
		return err
	}
	used.add(c.References())
	switch kind {
	case expr.Condition:
		p.condition = c
	case expr.Filter:
		p.filter = c
	case expr.KeyCondition:
		p.keyCondition = c
	}
	return c.Check(p.params)
}

func (q *request) expression(kind expr.Kind) *string {
	switch kind {
	case expr.Condition:
		return q.condition
	case expr.Filter:
		return q.filter
	case expr.KeyCondition:
		return q.keyCondition
	case expr.Updating:
		return q.update
	}
	return q.projection
}

func (q *request) refuseOld(kinds []expr.Kind) error {
	if len(q.old) == 0 {
		return nil
	}
	var given []string
	for _, kind := range kinds {
		if q.expression(kind) != nil {
			given = append(given, string(kind))
		}
	}
	if given == nil {
		return validation("This engine takes expressions only; it does not know the parameters {%s}", strings.Join(q.old, ", "))
	}
	return validation("Can not use both expression and non-expression parameters in the same request: Non-expression parameters: {%s} Expression parameters: {%s}",
		strings.Join(q.old, ", "), strings.Join(given, ", "))
}

// checkPlaceholders checks the placeholders for themselves.
func (q *request) checkPlaceholders(kinds []expr.Kind) error {
	if q.names == nil && q.values == nil {
		return nil
	}
	if !slices.ContainsFunc(kinds, func(k expr.Kind) bool { return q.expression(k) != nil }) {
		parameter := "ExpressionAttributeNames"
		if q.names == nil {
			parameter = "ExpressionAttributeValues"
		}
		return validation("%s can only be specified when using expressions%s", parameter, missing(kinds))
	}
	if q.names != nil && len(q.names) == 0 {
		return validation("ExpressionAttributeNames must not be empty")
	}
	if q.values != nil && len(q.values) == 0 {
		return validation("ExpressionAttributeValues must not be empty")
	}
	size := q.values.ItemSize()
	for key, name := range q.names {
		if !placeholder(key, '#') {
			return validation("ExpressionAttributeNames contains invalid key: Syntax error; key: \"%s\"", key)
		}
		if name == "" {
			return validation("ExpressionAttributeNames contains invalid value: Empty attribute name for key %s", key)
		}
		size += len(key) + len(name)
	}
	for key := range q.values {
		if !placeholder(key, ':') {
			return validation("ExpressionAttributeValues contains invalid key: Syntax error; key: \"%s\"", key)
		}
	}
	if size > maxParameters {
		return validation("ExpressionAttributeNames and ExpressionAttributeValues exceed the maximum size of %d bytes", maxParameters)
	}
	return nil
}

func missing(kinds []expr.Kind) string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind)
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return ": " + names[0] + " is null"
	}
	return ": " + strings.Join(names, " and ") + " are null"
}

func placeholder(key string, sign byte) bool {
	if len(key) < 2 || key[0] != sign {
		return false
	}
	for _, c := range []byte(key[1:]) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_') {
			return false
		}
	}
	return true
}

// usage is the set of placeholders that expressions use; the signs keep names and values apart.
type usage map[string]bool

func (u usage) add(refs expr.References) {
	for _, name := range refs.Names {
		u[name] = true
	}
	for _, name := range refs.Values {
		u[name] = true
	}
}

func (u usage) check(p expr.Params) error {
	if unused := unusedOf(u, p.Names); unused != nil {
		return validation("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", strings.Join(unused, ", "))
	}
	if unused := unusedOf(u, p.Values); unused != nil {
		return validation("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", strings.Join(unused, ", "))
	}
	return nil
}

func unusedOf[V any, M ~map[string]V](u usage, defined M) []string {
	var unused []string
	for name := range maps.Keys(defined) {
		if !u[name] {
			unused = append(unused, name)
		}
	}
	slices.Sort(unused)
	return unused
}
