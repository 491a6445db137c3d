package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

type consumeOptions struct {
	from, to        string
	partitions      []int
	max             int
	follow, json    bool
	group, instance string
	timeout         time.Duration // of the session
}

func (a *app) consumeCommand() *cobra.Command {
	var o consumeOptions
	c := &cobra.Command{
		Use: "consume TOPIC...", Short: "Print records, alone or as a member of a group", Args: cobra.ArbitraryArgs,
		Long: `Print records: their values, one per line, or with --json whole records, one JSON object per line (docs/record-json.md), which
'varve produce --format record' reads.

Records of one partition come in order. Without --follow it ends where the partitions end at the start.

Positions are earliest, latest (or end), an OFFSET, or a TIME in RFC 3339: the first record at or after it.

With --group it is a member of that group: members share the partitions of their topics, and each goes on where the group has committed.
--from is then for partitions in which the group has committed nothing: earliest, latest, a TIME, or fail, which makes them an error. Records are
committed after they are printed, so each is printed at least once: what a member that was killed had not committed comes again. One that cannot
print, since nobody reads from the pipe behind it, commits nothing meanwhile and stays a member; a partition that is to go to another member goes
after 30 s, and what was not committed of it comes again there. Without --follow it ends when the group has read all that was there at the start;
records that other members have are waited for.

A topic that is deleted is left out from then on, with a line on stderr, and one of its name that is created later is read from its start. When
none is left, --follow waits for one, and without it that is an error.`,
		Example: "  varve consume flights --from 2001-02-01T00:00:00Z --to 2001-02-02T00:00:00Z --json\n  varve consume flights --partition 3 --from 100 --max 10\n" +
			"  varve consume flights --group dashboards --follow",
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range []string{"group", "instance-id", "to"} {
				if f := c.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return usagef("--%s is empty; leave it out if you want none", name)
				}
			}
			if len(args) == 0 || len(args) > 1 && o.group == "" {
				return usagef("'%s' takes one TOPIC, or several with --group, %d given", c.CommandPath(), len(args))
			}
			if o.group != "" {
				return a.consumeInGroup(c.Context(), args, o)
			}
			if o.instance != "" || c.Flags().Changed("session-timeout") {
				return usagef("--instance-id and --session-timeout are for members of a --group")
			}
			return a.consume(c.Context(), args[0], o)
		},
	}
	c.Flags().StringVar(&o.from, "from", "earliest", "where to start: earliest, latest, OFFSET or TIME")
	c.Flags().StringVar(&o.to, "to", "", "where to stop, before: end, OFFSET or TIME, and at the end at the latest (default end; nowhere with --follow)")
	c.Flags().IntSliceVar(&o.partitions, "partition", nil, "only these partitions, separated by commas (default all)")
	c.Flags().IntVar(&o.max, "max", 0, "stop after so many records (0: no limit)")
	c.Flags().BoolVar(&o.follow, "follow", false, "go on with records as they are appended, until interrupted")
	c.Flags().BoolVar(&o.json, "json", false, "print whole records as JSON")
	c.Flags().StringVar(&o.group, "group", "", "read as a member of this group, which its first member makes")
	c.Flags().StringVar(&o.instance, "instance-id", "", "with --group: the member's own name; started again under it within the session time-out, it has its partitions back and none move")
	c.Flags().DurationVar(&o.timeout, "session-timeout", sessionTimeout, "with --group: after how long without a sign of life others take the member's partitions over")
	c.RegisterFlagCompletionFunc("group", func(c *cobra.Command, _ []string, to string) ([]string, cobra.ShellCompDirective) {
		return a.completeGroups(c, nil, to)
	})
	c.ValidArgsFunction = func(c *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
		if o.group != "" {
			args = nil // another one of several
		}
		return a.completeTopics(c, args, to)
	}
	return c
}

