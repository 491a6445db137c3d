package group

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/metadata"
)

// row is what moves in a member's row while it lives.
type row struct {
	session metadata.SessionID
	beat    int64
	quiet   time.Duration
}

// sighting is a row that has not moved since at, on our monotonic clock.
type sighting struct {
	row
	at      time.Duration
	watched time.Duration // for how long that was when it was last looked at
	moved   bool          // the member was seen to move before
}

// reportAfter is the part of a time-out for which a member may stand still before observers write down that it does. It is longer than the time
// between heartbeats, so that nobody writes about those who live.
const reportAfter = 3

// bury removes the rows of those who are dead, from the table and from the state. asked is when the state was asked for, by our monotonic clock: what it
// shows was so later, and what was seen before was so before its answer came, so the time between is never more than the silence was.
//
// What an observer has watched is written down, so that one who lives shorter than the time-out (a scheduled job, a function) leaves it to the next.
func (m *Member) bury(ctx context.Context, state *metadata.GroupState, asked time.Duration) error {
	arrived := m.env.Mono()
	seen := map[string]sighting{}
	var living []metadata.Member
	for i := range state.Members {
		o := &state.Members[i]
		now := row{o.Session, o.Beat, o.Quiet}
		before, known := m.seen[o.Name]
		if o.Name == m.config.Name || !known || before.row != now {
			living = append(living, *o)
			seen[o.Name] = sighting{row: now, at: arrived, moved: before.moved || known && (before.session != o.Session || before.beat != o.Beat)}
			continue
		}
		before.watched = (asked - before.at).Truncate(time.Millisecond)
		noted, dead, err := m.report(ctx, o, before.watched)
		switch {
		case errors.Is(err, metadata.ErrChanged): // it lives, or another observer was faster: the next look tells
			before.watched = 0
		case err != nil:
			return err
		case dead:
			continue
		case noted: // what is watched from now on comes on top
			before.quiet, before.at = before.quiet+before.watched, before.at+before.watched
		}
		living = append(living, *o)
		seen[o.Name] = before
	}
	state.Members, m.seen = living, seen
	return nil
}

// silent tells whether a member has shown no heartbeat for so long that observers write it down: this one by what it has watched, or another one.
func (m *Member) silent(o *metadata.Member) bool {
	return o.Name != m.config.Name && (o.Quiet > 0 || m.seen[o.Name].watched >= o.Timeout/reportAfter)
}

// doubtful tells whether this member cannot say yet whether another one lives: it has neither seen it move nor watched for long enough.
func (m *Member) doubtful(o *metadata.Member) bool {
	return o.Name != m.config.Name && !m.seen[o.Name].moved && !m.silent(o)
}

// report says what follows from having watched a member's row not move: nothing yet, a note for other observers, or its end. The note is written only to
// the row as it was read, so from the time on of which it tells the row has not moved either.
func (m *Member) report(ctx context.Context, o *metadata.Member, watched time.Duration) (noted, dead bool, err error) {
	switch {
	case o.Quiet+watched >= o.Timeout:
		return false, true, m.table.Bury(ctx, m.config.Group, o)
	case watched >= o.Timeout/reportAfter:
		return true, false, m.table.Watched(ctx, m.config.Group, o, watched)
	}
	return false, false, nil
}
