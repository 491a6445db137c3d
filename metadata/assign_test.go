package metadata

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/segment"
)

func topicID(i int) segment.TopicID { return segment.TopicID(fmt.Sprintf("%012d", i)) }

func everybody(names []string, topics ...segment.TopicID) (subscribers []Subscriber) {
	for _, n := range names {
		subscribers = append(subscribers, Subscriber{PlanMember: PlanMember{Name: n, Session: SessionID("s-" + n)}, Topics: topics, Seen: true, Proven: true})
	}
	return subscribers
}

// owners maps each partition to the name of its owner, "" where there is none.
func owners(p *Plan) map[string]string {
	out := map[string]string{}
	for _, t := range p.Topics {
		for i, m := range t.Owners {
			out[fmt.Sprint(t.ID, "/", i)] = ""
			if m != NoOwner {
				out[fmt.Sprint(t.ID, "/", i)] = p.Members[m].Name
			}
		}
	}
	return out
}

func counts(p *Plan) map[string]int {
	n := map[string]int{}
	for _, m := range p.Members {
		n[m.Name] = 0
	}
	for _, o := range owners(p) {
		if o != "" {
			n[o]++
		}
	}
	return n
}

// held is the topics with leases as they are when everybody has what the plan gives it.
func held(p *Plan, topics []Readable) []Readable {
	topics = slices.Clone(topics)
	for i := range topics {
		topics[i].Holders = nil
		for _, t := range p.Topics {
			if t.ID != topics[i].ID {
				continue
			}
			for _, m := range t.Owners {
				s := SessionID("")
				if m != NoOwner {
					s = p.Members[m].Session
				}
				topics[i].Holders = append(topics[i].Holders, s)
			}
		}
	}
	return topics
}

// assigned is the plan that comes next, and the one after it, when everybody holds what that gives it.
func assigned(prev *Plan, members []Subscriber, topics []Readable) (next, settled *Plan) {
	if prev != nil {
		topics = held(prev, topics)
	}
	next = Assign(prev, members, topics)
	return next, Assign(next, members, held(next, topics))
}

// Members come and go, topics too and grow; where all read all, the fewest partitions move that the balance allows, after the eldest has taken what the dead
// had.
func TestAssignIsBalancedAndMovesTheFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var plan *Plan
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			names := rapid.SliceOfNDistinct(rapid.StringMatching("m[0-9]"), 1, 8, rapid.ID).Draw(t, "members")
			var ids []segment.TopicID
			var topics []Readable
			for i := range rapid.IntRange(1, 3).Draw(t, "topics") {
				ids = append(ids, topicID(i))
				topics = append(topics, Readable{ID: topicID(i), Partitions: rapid.IntRange(1, 20).Draw(t, "partitions")})
			}
			heldBefore := topics
			if plan != nil {
				heldBefore = held(plan, topics)
			}
			next, settled := assigned(plan, everybody(names, ids...), topics)
			least, most := 1<<30, 0
			for _, n := range counts(settled) {
				least, most = min(least, n), max(most, n)
			}
			if most-least > 1 {
				t.Fatalf("loads %v, then %v", counts(next), counts(settled))
			}
			if moved, need := movedAndNeeded(plan, next, settled); moved != need {
				t.Fatalf("%d partitions moved from members that stay, %d had to", moved, need)
			}
			if again := Assign(next, everybody(names, ids...), heldBefore); !again.Same(next) {
				t.Fatalf("nothing changed, and yet %v became %v", owners(next), owners(again))
			}
			plan = settled
		}
	})
}

