package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

const (
	sessionTimeout = 30 * time.Second
	commitEvery    = time.Second      // at most: each costs a write
	groupWait      = time.Second      // for a record, before it looks whether others have read the rest
	groupPoll      = 128 << 10        // bytes between commits at least
	leaveTimeout   = 10 * time.Second // for the last commit, and to leave the group
)

// parseStart reads the --from of a member.
func parseStart(s string) (sdk.Position, error) {
	if s == "fail" {
		return sdk.StartFail, nil
	}
	at, err := parsePosition("--from", s)
	if _, offset := strconv.ParseInt(s, 10, 64); err != nil || offset == nil {
		return at, usagef("--from %q, with --group, is not earliest, latest, fail or a time such as 2001-01-31T08:00:00Z; 'varve group reset' sets offsets", s)
	}
	return at, nil
}

func (o consumeOptions) member() ([]sdk.ConsumerOption, error) {
	start, err := parseStart(o.from)
	switch {
	case err != nil:
		return nil, err
	case o.max < 0:
		return nil, usagef("--max %d is not 0 or more", o.max)
	case o.to != "" || len(o.partitions) > 0:
		return nil, usagef("--to and --partition exclude --group: the group says which partitions a member has")
	case o.timeout < time.Second || o.timeout > 24*time.Hour: // these two are checked here, because a group that has read everything is not joined
		return nil, usagef("--session-timeout %v is not 1s to 24h", o.timeout)
	case o.instance != "":
		if err := metadata.ValidateName("member", o.instance); err != nil {
			return nil, err
		}
	}
	host, _ := os.Hostname() // for descriptions only
	opts := []sdk.ConsumerOption{sdk.StartAt(start), sdk.WithSessionTimeout(o.timeout), sdk.ManualCommit(), sdk.WithClientName(fmt.Sprintf("%s:%d", host, os.Getpid())),
		sdk.Reading(sdk.WithWait(groupWait), sdk.WithPollBytes(groupPoll))}
	if o.instance != "" {
		opts = append(opts, sdk.WithInstanceID(o.instance))
	}
	return opts, nil
}

// groupConsumer prints what a member of a group is given, and commits what is printed.
type groupConsumer struct {
	*app
	consumeOptions
	log       *sdk.Log
	topics    []string
	consumer  *sdk.Consumer
	out       *bufio.Writer
	shown     *counter
	n         int                                     // records printed
	left      map[sdk.TopicPartition]int64            // partitions that the group has not read yet up to their ends at the start; nil to follow
	gone      map[string]bool                         // topics that were deleted before the group had read them that far
	printed   map[sdk.TopicPartition]sdk.CommitOffset // and not committed
	committed time.Duration                           // when, by the monotonic clock
}

func (a *app) consumeInGroup(ctx context.Context, topics []string, o consumeOptions) error {
	opts, err := o.member()
	if err != nil {
		return err
	}
	g := &groupConsumer{app: a, consumeOptions: o, topics: slices.Compact(slices.Sorted(slices.Values(topics))), out: bufio.NewWriter(a.out), shown: a.count("read"),
		gone: map[string]bool{}, printed: map[sdk.TopicPartition]sdk.CommitOffset{}, committed: a.env.Mono() - commitEvery}
	g.shown.silent = g.shown.silent || a.outTerminal
	return a.withLog(ctx, func(log *sdk.Log) error {
		g.log = log
		if done, err := g.ends(ctx); done || err != nil {
			return err
		}
		g.consumer, err = log.NewConsumer(ctx, o.group, g.topics, append(opts, sdk.OnRevoked(g.revoked), sdk.OnLost(g.lost))...)
		if err != nil {
			return err
		}
		err = g.run(ctx)
		leaving, cancel := a.env.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		return errors.Join(err, g.commit(leaving), g.consumer.Close(leaving))
	}, g)
}

// OnReset implements sdk.ResetHook.
func (g *groupConsumer) OnReset(e sdk.ResetEvent) {
	g.shown.clear()
	g.note("varve: topic %s partition %d: offsets %d to %d were removed before the group had read them; it goes on at %d", e.Topic, e.Partition, e.From, e.To-1, e.Position)
}

// OnTombstones implements sdk.TombstonesHook.
func (g *groupConsumer) OnTombstones(e sdk.TombstonesEvent) {
	g.shown.clear()
	g.note("varve: topic %s partition %d: since the group committed %d, on %s, tombstones up to %d were removed: keys that it has read may be deleted. 'varve group reset %s --to earliest' begins anew",
		e.Topic, e.Partition, e.Offset, e.At.Format(time.RFC3339), e.To, e.Group)
}

// OnTopicGone implements sdk.TopicGoneHook.
func (g *groupConsumer) OnTopicGone(e sdk.TopicGoneEvent) {
	unread := false
	maps.DeleteFunc(g.left, func(at sdk.TopicPartition, end int64) bool {
		unread = unread || at.Topic == e.Topic && g.printed[at].Offset < end
		return at.Topic == e.Topic
	})
	if unread {
		g.gone[e.Topic] = true
	}
	if !g.follow && (!unread || len(g.gone) == len(g.topics)) { // nothing was to come of it, or the error at the end says it
		return
	}
	goesOn := "the group goes on without it"
	switch {
	case e.Anew:
		goesOn = "the group goes on with the new one of that name"
	case e.Left == 0:
		goesOn = "no other is left to read, and one of that name is waited for"
	}
	g.shown.clear()
	g.note("varve: topic %s was deleted: %s", e.Topic, goesOn)
}

