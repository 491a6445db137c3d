package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

type topicAlterOptions struct {
	partitions     int
	moveKeys, json bool
	config         []string
}

func (a *app) topicAlterCommand() *cobra.Command {
	var o topicAlterOptions
	c := &cobra.Command{
		Use: "alter TOPIC", Short: "Change a topic's configuration, or add partitions", Args: exactly("TOPIC"), ValidArgsFunction: a.completeTopics,
		Example: "  varve topic alter orders --config retention.ms=-1\n  varve topic alter orders --partitions 64 --move-keys",
		RunE:    func(c *cobra.Command, args []string) error { return a.topicAlter(c.Context(), args[0], o) },
	}
	c.Flags().IntVar(&o.partitions, "partitions", 0, "number of partitions, more than there are")
	c.Flags().BoolVar(&o.moveKeys, "move-keys", false, "agree that some keys go to another partition from now on, and are not ordered across that")
	c.Flags().StringArrayVar(&o.config, "config", nil, configHelp)
	c.Flags().BoolVar(&o.json, "json", false, "print the topic as JSON")
	return c
}

func (a *app) topicAlter(ctx context.Context, name string, o topicAlterOptions) error {
	config, err := parseConfig(o.config)
	if err != nil {
		return err
	}
	if len(config) == 0 && o.partitions == 0 {
		return usagef("nothing to alter: give --config or --partitions")
	}
	return a.withLog(ctx, func(log *sdk.Log) error {
		t, err := log.Admin().AlterTopic(ctx, name, sdk.Alteration{Config: config, Partitions: o.partitions, MoveKeys: o.moveKeys})
		var moves *sdk.KeysMoveError
		if errors.As(err, &moves) {
			return fmt.Errorf("%w: --move-keys", err)
		}
		if err != nil {
			return err
		}
		if o.json {
			return a.printJSON(t)
		}
		_, err = fmt.Fprintf(a.out, "topic %s is at version %d: %s, retention %s\n", t.Name, t.Version, plural(t.Partitions, "partition", "partitions"), retention(t))
		return err
	})
}
