package sdk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
	"github.com/varvelog/varve/segment"
)

// Consumer is one member of a group. The group's members share the partitions of their topics among themselves, and what they have committed is where
// the next one goes on. A partition has one owner at a time: what an earlier owner commits late is refused.
//
// Poll, and the callbacks, which it runs, are for one goroutine; the other methods may be called concurrently. Heartbeats do not depend on Poll: a
// handler may take as long as it wants. But a partition that is to go to another member waits for the next Poll, up to the revoke time-out.
//
// Delivery is at least once with automatic commits, or if Commit comes after the work; at most once if it comes before.
type Consumer struct {
	log    *Log
	group  string
	config consumerConfig
	member *group.Member
	news   chan struct{} // room for one: something changed that a waiting Poll should look at
	turn   chan struct{} // room for one: held by Poll, which only ever tries it, and by Close
	stop   context.CancelFunc
	done   chan struct{} // closed when heartbeats have ended

	// of who has the turn, without mu
	readers map[segment.TopicID]*Reader
	order   []segment.TopicID // of readers; the first is asked first by the next Poll

	topics map[segment.TopicID]string // of who sends heartbeats, without mu: what the member read at the last one, with names

	mu       sync.Mutex
	events   []event
	handed   *event // a revocation that Poll is at
	owned    map[group.Partition]*ownership
	final    error              // returned by every Poll from now on
	hurry    context.CancelFunc // ends what Poll waits for outside, for Close; nil when there is nothing
	deserted bool               // Close could not wait for a Poll, which is to clear up
	outage   outage
}

// ownership is of a partition that the application knows to be its own. Whether it still is, the member knows: Holds. Offsets are noOffset until there are any.
type ownership struct {
	lease     metadata.Lease
	begun     bool  // it is read; not before a Seek when nothing says from where
	delivered int64 // next offset after what Poll has returned
	finished  int64 // of that, what was returned before the last Poll
	committed int64
}

// outage is a time in which heartbeats, or what they look at, get no answer.
type outage struct {
	err   error // the latest; nil: there is none
	since time.Duration
	told  bool
}

// NewConsumer joins the group, creating it with its first member, and reads the named topics, which need not exist yet, together with the others who do.
// Names and settings that make no sense are a *FieldError. Close it.
func (l *Log) NewConsumer(ctx context.Context, groupName string, topics []string, opts ...ConsumerOption) (*Consumer, error) {
	config := defaultConsumerConfig(l.near)
	config.topics = topics
	for _, o := range opts {
		o(&config)
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	if err := l.live(); err != nil {
		return nil, err
	}
	var table group.Table = l.table
	if l.remote != nil {
		table = newRemoteTable(l.remote, groupName)
	}
	m, err := group.Join(ctx, table, l.env, group.Config{Group: groupName, Name: config.instance, Timeout: config.timeout, Topics: topics,
		Pattern: config.pattern, Client: config.client, Refresh: config.look()})
	if err != nil {
		return nil, groupError(groupName, err)
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &Consumer{log: l, group: groupName, config: config, member: m, news: make(chan struct{}, 1), turn: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}),
		readers: map[segment.TopicID]*Reader{}, owned: map[group.Partition]*ownership{}}
	go c.live(background)
	return c, nil
}

// Poll returns records, grouped by partition, as soon as there are any, of one topic at a time, in turn. Calling it says that what the last Poll
// returned is finished. It returns none and no error after the time of WithWait, and ctx's error when that is done first. Callbacks run in it.
//
// An error that concerns a partition is reported once, as by a Reader, and the partition waits for a Seek, or to be assigned anew. A topic that was deleted is no error: what was held of it is reported lost, TopicGoneHook is
// told, and the others go on. When it was the last one, and there is no pattern to wait for others by, that is a *TopicsGoneError, once. The consumer stays a member:
// the next Poll waits for topics of these names. When the table has not answered heartbeats for half the session time-out, so that nothing
// may be delivered, or one that is read back for as long, that is ErrUnreachable, once until it has answered again. ErrFenced and ErrClosed are final.
func (c *Consumer) Poll(ctx context.Context) ([]Fetch, error) {
	select {
	case c.turn <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: group %q: Poll is for one goroutine, and another Poll of this consumer is under way", ErrInvalid, c.group)
	}
	defer c.endTurn()
	c.finish()
	var timeout <-chan time.Time
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := c.handle(ctx); err != nil {
			return nil, err
		}
		fetches, err := c.collect()
		if len(fetches) > 0 || err != nil || c.config.reading.wait == 0 {
			return fetches, err
		}
		if timeout == nil && c.config.reading.wait > 0 {
			after, stop := c.log.env.After(c.config.reading.wait)
			defer stop()
			timeout = after
		}
		select {
		case <-c.news:
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
		}
	}
}

// finish notes that what the last Poll returned is finished.
func (c *Consumer) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.owned {
		o.finished = max(o.finished, o.delivered)
	}
}

// endTurn ends a Poll, and clears up after a Close that could not wait for it.
func (c *Consumer) endTurn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deserted {
		c.closeReaders()
	}
	<-c.turn
}

func (c *Consumer) closeReaders() {
	for _, r := range c.readers {
		r.Close()
	}
}

// inOutage is the error of an outage that has lasted for half the session time-out, once.
func (c *Consumer) inOutage(silent bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &c.outage
	if o.err == nil || o.told || !silent && c.log.env.Mono()-o.since < c.config.timeout/2 {
		return nil
	}
	o.told = true
	return o.err
}

