package dynamodb_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// model is a second, dumb implementation of one item: numbers by name and one list. nil is no item.
type model struct {
	numbers map[string]int
	list    []int // nil: no list
}

func (m *model) String() string {
	if m == nil {
		return ""
	}
	parts := []string{}
	for _, name := range slices.Sorted(maps.Keys(m.numbers)) {
		parts = append(parts, fmt.Sprintf("%s:%d", name, m.numbers[name]))
	}
	if m.list != nil {
		parts = append(parts, "l:["+strings.Trim(fmt.Sprint(m.list), "[]")+"]")
	}
	return strings.Join(append(parts, `pk:"p"`, `sk:"s"`), " ")
}

func (m *model) clone() *model {
	if m == nil {
		return &model{numbers: map[string]int{}}
	}
	return &model{numbers: maps.Clone(m.numbers), list: slices.Clone(m.list)}
}

// clause is one action of an update: its section, its text, and what it does to new, seeing old. It fails if the
// service would.
type clause struct {
	section, text string
	do            func(old, new *model) bool
}

// randomClauses picks actions on distinct attributes. k and :k are one random number.
func randomClauses(r *rand.Rand, k int) []clause {
	names := []string{"a", "b", "c", "d"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var out []clause
	for _, name := range names[:r.IntN(4)] {
		other := string("abcd"[r.IntN(4)])
		switch r.IntN(5) {
		case 0:
			out = append(out, clause{"SET", name + " = " + other + " + :k", func(old, new *model) bool {
				v, ok := old.numbers[other]
				new.numbers[name] = v + k
				return ok
			}})
		case 1:
			out = append(out, clause{"SET", name + " = if_not_exists(" + other + ", :k)", func(old, new *model) bool {
				v, ok := old.numbers[other]
				if !ok {
					v = k
				}
				new.numbers[name] = v
				return true
			}})
		case 2:
			out = append(out, clause{"ADD", name + " :k", func(old, new *model) bool {
				new.numbers[name] = old.numbers[name] + k
				return true
			}})
		default:
			out = append(out, clause{"REMOVE", name, func(_, new *model) bool {
				delete(new.numbers, name)
				return true
			}})
		}
	}
	return append(out, randomListClauses(r, k)...)
}

func randomListClauses(r *rand.Rand, k int) []clause {
	i, j := r.IntN(6), r.IntN(6)
	switch r.IntN(5) {
	case 0:
		return []clause{{"SET", "l = list_append(if_not_exists(l, :e), :l)", func(old, new *model) bool {
			new.list = append(append([]int{}, old.list...), k)
			return true
		}}}
	case 1: // set one element and remove another, both by their index before
		if i == j {
			return nil
		}
		return []clause{
			{"SET", fmt.Sprintf("l[%d] = :k", i), func(old, new *model) bool { return old.list != nil }},
			{"REMOVE", fmt.Sprintf("l[%d]", j), func(old, new *model) bool {
				if old.list == nil {
					return false
				}
				new.list = []int{}
				for at, v := range old.list {
					switch at {
					case i:
						new.list = append(new.list, k)
					case j:
					default:
						new.list = append(new.list, v)
					}
				}
				if i >= len(old.list) {
					new.list = append(new.list, k)
				}
				return true
			}},
		}
	}
	return nil
}

// update puts the clauses into sections.
func updateOf(clauses []clause) string {
	sections := map[string][]string{}
	for _, c := range clauses {
		sections[c.section] = append(sections[c.section], c.text)
	}
	var parts []string
	for section, texts := range sections {
		parts = append(parts, section+" "+strings.Join(texts, ", "))
	}
	return strings.Join(parts, " ")
}

// TestAgainstModel runs random puts, updates and deletes of one item, with and without conditions.
func TestAgainstModel(t *testing.T) {
	const seed = 11
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		r := rand.New(rand.NewPCG(seed, seed))
		var m *model
		applied, refused, failed := 0, 0, 0
		for step := range 800 {
			k := r.IntN(7) - 3
			clauses := randomClauses(r, k)
			next := m.clone()
			valid := true
			for _, c := range clauses {
				valid = c.do(m.clone(), next) && valid
			}
			in := &sdk.UpdateItemInput{TableName: table, Key: key("p", "s")}
			text := updateOf(clauses)
			if text != "" {
				in.UpdateExpression = &text
			}
			holds, condition := randomCondition(r, m, k)
			if condition != "" {
				in.ConditionExpression = &condition
			}
			all := attributes{":k": val(fmt.Sprint(k)), ":l": val(fmt.Sprintf("[%d]", k)), ":e": val("[]")}
			for name := range all {
				if !strings.Contains(text+condition, name) {
					delete(all, name)
				}
			}
			if len(all) > 0 {
				in.ExpressionAttributeValues = all
			}
			_, err := f.client.UpdateItem(f.ctx(), in)
			want := ""
			switch {
			case !holds:
				want = "ConditionalCheckFailedException"
				refused++
			case !valid:
				want = "ValidationException"
				failed++
			default:
				m = next
				applied++
			}
			if r.IntN(40) == 0 {
				_, _ = f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: table, Key: key("p", "s")})
				m = nil
			}
			if got := f.get("p", "s"); code(err) != want || got != m.String() {
				f.Fatalf("step %d: %s IF %s (k=%d): %v, want %q; item %s, want %s", step, text, condition, k, err, want, got, m)
			}
		}
		f.Logf("%d applied, %d refused, %d failed", applied, refused, failed)
		if applied < 200 || refused < 50 || failed < 50 {
			f.Error("the mix of outcomes is too thin")
		}
	})
}

func randomCondition(r *rand.Rand, m *model, k int) (holds bool, text string) {
	name := string("abcd"[r.IntN(4)])
	v, there := m.clone().numbers[name]
	switch r.IntN(6) {
	case 0:
		return there, "attribute_exists(" + name + ")"
	case 1:
		return !there || v <= k, "attribute_not_exists(" + name + ") OR " + name + " <= :k"
	case 2:
		return there && v != k, "attribute_exists(" + name + ") AND NOT " + name + " = :k"
	}
	return true, ""
}
