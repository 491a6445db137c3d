package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

func (a *app) lagCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use: "lag [GROUP]...", Short: "Show how far groups are behind", Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, _ []string, to string) ([]string, cobra.ShellCompDirective) {
			return a.completeGroups(c, nil, to)
		},
		Long: `Show how far groups, all or those named, are behind, for each partition and together.

` + partitionHelp,
		RunE: func(c *cobra.Command, args []string) error { return a.lag(c.Context(), args, json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print a JSON array")
	return c
}

// groupLag is one group's lag, together and for each partition.
type groupLag struct {
	Group      string               `json:"group"`
	Sum        sums                 `json:"sum"`
	Partitions []sdk.GroupPartition `json:"partitions"`
	Gone       []string             `json:"gone_topics,omitempty"`
	New        []string             `json:"new_topics,omitempty"`
}

func (a *app) lag(ctx context.Context, names []string, json bool) error {
	return a.withLog(ctx, func(log *sdk.Log) error {
		all, unread := lags(ctx, log.Admin(), names)
		for _, l := range all {
			defer a.warn(l.Group, l.Partitions)
		}
		if json {
			return errors.Join(a.printJSON(all), unread)
		}
		out := bufio.NewWriter(a.out)
		for i, l := range all {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "group %s  %v\n", l.Group, l.Sum)
			describeTopics(out, l.Gone, l.New)
			var rows [][]any
			for _, p := range l.Partitions {
				rows = append(rows, []any{p.Topic, p.Partition, offset(p.Committed), p.End, p.Lag, p.Lost, age(&p), used(&p)})
			}
			table(out, "TOPIC PARTITION COMMITTED END LAG LOST AGE RETENTION", rows)
		}
		return errors.Join(out.Flush(), unread)
	})
}

// lags is the lag of the groups named, or of all: of those that can be read, where the error is of others.
func lags(ctx context.Context, admin *sdk.Admin, names []string) ([]groupLag, error) {
	named := len(names) > 0
	if !named {
		var err error
		if names, err = admin.ListGroups(ctx); err != nil {
			return nil, err
		}
	}
	all, unread := []groupLag{}, []error(nil)
	for _, name := range names {
		d, err := admin.DescribeGroup(ctx, name, sdk.Earliest)
		if !named && errors.Is(err, sdk.ErrUnknownGroup) { // deleted meanwhile
			continue
		}
		if err != nil {
			unread = append(unread, err)
			continue
		}
		all = append(all, groupLag{name, sum(d.Partitions), d.Partitions, d.Gone, d.New})
	}
	return all, errors.Join(unread...)
}
