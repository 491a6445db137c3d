package metadata

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/varvelog/varve/segment"
)

// Limits of groups.
const (
	MaxMembers        = 1000    // of one group
	MaxPlanPartitions = 100_000 // of all topics that one group reads
	MaxPlanBytes      = 399_000 // of a plan, packed: an item has 400 KB. A thousand members with names of 100 bytes and 100,000 partitions have 320,000
	MaxCommitMetadata = 256     // bytes that a commit may keep with an offset: 64 of them are billed with every commit of their lane
	MaxSubscriptions  = 1000    // topics that one member names
	MaxPatternBytes   = 1 << 10 // of a member's pattern
	MaxSessionTimeout = 24 * time.Hour
)

// SessionID names one life of a member: 16 random characters of 0-9a-v. A member that starts again has another, so that what its earlier life
// still has under way is refused.
type SessionID string

// Group is one row of GROUP.
type Group struct {
	Name    string
	Created time.Time // service time, for people
}

// Validate reports ErrInvalid for a group that cannot be written.
func (g *Group) Validate() error {
	if g.Created.UnixMilli() < 0 {
		return &FieldError{Field: fmt.Sprintf("group %s: created", g.Name), Value: g.Created.String(), Valid: "a time from 1970 on"}
	}
	return ValidateName("group", g.Name)
}

// Member is M#<name> of a group: who lives, by a counter that it raises. Nothing compares its times with anybody's clock.
type Member struct {
	Name    string // the instance id of a static member, otherwise random
	Session SessionID
	Beat    int64         // heartbeats of this session
	Quiet   time.Duration // for how long at least this Beat has not moved, as observers have watched one after the other; the next heartbeat sets it to 0
	Timeout time.Duration // the session is dead when it has not moved for so long
	Topics  []string      // that it reads, ascending
	Pattern string        // and those whose whole names match this regular expression, if any
	Client  string        // who it is, for people
}

// Plan is PLAN of a group: which member is to read which partition. It is written by compare-and-set on Generation, by whoever sees that it no
// longer fits those who live and what there is to read.
type Plan struct {
	Generation int64
	Members    []PlanMember // the eldest first: sessions keep their order, those that came since the plan before come last; see Assign
	Topics     []PlanTopic  // ascending by id
}

// PlanMember is a member whose session lived when the plan was made.
type PlanMember struct {
	Name    string
	Session SessionID
}

// PlanTopic says who reads the partitions of a topic: Owners[p] is the index in Members of the one of partition p, NoOwner where no member reads
// the topic.
//
// The group has read the topic from when it had Known partitions: those from Known on, if nothing is committed for them, were added while it
// read, or was away, and start at the earliest record whatever the members' policy is; otherwise what came before they were noticed would be passed over.
type PlanTopic struct {
	ID     segment.TopicID
	Known  int
	Owners []int
}

// NoOwner stands in PlanTopic.Owners for nobody.
const NoOwner = -1

// Lease says who may commit for a partition. The zero Lease was never held. Every acquisition raises Epoch, also one by the same session; a
// release keeps it and leaves Session empty; a reset of the offset raises it.
type Lease struct {
	Session SessionID
	Epoch   int64
}

// Held tells whether somebody holds it.
func (l Lease) Held() bool { return l.Session != "" }

// NoOffset stands for the offset of a slot for which nothing was committed. It is not 0: where such a partition starts is the member's policy.
const NoOffset = -1

// Committed is what a group has committed for one slot.
type Committed struct {
	Offset   int64 // next to be read, or NoOffset
	At       time.Time
	Metadata string // the committer's, at most MaxCommitMetadata bytes
	Lease    Lease
}

// GroupLane is O#<lane> of a group: what is committed for the slots of a lane, and their leases.
type GroupLane struct {
	Lane  LaneID
	Slots [SlotsPerLane]Committed
}

// NewGroupLane is the lane of a group that has never read it.
func NewGroupLane(lane LaneID) *GroupLane {
	l := &GroupLane{Lane: lane}
	for s := range l.Slots {
		l.Slots[s].Offset = NoOffset
	}
	return l
}

// GroupState is everything that the members of a group agree on, as one strong read shows it: not a snapshot, for another member may have
// written while it was read. Plan is nil before the first.
type GroupState struct {
	Plan    *Plan
	Members []Member // ascending by name
	Lanes   []*GroupLane
}

// Validate reports ErrInvalid for a member that cannot be written.
func (m *Member) Validate() error {
	if err := ValidateName("member", m.Name); err != nil {
		return err
	}
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: fmt.Sprintf("member %s: %s", m.Name, field), Value: fmt.Sprint(value), Valid: valid}
	}
	switch {
	case !m.Session.valid():
		return bad("session", m.Session, "16 characters of 0-9a-v")
	case m.Beat < 0 || m.Quiet < 0:
		return bad("beat or quiet", fmt.Sprintf("%d, %v", m.Beat, m.Quiet), "not negative")
	case m.Timeout < time.Second || m.Timeout > MaxSessionTimeout:
		return bad("session time-out", m.Timeout, "1s to 24h")
	case len(m.Topics) == 0 && m.Pattern == "" || len(m.Topics) > MaxSubscriptions:
		return bad("topics", len(m.Topics), fmt.Sprintf("1 to %d, or a pattern", MaxSubscriptions))
	case len(m.Pattern) > MaxPatternBytes:
		return bad("pattern", m.Pattern, fmt.Sprintf("at most %d bytes", MaxPatternBytes))
	case len(m.Client) > MaxNameBytes || !utf8.ValidString(m.Client):
		return bad("client", m.Client, fmt.Sprintf("at most %d bytes of UTF-8", MaxNameBytes))
	}
	for _, t := range m.Topics {
		if err := ValidateName("topic", t); err != nil {
			return err
		}
	}
	return nil
}

const sessionLen = 16

func (s SessionID) valid() bool {
	ok := len(s) == sessionLen
	for _, c := range []byte(s) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'v')
	}
	return ok
}