func (g *groupConsumer) revoked(ctx context.Context, all []sdk.TopicPartition) {
	g.commit(ctx)
	g.lost(ctx, all)
}

// lost forgets what was printed of partitions, lest it be committed for what has the same name later: of a topic that was created anew, or after a reset.
func (g *groupConsumer) lost(_ context.Context, all []sdk.TopicPartition) {
	for _, at := range all {
		delete(g.printed, at)
	}
}

// ends finds out what is to be read: up to where the topics, which must exist, end now. done: the group has read all that already.
func (g *groupConsumer) ends(ctx context.Context) (done bool, err error) {
	left := map[sdk.TopicPartition]int64{}
	for _, topic := range g.topics {
		offsets, err := g.log.Admin().Offsets(ctx, topic)
		if err != nil {
			return false, err
		}
		for _, p := range offsets {
			left[sdk.TopicPartition{Topic: topic, Partition: p.Partition}] = p.End
		}
	}
	if g.follow {
		return false, nil
	}
	g.left = left
	err = g.look(ctx)
	return g.complete(), err
}

// look takes out of left what the group has read meanwhile, this member or others. A partition in which nothing is committed is nobody's yet: it is to come,
// empty or not, so that the group's start in it is fixed.
func (g *groupConsumer) look(ctx context.Context) error {
	d, err := g.log.Admin().DescribeGroup(ctx, g.group, sdk.Earliest)
	if errors.Is(err, sdk.ErrUnknownGroup) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range d.Partitions {
		if end, ok := g.left[p.TopicPartition]; ok && p.Committed >= 0 && max(p.Committed, p.Start) >= end {
			delete(g.left, p.TopicPartition)
		}
	}
	for _, topic := range d.Gone { // perhaps before the member ever knew of it
		g.OnTopicGone(sdk.TopicGoneEvent{Topic: topic, Left: 1})
	}
	return nil
}

// complete tells whether all is printed that was there at the start.
func (g *groupConsumer) complete() bool {
	for tp, end := range g.left {
		if p, ok := g.printed[tp]; !ok || p.Offset < end {
			return false
		}
	}
	return !g.follow
}

// run prints records until all is read, --max, or an interruption, which is how following ends.
func (g *groupConsumer) run(ctx context.Context) error {
	defer g.shown.clear()
	for !g.complete() && (g.max == 0 || g.n < g.max) {
		fetches, err := g.consumer.Poll(ctx)
		before := g.n
		if err := g.print(fetches); err != nil {
			return err
		}
		g.shown.add(g.n - before)
		if err == nil && g.env.Mono()-g.committed >= commitEvery {
			err = g.commit(ctx)
		}
		if err == nil && len(fetches) == 0 && !g.follow {
			err = g.look(ctx)
		}
		switch {
		case err == nil:
		case g.follow && ctx.Err() != nil:
			g.shown.clear()
			g.progress("%s", plural(g.n, "record", "records"))
			return nil
		case g.follow && passes(err):
			g.shown.clear()
			g.note("varve: %v; trying again", err)
		case errors.Is(err, sdk.ErrTopicGone): // see OnTopicGone
		default:
			return err
		}
	}
	g.shown.clear()
	if len(g.gone) == len(g.topics) {
		return &sdk.TopicsGoneError{Group: g.group, Topics: g.topics}
	}
	g.progress("%s", plural(g.n, "record", "records"))
	return nil
}

// passes tells whether an error may be over at the next attempt.
func passes(err error) bool {
	return errors.Is(err, sdk.ErrUnreachable) || errors.Is(err, sdk.ErrThrottled)
}

// print prints what is to be read of the fetches, and notes it once it has left the program.
func (g *groupConsumer) print(fetches []sdk.Fetch) error {
	news := map[sdk.TopicPartition]sdk.CommitOffset{}
	for _, f := range fetches {
		at := sdk.TopicPartition{Topic: f.Topic, Partition: f.Partition}
		for i := range f.Records {
			r := &f.Records[i]
			if !g.follow && r.Offset >= g.left[at] {
				g.consumer.Pause(at) // if it is not held any more, so much the better
				break
			}
			if g.max > 0 && g.n == g.max {
				break
			}
			if err := printRecord(g.out, r, g.json); err != nil {
				return err
			}
			g.n++
			news[at] = sdk.CommitOffset{Offset: r.Offset + 1}
		}
	}
	if err := g.out.Flush(); err != nil {
		return err
	}
	for at, o := range news {
		g.printed[at] = o
	}
	return nil
}

// commit commits what is printed. What could not be reached is tried again; a partition that another member has by now is its own to commit.
func (g *groupConsumer) commit(ctx context.Context) error {
	if len(g.printed) == 0 {
		return nil
	}
	err := g.consumer.CommitOffsets(ctx, g.printed)
	if err != nil && !errors.Is(err, sdk.ErrNotHeld) && !errors.Is(err, sdk.ErrBehind) || passes(err) {
		return err
	}
	if err != nil {
		g.shown.clear()
		g.note("varve: %v; another member prints again what was not committed", err)
	} else {
		for at, o := range g.printed {
			if o.Offset >= g.left[at] {
				delete(g.left, at)
			}
		}
	}
	clear(g.printed)
	g.committed = g.env.Mono()
	return nil
}
