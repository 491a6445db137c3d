package wire

import (
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// StateOf is a group's state as it is answered at a time.
func StateOf(s *metadata.GroupState, now time.Time) GroupState {
	w := GroupState{Members: []GroupMember{}, Lanes: []GroupLane{}, NowMs: now.UnixMilli()}
	if s.Plan != nil {
		w.Plan = PlanOf(s.Plan)
	}
	for i := range s.Members {
		w.Members = append(w.Members, MemberOf(&s.Members[i]))
	}
	for _, l := range s.Lanes {
		w.Lanes = append(w.Lanes, LaneOf(l))
	}
	return w
}

// Decode is the inverse of StateOf. An error, as of the other Decode, is metadata.ErrInvalid or metadata.ErrCorrupt.
func (w *GroupState) Decode() (*metadata.GroupState, error) {
	s := &metadata.GroupState{}
	var err error
	if w.Plan != nil {
		if s.Plan, err = w.Plan.Decode(); err != nil {
			return nil, err
		}
	}
	for i := range w.Members {
		m, err := w.Members[i].Decode()
		if err != nil {
			return nil, err
		}
		s.Members = append(s.Members, *m)
	}
	for i := range w.Lanes {
		l, err := w.Lanes[i].Decode()
		if err != nil {
			return nil, err
		}
		s.Lanes = append(s.Lanes, l)
	}
	return s, nil
}

// PlanOf is a plan as it is sent.
func PlanOf(p *metadata.Plan) *GroupPlan {
	return &GroupPlan{p.Generation, metadata.AppendPlan(nil, p)}
}

// Decode is the inverse of PlanOf.
func (w *GroupPlan) Decode() (*metadata.Plan, error) {
	if w.Generation < 1 {
		return nil, &metadata.FieldError{Field: "generation", Value: fmt.Sprint(w.Generation), Valid: "1 or more"}
	}
	return metadata.DecodePlan(w.Generation, w.Packed)
}

// MemberOf is a member's row as it is answered.
func MemberOf(m *metadata.Member) GroupMember {
	topics := m.Topics
	if topics == nil {
		topics = []string{}
	}
	return GroupMember{Name: m.Name, Session: string(m.Session), Beat: m.Beat, QuietMs: m.Quiet.Milliseconds(), TimeoutMs: m.Timeout.Milliseconds(), Topics: topics, Pattern: m.Pattern,
		Client: m.Client}
}

// Decode is the inverse of MemberOf.
func (w *GroupMember) Decode() (*metadata.Member, error) {
	m := &metadata.Member{Name: w.Name, Session: metadata.SessionID(w.Session), Beat: w.Beat, Quiet: milliseconds(w.QuietMs), Timeout: milliseconds(w.TimeoutMs), Topics: w.Topics,
		Pattern: w.Pattern, Client: w.Client}
	return m, m.Validate()
}

// milliseconds is a duration of so many; of more than there can be, the longest.
func milliseconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}

// LaneOf is a group's lane as it is answered.
func LaneOf(l *metadata.GroupLane) GroupLane {
	w := GroupLane{Lane: string(l.Lane), Slots: []GroupSlot{}}
	for i, c := range l.Slots {
		s := GroupSlot{Slot: i, Lease: leaseText(c.Lease), Metadata: c.Metadata}
		if c.Offset != metadata.NoOffset {
			s.Offset, s.AtMs = &c.Offset, c.At.UnixMilli()
		}
		if s.Lease != "" || s.Offset != nil {
			w.Slots = append(w.Slots, s)
		}
	}
	return w
}

// Decode is the inverse of LaneOf.
func (w *GroupLane) Decode() (*metadata.GroupLane, error) {
	l := metadata.NewGroupLane(metadata.LaneID(w.Lane))
	for _, s := range w.Slots {
		slot, err := slotOf(s.Slot)
		if err != nil {
			return nil, err
		}
		c := &l.Slots[slot]
		if c.Lease, err = parseLease(s.Lease); err != nil {
			return nil, err
		}
		if s.Offset == nil {
			continue
		}
		if *s.Offset < 0 || s.AtMs < 0 || len(s.Metadata) > metadata.MaxCommitMetadata {
			return nil, &metadata.FieldError{Field: "offset", Value: fmt.Sprintf("%d at %d ms", *s.Offset, s.AtMs), Valid: "0 or more, at a time from 1970 on"}
		}
		c.Offset, c.At, c.Metadata = *s.Offset, time.UnixMilli(s.AtMs).UTC(), s.Metadata
	}
	return l, nil
}

// ChangesOf are changes of leases as they are sent.
func ChangesOf(changes []metadata.LeaseChange) (w []LeaseChange) {
	for _, c := range changes {
		w = append(w, LeaseChange{int(c.Slot), leaseText(c.From), leaseText(c.To)})
	}
	return w
}

