package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
)

// GroupMember is one member of a group as its row and the plan show it.
type GroupMember struct {
	Name       string           `json:"name"`
	Client     string           `json:"client,omitempty"`
	Topics     []string         `json:"topics"`
	Pattern    string           `json:"pattern,omitempty"`
	Partitions []TopicPartition `json:"partitions"`          // that the plan gives it
	Idle       string           `json:"idle,omitempty"`      // why the plan gives it none
	QuietMs    int64            `json:"quiet_ms,omitempty"`  // for how long others have seen no heartbeat
	TimeoutMs  int64            `json:"session_timeout_ms"`  // after which they take its partitions over
	Unplanned  bool             `json:"unplanned,omitempty"` // joined, or started again, since the plan was made
}

// GroupPartition is a partition of a group's topic: what is committed, who reads it, and how far it is behind. Offsets that are not there are -1.
type GroupPartition struct {
	TopicPartition
	Committed   int64     `json:"committed"` // -1: nothing
	CommittedAt time.Time `json:"committed_at,omitzero"`
	Metadata    string    `json:"metadata,omitempty"`
	Owner       string    `json:"owner,omitempty"` // member that holds the lease
	Start       int64     `json:"start"`
	End         int64     `json:"end"`
	// Lag is the records that the group has still to read, from where it would go on now. Of what it has committed to read, Lost are gone by retention. Offsets
	// that a repair has cut out are in neither.
	Lag  int64 `json:"lag"`
	Lost int64 `json:"lost,omitempty"`
	// Oldest is when the next record to be read was appended, zero when there is none; Age how long ago that was, right to a second, since both are by the clock of the
	// table's service, which tells whole seconds; Used how much of its retention the record has behind it, of the time or of the bytes, whichever is more: at 1 it is
	// being deleted. Used is 0 where records are kept for ever.
	Oldest time.Time `json:"oldest,omitzero"`
	AgeMs  int64     `json:"age_ms,omitempty"`
	Used   float64   `json:"retention_used"`
}

// GroupDescription is a group, its members by name, and the partitions of the topics that it has committed for, that its plan has or that its members read.
type GroupDescription struct {
	Name       string           `json:"name"`
	Created    time.Time        `json:"created"`
	Generation int64            `json:"generation"` // of the plan, 0 before the first
	Members    []GroupMember    `json:"members"`
	Partitions []GroupPartition `json:"partitions"`
	Gone       []string         `json:"gone_topics,omitempty"` // names that members read or that it has committed for, and that no topic has: deleted, or not created yet
	// New is topics of which members are to read partitions that the plan does not have yet: created, perhaps anew, or grown since. The next look of a member at the topics
	// makes a plan that has them.
	New []string `json:"new_topics,omitempty"`
}

// ListGroups returns the names of all groups, ascending.
func (a *Admin) ListGroups(ctx context.Context) ([]string, error) {
	if err := a.log.live(); err != nil {
		return nil, err
	}
	if a.log.remote != nil {
		return a.log.remote.groups(ctx)
	}
	names := []string{}
	for after, more := "", true; more; {
		var page []*metadata.Group
		var err error
		if page, more, err = a.log.table.Groups(ctx, after, 1000); err != nil {
			return nil, fmt.Errorf("list groups: %w", unread(err))
		}
		for _, g := range page {
			names = append(names, g.Name)
			after = g.Name
		}
	}
	return names, nil
}

