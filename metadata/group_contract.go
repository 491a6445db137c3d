package metadata

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Conditions of groups.
var (
	ErrUnknownGroup  = errors.New("unknown group")
	ErrUnknownMember = errors.New("not a member of the group") // any more: judged dead, or it left
	ErrFenced        = errors.New("another session has taken over this member's name")
)

// GroupReader reads groups; all its reads are strong.
type GroupReader interface {
	// Group returns the row, or ErrUnknownGroup.
	Group(ctx context.Context, name string) (*Group, error)
	// Groups returns rows with names greater than after, ascending, at most limit.
	Groups(ctx context.Context, after string, limit int) (groups []*Group, more bool, err error)
	// Member returns the row of a member, or ErrUnknownMember.
	Member(ctx context.Context, group, name string) (*Member, error)
	// GroupState returns plan, members and lanes: whole or not at all. A group that nobody has joined has none of them.
	GroupState(ctx context.Context, group string) (*GroupState, error)
	// GroupLane returns what is committed for a lane; one that the group has never read is as NewGroupLane.
	GroupLane(ctx context.Context, group string, lane LaneID) (*GroupLane, error)
}

// GroupMembership is what a member does to stay one. All of it is repeated by the adapter: a request that arrives late finds its condition false.
type GroupMembership interface {
	// PutGroup creates the row; one that is there stays.
	PutGroup(ctx context.Context, g *Group) error
	// Join puts the member's row if the one there is of the session before, or, if that is empty, if there is none; ErrChanged otherwise. The session that had
	// the row gets ErrFenced from its next Beat. However late a request of it arrives, and however often, the row is put once at most: a member that was
	// buried since, or a later session of the same name, stays as it is. After an error but ErrChanged it may have been put, or may yet be.
	Join(ctx context.Context, group string, m *Member, before SessionID) error
	// Beat counts a heartbeat of the session and sets Quiet to 0. ErrUnknownMember when the row is gone, ErrFenced when it is another session's.
	Beat(ctx context.Context, group, member string, s SessionID) error
	// Watched adds to Quiet what the caller knows of m's silence beyond that, up to MaxSessionTimeout, if m still stands as it was read; ErrChanged otherwise. So
	// Quiet is never more than the silence was.
	Watched(ctx context.Context, group string, m *Member, d time.Duration) error
	// Leave removes the session's row; that of another session stays.
	Leave(ctx context.Context, group, member string, s SessionID) error
	// Bury removes a member that was judged dead, if it stands as it was read; ErrChanged when it does not.
	Bury(ctx context.Context, group string, m *Member) error
	// PutPlan writes the plan if the one there is of the generation before; ErrChanged.
	PutPlan(ctx context.Context, group string, p *Plan) error
}

// Silence is the Quiet of a member of which more is known. No time-out is longer than the most that it can be, so that however often somebody adds to it, it is a number that
// can be read.
func Silence(quiet, more time.Duration) time.Duration {
	if more > MaxSessionTimeout-quiet {
		return max(quiet, MaxSessionTimeout)
	}
	return quiet + more
}

// LeaseChange replaces a lease. To.Epoch is From.Epoch+1 when To is held, From.Epoch when it is released.
type LeaseChange struct {
	Slot     Slot
	From, To Lease
}

// OffsetCommit commits the next offset to be read of a slot.
type OffsetCommit struct {
	Slot     Slot
	Lease    Lease // that the committer holds
	First    bool  // nothing was committed for the slot before, as the committer knows it
	Offset   int64
	Metadata string
}

// OffsetReset sets the committed offset to any other, and raises the epoch of the lease, so that its holder has lost it.
type OffsetReset struct {
	Slot   Slot
	From   Committed // as it was read
	Offset int64     // NoOffset removes it
}

// GroupOffsets changes leases and offsets. Each call is one update of one lane's item, all or none, and returns the image after it; with ErrChanged
// the one that refused it. Each may be repeated after an unknown outcome, which the adapter does: applied twice it is as applied once, and an
// image shows whether it was.
type GroupOffsets interface {
	// SetLeases makes the changes of which every From stands.
	SetLeases(ctx context.Context, group string, lane LaneID, changes []LeaseChange) (*GroupLane, error)
	// CommitOffsets commits if every lease stands and no offset is lower than the one that stands.
	CommitOffsets(ctx context.Context, group string, lane LaneID, at time.Time, commits []OffsetCommit) (*GroupLane, error)
	// ResetOffsets resets if every lease and offset stands as it was read.
	ResetOffsets(ctx context.Context, group string, lane LaneID, at time.Time, resets []OffsetReset) (*GroupLane, error)
}

// StepOffsets is the part of a group's lane in a Step: each slot's offset is moved from exactly where it was.
type StepOffsets struct {
	Group string
	Lane  LaneID
	At    time.Time
	Moves []OffsetMove
}

// OffsetMove moves a slot's committed offset in a Step.
type OffsetMove struct {
	Slot     Slot
	Lease    Lease
	From, To int64 // From is NoOffset where nothing was committed
	Metadata string
}

