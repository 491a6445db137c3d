//go:build !race

// The race detector makes this take minutes, and sees the same code in the simulation itself. make sim runs it without.

package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/metadata"
)

// The simulation of groups must be able to fail: each of these takes one rule out, outside the production code, and is caught by a check of that rule.
func TestGroupsCatches(t *testing.T) {
	everybodys := func(wrap func(table) table) sim.Rule {
		return sim.Rule{Table: func(_ *sim.Process, t table) table { return wrap(t) }}
	}
	for name, c := range map[string]struct {
		without sim.Rule
		by      string             // what some violation says
		cast    func() []sim.Actor // nil: that of groups
	}{
		"commits without a lease":               {sim.Rule{Wire: anyLease}, "though the lease", nil},
		"commits that go back":                  {sim.Rule{Wire: backwards}, "nobody has reset it", nil},
		"resets that leave the lease":           {sim.Rule{Wire: leaseStays}, "already", nil},
		"stealing from the living":              {everybodys(func(t table) table { return thief{t} }), "which lives", nil},
		"offsets apart from the append":         {everybodys(func(t table) table { return apart{t} }), "results in the log", nil},
		"the dead are never buried":             {everybodys(func(t table) table { return noBurial{t} }), "no owner", alone},
		"a heartbeat counts without its answer": {everybodys(func(t table) table { return hopeful{t} }), "last confirmed heartbeat", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := groups()
			s.Without = c.without
			if c.cast != nil {
				s.Cast = c.cast
			}
			for seed := int64(1); seed <= controlSeeds; seed++ {
				for _, v := range sim.Play(t, seed, s).Violations() {
					if strings.Contains(v.What, c.by) {
						t.Logf("seed %d: %s", seed, v.What)
						return
					}
				}
			}
			t.Errorf("not caught in %d seeds", controlSeeds)
		})
	}
}

// update is an UpdateItem of the wire.
type update struct {
	body   map[string]any
	Names  map[string]string         `json:"ExpressionAttributeNames"`
	Values map[string]map[string]any `json:"ExpressionAttributeValues"`
	Key    map[string]map[string]string
	Cond   string `json:"ConditionExpression"`
	Update string `json:"UpdateExpression"`
}

// ofOffsets is the request if it updates what a group has committed for a lane.
func ofOffsets(op string, body []byte) *update {
	u := &update{}
	if !strings.HasSuffix(op, "UpdateItem") || json.Unmarshal(body, u) != nil || !strings.HasPrefix(u.Key["sk"]["S"], "O#") {
		return nil
	}
	json.Unmarshal(body, &u.body)
	return u
}

func (u *update) encode() []byte {
	u.body["ConditionExpression"], u.body["ExpressionAttributeValues"] = u.Cond, u.Values
	b, _ := json.Marshal(u.body)
	return b
}

var equals = regexp.MustCompile(`(#\w+)=(:\w+)`)

// anyLease lets commits through under whatever lease there is.
func anyLease(p *sim.Process, op string, body []byte) []byte {
	u := ofOffsets(op, body)
	if u == nil || p.Part == "resetter" || !u.commits() {
		return body
	}
	u.Cond = equals.ReplaceAllStringFunc(u.Cond, func(term string) string {
		if name, _, _ := strings.Cut(term, "="); strings.HasPrefix(u.Names[name], "l") {
			return "(" + term + " OR attribute_exists(" + name + "))"
		}
		return term
	})
	return u.encode()
}

// commits tells whether it sets an offset.
func (u *update) commits() bool {
	for _, m := range equals.FindAllStringSubmatch(u.Update, -1) {
		if strings.HasPrefix(u.Names[m[1]], "c") {
			return true
		}
	}
	return false
}

var atMost = regexp.MustCompile(`(#\w+)<=(:\w+)`)

// backwards lets commits lower what is committed.
func backwards(_ *sim.Process, op string, body []byte) []byte {
	u := ofOffsets(op, body)
	if u == nil || !atMost.MatchString(u.Cond) {
		return body
	}
	u.Cond = atMost.ReplaceAllString(u.Cond, "($1<=$2 OR $1>$2)")
	return u.encode()
}

// leaseStays lets the resetter's updates leave the leases as they are.
func leaseStays(p *sim.Process, op string, body []byte) []byte {
	u := ofOffsets(op, body)
	if u == nil || p.Part != "resetter" {
		return body
	}
	stand := map[string]string{} // by the name of its attribute
	for _, m := range equals.FindAllStringSubmatch(u.Cond, -1) {
		stand[m[1]] = m[2]
	}
	for _, m := range equals.FindAllStringSubmatch(u.Update, -1) {
		if is := stand[m[1]]; is != "" && strings.HasPrefix(u.Names[m[1]], "l") {
			u.Values[m[2]] = u.Values[is]
		}
	}
	return u.encode()
}

