package metadata

import (
	"cmp"
	"maps"
	"slices"

	"github.com/varvelog/varve/segment"
)

// Subscriber is a member that lives, and the topics that it reads, in any order.
type Subscriber struct {
	PlanMember
	Topics []segment.TopicID
	Seen   bool // who makes the plan knows that it lives: it is that one itself, or was seen to show a heartbeat
	Proven bool // it has shown a heartbeat since the one with which it came
	Silent bool // it has shown none for so long that it may be dead
	Maker  bool // it makes the plan
}

// Readable is a topic that a group reads, with its partition count.
type Readable struct {
	ID         segment.TopicID
	Partitions int
	Known      int         // PlanTopic.Known if prev does not have the topic
	Holders    []SessionID // by partition: whose the lease is, "" or nothing where it is nobody's
	Overdue    []bool      // by partition: who makes the plan has seen for too long that nobody who is there holds it; nothing: none
}

// Assign makes the plan that follows prev (nil: the first). Every partition of every topic gets one of the members that read the topic, if one of them is
// seen to live. It is sticky: a partition stays with the member of the same name where it was, also if that has a new session, unless the balance wants
// it elsewhere. It is balanced: no member has two more partitions than another that could have one of them; where all read the same topics, counts
// differ by one at most. And no more partitions move than that needs. Equal arguments give equal plans, whatever their order.
//
// Three rules keep members that die soon after they came from keeping a partition from the others:
//
//   - What a member had, or held, that is gone goes to the eldest that reads the topic and is not silent, for nobody who came later can delay that. The
//     same holds for what a session had that another of the same name has followed before it ever held the partition; and for what one that is silent has been
//     given and neither it nor anybody else who is there holds.
//   - For the balance, only what its owner holds is taken from it: what is without owner waits for one member, not for a row of them.
//   - And it is given only to a proven member that is seen to live, and not silent.
//
// Of members that were in no plan yet those that are seen to live become the elder ones. Where one that makes a plan can know only of itself that it lives, because
// all others have died before it came, what they had so goes to it, and not to the next of the dead.
//
// So a plan may be out of balance for a while. The next one that is made when the partitions are held, and the members proven, is not.
//
// However many die, each at its worst moment, the first rule is not what a partition waits for: what is overdue goes to who makes the plan, if that reads the topic.
//
// An identical plan but for its generation comes out when nothing has to change; see Same.
func Assign(prev *Plan, members []Subscriber, topics []Readable) *Plan {
	a := newAssigner(prev, members, topics)
	a.give(true, a.eldest)
	a.give(false, a.idlest)
	a.balance()
	return a.plan
}

// Same tells whether two plans say the same, their generations apart.
func (p *Plan) Same(q *Plan) bool {
	return slices.Equal(p.Members, q.Members) && slices.EqualFunc(p.Topics, q.Topics, func(a, b PlanTopic) bool {
		return a.ID == b.ID && a.Known == b.Known && slices.Equal(a.Owners, b.Owners)
	})
}

// Owns tells whether the plan gives partition p of the topic to the session.
func (p *Plan) Owns(s SessionID, topic segment.TopicID, partition int) bool {
	i, ok := slices.BinarySearchFunc(p.Topics, topic, func(t PlanTopic, id segment.TopicID) int { return cmp.Compare(t.ID, id) })
	if !ok || partition < 0 || partition >= len(p.Topics[i].Owners) {
		return false
	}
	m := p.Topics[i].Owners[partition]
	return m != NoOwner && p.Members[m].Session == s
}

// Lives tells whether the session is one of the plan's.
func (p *Plan) Lives(s SessionID) bool {
	return slices.ContainsFunc(p.Members, func(m PlanMember) bool { return m.Session == s })
}