// collect is records of the first topic that has some, or an error that is due.
func (c *Consumer) collect() ([]Fetch, error) {
	silent := !c.member.MayDeliver()
	if err := c.inOutage(silent); silent || err != nil {
		return nil, err
	}
	for _, id := range slices.Clone(c.order) {
		r := c.readers[id]
		r.mu.Lock()
		r.memory.turn()
		r.mu.Unlock()
		fetches, err := r.deliver()
		if errors.Is(err, ErrTopicGone) {
			c.forgetTopic(id)
			c.member.LookAgain()
			continue
		}
		if errors.Is(err, ErrHalted) { // why was reported; other partitions go on, or may come
			err = nil
		}
		fetches = c.delivered(r, fetches)
		c.passed(r)
		if len(fetches) > 0 || err != nil {
			c.order = append(slices.DeleteFunc(c.order, func(o segment.TopicID) bool { return o == id }), id)
			return fetches, err
		}
	}
	return nil, nil
}

// delivered notes what a Poll is about to return, and takes out what is not held any more: a commit that was refused shows it before a heartbeat does, and a
// heartbeat knows it before it has told Poll. What is dropped here is read by the next owner.
func (c *Consumer) delivered(r *Reader, fetches []Fetch) []Fetch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(fetches, func(f Fetch) bool {
		p := partitionOf(r, f.Partition)
		o := c.owned[p]
		if o == nil || !c.member.Holds(p, o.lease) {
			return true
		}
		o.delivered = f.Records[len(f.Records)-1].Offset + 1
		return false
	})
}

// passed notes how far partitions came by passing offsets without a record: they count as what was returned before them does.
func (c *Consumer) passed(r *Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.passing {
		return
	}
	r.passing = false
	for _, p := range r.parts {
		id := partitionOf(r, p.id)
		o := c.owned[id]
		if o == nil || !o.begun || p.passed < 0 || p.passed <= o.delivered || !c.member.Holds(id, o.lease) {
			continue
		}
		if o.finished == o.delivered {
			o.finished = p.passed
		}
		o.delivered = p.passed
	}
}

func partitionOf(r *Reader, p int) group.Partition {
	return group.Partition{Topic: r.topic.Name, ID: r.topic.ID, Partition: p}
}

// forgetTopic closes the reader of a topic of which nothing is left to read. The partitions of one that was deleted are lost by the heartbeat that finds it so.
func (c *Consumer) forgetTopic(id segment.TopicID) {
	c.order = slices.DeleteFunc(c.order, func(o segment.TopicID) bool { return o == id })
	c.readers[id].Close()
	delete(c.readers, id)
	c.shareBuffer()
}

// find is the partition that the name means among those held: of the topic as it is now. mu is held.
func (c *Consumer) find(tp TopicPartition) (group.Partition, *ownership, error) {
	for p, o := range c.owned {
		if p.Topic == tp.Topic && p.Partition == tp.Partition && c.member.Holds(p, o.lease) {
			return p, o, nil
		}
	}
	return group.Partition{}, nil, fmt.Errorf("topic %q partition %d: %w", tp.Topic, tp.Partition, ErrNotHeld)
}

// Assignment is the partitions that the member reads now.
func (c *Consumer) Assignment() (all []TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, o := range c.owned {
		if c.member.Holds(p, o.lease) {
			all = append(all, TopicPartition{p.Topic, p.Partition})
		}
	}
	sortPartitions(all)
	return all
}

// Epoch is the number under which a partition is held now: every acquisition, by whichever member, has a higher one. It is a fencing token: whoever writes
// results elsewhere sends it along and refuses a lower one than was seen before. What is not held is ErrNotHeld.
func (c *Consumer) Epoch(tp TopicPartition) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, o, err := c.find(tp)
	if err != nil {
		return 0, err
	}
	return o.lease.Epoch, nil
}

// Pause keeps partitions from being delivered until Resume, or until they are assigned anew. What is not held is ErrNotHeld.
func (c *Consumer) Pause(partitions ...TopicPartition) error { return c.setPaused(true, partitions) }

// Resume lets paused partitions go on where they were.
func (c *Consumer) Resume(partitions ...TopicPartition) error { return c.setPaused(false, partitions) }

func (c *Consumer) setPaused(paused bool, partitions []TopicPartition) error {
	var failed error
	for _, tp := range partitions {
		failed = errors.Join(failed, c.post(tp, func(o *ownership, r *Reader) error {
			if !o.begun {
				return nil
			}
			return r.setPaused(paused, []int{tp.Partition})
		}))
	}
	return failed
}

// Seek moves a partition that is held to an offset, also one that was ErrNoCommit. What is committed for the group stays, and does not go back by committing less.
func (c *Consumer) Seek(tp TopicPartition, offset int64) error {
	if offset < 0 {
		return &FieldError{Topic: tp.Topic, Partition: tp.Partition, Field: "offset", Value: strconv.FormatInt(offset, 10), Valid: "0 or more"}
	}
	return c.post(tp, func(o *ownership, r *Reader) error {
		o.delivered, o.finished = noOffset, noOffset
		if !o.begun {
			o.begun = true
			r.begins(tp.Partition, offset, false)
			return nil
		}
		return r.Seek(tp.Partition, offset)
	})
}

// post has the next Poll, to which readers belong, do something with a partition that is held. An error comes at once if it is not held now.
func (c *Consumer) post(tp TopicPartition, do func(*ownership, *Reader) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, _, err := c.find(tp)
	if err != nil {
		return err
	}
	c.events = append(c.events, event{kind: asked, partitions: []group.Partition{p}, do: do})
	c.wake()
	return nil
}

// wake lets a waiting Poll look again.
func (c *Consumer) wake() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

const noOffset = math.MinInt64 + 1 // below whatever is committed
