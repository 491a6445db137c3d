package retain

import (
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Report is what a run has done, or with DryRun would do.
type Report struct {
	DryRun bool           `json:"dry_run"`
	Now    time.Time      `json:"now"` // the table's time, by which ages were judged
	Topics []*TopicReport `json:"topics"`
	Rules  *RulesReport   `json:"rules,omitempty"` // nil if they were not looked at
}

// TopicReport is what was done for a topic.
type TopicReport struct {
	Topic          string            `json:"topic"`
	RetentionMs    int64             `json:"retention_ms"` // what holds for it, see metadata.Topic.EffectiveRetention; -1 is no limit
	RetentionBytes int64             `json:"retention_bytes"`
	Stored         []string          `json:"stored"`           // classes that something stored might be under before the run
	Left           []string          `json:"left,omitempty"`   // those of them that nothing is under any more
	Behind         []metadata.LaneID `json:"behind,omitempty"` // lanes that the latest change had not reached; they were brought to it
	Moves          []Move            `json:"moves"`
	Gone           bool              `json:"gone,omitempty"` // it was deleted meanwhile
}

// Move is a log start that moved: the offsets [From, To) have expired. End is the partition's end, which stays.
type Move struct {
	Partition int    `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	End       int64  `json:"end"`
	By        Policy `json:"by"`
}

// Policy is what moved a log start furthest.
type Policy string

// Policies.
const (
	ByTime  Policy = metadata.RetentionMs
	ByBytes Policy = metadata.RetentionBytes
)

// RulesReport is what was done to the bucket's lifecycle rules.
type RulesReport struct {
	Supported bool         `json:"supported"` // false: the store has no rules, so only the sweep deletes
	Changes   []RuleChange `json:"changes"`
	Notes     []string     `json:"notes,omitempty"`
}

func names(classes []segment.Class) (names []string) {
	for _, c := range classes {
		names = append(names, c.String())
	}
	return names
}
