package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/metadata"
)

// grouped is a history of one group on one partition by hand. What a line says happens at once, a second after the one before.
type grouped struct {
	*told
	s Share
}

func (h *grouped) fact(k FactKind, by string, f Fact) *Fact {
	f.Kind, f.By, f.Share, f.Timeout = k, by, h.s, 10*time.Second
	return h.Fact(f)
}

func lease(session string, epoch int64) metadata.Lease {
	return metadata.Lease{Session: metadata.SessionID(session), Epoch: epoch}
}

// takes is an acquisition, after a lease.
func (h *grouped) takes(by string, epoch int64, after metadata.Lease, committed int64) {
	h.fact(Took, by, Fact{Lease: lease(by, epoch), From: after, Offset: committed})
}

func (h *grouped) commits(by string, epoch, offset int64) *Fact {
	return h.fact(Committed, by, Fact{Lease: lease(by, epoch), Offset: offset})
}

func (h *grouped) finishes(by string, offsets ...int64) {
	for _, o := range offsets {
		h.fact(Finished, by, Fact{Offset: o})
	}
}

func (h *grouped) beats(by string) {
	h.Fact(Fact{Kind: Beat, By: by, Share: Share{Group: h.s.Group}, Lease: lease(by, 0)})
}

func (h *grouped) stands(by string, epoch, offset int64) {
	h.fact(Sampled, "", Fact{Lease: lease(by, epoch), Offset: offset})
}

func (h *grouped) resets(epoch, offset int64, known bool) {
	f := h.fact(WasReset, "r", Fact{Asked: h.History.now(), Lease: metadata.Lease{Epoch: epoch}, Offset: offset})
	if known {
		h.Settle(f)
	}
}

func (h *grouped) given(by string, offset int64, age time.Duration) {
	h.fact(Given, by, Fact{Offset: offset, Age: age})
}

// result is one of the input at that offset, in the log or not.
func (h *grouped) result(value string, input int64) {
	o := h.open(value, &Together{Loose: true})
	o.From = &Source{h.s, input}
}

