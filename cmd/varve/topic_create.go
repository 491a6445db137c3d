package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

type topicCreateOptions struct {
	partitions, laneWidth int
	config                []string
	json                  bool
}

func (a *app) topicCreateCommand() *cobra.Command {
	o := topicCreateOptions{partitions: metadata.DefaultPartitions, laneWidth: metadata.SlotsPerLane}
	c := &cobra.Command{
		Use: "create TOPIC", Short: "Create a topic", Args: exactly("TOPIC"),
		Long: `Create a topic, and the log if it is a directory without one (aws:// needs --create-table).

The number of partitions is the ceiling on how many members of a group can share the topic's records: choose it for the largest group
you expect. It can be raised later, but then keys move between partitions; it can never be lowered. Partitions of one lane cost one
commit together, so many partitions are cheap.`,
		Example: "  varve topic create orders --partitions 32 --config retention.ms=86400000",
		RunE:    func(c *cobra.Command, args []string) error { return a.topicCreate(c.Context(), args[0], o) },
	}
	c.Flags().IntVar(&o.partitions, "partitions", o.partitions, "number of partitions")
	c.Flags().IntVar(&o.laneWidth, "lane-width", o.laneWidth, "partitions sequenced together, 1 to 64; fewer carry more commits and cost more")
	c.Flags().StringArrayVar(&o.config, "config", nil, configHelp+"; isolate=true keeps the topic's records in segments of their own, for good")
	c.Flags().BoolVar(&o.json, "json", false, "print the topic as JSON")
	return c
}

func (a *app) topicCreate(ctx context.Context, name string, o topicCreateOptions) error {
	config, err := parseConfig(o.config)
	if err != nil {
		return err
	}
	if o.partitions < 1 || o.laneWidth < 1 { // 0 would be the library's default
		return usagef("--partitions and --lane-width are 1 or more")
	}
	return a.withNewLog(ctx, func(log *sdk.Log) error {
		t, err := log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: name, Partitions: o.partitions, LaneWidth: o.laneWidth, Config: config})
		if err != nil {
			return err
		}
		if o.json {
			return a.printJSON(t)
		}
		_, err = fmt.Fprintf(a.out, "created topic %s with %s, retention %s\na group can have at most %s at work on it at once, one per partition\n",
			t.Name, plural(t.Partitions, "partition", "partitions"), retention(t), plural(t.Partitions, "member", "members"))
		return err
	})
}
