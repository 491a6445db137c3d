// Package group is the member's side of the groups' protocol: no member leads. What they agree on is in the table: the members' rows, the plan, and
// for each lane of a topic the leases and committed offsets.
//
//   - A row of a member lives as long as its counter moves. Whoever has watched it stand still for the member's time-out, by the own monotonic clock and
//     together with what others have watched before, removes it. Nobody's wall clock is compared with anybody's.
//   - The plan follows from the rows and the topics alone. Whoever finds that it does not fit them writes the next one, by compare-and-set.
//   - A member claims only what the plan gives it and nobody who is in the plan holds. What it holds and the plan gives to another it hands over: it stops
//     delivering, commits, releases; only then can the other claim it. So at any time at most one member can commit for a partition: a commit names its
//     lease, every acquisition raises the lease's epoch, and no lease ever stands twice.
//   - It may deliver only while less than half its time-out has passed, on the worse of its two clocks, since it sent its last confirmed heartbeat.
package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Table is what a member needs of the table; see package metadata.
type Table interface {
	Member(ctx context.Context, group, name string) (*metadata.Member, error)
	GroupState(ctx context.Context, group string) (*metadata.GroupState, error)
	GroupLane(ctx context.Context, group string, lane metadata.LaneID) (*metadata.GroupLane, error)
	metadata.GroupMembership
	SetLeases(ctx context.Context, group string, lane metadata.LaneID, changes []metadata.LeaseChange) (*metadata.GroupLane, error)
	CommitOffsets(ctx context.Context, group string, lane metadata.LaneID, at time.Time, commits []metadata.OffsetCommit) (*metadata.GroupLane, error)
	metadata.Stepper
	Topics
	ServiceTime() (now time.Time, ok bool)
}

// Topics is what a member looks topics up in.
type Topics interface {
	Topic(ctx context.Context, name string) (*metadata.Topic, error)
	Topics(ctx context.Context, after string, limit int) (topics []*metadata.Topic, more bool, err error)
}

// Config says who joins which group.
type Config struct {
	Group   string
	Name    string // of the member; the same again after a restart makes it static. "": random
	Timeout time.Duration
	Topics  []string
	Pattern string // see metadata.Member
	Client  string
	// Refresh is how often the topics are read again, for new partitions and new topics.
	Refresh time.Duration
}

// Partition is one partition of a topic, of that creation of it.
type Partition struct {
	Topic     string
	ID        segment.TopicID
	Partition int
}

// Claim is a partition that the member holds now.
type Claim struct {
	Partition
	Row       *metadata.Topic    // as it is known to the group's members now
	Committed metadata.Committed // with the lease
	Added     bool               // while the group has read the topic; see metadata.PlanTopic
}

// Change is what a Tick has found.
type Change struct {
	Assigned []Claim     // held from now on
	Revoked  []Partition // to be given up: stop delivering, commit, then Release
	Lost     []Partition // held no more: stop delivering, nothing can be committed
	Waiting  bool        // for others to hand over, or to show that they live: Look again soon
}

// Member takes part in one group. Its methods may be called concurrently; Tick and Look by one goroutine at a time.
type Member struct {
	table    Table
	env      env.Env
	config   Config
	catalog  *catalog
	seen     map[string]sighting              // Tick's: what is known of each other member
	vacant   map[metadata.Place]time.Duration // Tick's: what nobody who is there holds, and since when on our monotonic clock this one has seen that
	patience time.Duration                    // Tick's: for how long it looks on

	mu   sync.Mutex
	self metadata.Member
	sent moment // of the last heartbeat that was confirmed
	held map[Partition]*holding
	lost []Partition // by a commit that showed it; the next Tick tells
}

// holding is a partition that the member holds.
type holding struct {
	place     metadata.Place
	claimed   metadata.Lease // by which it was acquired: what is read belongs to it as long as the partition is held
	lease     metadata.Lease // that stands: claimed, or a later one that Settle has put in its place
	also      metadata.Lease // that a state may show in lease's place, while and after Settle replaces one by the other
	committed int64
	revoked   bool
}

// moment is a time on both clocks.
type moment struct {
	wall time.Time
	mono time.Duration
}

