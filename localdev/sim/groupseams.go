package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
)

// What the answers of the table say of groups becomes facts of the history here, above the adapter: an answer that it has repeated its request for
// is one. A member that is refused learns of its loss here.

// membership is who is who in the world's groups.
type membership struct {
	mu       sync.Mutex
	sessions map[metadata.SessionID]*Process  // who began it
	reported map[metadata.SessionID]string    // who was the last to write down that it is silent
	gave     map[Share]string                 // who was the last to release it
	steps    map[string]time.Time             // when the transaction with this token was first sent
	timeouts map[string]time.Duration         // of each group's sessions
	joined   map[metadata.SessionID]time.Time // when it last asked to join
}

func newMembership() membership {
	return membership{sessions: map[metadata.SessionID]*Process{}, reported: map[metadata.SessionID]string{}, gave: map[Share]string{},
		steps: map[string]time.Time{}, timeouts: map[string]time.Duration{}, joined: map[metadata.SessionID]time.Time{}}
}

// moment is a time by both clocks of a process.
type moment struct {
	wall time.Time
	mono time.Duration
}

func (p *Process) moment() moment { return moment{p.clock.Now(), p.clock.Mono()} }

// beatAge is how long ago, by the worse of its clocks, the process sent its last confirmed heartbeat.
func (p *Process) beatAge() time.Duration {
	p.mu.Lock()
	sent := p.beat
	p.mu.Unlock()
	now := p.moment()
	return max(now.wall.Sub(sent.wall), now.mono-sent.mono)
}

func (p *Process) beats(group string, s metadata.SessionID, sent moment, asked time.Time) {
	if !p.Alive() {
		return
	}
	p.mu.Lock()
	p.beat = sent
	p.mu.Unlock()
	p.world.Fact(Fact{Kind: Beat, By: p.Name, Share: Share{Group: group}, Asked: asked, Told: p.world.clock(), Lease: metadata.Lease{Session: s}})
}

// at is which partition a slot is.
func (w *World) at(l metadata.LaneID, s metadata.Slot) Partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 2 {
		for _, t := range w.rows {
			if p, ok := t.Partition(metadata.Place{Lane: l, Slot: s}); ok {
				return Partition{t.Name, p}
			}
		}
		var err error
		w.rows, _, err = w.table().Topics(context.Background(), "", 1000)
		w.must(err)
	}
	return Partition{"nowhere", int(s)}
}

// fact is one that an answer has shown to a living process.
func (t watched) fact(k FactKind, group string, l metadata.LaneID, s metadata.Slot, asked time.Time, f Fact) {
	f.Kind, f.By, f.Share, f.Asked, f.Told = k, t.p.Name, Share{group, t.p.world.at(l, s)}, asked, t.p.world.clock()
	t.p.world.members.mu.Lock()
	f.Timeout = t.p.world.members.timeouts[group]
	t.p.world.members.mu.Unlock()
	if t.p.Alive() {
		t.p.world.Fact(f)
	}
}

func (t watched) Join(ctx context.Context, group string, m *metadata.Member, before metadata.SessionID) error {
	asked, sent := t.p.world.clock(), t.p.moment()
	w := t.p.world
	w.members.mu.Lock()
	w.members.sessions[m.Session], w.members.timeouts[group], w.members.joined[m.Session] = t.p, m.Timeout, asked
	w.members.mu.Unlock()
	err := t.Table.Join(ctx, group, m, before)
	switch {
	case err == nil:
		t.p.Note("has joined %s", group)
		t.p.beats(group, m.Session, sent, asked)
		if before != "" {
			t.p.came("joined in place of another session")
		}
	case errors.Is(err, metadata.ErrChanged):
		t.p.came("join refused")
	}
	return err
}

