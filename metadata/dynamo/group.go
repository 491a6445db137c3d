package dynamo

import (
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
)

func decodeGroup(it item) (*metadata.Group, error) {
	f := &fields{key: parseKey(it), item: it}
	g := &metadata.Group{Name: f.key.SK, Created: time.UnixMilli(f.number(attrCreated, 0, maxNumber)).UTC()}
	if f.err == nil && metadata.ValidateName("group", g.Name) != nil {
		f.bad("sk", metadata.ErrCorrupt, "names no group")
	}
	if f.err != nil {
		return nil, f.err
	}
	return g, nil
}

// memberItem is the attributes of a member besides its key and attrTTL.
func memberItem(m *metadata.Member) item {
	it := item{
		attrRow:     number(rowVersion),
		attrSession: text(string(m.Session)),
		attrBeat:    number(m.Beat),
		attrQuiet:   number(m.Quiet.Milliseconds()),
		attrTimeout: number(m.Timeout.Milliseconds()),
		attrTopics:  texts(m.Topics),
	}
	for attr, s := range map[string]string{attrPattern: m.Pattern, attrClient: m.Client} {
		if s != "" {
			it[attr] = text(s)
		}
	}
	return it
}

func decodeMember(name string, it item) (*metadata.Member, error) {
	f := &fields{key: parseKey(it), item: it}
	if v := f.number(attrRow, 1, maxNumber); v > rowVersion {
		f.bad(attrRow, metadata.ErrVersion, "is %d, this build knows %d", v, rowVersion)
	}
	m := &metadata.Member{
		Name:    name,
		Session: metadata.SessionID(f.text(attrSession)),
		Beat:    f.number(attrBeat, 0, maxNumber),
		Quiet:   f.milliseconds(attrQuiet),
		Timeout: f.milliseconds(attrTimeout),
		Topics:  f.texts(attrTopics, metadata.MaxSubscriptions),
		Pattern: f.optional(attrPattern),
		Client:  f.optional(attrClient),
	}
	if f.err == nil {
		if err := m.Validate(); err != nil {
			f.bad(attrRow, metadata.ErrCorrupt, "%v", err)
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	return m, nil
}

func (f *fields) milliseconds(attr string) time.Duration {
	return time.Duration(f.number(attr, 0, int64(maxDuration/time.Millisecond))) * time.Millisecond
}

const maxDuration time.Duration = 1<<63 - 1

// optional reads a string that may not be there.
func (f *fields) optional(attr string) string {
	if !f.has(attr) {
		return ""
	}
	return f.text(attr)
}

func decodePlan(it item) (*metadata.Plan, error) {
	f := &fields{key: parseKey(it), item: it}
	generation, packed := f.number(attrGeneration, 1, maxNumber), f.binary(attrPacked)
	if f.err != nil {
		return nil, f.err
	}
	p, err := metadata.DecodePlan(generation, packed)
	if err != nil {
		return nil, fmt.Errorf("%s, attribute %s: %w", f.key, attrPacked, err)
	}
	return p, nil
}

// decodeGroupLane reads O#<lane>; nil, where there is no item, is a lane that the group has never read.
func decodeGroupLane(lane metadata.LaneID, it item) (*metadata.GroupLane, error) {
	l := metadata.NewGroupLane(lane)
	f := &fields{key: parseKey(it), item: it}
	for attr := range it {
		if attr == "pk" || attr == "sk" {
			continue
		}
		var s metadata.Slot
		ok := attr != ""
		if ok {
			s, ok = metadata.ParseSlotAttr(attr[0], attr)
		}
		if !ok {
			f.bad(attr, metadata.ErrVersion, "is not known")
			break
		}
		f.groupSlot(&l.Slots[s], attr)
	}
	if f.err != nil {
		return nil, f.err
	}
	return l, nil
}

func (f *fields) groupSlot(s *metadata.Committed, attr string) {
	switch attr[0] {
	case 'c':
		s.Offset = f.number(attr, 0, maxNumber)
	case 't':
		s.At = time.UnixMilli(f.number(attr, 0, maxNumber)).UTC()
	case 'm':
		s.Metadata = f.text(attr)
	case 'l':
		lease, err := metadata.ParseLease(f.text(attr))
		if err != nil {
			f.bad(attr, metadata.ErrCorrupt, "%v", err)
		}
		s.Lease = lease
	default:
		f.bad(attr, metadata.ErrVersion, "is not known")
	}
}
