package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/sdk"
)

// Histories that one partition cannot have told are found, and such as it can have told are not.
func TestLinearizable(t *testing.T) {
	at := func(end int64) *Together { return &Together{End: &end} }
	under := func(token int64) *Together { return &Together{Token: token} }
	refused := func(h *told, with *Together, end, token int64) {
		h.Tell(h.open("refused", with), h.now, 0, &sdk.ConditionError{Topic: "orders", End: end, Token: token})
	}
	for name, c := range map[string]struct {
		log  string // what is in the log, in order
		say  func(h *told)
		want string // of the violation; empty: none
	}{
		"one after the other": {"a b", func(h *told) {
			h.ok("a", 0, nil)
			h.ReadEnd("r", h.at, h.tick(), 1)
			h.ok("b", 1, at(1))
			h.Read("r", h.at, 0, 0, "a")
			h.ReadEnd("r", h.at, h.tick(), 2)
		}, ""},
		"at the same time, in either order": {"b a", func(h *told) {
			a, b := h.open("a", nil), h.open("b", nil)
			h.Tell(a, h.tick(), 1, nil)
			h.Tell(b, h.tick(), 0, nil)
		}, ""},
		"of unknown outcome, later": {"b a", func(h *told) {
			h.fail(h.open("a", nil), sdk.ErrUnknown)
			h.ReadEnd("r", h.at, h.tick(), 0)
			h.ok("b", 0, nil)
			h.ReadEnd("r", h.at, h.tick(), 2)
		}, ""},
		"of unknown outcome, never": {"b", func(h *told) {
			h.fail(h.open("a", nil), sdk.ErrUnknown)
			h.ok("b", 0, nil)
		}, ""},
		"a refusal": {"a b", func(h *told) {
			h.ok("a", 0, nil)
			refused(h, at(0), 1, 0)
			h.ok("b", 1, nil)
		}, ""},
		"a fence": {"a", func(h *told) {
			h.SetsToken("w", h.at, 0, 7)()
			h.ok("a", 0, under(7))
			h.SetsToken("v", h.at, 7, 9) // nobody was told
			refused(h, under(7), 1, 9)
			h.ReadToken("v", h.at, h.tick(), 9)
		}, ""},

		"a lost append":                  {"b", func(h *told) { h.ok("a", 0, nil); h.ok("b", 0, nil) }, "appends b: at 0"},
		"a lost append, the last":        {"a", func(h *told) { h.ok("a", 0, nil); h.ok("b", 1, nil) }, "the log is read"},
		"a failed append":                {"a b", func(h *told) { h.ok("a", 0, nil); h.failed("b", sdk.ErrTimedOut) }, "the log is read"},
		"an offset twice":                {"a b", func(h *told) { h.ok("a", 0, nil); h.ok("b", 0, nil) }, "appends b: at 0"},
		"an end that was passed":         {"a b", func(h *told) { h.ok("a", 0, nil); h.ok("b", 1, at(0)) }, "appends b: at 1"},
		"an end that was passed, by one": {"a b c", func(h *told) { h.ok("a", 0, nil); h.ok("c", 2, at(2)); h.ok("b", 1, nil) }, "appends c: at 2"},
		"an end that goes back": {"a b", func(h *told) {
			h.fail(h.open("a", nil), sdk.ErrUnknown)
			h.ReadEnd("r", h.at, h.tick(), 1)
			h.ReadEnd("r", h.at, h.tick(), 0)
			h.ok("b", 1, nil)
		}, "reads the end: 0"},
		"an old end":              {"a", func(h *told) { h.ok("a", 0, nil); h.ReadEnd("r", h.at, h.tick(), 0) }, "reads the end: 0"},
		"an end that is to come":  {"a", func(h *told) { h.ReadEnd("r", h.at, h.tick(), 1); h.ok("a", 0, nil) }, "reads the end: 1"},
		"an end behind a reader":  {"a", func(h *told) { h.open("a", nil); h.Read("r", h.at, 0, 0, "a"); h.ReadEnd("r", h.at, h.tick(), 0) }, "reads the end: 0"},
		"a refusal without cause": {"a", func(h *told) { h.ok("a", 0, nil); refused(h, at(1), 1, 0) }, "refused"},
		"a refusal by an old end": {"a b", func(h *told) { h.ok("a", 0, nil); h.ok("b", 1, nil); refused(h, at(0), 1, 0) }, "refused"},
		"under an old token": {"a", func(h *told) {
			h.SetsToken("w", h.at, 0, 7)()
			h.SetsToken("v", h.at, 7, 9)()
			h.ok("a", 0, under(7))
		}, "appends a: at 0"},
		"a token taken twice": {"", func(h *told) { h.SetsToken("w", h.at, 0, 7)(); h.SetsToken("v", h.at, 0, 8)() }, ": it is"},
		"an old token":        {"", func(h *told) { h.SetsToken("w", h.at, 0, 7)(); h.ReadToken("v", h.at, h.tick(), 0) }, "reads the token: 0"},
		"half of it, elsewhere": {"a x b", func(h *told) {
			w := &Together{}
			a, b := h.open("a", w), h.open("b", w)
			h.ok("x", 1, nil)
			h.Tell(a, h.tick(), 0, nil)
			h.Tell(b, h.now, 2, nil)
		}, "appends"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTold()
			c.say(h)
			Linearizable(h.History, NewLog(map[Partition][]string{h.at: strings.Fields(c.log)}))
			v := h.Violations()
			if c.want == "" && len(v) > 0 || c.want != "" && (len(v) != 1 || !strings.Contains(v[0].What, c.want)) {
				t.Errorf("violations %v, want %q", v, c.want)
			}
			if h.Counts()["porcupine: undecided"] > 0 {
				t.Error("undecided")
			}
		})
	}
}

// A history that is long, and of which much is unknown, is decided within the time that there is for it.
func TestLinearizableInTime(t *testing.T) {
	h, values := newTold(), []string(nil)
	for i := range 2000 {
		value := strings.Repeat("x", i)
		if o := h.open(value, nil); i%3 > 0 {
			h.Tell(o, h.tick(), int64(len(values)), nil)
		} else {
			h.fail(o, sdk.ErrUnknown)
		}
		if i%6 > 0 {
			values = append(values, value)
		}
	}
	began := time.Now()
	Linearizable(h.History, NewLog(map[Partition][]string{h.at: values}))
	t.Log(time.Since(began), h.Counts())
	if len(h.Violations()) > 0 || h.Counts()["porcupine: linearizable records"] != 1 {
		t.Errorf("violations %v, counts %v", h.Violations(), h.Counts())
	}
}