// groupsEventually reads the state of groups as it was a while ago.
func groupsEventually(_ *sim.Process, op string, body []byte) []byte {
	if !strings.HasSuffix(op, "Query") || !bytes.Contains(body, []byte(`"`+strings.TrimSuffix(metadata.PlanKey("x").PK, "x"))) {
		return body
	}
	return bytes.Replace(body, []byte(`"ConsistentRead":true`), []byte(`"ConsistentRead":false`), 1)
}

// forgetful acknowledges some commits without asking for them.
type forgetful struct {
	table
	p *sim.Process
}

func (x forgetful) CommitOffsets(ctx context.Context, group string, l metadata.LaneID, at time.Time, commits []metadata.OffsetCommit) (*metadata.GroupLane, error) {
	if x.p.Chance("forgets").OneIn(4) {
		return x.table.GroupLane(ctx, group, l)
	}
	return x.table.CommitOffsets(ctx, group, l, at, commits)
}

// thief takes every lease for one of a session that is over.
type thief struct{ table }

const nobody = metadata.SessionID("0000000000000000")

func (x thief) GroupState(ctx context.Context, group string) (*metadata.GroupState, error) {
	s, err := x.table.GroupState(ctx, group)
	if err != nil || s.Plan == nil {
		return s, err
	}
	topics, _, err := x.table.Topics(ctx, "", 1000)
	for _, l := range s.Lanes {
		for i := range l.Slots {
			held := l.Slots[i].Lease.Session
			if held != "" && planned(topics, s.Plan, metadata.Place{Lane: l.Lane, Slot: metadata.Slot(i)}) != held {
				l.Slots[i].Lease.Session = nobody
			}
		}
	}
	return s, err
}

// planned is the session to which the plan gives a slot, empty if it gives it to nobody.
func planned(topics []*metadata.Topic, plan *metadata.Plan, at metadata.Place) metadata.SessionID {
	for _, t := range topics {
		p, ours := t.Partition(at)
		for _, m := range plan.Members {
			if ours && plan.Owns(m.Session, t.ID, p) {
				return m.Session
			}
		}
	}
	return ""
}

func (x thief) SetLeases(ctx context.Context, group string, l metadata.LaneID, changes []metadata.LeaseChange) (*metadata.GroupLane, error) {
	image, err := x.table.GroupLane(ctx, group, l)
	if err != nil {
		return nil, err
	}
	changes = slices.Clone(changes)
	for i := range changes {
		if now := image.Slots[changes[i].Slot].Lease; changes[i].From.Session == nobody && now.Epoch == changes[i].From.Epoch {
			changes[i].From = now
		}
	}
	return x.table.SetLeases(ctx, group, l, changes)
}

// apart appends first, and commits the offsets when that is done.
type apart struct{ table }

func (a apart) CommitStep(ctx context.Context, token string, commits []metadata.Commit, offsets []metadata.StepOffsets) error {
	if err := a.table.CommitAll(ctx, token, commits); err != nil {
		return err
	}
	for _, o := range offsets {
		var moves []metadata.OffsetCommit
		for _, m := range o.Moves {
			moves = append(moves, metadata.OffsetCommit{Slot: m.Slot, Lease: m.Lease, First: m.From == metadata.NoOffset, Offset: m.To})
		}
		if _, err := a.table.CommitOffsets(ctx, o.Group, o.Lane, o.At, moves); err != nil {
			return err
		}
	}
	return nil
}

// noBurial leaves the rows of the dead where they are.
type noBurial struct{ table }

func (noBurial) Bury(context.Context, string, *metadata.Member) error { return metadata.ErrChanged }

// alone is one group of few members: of many whom nobody buries, everybody would look at nothing else.
func alone() []sim.Actor {
	return []sim.Actor{&sim.Producer{Name: "w0", Topic: "in", Bursts: 36}, &sim.Group{Name: "readers", Topic: "in", Least: 3, Most: 4, Timeout: timeout},
		&sim.Misfortune{Name: "misfortune", Times: 6, Among: "readers"}}
}

// hopeful takes a heartbeat for confirmed that may not have arrived.
type hopeful struct{ table }

func (x hopeful) Beat(ctx context.Context, group, member string, s metadata.SessionID) error {
	err := x.table.Beat(ctx, group, member, s)
	if errors.Is(err, metadata.ErrFenced) || errors.Is(err, metadata.ErrUnknownMember) {
		return err
	}
	return nil
}