// movedAndNeeded counts the partitions that were taken from members that stay, or from the eldest again, and how many at least had to be: what those
// members had, the eldest with what the dead had, beyond the loads that a balanced plan may give them, the largest loads going to who has most.
func movedAndNeeded(before, next, settled *Plan) (moved, need int) {
	if before == nil {
		return 0, 0
	}
	was, is, then, stays := owners(before), owners(next), owners(settled), counts(next)
	kept := map[string]int{}
	for p, now := range is {
		owner, known := was[p]
		if _, lives := stays[owner]; known && !lives {
			owner = next.Members[0].Name
		}
		if known && now != owner {
			moved++
		}
		if then[p] != now {
			moved++
		}
		if known {
			kept[owner]++
		}
	}
	var had []int
	for name := range stays {
		had = append(had, kept[name])
	}
	slices.Sort(had)
	slices.Reverse(had)
	whole, more := len(is)/len(stays), len(is)%len(stays)
	for i, n := range had {
		quota := whole
		if i < more {
			quota++
		}
		need += max(0, n-quota)
	}
	return moved, need
}

func TestAssignWithDifferentSubscriptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var plan *Plan
		for range 3 {
			var members []Subscriber
			reads := map[string]map[segment.TopicID]bool{}
			for i := range rapid.IntRange(1, 6).Draw(t, "members") {
				name := fmt.Sprint("m", i)
				topics := rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 3), topicID), 0, 4, rapid.ID).Draw(t, "reads")
				members = append(members, Subscriber{PlanMember: PlanMember{name, SessionID(name)}, Topics: topics, Seen: true, Proven: true})
				reads[name] = map[segment.TopicID]bool{}
				for _, id := range topics {
					reads[name][id] = true
				}
			}
			var topics []Readable
			for i := range 4 {
				topics = append(topics, Readable{ID: topicID(i), Partitions: rapid.IntRange(1, 9).Draw(t, "partitions")})
			}
			_, plan = assigned(plan, members, topics)
			load := counts(plan)
			for _, topic := range plan.Topics {
				for p, m := range topic.Owners {
					for name := range reads {
						switch {
						case !reads[name][topic.ID]:
						case m == NoOwner:
							t.Fatalf("%s/%d has no owner, though %s reads it", topic.ID, p, name)
						case load[plan.Members[m].Name]-load[name] > 1:
							t.Fatalf("%s has %d, %s could have one of them and has %d", plan.Members[m].Name, load[plan.Members[m].Name], name, load[name])
						}
					}
					if m != NoOwner && !reads[plan.Members[m].Name][topic.ID] {
						t.Fatalf("%s has a partition of %s, which it does not read", plan.Members[m].Name, topic.ID)
					}
				}
			}
			shuffled := slices.Clone(members)
			rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			if again := Assign(plan, shuffled, held(plan, []Readable{topics[2], topics[0], topics[3], topics[1]})); !again.Same(plan) || again.Generation != plan.Generation+1 {
				t.Fatalf("nothing changed, and yet %v became %v", owners(plan), owners(again))
			}
		}
	})
}

// A static member that starts again has a new session and keeps its partitions.
func TestAssignFollowsNamesNotSessions(t *testing.T) {
	topics := []Readable{{ID: topicID(1), Partitions: 8}}
	first := Assign(nil, everybody([]string{"a", "b", "c"}, topicID(1)), topics)
	members := everybody([]string{"a", "b", "c"}, topicID(1))
	members[1].Session = "another"
	second := Assign(first, members, held(first, topics))
	if second.Same(first) {
		t.Error("the new session is not in the plan")
	}
	for p, owner := range owners(first) {
		if owners(second)[p] != owner {
			t.Errorf("%s moved from %s to %s", p, owner, owners(second)[p])
		}
	}
	for p, m := range second.Topics[0].Owners {
		s := second.Members[m].Session
		if !second.Owns(s, topicID(1), p) || second.Owns("s-b", topicID(1), p) || !second.Lives(s) || second.Lives("s-b") {
			t.Errorf("partition %d of %s", p, s)
		}
	}
	if second.Owns("another", topicID(2), 0) || second.Owns("another", topicID(1), 8) || second.Owns("another", topicID(1), -1) {
		t.Error("owns what is not there")
	}
}

