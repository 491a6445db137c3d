package metadata

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/segment"
)

func TestCommitValidate(t *testing.T) {
	fresh := func() Commit {
		a, b := typical(2), typical(3)
		b.ID = segment.NewID(b.ID.Time(), 7, segment.InBucket, 99, segment.ID{})
		return Commit{Lane: "lane-0", Entries: []Entry{a, b}, Cap: 65}
	}
	for name, spoil := range map[string]func(*Commit){
		"no lane":             func(c *Commit) { c.Lane = "" },
		"no entries":          func(c *Commit) { c.Entries = nil },
		"too many entries":    func(c *Commit) { c.Entries = make([]Entry, MaxCommitEntries+1) },
		"writer below":        func(c *Commit) { c.Writer = -1 },
		"writer above":        func(c *Commit) { c.Writer = Epochs },
		"too many conditions": func(c *Commit) { c.Tokens = make([]Token, MaxCommitConditions); c.Expect = make([]Expect, 1) },
		"a bad entry":         func(c *Commit) { c.Entries[1].Start = -1 },
		"a segment twice":     func(c *Commit) { c.Entries[1].ID = c.Entries[0].ID },
		"padding unasked":     func(c *Commit) { c.Entries[1] = Entry{ID: c.Entries[1].ID, Empty: true} },
		"records as padding":  func(c *Commit) { c.PadIf = true },
		"slot of an offset":   func(c *Commit) { c.Expect = []Expect{{Slot: SlotsPerLane}} },
		"negative offset":     func(c *Commit) { c.Expect = []Expect{{Offset: -1}} },
		"slot of a token":     func(c *Commit) { c.Tokens = []Token{{Slot: SlotsPerLane, Token: 1}} },
		"token never set":     func(c *Commit) { c.Tokens = []Token{{Token: 0}} },
	} {
		c := fresh()
		spoil(&c)
		if err := c.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := fresh()
	c.Expect, c.Tokens = []Expect{{Slot: 1, Offset: 5}}, []Token{{Slot: 1, Token: 1}}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTopicValidate(t *testing.T) {
	fresh := func() *Topic {
		return &Topic{Name: "flights", ID: "0123456789av", Version: 3, Partitions: 9, LaneWidth: 4, Lanes: []LaneID{"a", "b", "c"}, Partitioner: "murmur2",
			History: []Growth{{Version: 1, Partitions: 4}, {Version: 3, Partitions: 9}}, Config: DefaultTopicConfig()}
	}
	for name, spoil := range map[string]func(*Topic){
		"name":                 func(t *Topic) { t.Name = "a/b" },
		"id":                   func(t *Topic) { t.ID = "x" },
		"version":              func(t *Topic) { t.Version = 0 },
		"width below":          func(t *Topic) { t.LaneWidth = 0 },
		"width above":          func(t *Topic) { t.LaneWidth = SlotsPerLane + 1 },
		"partitions":           func(t *Topic) { t.Partitions = 0 },
		"too few lanes":        func(t *Topic) { t.Lanes = t.Lanes[:2] },
		"too many lanes":       func(t *Topic) { t.Lanes = append(t.Lanes, "d") },
		"lane twice":           func(t *Topic) { t.Lanes[2] = "a" },
		"lane without name":    func(t *Topic) { t.Lanes[2] = "" },
		"no history":           func(t *Topic) { t.History = nil },
		"history ends else":    func(t *Topic) { t.History[1].Partitions = 8 },
		"history shrinks":      func(t *Topic) { t.History[0].Partitions = 10 },
		"history goes back":    func(t *Topic) { t.History[0].Version = 3 },
		"history of to-morrow": func(t *Topic) { t.History[1].Version = 4 },
	} {
		topic := fresh()
		spoil(topic)
		if err := topic.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := fresh().Validate(); err != nil {
		t.Error(err)
	}
}
