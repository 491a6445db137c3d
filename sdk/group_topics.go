package sdk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
	"github.com/varvelog/varve/segment"
)

// groupTopics finds the topics that a group has to do with, by its plan, its commits or what its members read; and the names of such that are not there.
func (a *Admin) groupTopics(ctx context.Context, v *groupView) error {
	for i := range v.state.Members {
		v.subscriptions = append(v.subscriptions, group.Reads(&v.state.Members[i]))
	}
	left := v.traces()
	there := map[string]bool{}
	for after, more := "", true; more; {
		var page []*metadata.Topic
		var err error
		if page, more, err = a.log.table.Topics(ctx, after, 1000); err != nil {
			return err
		}
		for _, t := range page {
			after = t.Name
			there[t.Name] = true
			if left.of(t.ID, t.Lanes) || v.reads(t) {
				v.topics = append(v.topics, t)
			}
		}
	}
	for _, m := range v.state.Members {
		for _, name := range m.Topics {
			v.absent[name] = true
		}
	}
	if err := a.goneTopics(ctx, v, left); err != nil {
		return err
	}
	maps.DeleteFunc(v.absent, func(name string, _ bool) bool { return there[name] })
	return nil
}

// goneTopics adds the names of deleted topics that the plan still has, or, in a group without members, that something is committed for.
func (a *Admin) goneTopics(ctx context.Context, v *groupView, left *traces) error {
	if len(v.state.Members) > 0 {
		clear(left.lanes) // a member's heartbeats carry them until the sweep, and it may have long read others
	}
	if len(left.planned)+len(left.lanes) == 0 {
		return nil
	}
	all, err := a.log.table.Gone(ctx)
	for _, t := range all {
		if left.of(t.ID, t.Lanes) {
			v.absent[t.Name] = true
		}
	}
	return err
}

// traces is what a group's plan and its commits say of topics, and no topic has explained yet.
type traces struct {
	planned map[segment.TopicID]bool
	lanes   map[metadata.LaneID]bool
}

func (v *groupView) traces() *traces {
	left := &traces{map[segment.TopicID]bool{}, map[metadata.LaneID]bool{}}
	for _, t := range v.plan().Topics {
		left.planned[t.ID] = true
	}
	for lane := range v.lanes {
		left.lanes[lane] = true
	}
	return left
}

// of tells whether there is a trace of a topic, which then explains it.
func (left *traces) of(id segment.TopicID, lanes []metadata.LaneID) bool {
	found := left.planned[id]
	delete(left.planned, id)
	for _, lane := range lanes {
		found = found || left.lanes[lane]
		delete(left.lanes, lane)
	}
	return found
}

// reads tells whether any member reads the topic.
func (v *groupView) reads(t *metadata.Topic) bool {
	return slices.ContainsFunc(v.subscriptions, func(reads func(string) bool) bool { return reads(t.Name) })
}

// isNew tells whether the plan does not have all of the topic's partitions.
func (v *groupView) isNew(t *metadata.Topic) bool {
	at, planned := slices.BinarySearchFunc(v.plan().Topics, t.ID, func(p metadata.PlanTopic, id segment.TopicID) int { return cmp.Compare(p.ID, id) })
	return !planned || len(v.plan().Topics[at].Owners) < t.Partitions
}

// forget notes that a topic has gone since it was listed.
func (v *groupView) forget(t *metadata.Topic) {
	v.topics = slices.DeleteFunc(v.topics, func(o *metadata.Topic) bool { return o.ID == t.ID })
	v.absent[t.Name] = true
}

func (v *groupView) gone() []string { return slices.Sorted(maps.Keys(v.absent)) }

// unplanned is the names of topics of which members are to read what the plan does not have yet.
func (v *groupView) unplanned() (names []string) {
	for _, t := range v.topics {
		if v.isNew(t) && v.reads(t) {
			names = append(names, t.Name)
		}
	}
	return names
}

// whyIdle is why the plan gives nothing to a member with this subscription.
func (v *groupView) whyIdle(reads func(topic string) bool) string {
	there := false
	for _, t := range v.topics {
		switch {
		case !reads(t.Name):
		case v.isNew(t):
			return fmt.Sprintf("topic %q, as it is now, was created or grown since the plan was made; the next look of a member at the topics makes one", t.Name)
		default:
			there = true
		}
	}
	if !there {
		return "no topic that it reads is there; it reads those that are created"
	}
	return "there are more members than partitions that it may read; it takes over when another goes"
}
