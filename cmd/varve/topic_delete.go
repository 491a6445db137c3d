package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

func (a *app) topicDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete TOPIC", Short: "Delete a topic and all its records", Args: exactly("TOPIC"), ValidArgsFunction: a.completeTopics,
		Long: `Delete a topic and all its records. There is no way back.

The name is free at once. What the topic had in table and bucket 'varve sweep' removes, an hour later and once more an hour after
that: a process that stood still may write until then.`,
		RunE: func(c *cobra.Command, args []string) error { return a.topicDelete(c.Context(), args[0]) },
	}
}

func (a *app) topicDelete(ctx context.Context, name string) error {
	return a.withLog(ctx, func(log *sdk.Log) error {
		if err := log.Admin().DeleteTopic(ctx, name); err != nil {
			return err
		}
		a.note("deleted topic %s", name)
		_, err := log.Admin().CleanTopics(ctx)
		return err
	})
}