// assigner is the work of Assign. Members are indexes into plan.Members.
type assigner struct {
	plan    *Plan
	members []Subscriber               // as in the plan
	reads   []map[segment.TopicID]bool // by member
	load    []int                      // by member: partitions
	holders map[segment.TopicID][]SessionID
	gone    map[SessionID]bool // in the plan before, and no more
	bereft  map[place]bool     // their owner or their holder is gone
	maker   int                // of the plan, NoOwner if it is not one of the members
}

// place is a partition.
type place struct {
	topic     segment.TopicID
	partition int
}

func newAssigner(prev *Plan, members []Subscriber, topics []Readable) *assigner {
	a := &assigner{plan: &Plan{Generation: 1}, members: byAge(prev, members), load: make([]int, len(members)),
		holders: map[segment.TopicID][]SessionID{}, gone: map[SessionID]bool{}, bereft: map[place]bool{}, maker: NoOwner}
	topics = slices.SortedFunc(slices.Values(topics), func(a, b Readable) int { return cmp.Compare(a.ID, b.ID) })
	index := map[string]int{}
	for i, m := range a.members {
		index[m.Name] = i
		if m.Maker {
			a.maker = i
		}
		a.plan.Members = append(a.plan.Members, m.PlanMember)
		reads := map[segment.TopicID]bool{}
		for _, id := range m.Topics {
			reads[id] = true
		}
		a.reads = append(a.reads, reads)
	}
	before := map[segment.TopicID]PlanTopic{}
	if prev != nil {
		a.plan.Generation = prev.Generation + 1
		for _, m := range prev.Members {
			a.gone[m.Session] = true
		}
		for _, m := range members {
			delete(a.gone, m.Session)
		}
		for _, t := range prev.Topics {
			before[t.ID] = t
		}
	}
	for _, t := range topics {
		was, read := before[t.ID]
		if !read {
			was.Known = t.Known
		}
		a.holders[t.ID] = t.Holders
		owners := make([]int, t.Partitions)
		for p := range owners {
			owners[p] = NoOwner
			if a.maker != NoOwner && p < len(t.Overdue) && t.Overdue[p] && a.reads[a.maker][t.ID] {
				owners[p] = a.maker
				a.load[a.maker]++
				continue
			}
			if p >= len(was.Owners) || was.Owners[p] == NoOwner {
				continue
			}
			owner := prev.Members[was.Owners[p]]
			if m, lives := index[owner.Name]; lives && a.reads[m][t.ID] && a.follows(m, owner.Session, a.holder(t.ID, p)) && !a.untaken(m, a.holder(t.ID, p)) {
				owners[p] = m
				a.load[m]++
			} else {
				a.bereft[place{t.ID, p}] = true
			}
		}
		a.plan.Topics = append(a.plan.Topics, PlanTopic{ID: t.ID, Known: was.Known, Owners: owners})
	}
	return a
}

// byAge is the members in the order of a plan: those whose sessions are in the one before as they are there, then the others, by name, first those that are
// seen to live.
func byAge(prev *Plan, members []Subscriber) []Subscriber {
	age := map[SessionID]int{}
	if prev != nil {
		for i, m := range prev.Members {
			age[m.Session] = i - len(prev.Members)
		}
	}
	unseen := map[bool]int{false: 1}
	return slices.SortedFunc(slices.Values(members), func(a, b Subscriber) int {
		return cmp.Or(cmp.Compare(age[a.Session], age[b.Session]), cmp.Compare(unseen[a.Seen], unseen[b.Seen]), cmp.Compare(a.Name, b.Name))
	})
}

// give gives those of the partitions without owner that lost theirs, or those that had none, each to the member that is to have one of the topic.
func (a *assigner) give(bereft bool, whom func(segment.TopicID) int) {
	for _, t := range a.plan.Topics {
		for p, owner := range t.Owners {
			if owner != NoOwner || a.bereft[place{t.ID, p}] != bereft {
				continue
			}
			if m := whom(t.ID); m >= 0 {
				t.Owners[p] = m
				a.load[m]++
			}
		}
	}
}

