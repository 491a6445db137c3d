package retain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// abortAfter is the days after which the parts of an upload that was never completed are deleted. A writer in parts is done within the hour.
const abortAfter = 1

// readable are the storage classes whose objects are read at once. Those of the others have to be restored first, for which no reader waits.
var readable = map[string]int{ // with the least days that S3 takes
	"INTELLIGENT_TIERING": 1, "STANDARD_IA": 30, "ONEZONE_IA": 30, "GLACIER_IR": 1,
}

// CheckMoves refuses moves that a log must not ask for, as a *metadata.FieldError.
func CheckMoves(moves []store.Move) error {
	for i, m := range moves {
		least, ok := readable[m.To]
		switch {
		case !ok:
			return &metadata.FieldError{Field: "storage class", Value: m.To, Valid: "INTELLIGENT_TIERING, STANDARD_IA, ONEZONE_IA or GLACIER_IR: objects of the others have to be restored before they are read"}
		case m.Days < least || m.Days > segment.MaxClassDays:
			return &metadata.FieldError{Field: "days until " + m.To, Value: fmt.Sprint(m.Days), Valid: fmt.Sprintf("%d to %d", least, segment.MaxClassDays)}
		case i > 0 && m.Days <= moves[i-1].Days:
			return &metadata.FieldError{Field: "days until " + m.To, Value: fmt.Sprint(m.Days), Valid: fmt.Sprintf("more than the %d until %s", moves[i-1].Days, moves[i-1].To)}
		}
	}
	return nil
}

// place is where a log's objects are, and so what its rules are about.
type place struct {
	log    segment.LogID
	prefix string // in the bucket, "" for all of it
}

// root is what the log's keys begin with.
func (p place) root() string {
	if p.prefix == "" {
		return ""
	}
	return p.prefix + "/"
}

// folder is the prefix of a folder's keys. It ends with the separator, or the rule of r7d would be one for r7dx too.
func (p place) folder(path string) string { return p.root() + path + "/" }

// id is the id of the log's rule for a folder. The log's own id is in it, since two logs may share a bucket, whose rules have one name space.
func (p place) id(folder string) string { return fmt.Sprintf("varve-%s-%x", folder, p.log) }

// wanted are the rules of the classes, where Keep's only deletes what is left of uploads; and the rule of the moves for the archive of what is kept for ever,
// where small objects seldom are: nil leaves the moves that there are alone.
func (p place) wanted(classes []segment.Class, moves []store.Move) []store.Rule {
	rules := []store.Rule{}
	for _, c := range classes {
		rules = append(rules, store.Rule{ID: p.id(c.String()), Prefix: p.folder(c.String()), Enabled: true, Days: metadata.RuleDays(c), Abort: abortAfter})
	}
	if moves != nil {
		rules = append(rules, store.Rule{ID: p.id(archiveOfKeep), Prefix: p.folder(segment.Keep.String() + "/archive"), Enabled: len(moves) > 0, Moves: moves})
	}
	return rules
}

const archiveOfKeep = "keep-archive"

// RuleChange is a rule of the log that the bucket does not have as it should. Was is nil if it does not have it at all, Rule if it is to go.
type RuleChange struct {
	Was  *store.Rule `json:"was,omitempty"`
	Rule *store.Rule `json:"rule,omitempty"`
}

// rulesPlan is how the bucket's rules become as they should be.
type rulesPlan struct {
	Changes []RuleChange
	Result  *store.Rules // all rules of the bucket after them
	Notes   []string
}

// plan compares the bucket's rules with those that the log wants, by id. It adds and corrects; rules of others it leaves as they are, and rules of the log's
// own for classes that no topic has any more too: something may still come to lie there (an upload that is under way, an orphan), nothing there is ever to
// stay, and a rule that finds nothing costs nothing. Only moves are taken away, when none are wanted any more.
func (p place) plan(now *store.Rules, wanted []store.Rule) *rulesPlan {
	plan := &rulesPlan{Result: &store.Rules{List: slices.Clone(now.List), Sizes: now.Sizes}}
	ours := map[string]bool{}
	for i := range wanted {
		w := &wanted[i]
		ours[w.ID] = true
		at := slices.IndexFunc(plan.Result.List, func(r store.Rule) bool { return r.ID == w.ID })
		none := w.Days == 0 && w.Abort == 0 && len(w.Moves) == 0
		switch {
		case at < 0 && none:
		case at < 0:
			plan.Changes = append(plan.Changes, RuleChange{Rule: w})
			plan.Result.List = append(plan.Result.List, *w)
		case none:
			was := plan.Result.List[at]
			plan.Changes = append(plan.Changes, RuleChange{Was: &was})
			plan.Result.List = slices.Delete(plan.Result.List, at, at+1)
		default:
			was := plan.Result.List[at]
			same, dropped := compare(&was, w)
			if dropped {
				plan.note(keepsNoAborts)
			}
			if !same {
				plan.Changes = append(plan.Changes, RuleChange{Was: &was, Rule: w})
				plan.Result.List[at] = *w
			}
		}
	}
	for i := range now.List {
		if r := &now.List[i]; !ours[r.ID] {
			plan.note(p.dangers(r)...)
		}
	}
	return plan
}