// Join makes the member's row, and the group's if this is its first member. It holds nothing before a Tick.
func Join(ctx context.Context, t Table, e env.Env, c Config) (*Member, error) {
	if err := metadata.ValidateName("group", c.Group); err != nil {
		return nil, err
	}
	m := &Member{table: t, env: e, config: c, seen: map[string]sighting{}, vacant: map[metadata.Place]time.Duration{}, held: map[Partition]*holding{}}
	if m.config.Name == "" {
		m.config.Name = "m-" + string(m.newSession())
	}
	var err error
	if m.catalog, err = newCatalog(t, e, c.Refresh); err != nil {
		return nil, err
	}
	return m, m.join(ctx)
}

// join begins a new session, in a group that may have been deleted meanwhile.
func (m *Member) join(ctx context.Context) error {
	self := metadata.Member{Name: m.config.Name, Session: m.newSession(), Timeout: m.config.Timeout, Topics: slices.Sorted(slices.Values(m.config.Topics)),
		Pattern: m.config.Pattern, Client: m.config.Client}
	if err := self.Validate(); err != nil { // before there is a group of that name
		return err
	}
	if _, err := compile(self.Pattern); err != nil {
		return err
	}
	if err := m.table.PutGroup(ctx, &metadata.Group{Name: m.config.Group, Created: m.serviceTime()}); err != nil {
		return err
	}
	// From here on the row may be there, also when nobody can tell. Its next heartbeat has to be for this session: it would find another's otherwise, and the
	// member would be fenced by itself.
	sent := m.begin(self)
	if err := m.putRow(ctx, &self); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = sent
	return nil
}

// begin makes the session the member's, and tells when.
func (m *Member) begin(self metadata.Member) moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self = self
	return m.now()
}

// putRow puts the row of a new session, in place of the one that is there, if any: the latest start wins. When it is not known whether it was put, the row
// tells.
func (m *Member) putRow(ctx context.Context, self *metadata.Member) error {
	var before metadata.SessionID
	for {
		failed := m.table.Join(ctx, m.config.Group, self, before)
		if failed == nil {
			return nil
		}
		row, err := m.table.Member(ctx, m.config.Group, self.Name)
		switch {
		case err == nil && row.Session == self.Session:
			return nil
		case !errors.Is(failed, metadata.ErrChanged):
			return failed
		case errors.Is(err, metadata.ErrUnknownMember):
			before = ""
		case err != nil:
			return err
		default:
			before = row.Session
		}
	}
}

// newSession draws the name of a session: 80 random bits.
func (m *Member) newSession() metadata.SessionID {
	const digits = "0123456789abcdefghijklmnopqrstuv"
	id := make([]byte, 16)
	for i := range id {
		id[i] = digits[m.env.Int64N(int64(len(digits)))]
	}
	return metadata.SessionID(id)
}

// serviceTime is the time that others are shown: by it is told whether who goes on at a commit has missed tombstones, so it is not this machine's if there is another.
func (m *Member) serviceTime() time.Time {
	now, ok := m.table.ServiceTime()
	if !ok {
		now = m.env.Now()
	}
	return now
}

func (m *Member) now() moment { return moment{m.env.Now(), m.env.Mono()} }

// since is how long ago that was, on the clock that says more: a machine that sleeps may stop one of them, a correction may turn back the other.
func (m *Member) since(t moment) time.Duration {
	return max(m.env.Now().Sub(t.wall), m.env.Mono()-t.mono)
}

// Name is the member's name, random unless it was given.
func (m *Member) Name() string { return m.config.Name }

// MayDeliver tells whether records of what is held may be handed out now.
func (m *Member) MayDeliver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.since(m.sent) < m.config.Timeout/2
}

// Tick is one heartbeat: it shows that the member lives, looks after the others and the plan, and claims and hands over. ErrFenced is final: another
// process has started under the same name. After any other error the next Tick goes on; Change says what was found until then.
func (m *Member) Tick(ctx context.Context) (change Change, err error) {
	sent := m.now()
	switch err := m.table.Beat(ctx, m.config.Group, m.config.Name, m.session()); {
	case err == nil:
		m.mu.Lock()
		m.sent = sent
		m.mu.Unlock()
	case errors.Is(err, metadata.ErrFenced):
		change.Lost = m.drop()
		return change, err
	case errors.Is(err, metadata.ErrUnknownMember): // judged dead while it could not show otherwise
		change.Lost = m.drop()
		if err := m.join(ctx); err != nil {
			return change, err
		}
	default:
		return change, err
	}
	err = m.look(ctx, &change)
	return change, err
}

