package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/metadata"
)

// registered is a history by hand of what a group has committed for one partition.
type registered struct{ *told }

const inLane = metadata.LaneID("in")

// slot0 is an image of the lane.
func slot0(l metadata.Lease, offset int64) *metadata.GroupLane {
	image := metadata.NewGroupLane(inLane)
	image.Slots[0] = metadata.Committed{Lease: l, Offset: offset}
	return image
}

// answer is how a request was answered.
type answer func(h *registered, r *groupRequest)

// ok is success at once, with the image.
func ok(l metadata.Lease, offset int64) answer {
	return func(h *registered, r *groupRequest) {
		r.sent.applied.Add(1)
		r.sent.possibly.Add(1)
		h.tellsGroup(r, nil, slot0(l, offset))
	}
}

// stepped is success of a transaction, which shows nothing.
func stepped(h *registered, r *groupRequest) {
	r.sent.applied.Add(1)
	r.sent.possibly.Add(1)
	h.tellsGroup(r, nil)
}

// refusedBy is a refusal of the only attempt; refusedLater one after an attempt whose answer was lost.
func refusedBy(l metadata.Lease, offset int64) answer {
	return func(h *registered, r *groupRequest) { h.tellsGroup(r, metadata.ErrChanged, slot0(l, offset)) }
}

func refusedLater(l metadata.Lease, offset int64) answer {
	return func(h *registered, r *groupRequest) {
		r.sent.possibly.Add(1)
		refusedBy(l, offset)(h, r)
	}
}

// settled is success that an image shows after an answer was lost.
func settled(l metadata.Lease, offset int64) answer {
	return func(h *registered, r *groupRequest) {
		r.sent.possibly.Add(1)
		h.tellsGroup(r, nil, slot0(l, offset))
	}
}

// lostAnswer is none that arrives, notDone one that says that nothing was done, dies one that nobody takes.
func lostAnswer(h *registered, r *groupRequest) {
	r.sent.possibly.Add(1)
	h.tellsGroup(r, metadata.ErrUnavailable)
}
func notDone(h *registered, r *groupRequest) { h.tellsGroup(r, metadata.ErrThrottled) }
func dies(*registered, *groupRequest)        {}

func (h *registered) asks(c change, a answer) { a(h, h.open(c)) }

func (h *registered) open(c change) *groupRequest {
	return h.asksGroup("m", "g", []change{c})
}

func (h *registered) takes(from, to metadata.Lease, a answer) {
	h.asks(leaseChange(inLane, metadata.LeaseChange{From: from, To: to}), a)
}

func commitOf(l metadata.Lease, offset int64) change {
	return offsetCommit(inLane, metadata.OffsetCommit{Lease: l, Offset: offset})
}

func firstCommitOf(l metadata.Lease, offset int64) change {
	return offsetCommit(inLane, metadata.OffsetCommit{Lease: l, First: true, Offset: offset})
}

func moveOf(l metadata.Lease, from, to int64) change {
	return offsetMove(inLane, metadata.OffsetMove{Lease: l, From: from, To: to})
}

func (h *registered) resets(from metadata.Lease, offset, to int64, a answer) {
	h.asks(offsetReset(inLane, metadata.OffsetReset{From: metadata.Committed{Lease: from, Offset: offset}, Offset: to}), a)
}

// shows is a strong read.
func (h *registered) shows(l metadata.Lease, offset int64) {
	h.showsGroup("r", "g", h.tick(), []*metadata.GroupLane{slot0(l, offset)})
}