func (t watched) Beat(ctx context.Context, group, member string, s metadata.SessionID) error {
	asked, sent := t.p.world.clock(), t.p.moment()
	err := t.Table.Beat(ctx, group, member, s)
	switch {
	case err == nil:
		t.p.beats(group, s, sent, asked)
	case errors.Is(err, metadata.ErrUnknownMember):
		t.p.came("judged dead, and lives")
	case errors.Is(err, metadata.ErrFenced):
		t.p.came("fenced")
		t.fencedRightly(group, member, s)
	}
	return err
}

// fencedRightly sees to it that it was a later start that took a session's name, not an earlier one whose request to join arrived late.
func (t watched) fencedRightly(group, member string, s metadata.SessionID) {
	w := t.p.world
	row, err := w.table().Member(context.Background(), group, member)
	if err != nil || !t.p.Alive() {
		return
	}
	w.members.mu.Lock()
	mine, others := w.members.joined[s], w.members.joined[row.Session]
	w.members.mu.Unlock()
	if !others.After(mine) {
		w.Bad(About{By: t.p.Name}, "%s is fenced by a session that had asked to join before it, %v earlier", t.p.Name, mine.Sub(others))
	}
}

// came notes and counts what has come up in a living process.
func (p *Process) came(what string) {
	if p.Alive() {
		p.Note("%s", what)
		p.world.Count(what)
	}
}

func (t watched) Watched(ctx context.Context, group string, m *metadata.Member, d time.Duration) error {
	err := t.Table.Watched(ctx, group, m, d)
	if err == nil {
		w := t.p.world
		w.members.mu.Lock()
		defer w.members.mu.Unlock()
		w.members.reported[m.Session] = t.p.Name
	}
	return err
}

func (t watched) Bury(ctx context.Context, group string, m *metadata.Member) error {
	err := t.Table.Bury(ctx, group, m)
	if err == nil {
		w := t.p.world
		w.members.mu.Lock()
		by := w.members.reported[m.Session]
		w.members.mu.Unlock()
		t.p.came("buried another")
		if m.Quiet > 0 && by != "" && by != t.p.Name {
			t.p.came("buried one whom another had watched")
		}
	}
	return err
}

func (t watched) PutPlan(ctx context.Context, group string, p *metadata.Plan) error {
	err := t.Table.PutPlan(ctx, group, p)
	switch {
	case err == nil:
		t.p.came("planned")
	case errors.Is(err, metadata.ErrChanged):
		t.p.came("plan conflict")
	}
	return err
}

func (t watched) SetLeases(ctx context.Context, group string, l metadata.LaneID, changes []metadata.LeaseChange) (*metadata.GroupLane, error) {
	asked := t.p.world.clock()
	image, err := t.Table.SetLeases(ctx, group, l, changes)
	if err != nil {
		if errors.Is(err, metadata.ErrChanged) {
			t.p.came("lease refused")
		}
		return image, err
	}
	for _, c := range changes {
		if !c.To.Held() {
			t.fact(Gave, group, l, c.Slot, asked, Fact{Lease: c.To, From: c.From})
			t.p.gave(Share{group, t.p.world.at(l, c.Slot)})
		} else if image.Slots[c.Slot].Lease == c.To {
			t.fact(Took, group, l, c.Slot, asked, Fact{Lease: c.To, From: c.From, Offset: image.Slots[c.Slot].Offset})
			t.p.took(Share{group, t.p.world.at(l, c.Slot)}, c)
		}
	}
	return image, nil
}

func (p *Process) gave(s Share) {
	p.world.members.mu.Lock()
	defer p.world.members.mu.Unlock()
	p.world.members.gave[s] = p.Name
}