// Look is a Tick without its heartbeat, for between two of them, when there is something to wait for.
func (m *Member) Look(ctx context.Context) (change Change, err error) {
	err = m.look(ctx, &change)
	return change, err
}

// look looks after the others and the plan, and claims and hands over. What it has watched it writes down last: a member that does not live for long is
// to come to what it can have.
func (m *Member) look(ctx context.Context, change *Change) error {
	state, err := m.observe(ctx)
	if err != nil {
		return err
	}
	if err := m.bury(ctx, state); err != nil {
		return err
	}
	return errors.Join(m.agree(ctx, state, change), m.report(ctx, state, false))
}

// observe reads what stands, and takes in what that shows of the others.
func (m *Member) observe(ctx context.Context) (*metadata.GroupState, error) {
	asked := m.env.Mono()
	state, err := m.table.GroupState(ctx, m.config.Group)
	if err == nil {
		m.watch(state, asked)
	}
	return state, err
}

// agree sees to it that the plan fits, and follows it.
func (m *Member) agree(ctx context.Context, state *metadata.GroupState, change *Change) error {
	known, err := m.catalog.of(ctx, state.Members, false)
	if err != nil {
		return err
	}
	m.watchVacant(state, known)
	gone, doubtful := m.elders(state)
	change.Waiting = doubtful
	if !gone || !doubtful || m.anyOverdue() {
		if err := m.replan(ctx, state); err != nil {
			return err
		}
	}
	return m.follow(ctx, state, change)
}

func (m *Member) session() metadata.SessionID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self.Session
}

// drop forgets all that is held.
func (m *Member) drop() []Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := slices.SortedFunc(maps.Keys(m.held), comparePartitions)
	clear(m.held)
	return lost
}

// Held is what the member holds, also what is to be given up.
func (m *Member) Held() []Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.held), comparePartitions)
}

// Leave gives up all that is held, removes the member's row and writes the plan without it, so that the others need not wait, and what it has watched of
// the silent. Commit before. No Tick may be under way, nor come later.
func (m *Member) Leave(ctx context.Context) error {
	released := m.Release(ctx, m.Held())
	if err := m.table.Leave(ctx, m.config.Group, m.config.Name, m.session()); err != nil {
		return errors.Join(released, err)
	}
	if err := m.leaveTo(ctx); err != nil && released == nil { // the others will see to it
		return nil
	}
	return released
}

// leaveTo leaves to the others a plan without this member, and what it has watched.
func (m *Member) leaveTo(ctx context.Context) error {
	state, err := m.observe(ctx)
	if err != nil {
		return err
	}
	if gone, doubtful := m.elders(state); !gone || !doubtful {
		state.Plan = without(state.Plan, m.session())
		err = m.replan(ctx, state)
	}
	return errors.Join(err, m.report(ctx, state, true))
}

// Pause writes down what the member has watched of the silent, for those who come later: it stops here, and its row stays, for its next life. No Tick may be
// under way, nor come later.
func (m *Member) Pause(ctx context.Context) error {
	state, err := m.observe(ctx)
	if err != nil {
		return err
	}
	return m.report(ctx, state, true)
}

// without is the plan in which nobody owns what the session did: it has given it up, and whoever has least to read can have it.
func without(p *metadata.Plan, s metadata.SessionID) *metadata.Plan {
	p = orEmpty(p)
	for _, t := range p.Topics {
		for i, m := range t.Owners {
			if m != metadata.NoOwner && p.Members[m].Session == s {
				t.Owners[i] = metadata.NoOwner
			}
		}
	}
	return p
}

// elders tells whether another member of the plan is gone, and whether this one cannot say yet of some who are older than itself whether they live. If
// both, the next plan is to be made by others, or later: what the one that is gone had goes to the eldest that lives.
func (m *Member) elders(state *metadata.GroupState) (gone, doubtful bool) {
	rows := map[string]*metadata.Member{}
	for i := range state.Members {
		rows[state.Members[i].Name] = &state.Members[i]
	}
	older := true
	for _, p := range orEmpty(state.Plan).Members {
		o := rows[p.Name]
		older = older && p.Session != m.session()
		gone = gone || o == nil && p.Session != m.session()
		doubtful = doubtful || older && o != nil && m.doubtful(o)
	}
	return gone, doubtful
}