// Each check of groups finds what it is for, and nothing where there is nothing.
func TestGroupChecks(t *testing.T) {
	none := metadata.Lease{}
	for name, c := range map[string]struct {
		log  string // what is in the partition of results
		say  func(h *grouped)
		want string // of the first violation; empty: none
	}{
		"all well": {"", func(h *grouped) {
			h.takes("a", 1, none, -1)
			h.commits("a", 1, 0)
			h.fact(Assigned, "a", Fact{})
			h.given("a", 0, time.Second)
			h.given("a", 1, time.Second)
			h.finishes("a", 0, 1)
			h.commits("a", 1, 2)
			h.fact(Lost, "a", Fact{})
			h.takes("b", 2, lease("", 1), 2)
			h.fact(Assigned, "b", Fact{})
			h.given("b", 2, 0)
			h.finishes("b", 2)
			h.commits("b", 2, 3)
			h.resets(3, 1, true)
			h.takes("b", 4, lease("", 3), 1)
			h.fact(Assigned, "b", Fact{})
			h.given("b", 1, 0)
			h.finishes("b", 1)
			h.commits("b", 4, 2)
			h.stands("b", 4, 2)
		}, ""},
		"commits after another has taken it": {"", func(h *grouped) {
			h.takes("a", 1, none, -1)
			h.takes("b", 2, lease("a", 1), -1)
			h.commits("a", 1, 0)
		}, "though the lease was of epoch 2 already"},
		"a commit that was asked for before": {"", func(h *grouped) {
			h.takes("a", 1, none, -1)
			asked := h.History.now()
			h.takes("b", 2, lease("a", 1), 0)
			h.fact(Committed, "a", Fact{Asked: asked, Told: h.History.now(), Lease: lease("a", 1)})
		}, ""},
		"a reset that is told late": {"", func(h *grouped) {
			h.takes("a", 1, none, -1)
			reset := h.fact(WasReset, "r", Fact{Asked: h.History.now(), Lease: metadata.Lease{Epoch: 2}})
			for range 3 {
				h.stands("a", 1, 0)
			}
			h.commits("a", 1, 0)
			h.Settle(reset)
		}, ""},
		"commits under another's lease": {"", func(h *grouped) {
			h.fact(Committed, "a", Fact{Lease: lease("a", 1), From: lease("b", 1)})
		}, "though the lease that stands is"},
		"two have one epoch":       {"", func(h *grouped) { h.takes("a", 1, none, -1); h.takes("b", 1, none, -1) }, "held by two sessions"},
		"commits after a reset":    {"", func(h *grouped) { h.takes("a", 1, none, -1); h.resets(2, 0, true); h.commits("a", 1, 0) }, "of epoch 2 already"},
		"commits if it is a reset": {"", func(h *grouped) { h.takes("a", 1, none, -1); h.resets(2, 0, false); h.commits("a", 1, 0) }, ""},
		"taken from the living":    {"", func(h *grouped) { h.beats("a"); h.takes("b", 2, lease("a", 1), -1); h.beats("a") }, "which lives"},
		"taken from the dead":      {"", func(h *grouped) { h.beats("a"); h.takes("b", 2, lease("a", 1), -1); h.beats("b") }, ""},
		"back within an epoch": {"", func(h *grouped) {
			h.finishes("a", 0, 1)
			h.commits("a", 1, 2)
			h.commits("a", 1, 1)
		}, "though 2 was committed before"},
		"back by the next": {"", func(h *grouped) {
			h.finishes("a", 0, 1)
			h.commits("a", 1, 2)
			h.takes("b", 2, lease("a", 1), 1)
		}, "though 2 was committed before"},
		"back by a reset that nobody knows of": {"", func(h *grouped) {
			h.finishes("a", 0, 1)
			h.commits("a", 1, 2)
			h.resets(2, 0, false)
			h.takes("b", 3, lease("", 2), 0)
		}, ""},
		"back by a reset that was none": {"", func(h *grouped) {
			h.finishes("a", 0, 1)
			h.commits("a", 1, 2)
			h.resets(2, 0, false)
			h.takes("b", 2, lease("a", 1), 0)
		}, "though 2 was committed before"},
		"one left out":             {"", func(h *grouped) { h.finishes("a", 0, 2); h.commits("a", 1, 3) }, "nobody has finished 1"},
		"finished later":           {"", func(h *grouped) { h.finishes("a", 0); h.commits("a", 1, 2); h.finishes("a", 1) }, "before all from 0 on were finished"},
		"stands and nobody has it": {"", func(h *grouped) { h.stands("a", 1, 1) }, "nobody has finished 0"},
		"not again after a reset": {"", func(h *grouped) {
			h.finishes("a", 0, 1)
			h.commits("a", 1, 2)
			h.resets(2, 0, true)
			h.finishes("a", 1)
			h.stands("a", 3, 2)
		}, "nobody has finished 0"},
		"reset forward": {"", func(h *grouped) { h.resets(1, 5, true); h.finishes("a", 5); h.stands("a", 2, 6) }, ""},
		"a result twice": {"x y", func(h *grouped) {
			h.result("x", 0)
			h.result("y", 0)
			h.finishes("a", 0)
			h.stands("a", 1, 1)
		}, "2 results"},
		"a result twice after a reset": {"x y", func(h *grouped) {
			h.result("x", 0)
			h.result("y", 0)
			h.finishes("a", 0)
			h.resets(2, 0, true)
			h.finishes("a", 0)
			h.stands("a", 2, 1)
		}, ""},
		"no result":           {"", func(h *grouped) { h.result("x", 0); h.finishes("a", 0); h.stands("a", 1, 1) }, "0 results"},
		"one result":          {"x", func(h *grouped) { h.result("x", 0); h.finishes("a", 0); h.stands("a", 1, 1) }, ""},
		"given without":       {"", func(h *grouped) { h.given("a", 0, 0) }, "never assigned"},
		"given when lost":     {"", func(h *grouped) { h.fact(Assigned, "a", Fact{}); h.fact(Lost, "a", Fact{}); h.given("a", 0, 0) }, "learnt that it lost it"},
		"given in doubt":      {"", func(h *grouped) { h.fact(Assigned, "a", Fact{}); h.given("a", 0, 5*time.Second) }, "5s after it sent its last confirmed heartbeat"},
		"given with a gap":    {"", func(h *grouped) { h.fact(Assigned, "a", Fact{}); h.given("a", 0, 0); h.given("a", 2, 0) }, "where 1 comes next"},
		"nobody's":            {"", func(h *grouped) { h.unowned(14, "b", "") }, "has had no owner for"},
		"nobody's, for short": {"", func(h *grouped) { h.unowned(10, "b", "") }, ""},
		"the dead's":          {"", func(h *grouped) { h.unowned(14, "b", "a") }, "has had no owner for"},
		"its owner's": {"", func(h *grouped) {
			for range 14 {
				h.unowned(1, "b", "a")
				h.moves("a")
			}
		}, ""},
		"nobody's, as others die":        {"", func(h *grouped) { h.unowned(9, "b", ""); h.moves("c"); h.unowned(4, "b", "") }, "has had no owner for"},
		"as its owner's last words come": {"", func(h *grouped) { h.unowned(9, "b", "a"); h.moves("a"); h.unowned(9, "b", "a") }, ""},
		"as it is taken for an instant":  {"", func(h *grouped) { h.unowned(9, "b", ""); h.takes("c", 2, lease("", 1), 0); h.unowned(9, "b", "") }, ""},
		"nobody's, as one comes":         {"", func(h *grouped) { h.unowned(9, "", ""); h.unowned(14, "b", "") }, "has had no owner for"},
		"nobody's, as one has just come": {"", func(h *grouped) { h.unowned(9, "", ""); h.unowned(9, "b", "") }, ""},
		"nobody lives":                   {"", func(h *grouped) { h.unowned(14, "", "") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &grouped{told: newTold(), s: Share{"g", Partition{"in", 0}}}
			c.say(h)
			log := NewLog(map[Partition][]string{h.at: strings.Fields(c.log)})
			for _, check := range Groups {
				check(h.History, log)
			}
			v := h.Violations()
			if c.want == "" && len(v) > 0 || c.want != "" && (len(v) == 0 || !strings.Contains(v[0].What, c.want)) {
				t.Errorf("violations %v, want %q", v, c.want)
			}
		})
	}
}

func (h *grouped) moves(by string) {
	h.Fact(Fact{Kind: Moved, Share: Share{Group: h.s.Group}, Lease: lease(by, 0)})
}

// unowned is so many samples, two seconds apart, of a partition whose lease is somebody's, while a member is well.
func (h *grouped) unowned(samples int, well, holder string) {
	for range samples {
		if well != "" {
			h.beats(well)
		} else {
			h.History.now()
		}
		h.stands(holder, 1, 0)
	}
	if well != "" {
		h.beats(well)
	}
}
