package retain_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// bucket is a bucket's rules.
type bucket struct {
	rules       store.Rules
	sets        int
	dropsAborts bool // and refuses rules that have nothing else, as MinIO does
	loses       bool // the last rule of each set
	err         error
}

func (b *bucket) Rules(context.Context) (*store.Rules, error) {
	return &store.Rules{List: slices.Clone(b.rules.List), Sizes: b.rules.Sizes}, b.err
}

func (b *bucket) SetRules(_ context.Context, r *store.Rules) error {
	b.sets++
	list := slices.Clone(r.List)
	for i := range list {
		if b.dropsAborts && list[i].Days == 0 && len(list[i].Moves) == 0 {
			return fmt.Errorf("%w: a rule without an action", store.ErrConfig)
		}
		if b.dropsAborts {
			list[i].Abort = 0
		}
		if list[i].Raw == "" {
			list[i].Raw = "as the service writes it"
		}
	}
	if b.loses {
		list = list[:len(list)-1]
	}
	b.rules = store.Rules{List: list, Sizes: r.Sizes}
	return nil
}

// ids are the ids of the rules, without the log's own.
func (b *bucket) ids(w *world) (ids []string) {
	for _, r := range b.rules.List {
		ids = append(ids, strings.TrimSuffix(r.ID, "-"+w.logID()))
	}
	slices.Sort(ids)
	return ids
}

func (w *world) logID() string {
	id, _, err := w.Table.Identity(w.ctx)
	check(w.t, err)
	return fmt.Sprintf("%x", id.Log)
}

func changes(r *retain.Report) (list []string) {
	for _, c := range r.Rules.Changes {
		switch {
		case c.Was == nil:
			list = append(list, "add "+strings.SplitN(c.Rule.ID, "-", 3)[1])
		case c.Rule == nil:
			list = append(list, "remove "+strings.SplitN(c.Was.ID, "-", 3)[1])
		default:
			list = append(list, "change "+strings.SplitN(c.Rule.ID, "-", 3)[1])
		}
	}
	return list
}

// prefixed is a world whose log has a prefix in its bucket.
type prefixed struct{ *world }

func (p prefixed) Identity(ctx context.Context) (metadata.Identity, bool, error) {
	id, ok, err := p.world.Identity(ctx)
	id.Prefix = "logs/one"
	return id, ok, err
}