// replan writes the next plan if the one in the state does not fit, and puts it into the state. ErrChanged when another member was faster.
func (m *Member) replan(ctx context.Context, state *metadata.GroupState) error {
	if next, err := m.wanted(ctx, state, false); err != nil || next.Same(orEmpty(state.Plan)) {
		return err
	}
	// It seems not to fit. What there is to read may have been remembered wrongly: before the plan is changed it is read anew, so that members
	// who differ in what they remember do not change it to and fro.
	next, err := m.wanted(ctx, state, true)
	if err != nil || next.Same(orEmpty(state.Plan)) {
		return err
	}
	if err := m.table.PutPlan(ctx, m.config.Group, next); err != nil {
		return err
	}
	m.tookOverdue()
	state.Plan = next
	return nil
}

func orEmpty(p *metadata.Plan) *metadata.Plan {
	if p == nil {
		return &metadata.Plan{}
	}
	return p
}

// wanted is the plan that fits the members and the topics.
func (m *Member) wanted(ctx context.Context, state *metadata.GroupState, fresh bool) (*metadata.Plan, error) {
	known, err := m.catalog.of(ctx, state.Members, fresh)
	if err != nil {
		return nil, err
	}
	var subscribers []metadata.Subscriber
	read := map[segment.TopicID]bool{}
	for i := range state.Members {
		o := &state.Members[i]
		s := metadata.Subscriber{PlanMember: metadata.PlanMember{Name: o.Name, Session: o.Session}, Seen: m.lives(o), Proven: o.Beat > 1, Silent: m.silent(o),
			Maker: o.Name == m.config.Name}
		for id := range known.readBy(o) {
			s.Topics = append(s.Topics, id)
			read[id] = true
		}
		subscribers = append(subscribers, s)
	}
	if len(subscribers) > metadata.MaxMembers {
		return nil, &metadata.FieldError{Field: "members of the group", Value: fmt.Sprint(len(subscribers)), Valid: fmt.Sprintf("at most %d", metadata.MaxMembers)}
	}
	lease := leases(state.Lanes)
	var readable []metadata.Readable
	total := 0
	for id := range read {
		topic := known.byID[id]
		readable = append(readable, metadata.Readable{ID: id, Partitions: topic.Partitions, Known: m.knownOf(topic, state.Lanes),
			Holders: holders(topic, lease), Overdue: m.overdue(topic)})
		total += topic.Partitions
	}
	if total > metadata.MaxPlanPartitions {
		return nil, &metadata.FieldError{Field: "partitions of the group's topics", Value: fmt.Sprint(total), Valid: fmt.Sprintf("at most %d", metadata.MaxPlanPartitions)}
	}
	return metadata.Assign(state.Plan, subscribers, readable), nil
}

// leases is a state's, by place; that of a place which nobody has ever claimed is no lease.
func leases(lanes []*metadata.GroupLane) func(metadata.Place) metadata.Lease {
	byID := map[metadata.LaneID]*metadata.GroupLane{}
	for _, l := range lanes {
		byID[l.Lane] = l
	}
	return func(at metadata.Place) metadata.Lease {
		if l := byID[at.Lane]; l != nil {
			return l.Slots[at.Slot].Lease
		}
		return metadata.Lease{}
	}
}

// holders is whose the leases of a topic's partitions are.
func holders(t *metadata.Topic, lease func(metadata.Place) metadata.Lease) []metadata.SessionID {
	holders := make([]metadata.SessionID, t.Partitions)
	for p := range holders {
		holders[p] = lease(t.Place(p)).Session
	}
	return holders
}

// knownOf is the Known of a topic that the plan does not have: all its partitions, if it was there before the group began to read it; none if the group has
// committed for it, or the topic was created, perhaps anew, while this member was looking: what was written before it saw the topic is not to be passed over.
func (m *Member) knownOf(t *metadata.Topic, lanes []*metadata.GroupLane) int {
	if m.catalog.created[t.ID] {
		return 0
	}
	for _, l := range lanes {
		for s, c := range l.Slots {
			if _, ours := t.Partition(metadata.Place{Lane: l.Lane, Slot: metadata.Slot(s)}); ours && c.Offset != metadata.NoOffset {
				return 0
			}
		}
	}
	return t.Partitions
}
