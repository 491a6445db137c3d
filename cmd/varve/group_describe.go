package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

func (a *app) groupDescribeCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use: "describe GROUP", Short: "Show a group's members and partitions", Args: exactly("GROUP"), ValidArgsFunction: a.completeGroups,
		Long: `Show a group, its members, and the partitions of its topics.

A member's PARTITIONS are what the plan gives it, and where that is nothing a line says why. QUIET is for how long others have watched it without a sign
of life; at its TIMEOUT they take its partitions over.

` + partitionHelp,
		RunE: func(c *cobra.Command, args []string) error { return a.groupDescribe(c.Context(), args[0], json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

const partitionHelp = `COMMITTED is the next record that the group is to read, none where it has committed nothing: there LAG counts from the start. OWNER is the member that
reads it now. LAG is the records still to be read, LOST those that retention deleted before they were. AGE is that of the next record to be read, right to
a second: the table's service, by whose clock it is, tells whole seconds. RETENTION is how much of its retention, of time or bytes, that record has
behind it: at 100% it is deleted. A warning on stderr names what is above 80%.

A line each names topics that the group's members are to read and that are not there, and those of which they do not read all yet: created, created anew
or grown, they are noticed within 10 s, or a heartbeat where those are rarer.`

func (a *app) groupDescribe(ctx context.Context, name string, json bool) error {
	return a.withLog(ctx, func(log *sdk.Log) error {
		d, err := log.Admin().DescribeGroup(ctx, name, sdk.Earliest)
		if err != nil {
			return err
		}
		defer a.warn(d.Name, d.Partitions)
		if json {
			return a.printJSON(d)
		}
		out := bufio.NewWriter(a.out)
		fmt.Fprintf(out, "group %s  created %s  generation %d  members %d  %v\n", d.Name, d.Created.UTC().Format(time.RFC3339), d.Generation, len(d.Members), sum(d.Partitions))
		describeTopics(out, d.Gone, d.New)
		describeMembers(out, d.Members)
		var rows [][]any
		for _, p := range d.Partitions {
			rows = append(rows, []any{p.Topic, p.Partition, offset(p.Committed), dash(p.Owner), p.Start, p.End, p.Lag, p.Lost, age(&p), used(&p)})
		}
		fmt.Fprintln(out)
		table(out, "TOPIC PARTITION COMMITTED OWNER START END LAG LOST AGE RETENTION", rows)
		return out.Flush()
	})
}

func describeMembers(out *bufio.Writer, members []sdk.GroupMember) {
	if len(members) == 0 {
		return
	}
	var rows [][]any
	for _, m := range members {
		reads := strings.Join(m.Topics, ",")
		if m.Pattern != "" {
			reads = strings.TrimPrefix(reads+",/"+m.Pattern+"/", ",")
		}
		rows = append(rows, []any{m.Name, dash(m.Client), reads, cmp.Or(ranges(m.Partitions), "none"), millis(m.QuietMs), millis(m.TimeoutMs)})
	}
	fmt.Fprintln(out)
	table(out, "MEMBER CLIENT READS PARTITIONS QUIET TIMEOUT", rows)
	for _, m := range members {
		if m.Idle != "" {
			fmt.Fprintf(out, "%s is idle: %s\n", m.Name, m.Idle)
		}
	}
}

// ranges is partitions, which are in order, as people write them: t/0-3,5.
func ranges(partitions []sdk.TopicPartition) string {
	var b strings.Builder
	for i := 0; i < len(partitions); {
		first, n := partitions[i], 1
		for i+n < len(partitions) && partitions[i+n] == (sdk.TopicPartition{Topic: first.Topic, Partition: first.Partition + n}) {
			n++
		}
		switch {
		case i > 0 && partitions[i-1].Topic == first.Topic:
			fmt.Fprintf(&b, ",%d", first.Partition)
		case i > 0:
			fmt.Fprintf(&b, ";%v", first)
		default:
			fmt.Fprint(&b, first)
		}
		if n > 1 {
			fmt.Fprintf(&b, "-%d", first.Partition+n-1)
		}
		i += n
	}
	return b.String()
}