// The rules are those of all classes that topics have had, deleted topics too; rules of others stay; a second run finds nothing to do; the preview says what the
// run does, and does nothing.
func TestRules(t *testing.T) {
	w := newWorld(t)
	w.create("week", 1, 1)
	w.create("kept", 1, 1, metadata.RetentionMs, "-1")
	w.create("hour", 1, 1, metadata.RetentionMs, ms(time.Hour))
	w.alter("hour", metadata.RetentionMs, ms(3*day+time.Hour))
	w.create("gone", 1, 1, metadata.RetentionMs, ms(90*day))
	check(t, topics.New(w.Table, w.env).Delete(w.ctx, "gone"))

	foreign := []store.Rule{
		{ID: "theirs", Prefix: "other/", Enabled: true, Days: 1, Raw: "theirs"},
		{ID: "varve-r7d-of-another-log", Prefix: "logs/two/r7d/", Enabled: true, Days: 8, Raw: "another's"},
	}
	b := &bucket{rules: store.Rules{List: slices.Clone(foreign), Sizes: "varies_by_storage_class"}}
	run := func(o retain.Options) *retain.Report {
		t.Helper()
		o.Env, o.Lifecycle = w.env, b
		r, err := retain.Run(w.ctx, prefixed{w}, o)
		check(t, err)
		return r
	}
	want := []string{"add keep", "add r1d", "add r4d", "add r7d", "add r90d"}
	if got := changes(run(retain.Options{DryRun: true})); !slices.Equal(got, want) || b.sets != 0 {
		t.Errorf("preview: %v, set %d times", got, b.sets)
	}
	if got := changes(run(retain.Options{})); !slices.Equal(got, want) || b.sets != 1 {
		t.Errorf("%v, set %d times", got, b.sets)
	}
	if !reflect.DeepEqual(b.rules.List[:2], foreign) || b.rules.Sizes != "varies_by_storage_class" {
		t.Errorf("rules of others: %+v", b.rules.List[:2])
	}
	for _, r := range b.rules.List[2:] {
		class, err := segment.ParseClass(strings.Split(r.ID, "-")[1])
		check(t, err)
		if r.Prefix != "logs/one/"+class.String()+"/" || r.Days != metadata.RuleDays(class) || r.Abort != 1 || !r.Enabled || r.ID != "varve-"+class.String()+"-"+w.logID() {
			t.Errorf("%+v", r)
		}
	}
	if got := changes(run(retain.Options{})); len(got) != 0 || b.sets != 1 {
		t.Errorf("again: %v, set %d times", got, b.sets)
	}
	// What somebody has changed about the log's own rules is put right; those of classes that no topic has any more stay.
	at := slices.IndexFunc(b.rules.List, func(r store.Rule) bool { return strings.HasPrefix(r.ID, "varve-r7d-"+w.logID()) })
	b.rules.List[at].Days = 3
	b.rules.List = append(b.rules.List, store.Rule{ID: "varve-r2d-" + w.logID(), Prefix: "logs/one/r2d/", Enabled: true, Days: 3, Abort: 1})
	if got := changes(run(retain.Options{})); !slices.Equal(got, []string{"change r7d"}) || b.sets != 2 {
		t.Errorf("%v, set %d times", got, b.sets)
	}
	if got := b.ids(w); !slices.Contains(got, "varve-r2d") || b.rules.List[at].Days != 8 {
		t.Errorf("%v", got)
	}
	if notes := run(retain.Options{}).Rules.Notes; len(notes) != 0 {
		t.Errorf("%v", notes)
	}
}