func TestAssignMorePartitionsThanMembersAndFewer(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	busy := 0
	for _, n := range counts(Assign(nil, everybody(names, topicID(1)), []Readable{{ID: topicID(1), Partitions: 4}})) {
		busy += n
		if n > 1 {
			t.Errorf("%d partitions for one of ten members", n)
		}
	}
	if busy != 4 {
		t.Errorf("%d of 4 partitions have an owner", busy)
	}
	if p := Assign(nil, nil, []Readable{{ID: topicID(1), Partitions: 4}}); len(p.Members) != 0 || p.Topics[0].Owners[0] != NoOwner {
		t.Errorf("a plan for nobody: %v", p)
	}
}

// Members that come and die, one after the other, never keep a partition from the eldest that lives: what it had that is gone, it gets, whoever came in
// the meantime; and until it holds it nothing of that goes on to the idle.
func TestAssignHeirIsTheEldest(t *testing.T) {
	topics := []Readable{{ID: topicID(1), Partitions: 2}}
	first := Assign(nil, everybody([]string{"a", "y"}, topicID(1)), topics)
	leases := held(first, topics)
	dead := slices.Index(leases[0].Holders, "s-y")
	plan := first
	for n := range 9 { // each of them has a name before a's, and none stays
		plan = Assign(plan, everybody([]string{fmt.Sprint("_", n), "a"}, topicID(1)), leases)
		if !plan.Owns("s-a", topicID(1), dead) || plan.Members[0].Name != "a" {
			t.Fatalf("plan %d gives what the dead one had to another than the eldest: %v", n, owners(plan))
		}
	}
	if plan = Assign(plan, everybody([]string{"_8", "a"}, topicID(1)), held(plan, topics)); counts(plan)["_8"] != 1 {
		t.Errorf("when the eldest holds it all, the other gets its part: %v", owners(plan))
	}
	// An eldest that may be dead itself is passed over.
	members := everybody([]string{"a", "b", "c"}, topicID(1))
	plan = Assign(nil, members[:2], topics)
	members[0].Silent = true
	if plan = Assign(plan, []Subscriber{members[0], members[2]}, held(plan, topics)); counts(plan)["c"] != 1 {
		t.Errorf("what b had went to the silent one: %v", owners(plan))
	}
	members[2].Silent = true
	if plan = Assign(nil, members, topics); slices.Contains(plan.Topics[0].Owners, NoOwner) {
		t.Errorf("all but one are silent: %v", owners(plan))
	}
}

// What goes to one that may be dead, and that it does not hold nor anybody who lives, is given on; what it holds, or another is to hand over to it, is not.
func TestAssignHeirThatDoesNotTake(t *testing.T) {
	topics := []Readable{{ID: topicID(1), Partitions: 2}}
	first := Assign(nil, everybody([]string{"a", "b", "y"}, topicID(1)), topics)
	for holder, want := range map[SessionID]string{"s-y": "s-b", "": "s-b", "s-a": "s-a", "s-b": "s-a"} {
		members := everybody([]string{"a", "b"}, topicID(1))
		leases := held(first, topics)
		leases[0].Holders = []SessionID{holder, holder}
		plan := &Plan{Generation: 2, Members: []PlanMember{members[0].PlanMember, members[1].PlanMember}, Topics: []PlanTopic{{ID: topicID(1), Known: 2, Owners: []int{0, 0}}}}
		members[0].Silent = true
		if next := Assign(plan, members, leases); !next.Owns(SessionID(want), topicID(1), 0) {
			t.Errorf("held by %q: %v, want %s", holder, owners(next), want)
		}
	}
}