// follows tells whether the member, which has the name of a partition's owner, has it from now on. It does not when it was to wait for a holder that is
// gone; nor when it is the next life of an owner that never held the partition: one that starts again and again and never gets so far would keep it from all.
func (a *assigner) follows(m int, owner, holder SessionID) bool {
	if a.members[m].Session == owner {
		return holder == owner || !a.gone[holder]
	}
	return holder == owner || slices.ContainsFunc(a.members, func(s Subscriber) bool { return s.Session == holder })
}

// untaken tells whether an owner that may be dead does not hold the partition, nor anybody else who is there. To give it on nobody has to know whether it is dead: what it does not
// hold it cannot commit for, and if it lives it stops nothing.
func (a *assigner) untaken(m int, holder SessionID) bool {
	return a.members[m].Silent && !slices.ContainsFunc(a.members, func(s Subscriber) bool { return s.Session == holder })
}

func (a *assigner) holder(topic segment.TopicID, partition int) SessionID {
	if h := a.holders[topic]; partition < len(h) {
		return h[partition]
	}
	return ""
}

// eldest is the first member that reads the topic and is not silent; the first of those that read it, if all are; -1 if none does.
func (a *assigner) eldest(topic segment.TopicID) int {
	eldest := -1
	for m := range a.members {
		switch {
		case !a.reads[m][topic]:
		case !a.members[m].Silent:
			return m
		case eldest < 0:
			eldest = m
		}
	}
	return eldest
}

// idlest is the member with the fewest partitions of those that read the topic and are seen to live, the steady ones if there are any; -1 if there is none.
func (a *assigner) idlest(topic segment.TopicID) int {
	best := -1
	for m := range a.load {
		switch {
		case !a.reads[m][topic] || !a.members[m].Seen:
		case best < 0, a.steady(m) && !a.steady(best), a.steady(m) == a.steady(best) && a.load[m] < a.load[best]:
			best = m
		}
	}
	return best
}

// steady tells whether the member may be given what another one could keep.
func (a *assigner) steady(m int) bool { return a.members[m].Proven && !a.members[m].Silent }

// balance moves partitions, one at a time, each from the busiest member that has one which a steady one with two fewer could have. It ends: every move
// makes the sum of the squares of the loads smaller. Those that their owners do not hold stay all the same, until they do.
func (a *assigner) balance() {
	has := make([]map[int][]int, len(a.load)) // by member: partitions by index of the topic
	stay := map[place]int{}
	for t, topic := range a.plan.Topics {
		for p, m := range topic.Owners {
			if m == NoOwner {
				continue
			}
			if a.holder(topic.ID, p) != a.members[m].Session {
				stay[place{topic.ID, p}] = m
			}
			if has[m] == nil {
				has[m] = map[int][]int{}
			}
			has[m][t] = append(has[m][t], p)
		}
	}
	for a.moveOne(has) {
	}
	for _, topic := range a.plan.Topics {
		for p := range topic.Owners {
			if m, stays := stay[place{topic.ID, p}]; stays {
				topic.Owners[p] = m
			}
		}
	}
}

func (a *assigner) moveOne(has []map[int][]int) bool {
	busiest := make([]int, len(a.load))
	for m := range busiest {
		busiest[m] = m
	}
	slices.SortStableFunc(busiest, func(x, y int) int { return cmp.Compare(a.load[y], a.load[x]) })
	for _, from := range busiest {
		for _, t := range slices.Sorted(maps.Keys(has[from])) {
			to := a.idlest(a.plan.Topics[t].ID)
			if to < 0 || !a.steady(to) || a.load[from]-a.load[to] < 2 {
				continue
			}
			last := len(has[from][t]) - 1
			p := has[from][t][last]
			if has[from][t] = has[from][t][:last]; last == 0 {
				delete(has[from], t)
			}
			if has[to] == nil {
				has[to] = map[int][]int{}
			}
			has[to][t] = append(has[to][t], p)
			a.plan.Topics[t].Owners[p] = to
			a.load[from]--
			a.load[to]++
			return true
		}
	}
	return false
}
