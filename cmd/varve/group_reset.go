package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

type groupResetOptions struct {
	to         string
	shift      int64
	topics     []string
	partitions []int
	dryRun     bool
	force      bool
	json       bool
}

func (a *app) groupResetCommand() *cobra.Command {
	var o groupResetOptions
	c := &cobra.Command{
		Use: "reset GROUP", Short: "Set where a group goes on", Args: exactly("GROUP"), ValidArgsFunction: a.completeGroups,
		Long: `Set where a group goes on: in all partitions that it has to do with, or in those of --topic and --partition.

--to is earliest, latest (or end), an OFFSET, or a TIME in RFC 3339: the first record at or after it. --shift goes so many records on, or back
where it is negative, and stays within the partition. Where the log was repaired, an OFFSET that stands for no record any more is refused, and
everything else passes such offsets.

Everything is checked before anything is changed. --dry-run changes nothing and prints what the run prints, and on stderr that nothing is changed. While members
live it is refused, or with --force their partitions are taken away: they go on at the new offsets, and what they commit late is refused.`,
		Example: "  varve group reset dashboards --to 2001-02-01T00:00:00Z --topic flights --dry-run\n  varve group reset dashboards --shift -1000 --topic flights --partition 3",
		RunE:    func(c *cobra.Command, args []string) error { return a.groupReset(c.Context(), args[0], o) },
	}
	c.Flags().StringVar(&o.to, "to", "", "where to go on: earliest, latest, OFFSET or TIME")
	c.Flags().Int64Var(&o.shift, "shift", 0, "go on so many records further, or back where negative")
	c.Flags().StringArrayVar(&o.topics, "topic", nil, "only this topic; may be repeated")
	c.Flags().IntSliceVar(&o.partitions, "partition", nil, "only these partitions, separated by commas")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "change nothing")
	c.Flags().BoolVar(&o.force, "force", false, "although members live: take their partitions away")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	c.RegisterFlagCompletionFunc("topic", func(c *cobra.Command, _ []string, to string) ([]string, cobra.ShellCompDirective) {
		return a.completeTopics(c, nil, to)
	})
	return c
}

// resetReport is what a reset did, or would do.
type resetReport struct {
	Group   string             `json:"group"`
	Changes []sdk.OffsetChange `json:"changes"`
}

func (a *app) groupReset(ctx context.Context, name string, o groupResetOptions) (err error) {
	if (o.to == "") == (o.shift == 0) {
		return usagef("want --to earliest, latest, OFFSET or TIME, or --shift N other than 0, and not both")
	}
	to := sdk.ResetTo{Shift: o.shift}
	if o.to != "" {
		if to.Position, err = parsePosition("--to", o.to); err != nil {
			return err
		}
	}
	return a.withLog(ctx, func(log *sdk.Log) error {
		changes, err := log.Admin().ResetGroup(ctx, sdk.GroupReset{Group: name, Topics: o.topics, Partitions: o.partitions, To: to, DryRun: o.dryRun, Force: o.force})
		if err != nil {
			return err
		}
		if o.dryRun {
			defer a.note("dry run: nothing is changed")
		}
		if o.json {
			return a.printJSON(resetReport{name, changes})
		}
		out := bufio.NewWriter(a.out)
		fmt.Fprintf(out, "reset group %s, %s\n", name, plural(len(changes), "partition", "partitions"))
		var rows [][]any
		for _, c := range changes {
			rows = append(rows, []any{c.Topic, c.Partition, offset(c.From), c.To})
		}
		table(out, "TOPIC PARTITION FROM TO", rows)
		return out.Flush()
	})
}
