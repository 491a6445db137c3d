package metadata

import (
	"encoding/binary"
	"fmt"

	"github.com/varvelog/varve/segment"
)

// The packed form of a Plan is the value of one attribute of PLAN. Its generation is an attribute of its own, for the compare-and-set.
//
//	1        version, 1
//	uvarint  members; then for each, the eldest first, no name twice:
//	         uvarint length of the name, the name · 16 bytes session
//	uvarint  topics; then for each, ids strictly ascending:
//	         12 bytes id · uvarint known · uvarint partitions · for each partition: uvarint 0 for nobody, or 1 + index of the member
const planVersion = 1

// AppendPlan appends the packed form of a plan that Assign made.
func AppendPlan(dst []byte, p *Plan) []byte {
	dst = append(dst, planVersion)
	dst = binary.AppendUvarint(dst, uint64(len(p.Members)))
	for _, m := range p.Members {
		dst = binary.AppendUvarint(dst, uint64(len(m.Name)))
		dst = append(dst, m.Name...)
		dst = append(dst, m.Session...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.Topics)))
	for _, t := range p.Topics {
		dst = append(dst, t.ID...)
		dst = binary.AppendUvarint(dst, uint64(t.Known))
		dst = binary.AppendUvarint(dst, uint64(len(t.Owners)))
		for _, m := range t.Owners {
			dst = binary.AppendUvarint(dst, uint64(m+1))
		}
	}
	return dst
}

// DecodePlan reads what AppendPlan wrote. ErrVersion if a newer build wrote it, ErrCorrupt if none did.
func DecodePlan(generation int64, packed []byte) (*Plan, error) {
	p := &Plan{Generation: generation}
	c := &cursor{rest: packed}
	if v := c.byte("version"); v != planVersion {
		c.fail(ErrVersion, "version %d, known is %d", v, planVersion)
	}
	names := map[string]bool{}
	for range c.uvarint("members", MaxMembers) {
		name := string(c.bytes("member name", c.uvarint("length of a member name", MaxNameBytes)))
		session := SessionID(c.bytes("session", sessionLen))
		switch {
		case c.err != nil:
		case ValidateName("member", name) != nil || !session.valid():
			c.fail(ErrCorrupt, "member %q with session %q", clip(name), session)
		case names[name]:
			c.fail(ErrCorrupt, "member %q twice", name)
		}
		if c.err != nil {
			break
		}
		names[name] = true
		p.Members = append(p.Members, PlanMember{name, session})
	}
	c.planTopics(p)
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("plan of generation %d: %w", generation, err)
	}
	return p, nil
}

func (c *cursor) planTopics(p *Plan) {
	left := uint64(MaxPlanPartitions)
	for range c.uvarint("topics", MaxPlanPartitions) {
		t := PlanTopic{ID: segment.TopicID(c.bytes("topic id", 12))}
		t.Known = int(c.uvarint("known partitions", MaxPlanPartitions))
		count := c.uvarint("partitions", left)
		left -= count
		switch n := len(p.Topics); {
		case c.err != nil:
		case t.ID.Validate() != nil:
			c.fail(ErrCorrupt, "topic id %q", t.ID)
		case n > 0 && t.ID <= p.Topics[n-1].ID:
			c.fail(ErrCorrupt, "topic %s after %s", t.ID, p.Topics[n-1].ID)
		case count > uint64(len(c.rest)):
			c.fail(ErrCorrupt, "%d partitions, %d bytes are left", count, len(c.rest))
		}
		if c.err != nil {
			return
		}
		t.Owners = make([]int, count)
		for i := range t.Owners {
			t.Owners[i] = int(c.uvarint("owner", uint64(len(p.Members)))) - 1
		}
		p.Topics = append(p.Topics, t)
	}
}
