package judge

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// entry is one way in which a judge differs from the engine: who is right, and the page of AWS that decides it. A
// difference falls under it if it meets everything that is given.
type entry struct {
	judge string
	name  string // what differs
	right string // "engine", or "open" where the page leaves it open
	page  string // below pages

	// field is the one that differs. For "outcome", engine and judged are the two outcomes.
	field          string
	engine, judged string
	// planted: what the engine answers is what the generator made wrong on purpose.
	planted bool
	ops     []string // one of these operations
	uses    []string // which uses one of these
	also    func(d *difference) bool

	// kills, instead of all this: the judge ends with such a request, so it is not sent.
	kills func(part *request) bool
}

const pages = "https://docs.aws.amazon.com/amazondynamodb/latest/"

func (e entry) title() string { return e.judge + ": " + e.name }

func (e entry) covers(d *difference) bool {
	if e.kills != nil || !whole(e.field).MatchString(d.field) {
		return false
	}
	if d.field == "outcome" && !(whole(e.engine).MatchString(d.engine) && whole(e.judged).MatchString(d.judged)) {
		return false
	}
	if e.planted && !slices.ContainsFunc(append([]*request{d.r}, d.r.parts...), func(p *request) bool { return p.fault == d.engineAnswer.meaning }) {
		return false
	}
	if e.ops != nil && !slices.Contains(e.ops, d.r.op) {
		return false
	}
	return (e.uses == nil || d.r.usesOneOf(e.uses)) && (e.also == nil || e.also(d))
}

var compiled = sync.OnceValue(func() *sync.Map { return &sync.Map{} })

// whole is a pattern for the whole of a text.
func whole(pattern string) *regexp.Regexp {
	if r, ok := compiled().Load(pattern); ok {
		return r.(*regexp.Regexp)
	}
	r := regexp.MustCompile("^(" + pattern + ")$")
	compiled().Store(pattern, r)
	return r
}

func (r *request) usesOneOf(features []string) bool {
	for _, part := range append([]*request{r}, r.parts...) {
		if slices.ContainsFunc(part.used, func(f string) bool { return slices.Contains(features, f) }) {
			return true
		}
	}
	return false
}

// invalid is the outcome of a request that is refused with one of the meanings.
func invalid(meanings ...string) string {
	return "ValidationException: (" + strings.Join(meanings, "|") + ")"
}

const (
	anyInvalid = "ValidationException: .*"
	// asIfRight are the outcomes of a request whose fault was not seen.
	asIfRight = "ok|ConditionalCheckFailedException|TransactionCanceledException|ResourceNotFoundException|" +
		"ValidationException: (path not in the item|operand not in the item|operand's type in the item)"
	crash = "transport"
	// runtimeFailure is a refusal that comes of the item that an update meets.
	runtimeFailure = "ValidationException: (path not in the item|operand not in the item|operand's type in the item)"
	// byCondition are the outcomes that a condition decides between, byItem those that the item decides between.
	byCondition = "ok|ConditionalCheckFailedException"
	byItem      = byCondition + "|" + runtimeFailure
)

var entries = slices.Concat(dynaliteEntries, motoEntries, dynoxideEntries)

// severalWrong: no page says which of several things that an update cannot do is told.
func severalWrong(judge string) entry {
	const any = `ValidationException: (path not in the item|operand not in the item|operand's type in the item|number precision|number overflow|key updated|updated item too large)`
	return entry{judge: judge, name: "of several things that an update cannot do, another one is told", right: "open", page: "APIReference/API_UpdateItem.html",
		field: `outcome|reasons\[\d+\]`, engine: any, judged: any, ops: []string{"UpdateItem", "TransactWriteItems"},
		also: func(d *difference) bool {
			return d.field == "outcome" || strings.HasPrefix(d.engine, "ValidationError") && strings.HasPrefix(d.judged, "ValidationError")
		}}
}

// sameNumbers: the two differ only in how numbers are written.
func sameNumbers(d *difference) bool { return plain(d.engine) == plain(d.judged) }

// nestedSet is a SET of a nested path to what another path leads to.
var nestedSet = regexp.MustCompile(`[\w#]+[.\[][^ =]* = (?:if_not_exists\()?[\w#.\[\]]+(?:[,)]|$| (?:REMOVE|ADD|DELETE))`)

// intoAnother: what a path leads to is set into a list or map, perhaps into itself. Judges that share it instead of
// copying it have a value then that contains itself.
func intoAnother(r *request) bool { return nestedSet.MatchString(r.update) }

func isSingle(table string) bool { return strings.HasSuffix(table, "-single") }

// hasFault: one of these is wrong on purpose.
func hasFault(faults ...string) func(d *difference) bool {
	return func(d *difference) bool {
		return slices.ContainsFunc(append([]*request{d.r}, d.r.parts...), func(p *request) bool { return slices.Contains(faults, p.fault) })
	}
}

// involves: one of the texts is in the request or in an item that it names. The items that a Query or Scan sees are not
// known here.
func involves(texts ...string) func(d *difference) bool {
	return func(d *difference) bool {
		all := d.before + d.r.String()
		return d.r.op == "Query" || d.r.op == "Scan" || slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(all, t) })
	}
}