// What has been without owner for too long goes to who makes the plan, whoever was to have it, if that one reads the topic; it stays where it is when others make the next plan.
func TestAssignOverdue(t *testing.T) {
	topics := []Readable{{ID: topicID(1), Partitions: 4}}
	members := everybody([]string{"a", "b", "c"}, topicID(1))
	plan := Assign(nil, members, topics)
	topics[0].Overdue = []bool{true, true, true, true}
	if next := Assign(plan, members, topics); !next.Same(plan) {
		t.Errorf("nobody who reads the topic makes the plan: %v", owners(next))
	}
	members[2].Maker = true
	next := Assign(plan, members, topics)
	if counts(next)["c"] != 4 {
		t.Errorf("c makes the plan: %v", owners(next))
	}
	if again := Assign(next, members, topics); !again.Same(next) {
		t.Errorf("c makes it again: %v", owners(again))
	}
	topics[0].Overdue, members[2].Maker, members[0].Maker = nil, false, true
	if after := Assign(next, members, topics); !after.Same(next) {
		t.Errorf("before c holds it: %v", owners(after))
	}
	topics[0].Overdue, members[0].Topics = []bool{true, true, true, true}, nil
	if after := Assign(next, members, topics); !after.Same(&Plan{Members: next.Members, Topics: next.Topics}) {
		t.Errorf("a makes the plan and does not read the topic: %v", owners(after))
	}
}

// For the balance, members that have come just now, or are silent, are given nothing.
func TestAssignBalancesAmongTheProven(t *testing.T) {
	topics := []Readable{{ID: topicID(1), Partitions: 6}}
	plan := Assign(nil, everybody([]string{"a"}, topicID(1)), topics)
	for what, change := range map[string]func(*Subscriber){
		"new":    func(s *Subscriber) { s.Proven = false },
		"silent": func(s *Subscriber) { s.Silent = true },
	} {
		members := everybody([]string{"a", "b"}, topicID(1))
		change(&members[1])
		if next := Assign(plan, members, held(plan, topics)); counts(next)["a"] != 6 {
			t.Errorf("a %s member: %v", what, counts(next))
		}
	}
	if next := Assign(plan, everybody([]string{"a", "b"}, topicID(1)), held(plan, topics)); counts(next)["b"] != 3 {
		t.Errorf("a proven member: %v", counts(next))
	}
}

// Who makes a plan and can know only of itself that it lives, has what is gone, if those who were in a plan before it are silent; gives to those of whom it does not
// know nothing that is free, nor anything for the balance; and if it is about to leave, what is free stays so.
func TestAssignKnowsOnlyOfItself(t *testing.T) {
	topics := []Readable{{ID: topicID(1), Partitions: 4}}
	dead := everybody([]string{"a"}, topicID(1))
	plan := Assign(nil, dead, topics)
	rest := everybody([]string{"b", "c", "d"}, topicID(1))
	rest[0].Seen, rest[1].Seen = false, false
	next := Assign(plan, rest, held(plan, topics))
	if counts(next)["d"] != 4 || next.Members[0].Name != "d" {
		t.Errorf("what is gone: %v, members %v", owners(next), next.Members)
	}
	if after := Assign(next, rest, held(next, topics)); !after.Same(next) {
		t.Errorf("for the balance: %v", owners(after))
	}
	topics[0].Partitions = 6
	if after := Assign(next, rest, held(next, topics)); counts(after)["d"] != 6 {
		t.Errorf("what is new: %v", owners(after))
	}
	if after := Assign(nil, rest[:2], topics); counts(after)["b"]+counts(after)["c"] != 0 {
		t.Errorf("of who leaves: %v", owners(after))
	}
}

// A static member that starts again and again, and never gets to what it had, does not keep it from the others.
func TestAssignStaticMemberThatNeverComesBack(t *testing.T) {
	topics := []Readable{{ID: topicID(1), Partitions: 4}}
	plan := Assign(nil, everybody([]string{"a", "b"}, topicID(1)), topics)
	leases := held(plan, topics)
	for life, want := range []int{2, 0} {
		members := everybody([]string{"a", "b"}, topicID(1))
		members[1].Session, members[1].Proven = SessionID(fmt.Sprint("life ", life)), false
		if plan = Assign(plan, members, leases); counts(plan)["b"] != want {
			t.Errorf("life %d has %d partitions, want %d", life, counts(plan)["b"], want)
		}
	}
}
