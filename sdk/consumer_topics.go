package sdk

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata/group"
)

// TopicsGoneError says that of the topics that a consumer has subscribed to by name none is left. It is ErrTopicGone, and not final: see Poll.
type TopicsGoneError struct {
	Group  string
	Topics []string
}

func (e *TopicsGoneError) Error() string {
	return fmt.Sprintf("group %q: none of the topics that this member reads is left: %v", e.Group, e.Topics)
}

func (e *TopicsGoneError) Is(target error) bool { return target == ErrTopicGone }

// topicsGone is the events of topics that are gone since the last heartbeat. What the member holds of them it gives up: nobody waits for it to be read.
func (c *Consumer) topicsGone(ctx context.Context) (events []event) {
	now, ok := c.member.Topics()
	if !ok {
		return nil
	}
	there := map[string]bool{}
	for _, name := range now {
		there[name] = true
	}
	var all []group.Partition
	for id, name := range c.topics {
		if now[id] != "" {
			continue
		}
		held := slices.DeleteFunc(c.member.Held(), func(p group.Partition) bool { return p.ID != id })
		all = append(all, held...)
		events = append(events, event{kind: gone, partitions: held, topic: TopicGoneEvent{Group: c.group, Topic: name, Anew: there[name], Left: len(now)}})
	}
	c.topics = now
	if len(all) > 0 {
		c.inTime(ctx, func(ctx context.Context) { c.member.Release(ctx, all) }) // what could not be released is by the next heartbeat
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.topic.Topic, b.topic.Topic) })
	return events
}

// leaveTopic tells that a topic is gone, and at the last one that nothing is left to read.
func (c *Consumer) leaveTopic(ctx context.Context, e event) error {
	fire(c.log.hooks, func(h TopicGoneHook) { h.OnTopicGone(e.topic) })
	call(ctx, c.config.onLost, c.drop(e.partitions))
	if e.topic.Left > 0 || c.config.pattern != "" {
		return nil
	}
	return &TopicsGoneError{c.group, slices.Compact(slices.Sorted(slices.Values(c.config.topics)))}
}
