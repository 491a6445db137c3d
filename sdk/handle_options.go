package sdk

import (
	"fmt"
	"time"
)

// HandleOption changes one setting of Handle.
type HandleOption func(*handleConfig)

// handleConfig is every setting. Defaults are in defaultHandleConfig, checks in check.
type handleConfig struct {
	consumer []ConsumerOption
	parallel int
	attempts int
	pauses   [2]time.Duration // between attempts: the first, and the longest
	producer *Producer
	retry    []time.Duration
	dead     string
	commit   time.Duration
}

func defaultHandleConfig() handleConfig {
	return handleConfig{parallel: 1, attempts: 5, pauses: [2]time.Duration{100 * time.Millisecond, 10 * time.Second}, commit: time.Second}
}

// check returns a *FieldError for the first setting that makes no sense.
func (c *handleConfig) check() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: field, Value: fmt.Sprint(value), Valid: valid}
	}
	switch {
	case c.parallel < 1 || c.parallel > maxParallel:
		return bad("parallel keys", c.parallel, fmt.Sprintf("1 to %d", maxParallel))
	case c.attempts < 1:
		return bad("attempts", c.attempts, "1 or more")
	case c.pauses[0] <= 0 || c.pauses[1] < c.pauses[0]:
		return bad("pauses between attempts", c.pauses, "the first above 0, the longest not below it")
	case (c.dead != "" || len(c.retry) > 0) && c.producer == nil:
		return bad("producer of retries and dead letters", nil, "a producer of the log")
	}
	for _, d := range c.retry {
		if d < time.Second || d%time.Second != 0 {
			return bad("delay of a retry topic", d, "whole seconds")
		}
	}
	return nil
}

// maxParallel bounds the goroutines of one partition.
const maxParallel = 256

// Consuming passes options to the Consumer that Handle makes. Callbacks and automatic commits are Handle's own.
func Consuming(opts ...ConsumerOption) HandleOption {
	return func(c *handleConfig) { c.consumer = append(c.consumer, opts...) }
}

// Parallel lets up to n records of a partition be handled at the same time, of different keys: records of one key stay in order. Those without a key
// count as of one key. Default 1.
func Parallel(n int) HandleOption { return func(c *handleConfig) { c.parallel = n } }

// Attempts says how often a record is handled before it is parked (RetryAfter, DeadLetters), and how long to wait between attempts: first, then twice
// as long each time, up to longest. Without a place to park it, it is tried for ever, and what comes after it waits: the order is kept. Default 5, 100 ms, 10 s.
func Attempts(n int, first, longest time.Duration) HandleOption {
	return func(c *handleConfig) { c.attempts, c.pauses = n, [2]time.Duration{first, longest} }
}

// RetryAfter parks a record whose attempts have failed in a topic of the group's, to be handled again after the first delay, then after the second, and so
// on; those behind it go on. There is one topic for each delay, so each is read in order of time; RetryTopic names it. Handle creates and reads them.
// Parked is at least once: a crash between parking and committing parks it twice.
func RetryAfter(p *Producer, delays ...time.Duration) HandleOption {
	return func(c *handleConfig) { c.producer, c.retry = p, delays }
}

// DeadLetters writes a record whose last attempt has failed to a topic, which must exist, with its origin, the error and the number of attempts in headers.
func DeadLetters(p *Producer, topic string) HandleOption {
	return func(c *handleConfig) { c.producer, c.dead = p, topic }
}

// RetryTopic is the topic in which a group's records wait for so long.
func RetryTopic(group string, delay time.Duration) string {
	return fmt.Sprintf("%s-retry-%ds", group, int(delay/time.Second))
}

// Headers of records that Handle parks. Numbers are decimal, times milliseconds since 1970.
const (
	HeaderOriginTopic     = "varve-origin-topic"
	HeaderOriginPartition = "varve-origin-partition"
	HeaderOriginOffset    = "varve-origin-offset"
	HeaderError           = "varve-error" // of the last attempt, at most 1 KiB
	HeaderAttempts        = "varve-attempts"
	HeaderNotBefore       = "varve-not-before" // in retry topics
)