// took counts how a lease was come by.
func (p *Process) took(s Share, c metadata.LeaseChange) {
	m := &p.world.members
	m.mu.Lock()
	giver, before := m.gave[s], m.sessions[c.From.Session]
	delete(m.gave, s)
	m.mu.Unlock()
	switch {
	case c.From.Session == c.To.Session:
		p.came("took what it had, anew")
	case before == p:
		p.came("took what its session before had had")
	case before != nil && p.Part == before.Part:
		p.came("took what its life before had had")
	case before != nil && before.Alive():
		p.came("took over from one who was judged dead and lives")
	case before != nil:
		p.came("took over from the dead")
	case giver != "" && giver != p.Name:
		p.came("handed over")
	}
}

func (t watched) CommitOffsets(ctx context.Context, group string, l metadata.LaneID, at time.Time, commits []metadata.OffsetCommit) (
	*metadata.GroupLane, error) {
	asked := t.p.world.clock()
	image, err := t.Table.CommitOffsets(ctx, group, l, at, commits)
	commits = slices.SortedFunc(slices.Values(commits), func(a, b metadata.OffsetCommit) int { return cmp.Compare(a.Slot, b.Slot) })
	for _, c := range commits { // in the order of slots: they come in that of a map, which is another one each time
		switch {
		case err == nil:
			t.fact(Committed, group, l, c.Slot, asked, Fact{Lease: c.Lease, From: image.Slots[c.Slot].Lease, Offset: c.Offset})
		case !errors.Is(err, metadata.ErrChanged):
		case image.Slots[c.Slot].Lease != c.Lease:
			t.fact(Lost, group, l, c.Slot, asked, Fact{})
			t.p.came("commit refused by its lease")
		case image.Slots[c.Slot].Offset > c.Offset:
			t.p.came("commit refused by its offset")
		}
	}
	return image, err
}

func (t watched) ResetOffsets(ctx context.Context, group string, l metadata.LaneID, at time.Time, resets []metadata.OffsetReset) (*metadata.GroupLane, error) {
	w := t.p.world
	var facts []*Fact
	for _, r := range resets { // whatever becomes of it, from now on it may be so
		facts = append(facts, w.Fact(Fact{Kind: WasReset, By: t.p.Name, Share: Share{group, w.at(l, r.Slot)}, Asked: w.clock(),
			Lease: metadata.Lease{Epoch: r.From.Lease.Epoch + 1}, Offset: r.Offset}))
	}
	image, err := t.Table.ResetOffsets(ctx, group, l, at, resets)
	if !t.p.Alive() {
		return image, err
	}
	refuted := false
	for _, r := range resets {
		refuted = refuted || errors.Is(err, metadata.ErrChanged) && image.Slots[r.Slot].Lease.Epoch <= r.From.Lease.Epoch
	}
	for i, r := range resets {
		switch {
		case err == nil:
			w.Settle(facts[i])
			if holder := w.members.of(r.From.Lease.Session); holder != nil && holder.Alive() {
				t.p.came("reset under a living member")
			}
		case refuted:
			w.Retract(facts[i])
		default:
			t.p.came("reset unknown")
		}
	}
	return image, err
}

// of is the process that began the session, nil if there is none.
func (m *membership) of(s metadata.SessionID) *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[s]
}

// sent is when the transaction with the token was first sent: an answer to it may be to any of its attempts.
func (m *membership) sent(token string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps[token].IsZero() {
		m.steps[token] = now
	}
	return m.steps[token]
}

func (t watched) CommitStep(ctx context.Context, token string, commits []metadata.Commit, offsets []metadata.StepOffsets) error {
	asked := t.p.world.members.sent(token, t.p.world.clock())
	err := t.Table.CommitStep(ctx, token, commits, offsets)
	t.refused(err, commits...)
	for _, o := range offsets {
		for _, m := range o.Moves {
			if err == nil {
				t.fact(Committed, o.Group, o.Lane, m.Slot, asked, Fact{Lease: m.Lease, Offset: m.To})
			}
		}
	}
	var offsetsRefused *metadata.OffsetsRefusedError
	if errors.As(err, &offsetsRefused) {
		t.p.came("step refused by a lease or an offset")
	}
	return err
}