// parsePosition reads a --from or --to.
func parsePosition(flag, s string) (sdk.Position, error) {
	switch s {
	case "earliest":
		return sdk.Earliest, nil
	case "latest", "end":
		return sdk.Latest, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return sdk.AtOffset(n), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return sdk.Position{}, usagef("%s %q is not earliest, latest, end, an offset (0 or more) or a time such as 2001-01-31T08:00:00Z", flag, s)
	}
	return sdk.AtTime(t), nil
}

func (o consumeOptions) reader() ([]sdk.ReaderOption, error) {
	from, err := parsePosition("--from", o.from)
	if err != nil {
		return nil, err
	}
	opts := []sdk.ReaderOption{sdk.From(from), sdk.RecycleRecords()}
	if len(o.partitions) > 0 {
		opts = append(opts, sdk.ReadPartitions(o.partitions...))
	}
	if o.follow && o.to == "" {
		return opts, nil
	}
	if o.follow {
		return nil, usagef("--follow and --to exclude each other")
	}
	to, err := parsePosition("--to", cmp.Or(o.to, "end"))
	if err != nil {
		return nil, err
	}
	if to == sdk.Earliest {
		return nil, usagef("--to earliest would read nothing")
	}
	return append(opts, sdk.To(to)), nil
}

func (a *app) consume(ctx context.Context, topic string, o consumeOptions) error {
	if o.max < 0 {
		return usagef("--max %d is not 0 or more", o.max)
	}
	opts, err := o.reader()
	if err != nil {
		return err
	}
	return a.withLog(ctx, func(log *sdk.Log) error {
		if to, err := strconv.ParseInt(o.to, 10, 64); err == nil {
			stops, err := o.stopsBefore(ctx, log, topic, to)
			if err != nil {
				return err
			}
			opts = append(opts, stops)
		}
		r, err := log.NewReader(ctx, topic, opts...)
		if err != nil {
			return err
		}
		return errors.Join(a.print(ctx, r, o), r.Close())
	})
}

// stopsBefore makes the partitions that end before the offset stop where they end now: a Reader that is to read up to an offset waits for it.
func (o consumeOptions) stopsBefore(ctx context.Context, log *sdk.Log, topic string, offset int64) (sdk.ReaderOption, error) {
	partitions, err := log.Admin().Offsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	stops := make(map[int]int64)
	for p, at := range partitions {
		if at.End < offset && (len(o.partitions) == 0 || slices.Contains(o.partitions, p)) {
			stops[p] = at.End
		}
	}
	return sdk.ToOffsets(stops), nil
}

// print prints records until the reader's end, --max, or an interruption, which is how following ends.
func (a *app) print(ctx context.Context, r *sdk.Reader, o consumeOptions) error {
	out := bufio.NewWriter(a.out)
	defer out.Flush()
	shown := a.count("read")
	shown.silent = shown.silent || a.outTerminal // there the records themselves are seen
	defer shown.clear()
	n := 0
	for {
		fetches, err := r.Poll(ctx)
		for _, f := range fetches {
			for i := range f.Records {
				if err := printRecord(out, &f.Records[i], o.json); err != nil {
					return err
				}
				if n++; n == o.max {
					return out.Flush()
				}
			}
			shown.add(len(f.Records))
		}
		if err := out.Flush(); err != nil {
			return err
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || o.follow && ctx.Err() != nil:
			shown.clear()
			a.progress("%s", plural(n, "record", "records"))
			return nil
		case o.follow && passes(err):
			shown.clear()
			a.note("varve: %v; trying again", err)
		default:
			return err
		}
	}
}

func printRecord(out *bufio.Writer, r *sdk.Record, asJSON bool) error {
	line := r.Value
	if asJSON {
		var err error
		if line, err = r.MarshalJSON(); err != nil { // not json.Marshal, which would escape <, > and &
			return err
		}
	}
	out.Write(line)
	return out.WriteByte('\n')
}