// Histories that no register of commits can have told are found, and such as it can have told are not.
func TestLinearizableCommits(t *testing.T) {
	none, a, b := metadata.Lease{}, lease("a", 1), lease("b", 2)
	released, reset := lease("", 1), lease("", 2)
	begin := func(h *registered, offset int64) { // a has committed this
		h.takes(none, a, ok(a, metadata.NoOffset))
		h.asks(firstCommitOf(a, offset), ok(a, offset))
	}
	for name, c := range map[string]struct {
		say  func(h *registered)
		want string // of the violation; empty: none
	}{
		"one after the other": {func(h *registered) {
			h.showsGroup("r", "g", h.tick(), nil)
			begin(h, 3)
			h.asks(commitOf(a, 5), ok(a, 5))
			h.asks(commitOf(a, 5), ok(a, 5))
			h.asks(moveOf(a, 5, 6), ok(a, 6))
			h.asks(commitOf(a, 4), refusedBy(a, 6))
			h.takes(a, released, ok(released, 6))
			h.takes(released, b, ok(b, 6))
			h.asks(commitOf(a, 7), refusedBy(b, 6))
			h.resets(b, 6, 2, ok(lease("", 3), 2))
			h.shows(lease("", 3), 2)
		}, ""},
		"at the same time, in either order": {func(h *registered) {
			begin(h, 3)
			one, other := h.open(commitOf(a, 5)), h.open(commitOf(a, 4))
			ok(a, 5)(h, one)
			ok(a, 4)(h, other)
			h.shows(a, 5)
		}, ""},
		"of unknown outcome, later": {func(h *registered) {
			begin(h, 3)
			h.asks(commitOf(a, 5), lostAnswer)
			h.shows(a, 3)
			h.shows(a, 5)
		}, ""},
		"of unknown outcome, never": {func(h *registered) {
			begin(h, 3)
			h.asks(commitOf(a, 5), lostAnswer)
			h.asks(commitOf(a, 6), dies)
			h.resets(a, 3, 0, lostAnswer)
			h.takes(a, b, lostAnswer)
			h.shows(a, 3)
		}, ""},
		"of unknown outcome, behind a lease": {func(h *registered) {
			begin(h, 3)
			h.takes(a, b, lostAnswer)
			h.asks(commitOf(a, 5), refusedBy(b, 3))
			h.asks(commitOf(b, 5), ok(b, 5))
		}, ""},
		"of unknown outcome, seen by what goes on from there": {func(h *registered) {
			begin(h, 3)
			h.asks(commitOf(a, 5), lostAnswer)
			h.asks(moveOf(a, 5, 6), stepped)
		}, ""},
		"the first, of unknown outcome, seen by what comes after it": {func(h *registered) {
			h.takes(none, a, ok(a, metadata.NoOffset))
			h.asks(firstCommitOf(a, 3), lostAnswer)
			h.asks(commitOf(a, 5), ok(a, 5))
		}, ""},
		"refused by what it has done itself": {func(h *registered) {
			begin(h, 3)
			r := h.open(commitOf(a, 5))
			h.asks(commitOf(a, 6), ok(a, 6))
			refusedLater(a, 6)(h, r)
			h.takes(a, b, settled(b, 6))
			h.asks(commitOf(b, 7), settled(b, 7))
		}, ""},
		"settled by an earlier request for the same": {func(h *registered) {
			begin(h, 3)
			h.takes(a, b, lostAnswer)
			h.shows(b, 3)
			h.takes(a, b, settled(b, 3))
		}, ""},
		"applied, and settled by a later image": {func(h *registered) {
			begin(h, 3)
			r := h.open(leaseChange(inLane, metadata.LeaseChange{From: a, To: b}))
			r.sent.applied.Add(1)
			h.asks(commitOf(b, 5), ok(b, 5))
			r.sent.possibly.Add(2)
			h.tellsGroup(r, nil, slot0(b, 5))
		}, ""},
		"a transaction that is sent again": {func(h *registered) {
			begin(h, 3)
			lostAnswer(h, h.asksStep("m", "g", "token", []change{moveOf(a, 3, 5)}))
			h.shows(a, 5)
			stepped(h, h.asksStep("m", "g", "token", []change{moveOf(a, 3, 5)}))
			h.shows(a, 5)
		}, ""},
		"a transaction that is throttled, sent again, and never answered": {func(h *registered) {
			begin(h, 3)
			notDone(h, h.asksStep("m", "g", "token", []change{moveOf(a, 3, 5)}))
			h.asksStep("m", "g", "token", []change{moveOf(a, 3, 5)})
			h.shows(a, 5)
		}, ""},

		"a lost commit":          {func(h *registered) { begin(h, 3); h.asks(commitOf(a, 5), ok(a, 5)); h.shows(a, 3) }, "is shown offset 3"},
		"a lost commit, at once": {func(h *registered) { begin(h, 3); h.asks(commitOf(a, 5), ok(a, 3)) }, "commits 5"},
		"a lost commit, for the next": {func(h *registered) {
			begin(h, 3)
			h.asks(commitOf(a, 5), ok(a, 5))
			h.takes(a, b, ok(b, 3))
		}, "is shown offset 3"},
		"a lost commit, after doubt": {func(h *registered) { begin(h, 3); h.asks(commitOf(a, 5), settled(a, 5)); h.shows(a, 3) }, "is shown offset 3"},
		"a lost commit, that was doubtful and acknowledged": {func(h *registered) {
			begin(h, 3)
			h.asks(commitOf(a, 5), settled(a, 3))
			h.takes(a, b, ok(b, 3))
		}, "is shown offset 3"},
		"a commit that goes back":     {func(h *registered) { begin(h, 3); h.asks(commitOf(a, 2), ok(a, 2)) }, "commits 2"},
		"a first commit that is none": {func(h *registered) { begin(h, 3); h.asks(firstCommitOf(a, 5), ok(a, 5)) }, "commits 5"},
		"a first commit that says it is none": {func(h *registered) {
			h.takes(none, a, ok(a, metadata.NoOffset))
			h.asks(commitOf(a, 5), ok(a, 5))
		}, "commits 5"},
		"a move from elsewhere":     {func(h *registered) { begin(h, 3); h.asks(moveOf(a, 2, 5), ok(a, 5)) }, "commits 5"},
		"a stale read":              {func(h *registered) { begin(h, 3); h.showsGroup("r", "g", h.tick(), nil) }, "is shown offset -1"},
		"a read of what is to come": {func(h *registered) { begin(h, 3); h.shows(a, 5); h.asks(commitOf(a, 5), ok(a, 5)) }, "is shown offset 5"},
		"unknown, then seen, then gone": {func(h *registered) {
			begin(h, 3)
			h.asks(commitOf(a, 5), lostAnswer)
			h.shows(a, 5)
			h.shows(a, 3)
		}, "is shown offset 3"},
		"refused and applied":   {func(h *registered) { begin(h, 3); h.asks(commitOf(a, 2), refusedBy(a, 3)); h.shows(a, 2) }, "is shown offset 2"},
		"throttled and applied": {func(h *registered) { begin(h, 3); h.asks(commitOf(a, 5), notDone); h.shows(a, 5) }, "is shown offset 5"},
		"refused without cause": {func(h *registered) { begin(h, 3); h.asks(commitOf(a, 5), refusedBy(a, 3)) }, "nothing was against it"},
		"refused by an old image": {func(h *registered) {
			begin(h, 3)
			h.takes(a, b, ok(b, 3))
			h.takes(b, lease("a", 3), ok(lease("a", 3), 3))
			h.asks(commitOf(a, 5), refusedBy(b, 3))
		}, "is shown offset 3"},
		"without a lease":            {func(h *registered) { h.asks(firstCommitOf(a, 3), ok(a, 3)) }, "commits 3"},
		"under a lease that is gone": {func(h *registered) { begin(h, 3); h.takes(a, b, ok(b, 3)); h.asks(commitOf(a, 5), ok(a, 5)) }, "commits 5"},
		"under one that was given up": {func(h *registered) {
			begin(h, 3)
			h.takes(a, released, ok(released, 3))
			h.asks(commitOf(a, 5), ok(a, 5))
		}, "commits 5"},
		"under one that was reset": {func(h *registered) { begin(h, 3); h.resets(a, 3, 1, ok(reset, 1)); h.asks(commitOf(a, 5), ok(a, 5)) }, "commits 5"},
		"late, under one that is gone": {func(h *registered) {
			begin(h, 3)
			h.takes(a, b, ok(b, 3))
			h.asks(commitOf(a, 5), lostAnswer)
			h.shows(b, 5)
		}, "is shown offset 5"},
		"a lease taken twice": {func(h *registered) {
			begin(h, 3)
			h.takes(a, b, ok(b, 3))
			h.takes(a, lease("c", 2), ok(lease("c", 2), 3))
		}, "replaces lease"},
		"a reset of what was not read": {func(h *registered) { begin(h, 3); h.resets(a, 2, 0, ok(reset, 0)) }, "commits 0"},
		"a transaction that is applied twice": {func(h *registered) {
			begin(h, 3)
			stepped(h, h.asksStep("m", "g", "token", []change{moveOf(a, 3, 5)}))
			h.resets(a, 5, 3, ok(reset, 3))
			h.shows(a, 5)
		}, "is shown offset 5"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &registered{newTold()}
			c.say(h)
			Linearizable(h.History, h.log())
			v := h.Violations()
			if c.want == "" && len(v) > 0 || c.want != "" && (len(v) != 1 || !strings.Contains(v[0].What, c.want)) {
				t.Errorf("violations %v, want %q", v, c.want)
			}
			if h.Counts()["porcupine: undecided"] > 0 {
				t.Error("undecided")
			}
			if n := h.Counts()["porcupine: linearizable commits"]; c.want == "" && n != 1 {
				t.Errorf("%d registers were judged", n)
			}
		})
	}
}

