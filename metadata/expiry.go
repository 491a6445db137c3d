package metadata

import (
	"slices"
	"time"

	"github.com/varvelog/varve/segment"
)

// This file is the only place that decides what has expired. The age of a record is counted from its append time, which is the time in the id of the
// intake segment that brought it (Row keeps it): timestamps in records, which producers make, have no part in it.

const day = 24 * time.Hour

// Retention is for how long records are kept, and how many bytes of them in each partition. Negative: no limit.
type Retention struct {
	Time  time.Duration
	Bytes int64
}

// Unlimited tells whether nothing ever expires.
func (r Retention) Unlimited() bool { return r.Time < 0 && r.Bytes < 0 }

// Expired tells whether what was appended at a time has expired now: when it is older than keep, strictly; of an age of exactly keep it has not.
func Expired(appended, now time.Time, keep time.Duration) bool {
	return keep >= 0 && now.Sub(appended) > keep
}

// EffectiveRetention is what is promised for all of the topic's records. It is the configuration's where cleanup.policy has delete, and besides, no longer than
// the class of anything that is stored: see KeepFor. So a longer retention is promised only when Stored no longer has the shorter class.
func (t *Topic) EffectiveRetention() Retention {
	r := t.Config.Kept()
	for _, c := range t.Stored {
		r.Time = shorter(r.Time, classTime(c))
	}
	return r
}

// KeepFor is for how long the records in a segment are kept; negative: no limit. It is the configuration's, and besides, no longer than the segment's class:
// the object goes by the class's rule whatever has been configured since it was written. What is in the table no rule deletes. The zero id, of a row without
// records, is of no class.
func (t *Topic) KeepFor(id segment.ID) time.Duration {
	keep := t.Config.Kept().Time
	if id.IsZero() || id.Place() == segment.InTable {
		return keep
	}
	return shorter(keep, classTime(id.Class()))
}

// Leaving are the classes besides the topic's own that something stored may still be under.
func (t *Topic) Leaving() []segment.Class {
	return slices.DeleteFunc(slices.Clone(t.Stored), func(c segment.Class) bool { return c == t.Class() })
}

// Kept is the retention that is configured, of which only cleanup.policy with delete has any. What holds is EffectiveRetention.
func (c TopicConfig) Kept() Retention {
	if c.CleanupPolicy == "compact" {
		return Retention{Time: -1, Bytes: -1}
	}
	return Retention{Time: c.Retention, Bytes: c.RetentionBytes}
}

// classTime is for how long the rule of a class leaves its objects alone; negative: for ever.
func classTime(c segment.Class) time.Duration {
	if c == segment.Keep {
		return -1
	}
	return time.Duration(c) * day
}

func shorter(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// RuleDays is the days of the lifecycle rule of a class that expires: one more than the class's own, since a rule works by days and at its leisure, and what
// it deletes must be below the log start by then. 0 for Keep, which has no such rule.
func RuleDays(c segment.Class) int {
	if c == segment.Keep {
		return 0
	}
	return int(c) + 1
}

// RuleDue is the earliest moment at which the rule of a class that expires may delete an object created at a time: days are rounded up to midnight UTC.
func RuleDue(created time.Time, c segment.Class) time.Time {
	due := created.UTC().Add(time.Duration(RuleDays(c)) * day)
	if midnight := due.Truncate(day); !midnight.Equal(due) {
		due = midnight.Add(day)
	}
	return due
}
