package sim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/sdk"
)

// told is a history by hand: time goes on by a second with each thing that happens.
type told struct {
	*History
	at  Partition
	now time.Time
}

func newTold() *told {
	h := &told{at: Partition{"orders", 0}, now: time.Unix(1e9, 0)}
	h.History = NewHistory(func() time.Time {
		h.now = h.now.Add(time.Second)
		return h.now
	})
	return h
}

// tick is the next moment.
func (h *told) tick() time.Time { return h.History.now() }

// ok appends a value that is acknowledged; failed one that is not; open one of which nothing is told.
func (h *told) ok(value string, offset int64, with *Together) *Op {
	o := h.open(value, with)
	h.Tell(o, h.History.now(), offset, nil)
	return o
}

func (h *told) failed(value string, err error) *Op {
	o := h.open(value, nil)
	h.fail(o, err)
	return o
}

func (h *told) fail(o *Op, err error) {
	h.Tell(o, h.History.now(), 0, &sdk.DeliveryError{Topic: "orders", Err: err})
}

func (h *told) open(value string, with *Together) *Op {
	o := h.Invoke("w", h.at, value, with)
	h.Accept(o)
	return o
}

// Each check finds what it is for, and nothing where there is nothing.
func TestChecks(t *testing.T) {
	five := int64(5)
	for name, c := range map[string]struct {
		log  string // what is in the log, in order
		say  func(h *told)
		want string // of the first violation; empty: none
	}{
		"all well": {"a b c d", func(h *told) {
			h.ok("a", 0, nil)
			h.failed("x", sdk.ErrTimedOut)
			h.failed("b", sdk.ErrUnknown)
			h.failed("y", sdk.ErrUnknown)
			h.ok("c", 2, nil)
			h.ok("d", -1, nil) // it is there, and nobody could say where
			h.Read("r", h.at, 0, 0, "a")
		}, ""},
		"twice":                    {"a a", func(h *told) { h.ok("a", 1, nil) }, "twice"},
		"not sent":                 {"a", func(*told) {}, "nobody sent it"},
		"lost":                     {"", func(h *told) { h.ok("a", 0, nil) }, "not in the log"},
		"elsewhere":                {"a b", func(h *told) { h.ok("a", 0, nil); h.ok("b", 0, nil) }, "acknowledged at 0, is at 1"},
		"failed and there":         {"a", func(h *told) { h.failed("a", sdk.ErrTimedOut) }, "though its owner was told"},
		"never told":               {"a", func(h *told) { h.open("a", nil) }, "never told"},
		"never told, being dead":   {"a", func(h *told) { h.open("a", nil); h.Died("w") }, ""},
		"told twice":               {"a", func(h *told) { h.Tell(h.ok("a", 0, nil), h.now, 0, nil) }, "told twice"},
		"half of it":               {"a", func(h *told) { w := &Together{}; h.open("a", w); h.open("b", w); h.Died("w") }, "was to go with it"},
		"at another end":           {"a", func(h *told) { h.ok("a", 0, &Together{End: &five}) }, "only at 5"},
		"behind a later holder":    {"a b", func(h *told) { h.ok("a", 0, &Together{Token: 7}); h.ok("b", 1, &Together{Token: 6}) }, "behind records with token 7"},
		"a token that another has": {"", func(h *told) { h.Fence("w", h.at, 7); h.Fence("v", h.at, 7) }, "which w has"},
		"out of order":             {"b a", func(h *told) { h.ok("a", 1, nil); h.ok("b", 0, nil) }, "before"},
		"out of order, loosely":    {"b a", func(h *told) { h.ok("a", 1, &Together{Loose: true}); h.ok("b", 0, &Together{Loose: true}) }, ""},
		"after a failure": {"b", func(h *told) {
			a, b := h.open("a", nil), h.open("b", nil)
			h.fail(a, sdk.ErrTimedOut)
			h.Tell(b, h.now, 0, nil)
		}, "before an earlier one's failure was told"},
		"after an unknown": {"b", func(h *told) {
			a, b := h.open("a", nil), h.open("b", nil)
			h.fail(a, sdk.ErrUnknown)
			h.Tell(b, h.now, 0, nil)
		}, "before an earlier one's failure was told"},
		"a gap": {"a b", func(h *told) { h.ok("a", 0, nil); h.ok("b", 1, nil); h.Read("r", h.at, 0, 1, "b") }, "where 0 comes next"},
		"a repeat": {"a", func(h *told) {
			h.ok("a", 0, nil)
			h.Read("r", h.at, 0, 0, "a")
			h.Read("r", h.at, 1, 0, "a")
		}, "where 1 comes next"},
		"two truths":       {"a", func(h *told) { h.ok("a", 0, nil); h.Read("r", h.at, 0, 0, "a"); h.Read("s", h.at, 0, 0, "b") }, "another was given"},
		"not in the log":   {"a", func(h *told) { h.ok("a", 0, nil); h.Read("r", h.at, 1, 1, "b") }, "not in the log there"},
		"something unsaid": {"a", func(h *told) { h.ok("a", 0, nil); h.Bad(About{}, "%v", errors.New("boo")) }, "boo"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTold()
			c.say(h)
			log := NewLog(map[Partition][]string{h.at: strings.Fields(c.log)})
			for _, check := range Core {
				check(h.History, log)
			}
			v := h.Violations()
			if c.want == "" && len(v) > 0 || c.want != "" && (len(v) == 0 || !strings.Contains(v[0].What, c.want)) {
				t.Errorf("violations %v, want %q", v, c.want)
			}
		})
	}
}

// The story of a violation is what its process did with its partition, up to when it had happened, and not more lines than asked for.
func TestStory(t *testing.T) {
	h := newTold()
	h.note(About{By: "w"}, "cut off")
	h.Invoke("w", Partition{"orders", 1}, "elsewhere", nil)
	h.Invoke("v", h.at, "somebody else's", nil)
	a := h.ok("a", 3, nil)
	h.ok("later", 4, nil)
	h.BadOp(a, "it is not there")
	v := h.Violations()[0]
	if got := h.Story(v, 9); strings.Count(got, "\n") != 2 || !strings.Contains(got, "cut off") || !strings.HasSuffix(got, "told of a: offset 3") {
		t.Errorf("story:\n%s", got)
	}
	if got := h.Story(v, 1); strings.Count(got, "\n") != 1 || !strings.Contains(got, "…") {
		t.Errorf("story of one line:\n%s", got)
	}
	if got := h.Story(Violation{About: About{At: h.at}, step: 99}, 9); !strings.Contains(got, "somebody else's") || strings.Contains(got, "elsewhere") {
		t.Errorf("story of a partition:\n%s", got)
	}
}
