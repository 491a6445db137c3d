package sdk

import (
	"context"
	"fmt"
	"time"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition) }

// StartFail, as the start of a Consumer, makes a partition for which the group has committed nothing an error, ErrNoCommit, of one Poll. The partition is held, and
// not read before a Seek says from where.
var StartFail = Position{kind: startFail}

// ConsumerOption changes one setting of a Consumer.
type ConsumerOption func(*consumerConfig)

// consumerConfig is every setting. Defaults are in defaultConsumerConfig, checks in check.
type consumerConfig struct {
	topics     []string
	instance   string
	pattern    string
	client     string
	timeout    time.Duration
	refresh    time.Duration
	revoke     time.Duration
	autoCommit time.Duration // 0: none
	start      Position
	onAssigned func(context.Context, []TopicPartition) map[TopicPartition]int64
	onRevoked  func(context.Context, []TopicPartition)
	onLost     func(context.Context, []TopicPartition)
	reading    readerConfig
}

func defaultConsumerConfig(near bool) consumerConfig {
	c := consumerConfig{timeout: 30 * time.Second, refresh: 10 * time.Second, revoke: 30 * time.Second, autoCommit: 5 * time.Second, start: Earliest,
		reading: defaultReaderConfig(near)}
	c.reading.reset = ResetEarliest
	return c
}

// heartbeat is the time between heartbeats: several may be lost before a member is in doubt at half its time-out.
func (c *consumerConfig) heartbeat() time.Duration { return c.timeout / 10 }

// look is the age at which a heartbeat renews what is known of the topics: one that left it to the next one would be too late.
func (c *consumerConfig) look() time.Duration { return max(c.refresh-c.heartbeat(), 1) }

// check returns a *FieldError for the first setting that makes no sense.
func (c *consumerConfig) check() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: field, Value: fmt.Sprint(value), Valid: valid}
	}
	switch {
	case c.timeout < time.Second || c.timeout > 24*time.Hour:
		return bad("session time-out", c.timeout, "1s to 24h")
	case c.refresh <= 0:
		return bad("refresh of topics", c.refresh, "a time above 0")
	case c.revoke <= 0:
		return bad("revoke time-out", c.revoke, "a time above 0")
	case c.autoCommit < 0:
		return bad("commit interval", c.autoCommit, "a time above 0, or 0 for none")
	case c.start.kind != earliest && c.start.kind != latest && c.start.kind != atTime && c.start.kind != startFail:
		return bad("start", c.start, "Earliest, Latest, AtTime or StartFail")
	case c.reading.to.kind != noPosition || c.reading.partitions != nil || c.reading.fromOffsets != nil || c.reading.toOffsets != nil || c.reading.recycle:
		return bad("reading", "partitions, offsets, a stop or recycled records", "bounds and policies only: the group says what is read from where")
	}
	return c.reading.check()
}

// WithInstanceID makes the member static: started again under the same id within its session time-out it has its partitions back at once and nobody
// else's move. A second process under the id takes over, and the first fails with ErrFenced. Close of a static member gives up nothing. The id follows the
// rules of topic names. Default: a random name, and Close leaves the group.
func WithInstanceID(id string) ConsumerOption { return func(c *consumerConfig) { c.instance = id } }

// SubscribePattern subscribes to all topics, also those to come, whose whole names match the regular expression, besides those named.
func SubscribePattern(re string) ConsumerOption { return func(c *consumerConfig) { c.pattern = re } }

// WithClientName is shown by descriptions of the group. Default none.
func WithClientName(s string) ConsumerOption { return func(c *consumerConfig) { c.client = s } }

// WithSessionTimeout sets after how long without a sign of life the others take a member's partitions over. It sends ten heartbeats in that time, each
// one write and one read of the table, and delivers nothing from half of it on if none gets through. Default 30 s.
func WithSessionTimeout(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.timeout = d }
}

// WithTopicRefresh sets how often topics are looked at: for new partitions, for those that are gone, and for new ones of the names and the pattern. A look comes with
// the last heartbeat before that time is over, or with each, if those are rarer; and with the next one when a reader finds its topic gone. It is one strong read for
// each topic that members of the group name, or one of all topics' rows if a member has a pattern. Default 10 s.
func WithTopicRefresh(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.refresh = d }
}

// WithRevokeTimeout bounds how long a partition that is to go to another member is kept while Poll is not called or OnRevoked runs. Then it is
// taken away, and reported lost. Default 30 s.
func WithRevokeTimeout(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.revoke = d }
}

// AutoCommit sets how often what is finished is committed: the records that a Poll returned are when the next Poll is called. Default 5 s.
func AutoCommit(every time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.autoCommit = every }
}

// ManualCommit leaves committing to Commit and CommitOffsets.
func ManualCommit() ConsumerOption { return func(c *consumerConfig) { c.autoCommit = 0 } }

// StartAt says where the group starts in a partition for which it has committed nothing: Earliest, Latest, AtTime(t) or StartFail. The number that it
// comes to is committed at once, so that it stays the same however long the first record is in coming. Partitions that are added to a topic
// that the group reads start at the earliest record in any case. Default Earliest.
func StartAt(p Position) ConsumerOption { return func(c *consumerConfig) { c.start = p } }

// OnAssigned is called by Poll when partitions have come, before any of their records. Offsets that it returns are where to start instead of what
// the group has committed: an application that keeps its own, with its results, returns them here. One below 0 is an error of that Poll, and its partition waits for
// a Seek. Pause, Seek and Epoch take the partitions already.
func OnAssigned(f func(context.Context, []TopicPartition) map[TopicPartition]int64) ConsumerOption {
	return func(c *consumerConfig) { c.onAssigned = f }
}

// OnRevoked is called by Poll, and by Close, when partitions are to go to other members: none of their records is delivered any more, all that
// were are finished, and they can still be committed. ctx ends with the revoke time-out.
func OnRevoked(f func(context.Context, []TopicPartition)) ConsumerOption {
	return func(c *consumerConfig) { c.onRevoked = f }
}

// OnLost is called by Poll when partitions are gone already: nothing can be committed for them any more. Whoever keeps offsets by topic and partition drops them
// here: a partition of that name that is assigned later may be another topic's, or begin elsewhere after a reset.
func OnLost(f func(context.Context, []TopicPartition)) ConsumerOption {
	return func(c *consumerConfig) { c.onLost = f }
}

// Reading applies bounds and policies of a Reader: WithWait, WithPollBytes, WithReadBuffer (for all topics together), WithPrefetch, OnExpired
// (here ResetEarliest unless set otherwise) and SkipHoles.
func Reading(opts ...ReaderOption) ConsumerOption {
	return func(c *consumerConfig) {
		for _, o := range opts {
			o(&c.reading)
		}
	}
}