// Stepper appends and moves offsets at once.
type Stepper interface {
	// CommitStep is Transactor.CommitAll with the moves of offsets in the same transaction: all or none. Either of the two may be empty. Errors are those of
	// CommitAll, and *OffsetsRefusedError for the first part of a group's lane that refused, if no commit did.
	CommitStep(ctx context.Context, token string, commits []Commit, offsets []StepOffsets) error
}

// OffsetsRefusedError is a Step that a lease or a committed offset refused: definitely not applied. Image is the item that refused.
type OffsetsRefusedError struct {
	Group string
	Image *GroupLane
}

func (e *OffsetsRefusedError) Error() string {
	return fmt.Sprintf("offsets of group %q refused: a lease or an offset of lane %s is another", e.Group, e.Image.Lane)
}

// Is makes it ErrChanged.
func (e *OffsetsRefusedError) Is(target error) bool { return target == ErrChanged }

// GroupAdmin removes groups, and what they have committed.
type GroupAdmin interface {
	// DeleteGroup removes a bounded piece of the group, its row last; done tells whether nothing is left. Members that live are the caller's business.
	DeleteGroup(ctx context.Context, group string) (done bool, err error)
	// ForgetOffsets removes what the group has committed for lanes, which nobody must read any more: those of a deleted topic, whose lanes no other
	// topic ever has. Lanes of which nothing is committed are passed over, so that it may be repeated.
	ForgetOffsets(ctx context.Context, group string, lanes []LaneID) error
}

// GroupTable is all of it.
type GroupTable interface {
	GroupReader
	GroupMembership
	GroupOffsets
	Stepper
	GroupAdmin
}

// ValidateLeases reports ErrInvalid for changes that no adapter can send.
func ValidateLeases(changes []LeaseChange) error {
	return eachSlotOnce("lease changes", len(changes), func(i int) (Slot, string) {
		c := changes[i]
		switch {
		case c.To.Held() && (c.To.Epoch != c.From.Epoch+1 || !c.To.Session.valid()):
			return c.Slot, fmt.Sprintf("%v after %v: an acquisition has a session and the next epoch", c.To, c.From)
		case !c.To.Held() && (c.To.Epoch != c.From.Epoch || !c.From.Held()):
			return c.Slot, fmt.Sprintf("%v after %v: a release keeps the epoch of a lease that is held", c.To, c.From)
		}
		return c.Slot, ""
	})
}

// ValidateOffsets reports ErrInvalid for commits that no adapter can send.
func ValidateOffsets(commits []OffsetCommit) error {
	return eachSlotOnce("offset commits", len(commits), func(i int) (Slot, string) {
		c := commits[i]
		switch {
		case !c.Lease.Held() || c.Lease.Epoch < 1:
			return c.Slot, "without a lease"
		case c.Offset < 0:
			return c.Slot, fmt.Sprintf("offset %d", c.Offset)
		case badNote(c.Metadata):
			return c.Slot, fmt.Sprintf("metadata of %d bytes, want at most %d of UTF-8", len(c.Metadata), MaxCommitMetadata)
		}
		return c.Slot, ""
	})
}

// badNote tells whether a commit cannot keep this: in the table it would be another text.
func badNote(s string) bool { return len(s) > MaxCommitMetadata || !utf8.ValidString(s) }

// ValidateResets reports ErrInvalid for resets that no adapter can send.
func ValidateResets(resets []OffsetReset) error {
	return eachSlotOnce("offset resets", len(resets), func(i int) (Slot, string) {
		if resets[i].Offset < NoOffset {
			return resets[i].Slot, fmt.Sprintf("offset %d", resets[i].Offset)
		}
		return resets[i].Slot, ""
	})
}

// Validate reports ErrInvalid for moves that no adapter can send.
func (o *StepOffsets) Validate() error {
	return eachSlotOnce("moves of offsets", len(o.Moves), func(i int) (Slot, string) {
		m := o.Moves[i]
		switch {
		case !m.Lease.Held() || m.Lease.Epoch < 1:
			return m.Slot, "without a lease"
		case m.From < NoOffset || m.To < 0 || m.To < m.From:
			return m.Slot, fmt.Sprintf("offset %d to %d", m.From, m.To)
		case badNote(m.Metadata):
			return m.Slot, fmt.Sprintf("metadata of %d bytes, want at most %d of UTF-8", len(m.Metadata), MaxCommitMetadata)
		}
		return m.Slot, ""
	})
}

// eachSlotOnce checks what the changes of one lane have in common; wrong says what is wrong with the i-th besides.
func eachSlotOnce(what string, n int, wrong func(i int) (Slot, string)) error {
	bad := func(value string) error {
		return &FieldError{Field: what, Value: value, Valid: fmt.Sprintf("1 to %d of different slots below %d, each with its lease and an offset", SlotsPerLane, SlotsPerLane)}
	}
	if n < 1 || n > SlotsPerLane {
		return bad(fmt.Sprint(n))
	}
	var seen [SlotsPerLane]bool
	for i := range n {
		s, problem := wrong(i)
		switch {
		case s >= SlotsPerLane || seen[s]:
			return bad(fmt.Sprintf("slot %d", s))
		case problem != "":
			return bad(fmt.Sprintf("slot %d: %s", s, problem))
		}
		seen[s] = true
	}
	return nil
}
