package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// Group is a group of members who read a topic, each as it was drawn: static or dynamic, with automatic commits or its own, quick or slow, long- or
// short-lived, polite or not. The world looks at what the group has agreed on, and records it.
type Group struct {
	Name, Topic string
	Least, Most int           // members
	Out         string        // the topic to which its members write a result of each record, by steps; empty: they only read
	Short       bool          // all its members live for less than their time-out, one after the other
	Timeout     time.Duration // of their sessions

	members int

	sampling sync.Mutex                   // watch and Prove sample, either when it likes
	moved    map[metadata.SessionID]int64 // heartbeats of each session that were recorded
}

// Play implements Actor.
func (x *Group) Play(w *World) {
	x.members = x.Least + w.Chance(x.Name, "members").Below(x.Most-x.Least+1)
	for i := range x.members {
		part := fmt.Sprintf("%s.m%d", x.Name, i)
		nature := x.nature(w.Chance(part, "nature"), i)
		w.Follow(func() { w.Lives(part, Life{Seldom: 3}, math.MaxInt, func(p *Process, _ int) { x.life(p, nature) }) })
	}
	w.Follow(func() { x.watch(w) })
}

// nature is what a member is in all its lives.
type nature struct {
	static, manual, slow, short, polite bool
}

// nature of the first two members of a group is such that the group gets on.
func (x *Group) nature(c Chance, i int) nature {
	n := nature{static: c.OneIn(3), manual: c.OneIn(2), slow: c.OneIn(4), short: c.OneIn(4), polite: c.OneIn(2)}
	switch {
	case x.Short:
		n.static, n.slow, n.short = false, false, true
	case i < 2:
		n.slow, n.short = false, false
	}
	return n
}

// watch looks at the group now and then, without trouble, until the world is over.
func (x *Group) watch(w *World) {
	table, c := w.table(), w.Chance(x.Name, "watch")
	for !w.Over() {
		x.sample(w, table)
		w.Sleep(c.Within(x.Timeout/10, x.Timeout/5))
	}
	x.sample(w, table)
}

// sample records what stands.
func (x *Group) sample(w *World, table metadata.Table) (stand []*Fact) {
	row, err := table.Topic(context.Background(), x.Topic)
	w.must(err)
	asked := w.clock()
	state, err := table.GroupState(context.Background(), x.Name)
	w.must(err)
	w.showsGroup("the world", x.Name, asked, state.Lanes)
	lanes := map[metadata.LaneID]*metadata.GroupLane{}
	for _, l := range state.Lanes {
		lanes[l.Lane] = l
	}
	plan := cmp.Or(state.Plan, &metadata.Plan{})
	x.sampleMembers(w, state.Members)
	for p := range row.Partitions {
		at := row.Place(p)
		f := Fact{Kind: Sampled, Share: Share{x.Name, Partition{x.Topic, p}}, Offset: metadata.NoOffset, Timeout: x.Timeout,
			Heir: heir(plan, row.ID, p)}
		if l := lanes[at.Lane]; l != nil {
			f.Offset, f.Lease = l.Slots[at.Slot].Offset, l.Slots[at.Slot].Lease
		}
		stand = append(stand, w.Fact(f))
	}
	return stand
}

// sampleMembers records whose rows have moved.
func (x *Group) sampleMembers(w *World, members []metadata.Member) {
	x.sampling.Lock()
	defer x.sampling.Unlock()
	moved := map[metadata.SessionID]int64{}
	for _, m := range members {
		moved[m.Session] = m.Beat
		if before, known := x.moved[m.Session]; !known || before != m.Beat {
			w.Fact(Fact{Kind: Moved, Share: Share{Group: x.Name}, Lease: metadata.Lease{Session: m.Session}})
		}
	}
	x.moved = moved
}

// heir is the session to which a plan gives a partition, empty if to none.
func heir(p *metadata.Plan, topic segment.TopicID, partition int) metadata.SessionID {
	for _, m := range p.Members {
		if p.Owns(m.Session, topic, partition) {
			return m.Session
		}
	}
	return ""
}

// Prove implements Actor: the group commits all that there is, and nothing more happens to it.
func (x *Group) Prove(w *World) {
	table := w.table()
	within := 10 * Soon // jobs go on by a few records each, and the death of each must be found out
	for began := w.Now(); ; w.Sleep(w.Chance(x.Name, "prove").Within(time.Second, 2*time.Second)) {
		ends := w.ends(x.Topic)
		left := slices.DeleteFunc(x.sample(w, table), func(f *Fact) bool { return f.Offset == ends[f.Share.Number] })
		if len(left) == 0 {
			return
		}
		if w.Now()-began > within {
			w.BadFact(left[0], "not all is committed within %v, though nothing fails any more: %v, lease %v", within, left[0], left[0].Lease)
			return
		}
	}
}

// Resetter resets a group's offsets now and then, whether members live or not.
type Resetter struct {
	Name, Group string
	Times       int
	Forward     bool // also to the end
	Seldom      int  // only in one world of so many; 0: in all
}

// Play implements Actor.
func (x *Resetter) Play(w *World) {
	if x.Seldom > 0 && !w.Chance(x.Name, "plays").OneIn(x.Seldom) {
		return
	}
	w.Lives(x.Name, Life{Seldom: 10}, x.Times, func(p *Process, left int) {
		log := p.Open()
		for ; log != nil && left > 0 && p.Rest(p.Chance("reset").Within(3*time.Second, 13*time.Second)); left-- {
			if !x.reset(p, log, p.Chance("to")) {
				return
			}
			p.Turn()
		}
	})
}

// reset asks until it is told that all is reset, or is dead. What it has asked for in vain may have been done.
func (x *Resetter) reset(p *Process, log *sdk.Log, c Chance) bool {
	to := sdk.ResetTo{Position: sdk.Earliest}
	switch n := c.Below(4); {
	case n == 0 && x.Forward:
		to = sdk.ResetTo{Position: sdk.Latest}
	case n > 1:
		to = sdk.ResetTo{Shift: -1 - c.Int64N(9)}
	}
	if c.OneIn(4) {
		if _, err := log.Admin().ResetGroup(p.ctx, sdk.GroupReset{Group: x.Group, To: to}); err != nil {
			p.came("reset refused, members live")
		}
	}
	for p.Rest(c.Within(1, time.Second)) {
		_, err := log.Admin().ResetGroup(p.ctx, sdk.GroupReset{Group: x.Group, To: to, Force: true})
		if err == nil {
			p.Note("has reset %s to %v, shift %d", x.Group, to.Position, to.Shift)
			return p.Rest(1)
		}
		p.Note("cannot reset %s: %v", x.Group, brief(err))
		to = sdk.ResetTo{Position: sdk.Earliest}
	}
	return false
}

// Prove implements Actor.
func (x *Resetter) Prove(*World) {}
