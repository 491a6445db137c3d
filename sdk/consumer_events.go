package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
	"github.com/varvelog/varve/segment"
)

// What the heartbeats find is done by Poll, in the application's goroutine: so the application knows of a partition before its first record, and nothing of a
// partition is under way in it when it is given up.

type eventKind uint8

const (
	assigned eventKind = iota
	revoked
	lost
	asked // by the application: Pause, Resume, Seek
	gone  // a topic is, and with it these partitions
)

// event is something for Poll to do.
type event struct {
	kind       eventKind
	claims     []group.Claim
	partitions []group.Partition
	given      map[TopicPartition]int64 // of assigned, once told: what OnAssigned has returned
	told       bool
	do         func(*ownership, *Reader) error
	until      time.Duration  // of revoked: when the partitions are taken away, by the monotonic clock
	taken      bool           // of revoked: they were, while OnRevoked ran
	topic      TopicGoneEvent // of gone
}

// live sends heartbeats and commits until ctx is done. It alone ticks the member.
func (c *Consumer) live(ctx context.Context) {
	defer close(c.done)
	e := c.log.env
	beat := e.Mono()
	look, commit := beat, beat+c.config.autoCommit
	for ctx.Err() == nil {
		now := e.Mono()
		if now >= look {
			soon, err := c.look(ctx, now >= beat)
			if errors.Is(err, ErrFenced) {
				return
			}
			if now >= beat {
				beat = now + c.config.heartbeat()
			}
			look = beat
			if soon {
				look = min(beat, now+e.Jitter(c.config.heartbeat()/4))
			}
		}
		c.takeAway(ctx)
		next := look
		if c.config.autoCommit > 0 {
			if now >= commit {
				c.inTime(ctx, func(ctx context.Context) { c.commitFinished(ctx) }) // what fails is tried again
				commit = e.Mono() + c.config.autoCommit
			}
			next = min(next, commit)
		}
		e.Sleep(ctx, next-e.Mono())
	}
}

// look looks at the group, with a heartbeat if one is due. soon says that there is something to wait for between heartbeats.
func (c *Consumer) look(ctx context.Context, beats bool) (soon bool, err error) {
	look := c.member.Look
	if beats {
		look = c.member.Tick
	}
	var change group.Change
	c.inTime(ctx, func(ctx context.Context) { change, err = look(ctx) })
	c.note(change, c.topicsGone(ctx), err)
	return change.Waiting || errors.Is(err, metadata.ErrChanged), err
}

// inTime bounds what is done between heartbeats, so that one that does not get through leaves time for another.
func (c *Consumer) inTime(ctx context.Context, do func(context.Context)) {
	ctx, cancel := c.log.env.WithTimeout(ctx, c.config.timeout/4)
	defer cancel()
	do(ctx)
}

// note hands on to Poll what a heartbeat has found.
func (c *Consumer) note(change group.Change, topicsGone []event, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(e event) {
		if len(e.claims)+len(e.partitions) > 0 {
			c.events = append(c.events, e)
		}
	}
	c.events = append(c.events, topicsGone...)
	add(event{kind: lost, partitions: change.Lost})
	add(event{kind: revoked, partitions: change.Revoked, until: c.log.env.Mono() + c.config.revoke})
	add(event{kind: assigned, claims: change.Assigned})
	switch {
	case errors.Is(err, ErrFenced):
		if c.final == nil {
			c.final = fmt.Errorf("group %q, member %q: %w", c.group, c.member.Name(), ErrFenced)
		}
	case err == nil, errors.Is(err, metadata.ErrChanged): // another member was faster
		c.outage = outage{}
	default:
		if c.outage.err == nil {
			c.outage.since = c.log.env.Mono()
		}
		c.outage.err = fmt.Errorf("heartbeats are not answered; nothing is delivered if none gets through for half the session time-out: %w", groupError(c.group, err))
	}
	c.wake()
}

// handle does what is to be done. A Close ends what it waits for. A member that was fenced is told of what it has lost before it is told so.
func (c *Consumer) handle(ctx context.Context) error {
	c.mu.Lock()
	if len(c.events) == 0 {
		defer c.mu.Unlock()
		return c.final
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.hurry = cancel
	c.mu.Unlock()
	for {
		c.mu.Lock()
		final, left := c.final, len(c.events)
		if left == 0 || final == ErrClosed {
			c.mu.Unlock()
			return final
		}
		next := c.events[0]
		c.events = c.events[1:]
		c.mu.Unlock()
		if err := c.do(ctx, next); err != nil && !c.over() {
			return err
		}
	}
}

// over tells whether every Poll from now on returns the same.
func (c *Consumer) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.final != nil
}

