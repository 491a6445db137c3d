package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// coverage counts how often each operation was answered in which way, for each thing that a request can use or have
// wrong, by the engine's answers.
type coverage struct {
	used   map[cell]outcomes // row: what the request used
	errors map[cell]int      // row: what the answer meant
	faults map[cell]bool     // faults that were tried: each is to be met with its meaning
	total  int
}

type cell struct{ row, op string }

// outcomes of the requests of one cell: done, refused by a condition, refused as invalid.
type outcomes struct{ done, refused, invalid int }

func newCoverage() *coverage {
	return &coverage{used: map[cell]outcomes{}, errors: map[cell]int{}, faults: map[cell]bool{}}
}

func (c *coverage) note(r *request, a answer) {
	c.total++
	for _, part := range append([]*request{r}, r.parts...) {
		for _, feature := range part.used {
			at := cell{feature, r.op}
			o := c.used[at]
			switch {
			case a.code == "":
				o.done++
			case a.conditionFailed():
				o.refused++
			default:
				o.invalid++
			}
			c.used[at] = o
		}
		if part.fault != "" {
			c.faults[cell{part.fault, r.op}] = true
		}
	}
	for _, meaning := range a.meanings() {
		c.errors[cell{meaning, r.op}]++
	}
}

func (a answer) conditionFailed() bool {
	return a.code == "ConditionalCheckFailedException" || a.code == "TransactionCanceledException" && slices.Contains(a.meanings(), "condition failed")
}

// meanings of an answer: several if it is a cancelled transaction.
func (a answer) meanings() []string {
	switch a.code {
	case "":
		return nil
	case "ValidationException":
		return []string{a.meaning}
	case "ResourceNotFoundException":
		return []string{"no such table"}
	case "ConditionalCheckFailedException":
		return []string{"condition failed"}
	case "TransactionCanceledException":
		var out []string
		for field, reason := range a.fields {
			if strings.HasSuffix(field, "]") && reason != "None" {
				reason = strings.TrimPrefix(reason, "ValidationError: ")
				if reason == "ConditionalCheckFailed" {
					reason = "condition failed"
				}
				out = append(out, reason)
			}
		}
		return out
	}
	return []string{a.code}
}

func (c *coverage) merge(other *coverage) {
	for at, o := range other.used {
		mine := c.used[at]
		c.used[at] = outcomes{mine.done + o.done, mine.refused + o.refused, mine.invalid + o.invalid}
	}
	for at, n := range other.errors {
		c.errors[at] += n
	}
	maps.Copy(c.faults, other.faults)
	c.total += other.total
}

// conditional operations can be refused by a condition.
var conditional = []string{"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}

// itemDependent are meanings that come of the item that an update meets, not of the request.
var itemDependent = []string{"path not in the item", "operand not in the item", "operand's type in the item", "condition failed"}

// uncovered are the cells that a full run should have reached: each thing used was done, refused by a condition where
// there are conditions, and each fault was met with its meaning.
func (c *coverage) uncovered(without []string) []string {
	var out []string
	for at, o := range c.used {
		if strings.HasPrefix(at.row, "token for another") {
			continue // never done: that is the point
		}
		if o.done == 0 {
			out = append(out, fmt.Sprintf("%s with %s was never done", at.op, at.row))
		}
		if slices.Contains(conditional, at.op) && o.refused == 0 && !strings.HasPrefix(at.row, "path ") {
			out = append(out, fmt.Sprintf("%s with %s was never refused by a condition", at.op, at.row))
		}
	}
	for at := range c.faults {
		if c.errors[at] == 0 {
			out = append(out, fmt.Sprintf("%s was never answered %q", at.op, at.row))
		}
	}
	for _, meaning := range itemDependent {
		for _, op := range []string{"UpdateItem", "TransactWriteItems"} {
			if c.errors[cell{meaning, op}] == 0 && !slices.Contains(without, op) {
				out = append(out, fmt.Sprintf("%s was never answered %q", op, meaning))
			}
		}
	}
	return append(out, c.unwoven(without)...)
}

// unwoven: what the generator is able to make has to have been made.
func (c *coverage) unwoven(without []string) []string {
	var out []string
	for _, w := range weights {
		op, rows := w.op, []string{}
		switch op {
		case "UpdateItem", "TransactWriteItems":
			rows = append([]string{"SET", "REMOVE", "ADD", "DELETE", "+", "-", "if_not_exists", "list_append", "[index]", ".member", "#name"}, conditionRows...)
		case "PutItem", "DeleteItem", "Query", "Scan":
			rows = conditionRows
		}
		for _, row := range rows {
			if c.used[cell{row, op}] == (outcomes{}) && !slices.Contains(without, op) {
				out = append(out, fmt.Sprintf("%s was never sent with %s", op, row))
			}
		}
	}
	return out
}

var conditionRows = []string{"=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN", "AND", "OR", "NOT", "( )",
	"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains", "size"}

// String is two tables: what was used, as done/refused/invalid, and what the errors meant.
func (c *coverage) String() string {
	ops := each(weights, func(w struct {
		op     string
		weight int
	}) string {
		return w.op
	})
	short := strings.NewReplacer("Item", "", "Transact", "Tx", "Batch", "B", "UpdateTimeToLive", "TTL")
	var b strings.Builder
	table := func(title string, rows []string, ops []string, width int, show func(cell) string) {
		fmt.Fprintf(&b, "\n%-36s", title)
		for _, op := range ops {
			fmt.Fprintf(&b, " %*s", width, short.Replace(op))
		}
		for _, row := range rows {
			fmt.Fprintf(&b, "\n%-36s", row)
			for _, op := range ops {
				fmt.Fprintf(&b, " %*s", width, show(cell{row, op}))
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%d requests", c.total)
	table("used: done/refused/invalid", rowsOf(c.used), ops[:10], 14, func(at cell) string {
		if o, ok := c.used[at]; ok {
			return fmt.Sprintf("%d/%d/%d", o.done, o.refused, o.invalid)
		}
		return "·"
	})
	table("answered", rowsOf(c.errors), ops, 9, func(at cell) string {
		if n := c.errors[at]; n > 0 {
			return fmt.Sprint(n)
		}
		return "·"
	})
	return b.String()
}

func rowsOf[V any](m map[cell]V) []string {
	rows := map[string]bool{}
	for at := range m {
		rows[at.row] = true
	}
	return slices.Sorted(maps.Keys(rows))
}
