package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// Attributes of the items of groups; those that carry a slot are named in package metadata.
const (
	attrCreated    = "created" // of a GROUP row: ms
	attrGeneration = "g"       // of a PLAN
	attrSession    = "s"       // of a member, and those that follow
	attrBeat       = "n"
	attrQuiet      = "q" // ms
	attrTimeout    = "timeout"
	attrTopics     = "topics"
	attrPattern    = "pattern"
	attrClient     = "client"
	attrTTL        = "ttl" // s: nothing depends on it
)

// memberTTL is after how long without a heartbeat the service may remove a member's row that nobody has buried, because nobody else is in its group.
const memberTTL = 30 * 24 * time.Hour

var _ metadata.GroupTable = (*Table)(nil)

// Group implements metadata.GroupReader.
func (t *Table) Group(ctx context.Context, name string) (*metadata.Group, error) {
	c := reading("Group", "", metadata.GroupKey(name))
	it, err := t.get(ctx, c, true)
	if err != nil {
		return nil, err
	}
	if it == nil {
		return nil, c.error("", metadata.ErrUnknownGroup)
	}
	return decodeAs(c, it, decodeGroup)
}

// decodeAs decodes an item, the call's name on its error.
func decodeAs[T any](c *call, it item, decode func(item) (T, error)) (T, error) {
	v, err := decode(it)
	if err != nil {
		var none T
		return none, c.error("", err)
	}
	return v, nil
}

// Groups implements metadata.GroupReader.
func (t *Table) Groups(ctx context.Context, after string, limit int) (groups []*metadata.Group, more bool, err error) {
	c := reading("Groups", "", metadata.GroupKey(after)).within(pageTimeout)
	q := t.query(c.key.PK, true)
	if after != "" {
		q.KeyConditionExpression = aws.String("pk = :pk AND sk > :after")
		q.ExpressionAttributeValues[":after"] = text(after)
	}
	items, more, err := t.pages(ctx, c, q, max(limit, 1))
	if err != nil {
		return nil, false, err
	}
	for _, it := range items {
		g, err := decodeAs(c, it, decodeGroup)
		if err != nil {
			return groups, true, err
		}
		groups = append(groups, g)
	}
	return groups, more, nil
}

// Member implements metadata.GroupReader.
func (t *Table) Member(ctx context.Context, group, name string) (*metadata.Member, error) {
	c := reading("Member", "", metadata.MemberKey(group, name))
	it, err := t.get(ctx, c, true)
	if err != nil {
		return nil, err
	}
	if it == nil {
		return nil, c.error("", metadata.ErrUnknownMember)
	}
	return decodeAs(c, it, func(it item) (*metadata.Member, error) { return decodeMember(name, it) })
}

// GroupState implements metadata.GroupReader. The query is one request, up to a page of one megabyte: some 200 lanes of 64 slots.
func (t *Table) GroupState(ctx context.Context, group string) (*metadata.GroupState, error) {
	c := reading("GroupState", "", metadata.PlanKey(group)).within(pageTimeout)
	items, _, err := t.pages(ctx, c, t.query(c.key.PK, true), maxCollection)
	if err != nil {
		return nil, err
	}
	s := &metadata.GroupState{}
	for _, it := range items {
		if err := addTo(s, it); err != nil {
			return nil, c.error("", err)
		}
	}
	return s, nil
}

// maxCollection bounds the items of one group: its members, and the lanes of all that it reads.
const maxCollection = 1 << 20

func addTo(s *metadata.GroupState, it item) error {
	_, member, lane, err := metadata.ParseGroupKey(parseKey(it))
	switch {
	case err != nil:
		return err
	case member != "":
		m, err := decodeMember(member, it)
		if err != nil {
			return err
		}
		s.Members = append(s.Members, *m)
	case lane != "":
		l, err := decodeGroupLane(lane, it)
		if err != nil {
			return err
		}
		s.Lanes = append(s.Lanes, l)
	default:
		s.Plan, err = decodePlan(it)
		return err
	}
	return nil
}

// GroupLane implements metadata.GroupReader.
func (t *Table) GroupLane(ctx context.Context, group string, lane metadata.LaneID) (*metadata.GroupLane, error) {
	c := reading("GroupLane", lane, metadata.OffsetsKey(group, lane))
	it, err := t.get(ctx, c, true)
	if err != nil {
		return nil, err
	}
	return c.groupLane(it)
}

// groupLane decodes the image of the call's lane; no item is a lane of which nothing was committed.
func (c *call) groupLane(it item) (*metadata.GroupLane, error) {
	return decodeAs(c, it, func(it item) (*metadata.GroupLane, error) { return decodeGroupLane(c.lane, it) })
}

// PutGroup implements metadata.GroupMembership.
func (t *Table) PutGroup(ctx context.Context, g *metadata.Group) error {
	c := writing("PutGroup", "", metadata.GroupKey(g.Name))
	if err := g.Validate(); err != nil {
		return c.error("", err)
	}
	it := keyOf(c.key)
	it[attrCreated] = number(g.Created.UnixMilli())
	_, err := t.putIfAbsent(ctx, c, it)
	return err
}

