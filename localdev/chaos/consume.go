package main

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/varvelog/varve/sdk"
)

// consumer is a member of a group.
type consumer struct {
	*worker
	*sdk.Consumer
	group  string
	manual bool
	out    *appender                               // of a stepper
	open   map[sdk.TopicPartition]sdk.CommitOffset // that are done, and not committed, by a member that commits by itself
}

// consume is a member until it is to end.
func (w *worker) consume(ctx context.Context, log *sdk.Log) (err error) {
	c := &consumer{worker: w, group: working, manual: w.oneIn(2), open: map[sdk.TopicPartition]sdk.CommitOffset{}}
	if w.Role == stepper {
		c.group, c.manual = stepping, true
		if c.out, err = w.appender(log); err != nil {
			return err
		}
	}
	if !c.join(ctx, log) {
		return nil
	}
	for ctx.Err() == nil {
		fetches, err := c.Poll(ctx)
		if err != nil && ctx.Err() == nil {
			if errors.Is(err, sdk.ErrFenced) { // by the next life of this very member
				return nil
			}
			w.pollFailed(orders, err)
			w.rest(ctx, waitTime)
		}
		c.given(fetches)
		for _, f := range fetches {
			c.work(ctx, f)
		}
		if len(fetches) == 0 || !c.oneIn(4) {
			c.commit(ctx)
		}
	}
	leave, cancel := w.env.WithTimeout(context.Background(), flushTime)
	defer cancel()
	w.note("close of the consumer", c.Close(leave))
	if c.out != nil {
		return c.out.close(leave)
	}
	return nil
}

func (c *consumer) join(ctx context.Context, log *sdk.Log) bool {
	options := []sdk.ConsumerOption{sdk.WithSessionTimeout(c.Timeout), sdk.WithRevokeTimeout(c.Timeout), sdk.WithTopicRefresh(c.Timeout),
		sdk.OnAssigned(func(_ context.Context, tps []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
			c.shares(assigned, tps)
			return nil
		}),
		sdk.OnRevoked(func(_ context.Context, tps []sdk.TopicPartition) { c.shares(lost, tps) }),
		sdk.OnLost(func(_ context.Context, tps []sdk.TopicPartition) { c.shares(lost, tps) }),
		sdk.Reading(sdk.WithWait(waitTime), sdk.WithPollBytes(1+c.below(20000)))}
	if c.manual {
		options = append(options, sdk.ManualCommit())
	} else {
		options = append(options, sdk.AutoCommit(c.env.Jitter(time.Second)))
	}
	if strings.HasSuffix(c.Name, "-1") { // one of each group has its partitions back when it comes again in time
		options = append(options, sdk.WithInstanceID(c.Name))
	}
	for ctx.Err() == nil {
		var err error
		if c.Consumer, err = log.NewConsumer(ctx, c.group, []string{orders}, options...); err == nil {
			return true
		}
		c.note("join "+c.group, err)
		c.rest(ctx, waitTime)
	}
	return false
}

// shares tells of partitions that came or went.
func (c *consumer) shares(k kind, tps []sdk.TopicPartition) {
	var lines []line
	for _, tp := range tps {
		lines = append(lines, line{Kind: k, Group: c.group, Topic: tp.Topic, Partition: tp.Partition})
	}
	c.journal.write(lines...)
}

func (c *consumer) given(fetches []sdk.Fetch) {
	for _, f := range fetches {
		c.tell(given, f.Records)
	}
}

func (c *consumer) tell(k kind, records []sdk.Record) {
	var lines []line
	for i := range records {
		r := &records[i]
		lines = append(lines, line{Kind: k, Group: c.group, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Value: valueOf(r)})
	}
	c.journal.write(lines...)
}