func TestRulesOfMoves(t *testing.T) {
	w := newWorld(t)
	w.create("kept", 1, 1, metadata.RetentionMs, "-1")
	b := &bucket{}
	moves := []store.Move{{Days: 30, To: "STANDARD_IA"}, {Days: 90, To: "GLACIER_IR"}}
	for _, c := range []struct {
		moves []store.Move
		want  []store.Move
		does  string
	}{
		{nil, nil, "[add keep]"},
		{moves, moves, "[add keep]"},
		{nil, moves, "[]"}, // what is not said leaves it as it is
		{moves[:1], moves[:1], "[change keep]"},
		{[]store.Move{}, nil, "[remove keep]"},
		{[]store.Move{}, nil, "[]"},
	} {
		r := w.mustRun(retain.Options{Lifecycle: b, Moves: c.moves})
		var got []store.Move
		for _, rule := range b.rules.List {
			if rule.Prefix == "keep/archive/" {
				got = rule.Moves
			}
		}
		if !slices.Equal(got, c.want) || fmt.Sprint(changes(r)) != c.does {
			t.Errorf("asked for %v: %v, by %v", c.moves, got, changes(r))
		}
	}
	for _, bad := range [][]store.Move{{{Days: 30, To: "GLACIER"}}, {{Days: 29, To: "STANDARD_IA"}}, {{Days: 60, To: "STANDARD_IA"}, {Days: 60, To: "GLACIER_IR"}}, {{To: "INTELLIGENT_TIERING"}}} {
		if _, err := w.run(retain.Options{Lifecycle: b, Moves: bad}); !errors.Is(err, metadata.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A store that keeps no rules against broken-off uploads, and refuses those that have nothing else, gets the others; the report says so, and nothing is set anew
// each time.
func TestRulesOfAStoreThatDropsAborts(t *testing.T) {
	w := newWorld(t)
	w.create("week", 1, 1)
	w.create("kept", 1, 1, metadata.RetentionMs, "-1")
	b := &bucket{dropsAborts: true}
	for round := range 2 {
		r := w.mustRun(retain.Options{Lifecycle: b})
		if len(r.Rules.Notes) != 1 || !strings.Contains(r.Rules.Notes[0], "uploads") {
			t.Errorf("round %d: notes %v", round, r.Rules.Notes)
		}
		if got := b.ids(w); !slices.Equal(got, []string{"varve-r7d"}) {
			t.Errorf("round %d: %v", round, got)
		}
		if got := changes(r); round > 0 && len(got) > 0 {
			t.Errorf("round %d: %v", round, got)
		}
	}
}

func TestRulesThatAreNotSet(t *testing.T) {
	w := newWorld(t)
	topic := w.create("week", 1, 1)
	w.commit(topic.Lanes[0], born, extent{0, 1, 10})
	w.now = born.Add(8 * day)
	full := &bucket{}
	for i := range store.MaxRules {
		full.rules.List = append(full.rules.List, store.Rule{ID: fmt.Sprint(i), Prefix: "other/"})
	}
	for name, c := range map[string]struct {
		bucket *bucket
		want   error
	}{
		"may not be read":   {&bucket{err: fmt.Errorf("%w: no", store.ErrDenied)}, store.ErrDenied},
		"are not kept":      {&bucket{loses: true}, store.ErrConfig},
		"would be too many": {full, store.ErrConfig},
	} {
		if _, err := w.run(retain.Options{Lifecycle: c.bucket}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.starts(topic)[0]; got != 1 {
			t.Errorf("%s: log start %d: expiry does not depend on it", name, got)
		}
	}
	if r := w.mustRun(retain.Options{}); r.Rules == nil || r.Rules.Supported {
		t.Errorf("a store without rules: %+v", r.Rules)
	}
}

// Rules of others that delete what the log promises to keep are told of.
func TestRulesOfOthersThatAreDangerous(t *testing.T) {
	w := newWorld(t)
	w.create("week", 1, 1)
	for _, c := range []struct {
		rule store.Rule
		want bool
	}{
		{store.Rule{Prefix: "", Enabled: true, Days: 365}, true},
		{store.Rule{Prefix: "logs/", Enabled: true, Days: 365}, true},
		{store.Rule{Prefix: "logs/one/", Enabled: true, Date: "2030-01-01T00:00:00Z"}, true},
		{store.Rule{Prefix: "logs/one/r7d/", Enabled: true, Days: 7}, true},
		{store.Rule{Prefix: "logs/one/r7d/intake/00", Enabled: true, Days: 7}, true},
		{store.Rule{Prefix: "logs/one/keep/", Enabled: true, Days: 3650}, true},
		{store.Rule{Prefix: "logs/one/r7", Enabled: true, Days: 8}, true}, // that is r70d's, too
		{store.Rule{Prefix: "logs/one/r7d/", Enabled: true, Days: 8}, false},
		{store.Rule{Prefix: "logs/one/", Days: 1}, false},
		{store.Rule{Prefix: "logs/one/", Enabled: true, Days: 1, Tagged: true}, false},
		{store.Rule{Prefix: "logs/one/", Enabled: true, Abort: 1}, false},
		{store.Rule{Prefix: "logs/on", Enabled: true, Days: 1}, true},
		{store.Rule{Prefix: "logs/one-more/", Enabled: true, Days: 1}, false},
		{store.Rule{Prefix: "logs/two/", Enabled: true, Days: 1}, false},
	} {
		c.rule.ID, c.rule.Raw = "theirs", "theirs"
		r, err := retain.Run(w.ctx, prefixed{w}, retain.Options{Env: w.env, DryRun: true, Lifecycle: &bucket{rules: store.Rules{List: []store.Rule{c.rule}}}})
		check(t, err)
		if got := len(r.Rules.Notes) > 0; got != c.want {
			t.Errorf("%+v: %v", c.rule, r.Rules.Notes)
		}
	}
}
