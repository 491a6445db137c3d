package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

func (a *app) groupCommand() *cobra.Command {
	return group("group", "List, describe, reset and delete consumer groups",
		a.groupListCommand(), a.groupDescribeCommand(), a.groupResetCommand(), a.groupDeleteCommand())
}

// completeGroups completes the first argument with the names of groups.
func (a *app) completeGroups(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	err := a.withLog(c.Context(), func(log *sdk.Log) (err error) {
		names, err = log.Admin().ListGroups(c.Context())
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// offset is an offset for people: -1 is none.
func offset(n int64) any {
	if n < 0 {
		return "none"
	}
	return n
}

// dash is s, or - where there is nothing: a column is never empty.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// millis is a time in milliseconds for people, who do not ask for more than seconds of what takes minutes. 0 is none.
func millis(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d == 0:
		return "-"
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.String()
}

// age is how old a partition's next record is, for people: to the second, since the clock that tells it is no better.
func age(p *sdk.GroupPartition) string {
	if p.Oldest.IsZero() {
		return "-"
	}
	return (time.Duration(p.AgeMs) * time.Millisecond).Round(time.Second).String()
}

// used is how much of its retention a partition's next record has behind it.
func used(p *sdk.GroupPartition) string {
	if p.Oldest.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*p.Used)
}

// warnUsed is where records that are still to be read come close to their deletion.
const warnUsed = 0.8

// warn tells of partitions in which retention is about to overtake the group.
func (a *app) warn(group string, partitions []sdk.GroupPartition) {
	for _, p := range partitions {
		if p.Used > warnUsed {
			a.note("warning: group %s, %s partition %d: the next record to be read has used %s of its retention, then it is deleted", group, p.Topic, p.Partition, used(&p))
		}
	}
}

// sums is what a group's partitions add up to.
type sums struct {
	Partitions int   `json:"partitions"`
	NoCommit   int   `json:"no_commit"` // partitions in which nothing is committed
	Lag        int64 `json:"lag"`
	Lost       int64 `json:"lost"`
}

func sum(partitions []sdk.GroupPartition) (s sums) {
	for p := range slices.Values(partitions) {
		s.Partitions++
		s.Lag += p.Lag
		s.Lost += p.Lost
		if p.Committed < 0 {
			s.NoCommit++
		}
	}
	return s
}

// describeTopics says what is to be known of a group's topics besides their partitions.
func describeTopics(out io.Writer, gone, added []string) {
	for _, topic := range gone {
		fmt.Fprintf(out, "topic %s is not there: deleted, or not created yet\n", topic)
	}
	for _, topic := range added {
		fmt.Fprintf(out, "topic %s, as it is now, was created or grown since the plan was made, and is not read in whole yet\n", topic)
	}
}

func (s sums) String() string {
	text := fmt.Sprintf("lag %d in %s", s.Lag, plural(s.Partitions, "partition", "partitions"))
	if s.NoCommit > 0 {
		text += fmt.Sprintf(", %d without a commit", s.NoCommit)
	}
	if s.Lost > 0 {
		text += fmt.Sprintf(", %s lost to retention", plural(int(s.Lost), "record", "records"))
	}
	return text
}