// Join implements metadata.GroupMembership. It is a transaction of one action for the sake of its token: an attempt that arrives when another one was
// applied already does nothing, although the row may have gone since and its condition hold again.
func (t *Table) Join(ctx context.Context, group string, m *metadata.Member, before metadata.SessionID) error {
	c := writing("Join", "", metadata.MemberKey(group, m.Name))
	if err := m.Validate(); err != nil {
		return c.error("", err)
	}
	it := memberItem(m)
	for name, v := range keyOf(c.key) {
		it[name] = v
	}
	t.expire(it)
	x := newExpr()
	if before == "" {
		x.require(x.absent(attrSession))
	} else {
		x.require(x.is(attrSession, text(string(before))))
	}
	put := &types.Put{TableName: &t.name, Item: it, ConditionExpression: x.condition(), ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.given()}
	return t.transact(ctx, c, []types.TransactWriteItem{{Put: put}}, metadata.ErrChanged)
}

// expire gives a member's item the time after which the service may remove it, if the service's time is known.
func (t *Table) expire(it item) {
	if now, ok := t.ServiceTime(); ok {
		it[attrTTL] = number(now.Add(memberTTL).Unix())
	}
}

// Beat implements metadata.GroupMembership. A repeat after a lost answer may count twice, which is as good.
func (t *Table) Beat(ctx context.Context, group, member string, s metadata.SessionID) error {
	c := writing("Beat", "", metadata.MemberKey(group, member))
	x := newExpr()
	x.increase(attrBeat, 1)
	x.assign(attrQuiet, x.num(0))
	ttl := item{}
	if t.expire(ttl); ttl[attrTTL] != nil {
		x.assign(attrTTL, x.value(ttl[attrTTL]))
	}
	x.require(x.is(attrSession, text(string(s))))
	image, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil || ok:
		return err
	case image == nil:
		return c.error("", metadata.ErrUnknownMember)
	}
	return c.error("", metadata.ErrFenced)
}

// Watched implements metadata.GroupMembership.
func (t *Table) Watched(ctx context.Context, group string, m *metadata.Member, d time.Duration) error {
	c := writing("Watched", "", metadata.MemberKey(group, m.Name))
	x := newExpr()
	x.assign(attrQuiet, x.num(metadata.Silence(m.Quiet, d).Milliseconds()))
	x.require(asRead(x, m)...)
	_, ok, err := t.set(ctx, c, x)
	if err == nil && !ok {
		err = c.error("", metadata.ErrChanged)
	}
	return err
}

// asRead is the condition that the member stands as it was read.
func asRead(x *expr, m *metadata.Member) []string {
	return []string{x.is(attrSession, text(string(m.Session))), x.isNumber(attrBeat, m.Beat), x.isNumber(attrQuiet, m.Quiet.Milliseconds())}
}

// Leave implements metadata.GroupMembership.
func (t *Table) Leave(ctx context.Context, group, member string, s metadata.SessionID) error {
	c := writing("Leave", "", metadata.MemberKey(group, member))
	x := newExpr()
	x.require(x.is(attrSession, text(string(s))))
	_, err := t.deleteIf(ctx, c, x)
	return err
}

// Bury implements metadata.GroupMembership.
func (t *Table) Bury(ctx context.Context, group string, m *metadata.Member) error {
	c := writing("Bury", "", metadata.MemberKey(group, m.Name))
	x := newExpr()
	x.require(asRead(x, m)...)
	ok, err := t.deleteIf(ctx, c, x)
	if err == nil && !ok {
		err = c.error("", metadata.ErrChanged)
	}
	return err
}

// PutPlan implements metadata.GroupMembership. After a lost answer a plan of the same generation may be this one or another's.
func (t *Table) PutPlan(ctx context.Context, group string, p *metadata.Plan) error {
	c := writing("PutPlan", "", metadata.PlanKey(group))
	packed := metadata.AppendPlan(nil, p)
	if len(packed) > metadata.MaxPlanBytes {
		return &metadata.FieldError{Field: fmt.Sprintf("plan of group %q", group), Value: fmt.Sprintf("%d bytes", len(packed)),
			Valid: fmt.Sprintf("at most %d: fewer members or partitions, or shorter names of members", metadata.MaxPlanBytes)}
	}
	x := newExpr()
	x.assign(attrGeneration, x.num(p.Generation))
	x.assign(attrPacked, x.value(binary(packed)))
	if p.Generation == 1 {
		x.require(x.absent(attrGeneration))
	} else {
		x.require(x.isNumber(attrGeneration, p.Generation-1))
	}
	image, ok, err := t.set(ctx, c, x)
	if err != nil || ok {
		return err
	}
	f := &fields{key: c.key, item: image}
	if c.doubt && f.has(attrPacked) && f.number(attrGeneration, 1, maxNumber) == p.Generation && string(f.binary(attrPacked)) == string(packed) && f.err == nil {
		return nil
	}
	return c.error("", metadata.ErrChanged)
}
