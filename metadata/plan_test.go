package metadata

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/varvelog/varve/segment"
	"pgregory.net/rapid"
)

func drawPlan(t *rapid.T) *Plan {
	var members []Subscriber
	var topics []Readable
	var ids []segment.TopicID
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 99), 0, 5, rapid.ID).Draw(t, "topics") {
		ids = append(ids, topicID(i))
		topics = append(topics, Readable{ID: topicID(i), Partitions: rapid.IntRange(1, 200).Draw(t, "partitions"), Known: rapid.IntRange(0, 200).Draw(t, "known")})
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z0-9_-]{1,249}`), 0, 200, rapid.ID).Draw(t, "members") {
		session := SessionID(rapid.StringMatching(`[0-9a-v]{16}`).Draw(t, "session"))
		members = append(members, Subscriber{PlanMember: PlanMember{name, session}, Topics: ids, Seen: true})
	}
	p := Assign(nil, members, topics)
	p.Generation = rapid.Int64Range(1, 1<<60).Draw(t, "generation")
	return p
}

func TestPlanRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		packed := AppendPlan(nil, p)
		got, err := DecodePlan(p.Generation, packed)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("%v: %+v became %+v", err, p, got)
		}
		cut := rapid.IntRange(0, len(packed)-1).Draw(t, "cut")
		if _, err := DecodePlan(1, packed[:cut]); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("cut at %d of %d: %v", cut, len(packed), err)
		}
		if _, err := DecodePlan(1, append(packed, 0)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a byte too many: %v", err)
		}
	})
}

func FuzzDecodePlan(f *testing.F) {
	f.Add(AppendPlan(nil, Assign(nil, everybodyHere("a", "b"), []Readable{{ID: topicID(1), Partitions: 9}, {ID: topicID(2), Partitions: 3}})))
	f.Add([]byte{2})
	f.Add([]byte{1, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, packed []byte) {
		p, err := DecodePlan(7, packed)
		switch {
		case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion):
			t.Fatal(err)
		case err == nil && !bytes.Equal(AppendPlan(nil, p), packed):
			t.Fatalf("%x is another form of %x", packed, AppendPlan(nil, p))
		}
	})
}

func everybodyHere(names ...string) []Subscriber {
	members := everybody(names, topicID(1), topicID(2))
	for i := range members {
		members[i].Session = SessionID("000000000000000" + string('0'+rune(i)))
	}
	return members
}

func TestMemberValidate(t *testing.T) {
	good := Member{Name: "m", Session: "0123456789abcdef", Timeout: 30e9, Topics: []string{"t"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Member){
		"name":         func(m *Member) { m.Name = "a/b" },
		"session":      func(m *Member) { m.Session = "short" },
		"session set":  func(m *Member) { m.Session = "0123456789abcdeZ" },
		"beat":         func(m *Member) { m.Beat = -1 },
		"time-out":     func(m *Member) { m.Timeout = 0 },
		"no topics":    func(m *Member) { m.Topics = nil },
		"topic name":   func(m *Member) { m.Topics = []string{"a/b"} },
		"client":       func(m *Member) { m.Client = "\xff" },
		"long pattern": func(m *Member) { m.Pattern = string(make([]byte, MaxPatternBytes+1)) },
	} {
		m := good
		change(&m)
		if err := m.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