func (c *Consumer) do(ctx context.Context, e event) error {
	switch e.kind {
	case assigned:
		return c.begin(ctx, e)
	case revoked:
		c.handOver(ctx, &e)
	case lost:
		call(ctx, c.config.onLost, c.drop(e.partitions))
	case asked:
		return c.answer(e)
	case gone:
		return c.leaveTopic(ctx, e)
	}
	return nil
}

func call(ctx context.Context, f func(context.Context, []TopicPartition), partitions []group.Partition) {
	if f != nil && len(partitions) > 0 {
		f(ctx, topicPartitions(partitions))
	}
}

func topicPartitions(partitions []group.Partition) (out []TopicPartition) {
	for _, p := range partitions {
		out = append(out, TopicPartition{p.Topic, p.Partition})
	}
	sortPartitions(out)
	return out
}

func sortPartitions(all []TopicPartition) {
	slices.SortFunc(all, func(a, b TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// drop stops reading partitions, and returns those that the application knew to be its own. The reader of a topic goes with its last partition.
func (c *Consumer) drop(partitions []group.Partition) (told []group.Partition) {
	c.mu.Lock()
	for _, p := range partitions {
		if c.owned[p] != nil {
			told = append(told, p)
		}
		delete(c.owned, p)
		if r := c.readers[p.ID]; r != nil {
			r.setPaused(true, []int{p.Partition})
		}
	}
	kept := map[segment.TopicID]bool{}
	for p := range c.owned {
		kept[p.ID] = true
	}
	c.mu.Unlock()
	for _, p := range partitions {
		if c.readers[p.ID] != nil && !kept[p.ID] {
			c.forgetTopic(p.ID)
		}
	}
	return told
}

// handOver gives partitions up that another member is to have.
func (c *Consumer) handOver(ctx context.Context, e *event) {
	c.handing(e)
	limited, cancel := c.log.env.WithTimeout(ctx, max(e.until-c.log.env.Mono(), 0))
	defer cancel()
	for _, p := range e.partitions {
		if r := c.readers[p.ID]; r != nil {
			r.setPaused(true, []int{p.Partition})
		}
	}
	call(limited, c.config.onRevoked, e.partitions)
	if c.handing(nil); e.taken {
		call(ctx, c.config.onLost, c.drop(e.partitions))
		return
	}
	if c.config.autoCommit > 0 {
		c.commitFinished(limited) // what could not be committed comes again elsewhere
	}
	c.member.Release(limited, e.partitions) // what could not be released is by the next heartbeat
	c.drop(e.partitions)
}

// handing notes which revocation Poll is at, for takeAway: the application's callback may not come back. What was lost before is left to the event that
// says so: the member may hold it by another lease by now, which is not to be released.
func (c *Consumer) handing(e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handed = e; e == nil {
		return
	}
	e.partitions = slices.DeleteFunc(e.partitions, func(p group.Partition) bool {
		o := c.owned[p]
		return o == nil || !c.member.Holds(p, o.lease)
	})
}

// takeAway gives up what Poll was to have given up by now: the other member waits for it.
func (c *Consumer) takeAway(ctx context.Context) {
	var overdue []group.Partition
	c.mu.Lock()
	now := c.log.env.Mono()
	for i := range c.events {
		if e := &c.events[i]; e.kind == revoked && now >= e.until {
			e.kind = lost
			overdue = append(overdue, e.partitions...)
		}
	}
	if c.handed != nil && !c.handed.taken && now >= c.handed.until {
		c.handed.taken = true // once: what is claimed again later is not to be released
		overdue = append(overdue, c.handed.partitions...)
	}
	c.mu.Unlock()
	if len(overdue) == 0 {
		return
	}
	c.inTime(ctx, func(ctx context.Context) {
		if c.config.autoCommit > 0 {
			c.commitFinished(ctx)
		}
		c.member.Release(ctx, overdue)
	})
	c.wake()
}

// answer does what the application has asked for, if the partition is still held.
func (c *Consumer) answer(e event) error {
	p := e.partitions[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	o, r := c.owned[p], c.readers[p.ID]
	if o == nil || r == nil || !c.member.Holds(p, o.lease) {
		return nil
	}
	return e.do(o, r)
}

// groupError names the group, and keeps what is the caller's to deal with apart from what did not answer.
func groupError(name string, err error) error {
	for _, known := range []error{ErrInvalid, ErrFenced, ErrNotHeld, ErrBehind, ErrNoCommit, ErrUnknownGroup, ErrUnreachable, ErrTopicGone} {
		if errors.Is(err, known) {
			return fmt.Errorf("group %q: %w", name, err)
		}
	}
	return fmt.Errorf("group %q: %w", name, unread(err))
}