// compare tells whether a rule is as wanted. One that only lacks what ends uploads is: a store that has dropped that once drops it again.
func compare(is, want *store.Rule) (same, dropped bool) {
	same = is.Prefix == want.Prefix && is.Enabled == want.Enabled && is.Days == want.Days && is.Date == want.Date && slices.Equal(is.Moves, want.Moves) && !is.Tagged && !is.More
	if same && is.Abort == 0 && want.Abort > 0 {
		return true, true
	}
	return same && is.Abort == want.Abort, false
}

// dangers says where a rule that is not the log's deletes what the log promises to keep.
func (p place) dangers(r *store.Rule) (notes []string) {
	if !r.Enabled || r.Tagged || r.Days == 0 && r.Date == "" || strings.HasPrefix(r.ID, "varve-") && strings.HasSuffix(r.ID, fmt.Sprintf("-%x", p.log)) {
		return nil
	}
	within := strings.HasPrefix(p.root(), r.Prefix)
	folder, below := strings.CutPrefix(r.Prefix, p.root())
	if !within && !below {
		return nil
	}
	class, err := segment.ParseClass(strings.SplitN(folder, "/", 2)[0])
	if !within && err == nil && class != segment.Keep && r.Date == "" && r.Days >= metadata.RuleDays(class) {
		return nil
	}
	when := fmt.Sprintf("after %d days", r.Days)
	if r.Date != "" {
		when = "at " + r.Date
	}
	return []string{fmt.Sprintf("rule %q of the bucket, which is not the log's, deletes what begins with %q %s, whatever the log promises", r.ID, r.Prefix, when)}
}

// apply makes the bucket's rules what is wanted, and reads them back. A store may refuse a rule that only ends uploads, as MinIO does; then it has to do that by
// itself, as MinIO does.
func (p place) apply(ctx context.Context, bucket store.Lifecycle, now *store.Rules, wanted []store.Rule) (*rulesPlan, error) {
	plan := p.plan(now, wanted)
	if len(plan.Changes) == 0 {
		return plan, nil
	}
	if n := len(plan.Result.List); n > store.MaxRules {
		return plan, fmt.Errorf("%w: the bucket would have %d lifecycle rules, and %d are possible: topics of fewer different retention times need fewer", store.ErrConfig, n, store.MaxRules)
	}
	err := bucket.SetRules(ctx, plan.Result)
	if errors.Is(err, store.ErrConfig) && slices.ContainsFunc(wanted, endsUploadsOnly) {
		wanted = slices.DeleteFunc(slices.Clone(wanted), endsUploadsOnly)
		if plan = p.plan(now, wanted); len(plan.Changes) > 0 {
			err = bucket.SetRules(ctx, plan.Result)
		} else {
			err = nil
		}
		plan.note(keepsNoAborts)
	}
	if err != nil {
		return plan, err
	}
	after, err := bucket.Rules(ctx)
	if err != nil {
		return plan, fmt.Errorf("the rules were set, and cannot be read back: %w", err)
	}
	again := p.plan(after, wanted)
	plan.note(again.Notes...)
	if len(again.Changes) > 0 {
		return plan, fmt.Errorf("%w: rule %s is not as it was set: the store has not kept all of it, or somebody else has set the bucket's rules at the same time", store.ErrConfig, again.Changes[0].name())
	}
	return plan, nil
}

const keepsNoAborts = "the store does not keep rules that delete the parts of broken-off uploads: it has to do so by itself"

func endsUploadsOnly(r store.Rule) bool { return r.Days == 0 && len(r.Moves) == 0 && r.Abort > 0 }

// note adds notes, each once.
func (plan *rulesPlan) note(notes ...string) {
	plan.Notes = slices.Compact(slices.Sorted(slices.Values(append(plan.Notes, notes...))))
}

func (c RuleChange) name() string {
	if c.Rule != nil {
		return c.Rule.ID
	}
	return c.Was.ID
}
