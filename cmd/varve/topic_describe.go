package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

func (a *app) topicDescribeCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use: "describe TOPIC", Short: "Show a topic and its partitions, hottest first", Args: exactly("TOPIC"), ValidArgsFunction: a.completeTopics,
		Long: `Show a topic, its configuration and its partitions, hottest first.

BYTES are those of the lane's last 64 to 128 commits, as stored, and SHARE each partition's part of them: what is hot now. RECORDS counts
what is retained.`,
		RunE: func(c *cobra.Command, args []string) error { return a.topicDescribe(c.Context(), args[0], json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

func (a *app) topicDescribe(ctx context.Context, name string, json bool) error {
	return a.withLog(ctx, func(log *sdk.Log) error {
		d, err := log.Admin().DescribeTopic(ctx, name)
		if err != nil {
			return err
		}
		if json {
			return a.printJSON(d)
		}
		fmt.Fprintf(a.out, "topic %s  id %s  version %d  partitions %d  lanes %d\n", d.Name, d.ID, d.Version, d.Partitions, d.Lanes)
		for _, name := range slices.Sorted(maps.Keys(d.Config)) {
			fmt.Fprintf(a.out, "  %s=%s\n", name, d.Config[name])
		}
		if len(d.Stored) > 1 {
			fmt.Fprintf(a.out, "  in effect: retention %s, until nothing is stored under another class than %s any more; stored may be %s\n", keptMs(d.RetentionMs), ownClass(&d.Topic), strings.Join(d.Stored, ", "))
		}
		var rows [][]any
		for _, l := range d.Load {
			rows = append(rows, []any{l.Partition, l.Start, l.End, l.Records, percent(l.RecordShare), l.RecentBytes, percent(l.ByteShare)})
		}
		return table(a.out, "PARTITION START END RECORDS SHARE BYTES SHARE", rows)
	})
}

// ownClass is the class of what is appended to the topic.
func ownClass(t *sdk.Topic) string {
	c := metadata.DefaultTopicConfig()
	if err := c.SetAll(t.Name, t.Config); err != nil {
		return "?"
	}
	return c.Class().String()
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