// OffsetsOf are offsets as they are sent.
func OffsetsOf(commits []metadata.OffsetCommit) (w []LeaseOffset) {
	for _, c := range commits {
		w = append(w, LeaseOffset{int(c.Slot), leaseText(c.Lease), c.First, c.Offset, c.Metadata})
	}
	return w
}

// Decode is the inverse of ChangesOf and OffsetsOf. There is one of the two.
func (w *LaneAction) Decode() (changes []metadata.LeaseChange, commits []metadata.OffsetCommit, err error) {
	if (len(w.Leases) > 0) == (len(w.Offsets) > 0) {
		return nil, nil, &metadata.FieldError{Field: "leases, offsets", Value: fmt.Sprintf("%d, %d", len(w.Leases), len(w.Offsets)), Valid: "one of the two"}
	}
	for _, c := range w.Leases {
		var d metadata.LeaseChange
		if d.Slot, err = slotOf(c.Slot); err == nil {
			d.From, err = parseLease(c.From)
		}
		if err == nil {
			d.To, err = parseLease(c.To)
		}
		if err != nil {
			return nil, nil, err
		}
		changes = append(changes, d)
	}
	for _, c := range w.Offsets {
		d := metadata.OffsetCommit{First: c.First, Offset: c.Offset, Metadata: c.Metadata}
		if d.Slot, err = slotOf(c.Slot); err == nil {
			d.Lease, err = parseLease(c.Lease)
		}
		if err != nil {
			return nil, nil, err
		}
		commits = append(commits, d)
	}
	return changes, commits, nil
}

// MovesOf are moves of offsets as they are sent.
func MovesOf(token string, steps []metadata.StepOffsets) GroupMoves {
	w := GroupMoves{Token: token}
	for _, s := range steps {
		w.AtMs = s.At.UnixMilli() // of all of them
		l := LaneMoves{Lane: string(s.Lane)}
		for _, m := range s.Moves {
			o := OffsetMove{int(m.Slot), leaseText(m.Lease), nil, m.To, m.Metadata}
			if m.From != metadata.NoOffset {
				o.From = &m.From
			}
			l.Moves = append(l.Moves, o)
		}
		w.Lanes = append(w.Lanes, l)
	}
	return w
}

// Decode is the inverse of MovesOf, for a group, at a time that is not after the latest.
func (w *GroupMoves) Decode(group string, latest time.Time) (steps []metadata.StepOffsets, err error) {
	at := time.UnixMilli(w.AtMs).UTC()
	if w.AtMs < 1 || at.After(latest) { // 0: left out
		return nil, &metadata.FieldError{Field: "at_ms", Value: fmt.Sprint(w.AtMs), Valid: "the time now, by now_ms of the group's state"}
	}
	for _, l := range w.Lanes {
		s := metadata.StepOffsets{Group: group, At: at}
		if s.Lane, err = ParseLaneID(l.Lane); err != nil {
			return nil, err
		}
		for _, o := range l.Moves {
			m := metadata.OffsetMove{From: metadata.NoOffset, To: o.To, Metadata: o.Metadata}
			if m.Slot, err = slotOf(o.Slot); err == nil {
				m.Lease, err = parseLease(o.Lease)
			}
			if err != nil {
				return nil, err
			}
			if o.From != nil {
				m.From = *o.From
			}
			s.Moves = append(s.Moves, m)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// ParseLaneID reads the name of a lane, which has the form of a topic's id.
func ParseLaneID(s string) (metadata.LaneID, error) {
	if segment.TopicID(s).Validate() != nil {
		return "", &metadata.FieldError{Field: "lane", Value: s, Valid: "as GET /v1/topics/{topic} has them"}
	}
	return metadata.LaneID(s), nil
}

func slotOf(n int) (metadata.Slot, error) {
	if n < 0 || n >= metadata.SlotsPerLane {
		return 0, &metadata.FieldError{Field: "slot", Value: fmt.Sprint(n), Valid: fmt.Sprintf("0 to %d", metadata.SlotsPerLane-1)}
	}
	return metadata.Slot(n), nil
}

// leaseText is a lease, "" where none was ever held.
func leaseText(l metadata.Lease) string {
	if l == (metadata.Lease{}) {
		return ""
	}
	return l.String()
}

func parseLease(s string) (metadata.Lease, error) {
	if s == "" {
		return metadata.Lease{}, nil
	}
	l, err := metadata.ParseLease(s)
	if err != nil {
		return l, &metadata.FieldError{Field: "lease", Value: s, Valid: "<epoch> or <epoch>.<session>"}
	}
	return l, nil
}
