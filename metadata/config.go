package metadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/segment"
)

// Names and defaults of a topic's configuration, which are Kafka's but for Isolate.
const (
	RetentionMs     = "retention.ms"
	RetentionBytes  = "retention.bytes"
	CleanupPolicy   = "cleanup.policy"
	MaxMessageBytes = "max.message.bytes"
	TimestampType   = "message.timestamp.type"
	Isolate         = "isolate"

	DefaultRetention       = 7 * 24 * time.Hour
	DefaultMaxMessageBytes = 1 << 20
	DefaultPartitions      = 8
	MaxMessageBytesLimit   = 64 << 20
)

// TopicConfig is what may be altered on a topic.
type TopicConfig struct {
	Retention       time.Duration // by append time; negative keeps for ever
	RetentionBytes  int64         // per partition; negative is no limit
	CleanupPolicy   string        // "delete", "compact" or "compact,delete"
	MaxMessageBytes int           // largest record, by segment.RecordSize
	TimeType        segment.TimeType
	Isolate         bool // no segment holds records of this topic and of another; it stays as it was when the topic was created
}

// DefaultTopicConfig is seven days, no size limit, delete, 1 MiB, the producers' timestamps.
func DefaultTopicConfig() TopicConfig {
	return TopicConfig{Retention: DefaultRetention, RetentionBytes: -1, CleanupPolicy: "delete", MaxMessageBytes: DefaultMaxMessageBytes}
}

// Class is the retention class of new segments: key-compacted topics without delete keep theirs.
func (c TopicConfig) Class() segment.Class {
	if c.CleanupPolicy == "compact" {
		return segment.Keep
	}
	return segment.ClassFor(c.Retention)
}

// AgeBucket is how far apart the append times of the records in one archive row may be: records expire by whole rows, so it is what they may outlive their
// retention by. 0: any distance, as nothing expires.
func (c TopicConfig) AgeBucket() time.Duration {
	if c.Class() == segment.Keep {
		return 0
	}
	return max(time.Hour, c.Retention/16)
}

// Compacts tells whether only the latest record of each key is to stay.
func (c TopicConfig) Compacts() bool { return strings.Contains(c.CleanupPolicy, "compact") }

// tombstoneBucket bounds how long tombstones stay with younger records beyond their time: a row is as old as its youngest record.
const tombstoneBucket = 6 * time.Hour

// MergeBucket is AgeBucket for whoever does not look at records: where tombstones have an age it is bounded by that, too.
func (c TopicConfig) MergeBucket() time.Duration {
	bucket := c.AgeBucket()
	if c.Compacts() && (bucket == 0 || bucket > tombstoneBucket) {
		return tombstoneBucket
	}
	return bucket
}

// Map is the configuration under Kafka's names.
func (c TopicConfig) Map() map[string]string {
	ms, kind := c.Retention.Milliseconds(), "CreateTime"
	if c.Retention < 0 {
		ms = -1
	}
	if c.TimeType == segment.LogAppendTime {
		kind = "LogAppendTime"
	}
	m := map[string]string{
		RetentionMs:     strconv.FormatInt(ms, 10),
		RetentionBytes:  strconv.FormatInt(c.RetentionBytes, 10),
		CleanupPolicy:   c.CleanupPolicy,
		MaxMessageBytes: strconv.Itoa(c.MaxMessageBytes),
		TimestampType:   kind,
	}
	if c.Isolate {
		m[Isolate] = "true"
	}
	return m
}

// Set changes one value by Kafka's name. An unknown name or a value out of range is a *FieldError.
func (c *TopicConfig) Set(name, value string) error {
	number := func(low, high int64) (int64, error) {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < low || n > high {
			return 0, &FieldError{Field: name, Value: value, Valid: fmt.Sprintf("a number from %d to %d", low, high)}
		}
		return n, nil
	}
	var n int64
	var err error
	switch name {
	case RetentionMs:
		if n, err = number(-1, int64(100*365*24*time.Hour/time.Millisecond)); err == nil {
			c.Retention = time.Duration(n) * time.Millisecond
			if n < 0 {
				c.Retention = -1
			}
		}
	case RetentionBytes:
		if n, err = number(-1, 1<<62); err == nil {
			c.RetentionBytes = n
		}
	case MaxMessageBytes:
		if n, err = number(1, MaxMessageBytesLimit); err == nil {
			c.MaxMessageBytes = int(n)
		}
	case CleanupPolicy:
		switch value {
		case "delete", "compact", "compact,delete":
			c.CleanupPolicy = value
		default:
			err = &FieldError{Field: name, Value: value, Valid: "delete, compact or compact,delete"}
		}
	case TimestampType:
		switch value {
		case "CreateTime":
			c.TimeType = segment.CreateTime
		case "LogAppendTime":
			c.TimeType = segment.LogAppendTime
		default:
			err = &FieldError{Field: name, Value: value, Valid: "CreateTime or LogAppendTime"}
		}
	case Isolate:
		switch value {
		case "true", "false":
			c.Isolate = value == "true"
		default:
			err = &FieldError{Field: name, Value: value, Valid: "true or false"}
		}
	default:
		err = &FieldError{Field: "config name", Value: name,
			Valid: fmt.Sprintf("%s, %s, %s, %s, %s or %s", RetentionMs, RetentionBytes, CleanupPolicy, MaxMessageBytes, TimestampType, Isolate)}
	}
	return err
}

// SetAll changes values by Kafka's names, in the order of names so that the first error is always the same one. topic is for the *FieldError.
func (c *TopicConfig) SetAll(topic string, values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := c.Set(name, values[name]); err != nil {
			var f *FieldError
			if errors.As(err, &f) {
				f.Topic = topic
			}
			return err
		}
	}
	return nil
}
