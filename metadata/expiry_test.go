package metadata

import (
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
)

func TestBR36_ExpiredIsStrictlyOlder(t *testing.T) {
	now := time.Date(2026, 3, 8, 10, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		age, keep time.Duration
		want      bool
	}{
		{7 * day, 7 * day, false},
		{7*day + time.Millisecond, 7 * day, true},
		{7*day - time.Millisecond, 7 * day, false},
		{0, 0, false},
		{time.Millisecond, 0, true},
		{-time.Hour, 0, false}, // by a clock that is ahead
		{1000 * day, -1, false},
	} {
		if got := Expired(now.Add(-c.age), now, c.keep); got != c.want {
			t.Errorf("of age %v, kept for %v: expired is %v", c.age, c.keep, got)
		}
	}
	if !Expired(time.Time{}, now, 100*365*day) || Expired(now.AddDate(1000, 0, 0), now, 0) {
		t.Error("times that lie further apart than a duration can say")
	}
}

// What the rule of a class may delete at any moment has expired by then, whatever the retention that the class is for and whatever the time of day. The
// object is created when its newest record is appended, or later.
func TestBR36_RulesDeleteOnlyWhatHasExpired(t *testing.T) {
	created := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for minute := range 24 * 60 {
		appended := created.Add(time.Duration(minute) * time.Minute)
		for _, keep := range []time.Duration{0, 1, time.Hour, day - 1, day, day + 1, 7*day - time.Millisecond, 7 * day, 7*day + time.Millisecond, 365 * day} {
			due := RuleDue(appended, segment.ClassFor(keep))
			if !Expired(appended, due, keep) {
				t.Fatalf("appended %v, kept for %v: the rule may delete it at %v", appended, keep, due)
			}
			if due != due.Truncate(day) || due.Sub(appended) > keep+4*day {
				t.Fatalf("appended %v, kept for %v: due at %v", appended, keep, due)
			}
		}
	}
	if got, want := RuleDue(created.Add(10*time.Hour), 3), created.Add(5*day); !got.Equal(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if RuleDays(segment.Keep) != 0 || RuleDays(7) != 8 {
		t.Error("days of rules")
	}
}

func TestEffectiveRetention(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		keep   time.Duration
		bytes  int64
		stored []segment.Class
		want   Retention
	}{
		"as configured":                 {"delete", 7 * day, 5, []segment.Class{7}, Retention{7 * day, 5}},
		"shorter than its class":        {"delete", 90 * time.Minute, -1, []segment.Class{1}, Retention{90 * time.Minute, -1}},
		"for ever":                      {"delete", -1, -1, []segment.Class{segment.Keep}, Retention{-1, -1}},
		"longer, not moved yet":         {"delete", 30 * day, -1, []segment.Class{7, 30}, Retention{7 * day, -1}},
		"for ever, not moved yet":       {"delete", -1, -1, []segment.Class{7, segment.Keep}, Retention{7 * day, -1}},
		"shorter":                       {"delete", day, -1, []segment.Class{30, 1}, Retention{day, -1}},
		"there and back":                {"delete", 30 * day, -1, []segment.Class{7, 1, 30}, Retention{day, -1}},
		"longer within its class":       {"delete", 7 * day, -1, []segment.Class{7}, Retention{7 * day, -1}},
		"compacted":                     {"compact", day, 5, []segment.Class{segment.Keep}, Retention{-1, -1}},
		"compacted, was kept for a day": {"compact", day, 5, []segment.Class{1, segment.Keep}, Retention{day, -1}},
		"compacted and deleted":         {"compact,delete", day, 5, []segment.Class{1}, Retention{day, 5}},
		"nothing at all":                {"delete", 0, 0, []segment.Class{1}, Retention{0, 0}},
	} {
		topic := &Topic{Stored: c.stored, Config: TopicConfig{CleanupPolicy: c.policy, Retention: c.keep, RetentionBytes: c.bytes}}
		got := topic.EffectiveRetention()
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got.Unlimited() != (c.want == Retention{-1, -1}) {
			t.Errorf("%s: unlimited is %v", name, got.Unlimited())
		}
		for _, leaving := range topic.Leaving() {
			if leaving == topic.Class() {
				t.Errorf("%s: the topic's own class is leaving", name)
			}
		}
	}
}

func TestKeepFor(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	topic := &Topic{Config: TopicConfig{CleanupPolicy: "delete", Retention: 20 * day}}
	for name, c := range map[string]struct {
		id   segment.ID
		want time.Duration
	}{
		"its class is shorter":  {segment.NewID(at, 7, segment.InBucket, 1, segment.ID{}), 7 * day},
		"its class is longer":   {segment.NewID(at, 30, segment.Archived, 1, segment.ID{}), 20 * day},
		"kept for ever":         {segment.NewID(at, segment.Keep, segment.Archived, 1, segment.ID{}), 20 * day},
		"in the table":          {segment.NewID(at, 7, segment.InTable, 1, segment.ID{}), 20 * day},
		"a row without records": {segment.ID{}, 20 * day},
	} {
		if got := topic.KeepFor(c.id); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	topic.Config.CleanupPolicy = "compact"
	if got := topic.KeepFor(segment.NewID(at, 7, segment.InBucket, 1, segment.ID{})); got != 7*day {
		t.Errorf("compacted, of an older class: %v", got)
	}
}