// log is an empty one that has the partition.
func (h *registered) log() *Log {
	l := NewLog(nil)
	l.places = map[metadata.Place]Partition{{Lane: inLane, Slot: 0}: h.at}
	return l
}

// Of a topic that is deleted nothing is kept.
func TestCommitsOfDeletedTopics(t *testing.T) {
	h := &registered{newTold()}
	h.asks(firstCommitOf(lease("a", 1), 3), ok(lease("a", 1), 3))
	if Linearizable(h.History, NewLog(nil)); len(h.Violations()) > 0 {
		t.Error(h.Violations())
	}
}

// A member that is cut off asks for many commits whose outcome nobody knows. That is decided within the time that there is for it, whether some were applied or none.
func TestLinearizableCommitsInTime(t *testing.T) {
	for name, every := range map[string]int64{"some applied": 7, "none applied": 1 << 60} {
		t.Run(name, func(t *testing.T) {
			h, a, at := &registered{newTold()}, lease("a", 1), int64(0)
			h.takes(metadata.Lease{}, a, ok(a, metadata.NoOffset))
			h.asks(firstCommitOf(a, 0), ok(a, 0))
			for i := int64(1); i < 400; i++ {
				h.asks(commitOf(a, i), lostAnswer)
				if i%every == 0 {
					at = i
				}
				h.shows(a, at)
			}
			began := time.Now()
			Linearizable(h.History, h.log())
			t.Log(time.Since(began), h.Counts())
			if len(h.Violations()) > 0 || h.Counts()["porcupine: linearizable commits"] != 1 {
				t.Errorf("violations %v, counts %v", h.Violations(), h.Counts())
			}
		})
	}
}