// work does what is to be done with records of one partition.
func (c *consumer) work(ctx context.Context, f sdk.Fetch) {
	if c.out != nil {
		c.steps(ctx, f)
		return
	}
	c.rest(ctx, 5*time.Millisecond)
	c.tell(finished, f.Records)
	if c.manual {
		maps.Copy(c.open, next(f, len(f.Records)))
	}
}

// next is behind the last of the records.
func next(f sdk.Fetch, n int) map[sdk.TopicPartition]sdk.CommitOffset {
	return map[sdk.TopicPartition]sdk.CommitOffset{{Topic: f.Topic, Partition: f.Partition}: {Offset: f.Records[n-1].Offset + 1}}
}

// commit commits what is done. What cannot be committed is read again, here or elsewhere.
func (c *consumer) commit(ctx context.Context) {
	if len(c.open) == 0 {
		return
	}
	asked := c.journal.now()
	if err := c.CommitOffsets(ctx, c.open); err != nil {
		c.note("commit", err)
		if !errors.Is(err, sdk.ErrNotHeld) && !errors.Is(err, sdk.ErrBehind) {
			return
		}
	} else {
		c.committed(asked, c.open)
	}
	clear(c.open)
}

func (c *consumer) committed(asked int64, offsets map[sdk.TopicPartition]sdk.CommitOffset) {
	for tp, o := range offsets {
		c.journal.write(line{Kind: committed, Group: c.group, Topic: tp.Topic, Partition: tp.Partition, Offset: o.Offset, Asked: asked})
	}
}

// steps makes results of a few records after the other, and commits each few with theirs.
func (c *consumer) steps(ctx context.Context, f sdk.Fetch) {
	for len(f.Records) > 0 && ctx.Err() == nil {
		n := min(1+c.below([]int{8, 200}[c.below(2)]), len(f.Records))
		c.tell(finished, f.Records[:n])
		if !c.step(f, n) {
			return
		}
		f.Records = f.Records[n:]
	}
}

// step makes results of the first n records until they and their offset are in the log, or tells that what was read is to be dropped.
func (c *consumer) step(f sdk.Fetch, n int) bool {
	for {
		c.out.call++
		var made []*sdk.Record
		var lines []line
		for i := range f.Records[:n] {
			r, l := c.out.record(results, c.below(partitionsOf(results)))
			l.Call, l.Loose, l.From = c.out.call, true, &source{c.group, f.Topic, f.Partition, f.Records[i].Offset}
			made, lines = append(made, r), append(lines, l)
		}
		offsets := next(f, n)
		c.journal.write(lines...)
		asked := c.journal.now()
		err := c.Step(context.Background(), c.out.Producer, offsets, made...)
		c.out.settled(made, lines, err)
		if err == nil {
			c.committed(asked, offsets)
			return true
		}
		c.note("step", err)
		if errors.Is(err, sdk.ErrUnknown) || errors.Is(err, sdk.ErrNotHeld) || errors.Is(err, sdk.ErrBehind) {
			return false
		}
		c.rest(context.Background(), 100*time.Millisecond)
	}
}

// watch looks at what the groups have committed until it is to end.
func (w *worker) watch(ctx context.Context, log *sdk.Log) error {
	for ctx.Err() == nil {
		for _, group := range []string{working, stepping} {
			lines, err := sample(ctx, log, group, w.journal.now())
			if err == nil {
				w.journal.write(lines...)
			} else if !errors.Is(err, sdk.ErrUnknownGroup) && ctx.Err() == nil {
				w.note("offsets of "+group, err)
			}
		}
		w.rest(ctx, 400*time.Millisecond)
	}
	return nil
}

// sample asks for what a group has committed.
func sample(ctx context.Context, log *sdk.Log, group string, asked int64) (lines []line, err error) {
	offsets, err := log.Admin().GroupOffsets(ctx, group, orders)
	for _, o := range offsets {
		lines = append(lines, line{Kind: sampled, Group: group, Topic: orders, Partition: o.Partition, Offset: o.Offset, Asked: asked})
	}
	return lines, err
}