// DescribeGroup describes a group by strong reads: its items in one request, its topics' rows, two requests for each of their lanes, and a search for the
// age of the next record of each partition that lags; the deleted topics that are being cleaned, where it has to do with one. Where a topic has retention.bytes, the index of what such partitions have from there on is read as well.
// ErrUnknownGroup if there is none. start is where members start for which nothing is committed, Earliest or Latest: the lag of such partitions depends on it.
func (a *Admin) DescribeGroup(ctx context.Context, name string, start Position) (*GroupDescription, error) {
	if start.kind != earliest && start.kind != latest {
		return nil, &FieldError{Field: "start", Value: start.String(), Valid: "Earliest or Latest"}
	}
	if err := metadata.ValidateName("group", name); err != nil {
		return nil, err
	}
	if err := a.log.live(); err != nil {
		return nil, err
	}
	if a.log.remote != nil {
		return a.log.remote.describeGroup(ctx, name, start)
	}
	v, err := a.groupView(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &GroupDescription{Name: name, Created: v.group.Created, Generation: v.plan().Generation, Partitions: []GroupPartition{}}
	for _, t := range slices.Clone(v.topics) {
		partitions, err := a.groupPartitions(ctx, v, t, start)
		if errors.Is(err, ErrTopicGone) { // since it was listed
			v.forget(t)
			continue
		}
		if err != nil {
			return nil, err
		}
		d.Partitions = append(d.Partitions, partitions...)
	}
	d.Members, d.Gone, d.New = v.members(), v.gone(), v.unplanned()
	return d, nil
}

// groupView is a group and the topics that it has to do with, by name.
type groupView struct {
	group  *metadata.Group
	state  *metadata.GroupState
	topics []*metadata.Topic
	lanes  map[metadata.LaneID]*metadata.GroupLane
	absent map[string]bool // names that it has to do with and that no topic has

	subscriptions []func(topic string) bool // by member: what it reads
}

func (a *Admin) groupView(ctx context.Context, name string) (*groupView, error) {
	group, err := a.log.table.Group(ctx, name)
	if errors.Is(err, ErrUnknownGroup) {
		return nil, fmt.Errorf("group %q: %w", name, ErrUnknownGroup)
	}
	v := &groupView{group: group, lanes: map[metadata.LaneID]*metadata.GroupLane{}, absent: map[string]bool{}}
	if err == nil {
		v.state, err = a.log.table.GroupState(ctx, name)
	}
	if err != nil {
		return nil, groupError(name, err)
	}
	for _, l := range v.state.Lanes {
		v.lanes[l.Lane] = l
	}
	if err := a.groupTopics(ctx, v); err != nil {
		return nil, groupError(name, err)
	}
	return v, nil
}

func (v *groupView) plan() *metadata.Plan {
	if v.state.Plan == nil {
		return &metadata.Plan{}
	}
	return v.state.Plan
}

// at is what is committed for a partition.
func (v *groupView) at(t *metadata.Topic, partition int) metadata.Committed {
	place := t.Place(partition)
	if l := v.lanes[place.Lane]; l != nil {
		return l.Slots[place.Slot]
	}
	return metadata.Committed{Offset: metadata.NoOffset}
}

func (v *groupView) members() []GroupMember {
	given := map[string][]TopicPartition{}
	for _, t := range v.topics {
		for p := range t.Partitions {
			for _, m := range v.plan().Members {
				if v.plan().Owns(m.Session, t.ID, p) {
					given[m.Name] = append(given[m.Name], TopicPartition{t.Name, p})
				}
			}
		}
	}
	all := []GroupMember{}
	for i, m := range v.state.Members {
		g := GroupMember{Name: m.Name, Client: m.Client, Topics: m.Topics, Pattern: m.Pattern, Partitions: append([]TopicPartition{}, given[m.Name]...),
			QuietMs: m.Quiet.Milliseconds(), TimeoutMs: m.Timeout.Milliseconds(), Unplanned: !v.plan().Lives(m.Session)}
		switch {
		case g.Unplanned:
			g.Idle = "it has joined since the plan was made; the next heartbeat of any member makes one"
		case len(g.Partitions) == 0:
			g.Idle = v.whyIdle(v.subscriptions[i])
		}
		all = append(all, g)
	}
	return all
}

// GroupActiveError refuses to change a group in which members live. It is ErrInvalid.
type GroupActiveError struct {
	Group   string
	Members []string
}

func (e *GroupActiveError) Error() string {
	return fmt.Sprintf("group %q has members: %v; stop them, or force it, which takes their partitions away "+
		"(a member that died without a word stays listed until another one of the group has watched it for its session time-out)", e.Group, e.Members)
}

func (e *GroupActiveError) Is(target error) bool { return target == ErrInvalid }

// idle is a *GroupActiveError if members live, or have not been seen to be dead.
func (v *groupView) idle() error {
	if len(v.state.Members) == 0 {
		return nil
	}
	e := &GroupActiveError{Group: v.group.Name}
	for _, m := range v.state.Members {
		e.Members = append(e.Members, m.Name)
	}
	return e
}

// DeleteGroup removes the group and all that it has committed. While members live it is refused, unless force is set; then they lose their partitions and
// begin the group anew at their next heartbeat. Only by force goes a group
// that cannot be read, and what there is of one without its row, which late requests of its members leave, or callers who make them up.
func (a *Admin) DeleteGroup(ctx context.Context, name string, force bool) error {
	if err := a.changeGroup(name, "delete a group"); err != nil {
		return err
	}
	v, err := a.groupView(ctx, name)
	switch {
	case err == nil && !force:
		err = v.idle()
	case force && errors.Is(err, ErrCorrupt):
		err = nil
	case force && errors.Is(err, ErrUnknownGroup):
		switch s, failed := a.log.table.GroupState(ctx, name); {
		case failed != nil && !errors.Is(failed, metadata.ErrCorrupt):
			err = groupError(name, failed)
		case failed != nil || s.Plan != nil || len(s.Members)+len(s.Lanes) > 0:
			err = nil
		}
	}
	for done := false; err == nil && !done; {
		if done, err = a.log.table.DeleteGroup(ctx, name); err != nil {
			err = groupError(name, err)
		}
	}
	return err
}

// changeGroup is an error unless what can be done to a group of the name.
func (a *Admin) changeGroup(name, what string) error {
	if err := metadata.ValidateName("group", name); err != nil {
		return err
	}
	return a.log.direct(what)
}
