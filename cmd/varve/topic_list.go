package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

func (a *app) topicListCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use: "list", Short: "List the topics", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.topicList(c.Context(), json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print a JSON array")
	return c
}

func (a *app) topicList(ctx context.Context, json bool) error {
	return a.withLog(ctx, func(log *sdk.Log) error {
		topics, err := log.Admin().ListTopics(ctx)
		if err != nil {
			return err
		}
		if json {
			return a.printJSON(topics)
		}
		var rows [][]any
		for _, t := range topics {
			rows = append(rows, []any{t.Name, t.Partitions, retention(t), t.Config[metadata.CleanupPolicy]})
		}
		return table(a.out, "TOPIC PARTITIONS RETENTION CLEANUP", rows)
	})
}
