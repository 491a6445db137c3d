package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
)

type retainOptions struct {
	topics      []string
	transitions []string
	dryRun      bool
	json        bool
}

func (a *app) retainCommand() *cobra.Command {
	var o retainOptions
	c := &cobra.Command{
		Use: "retain", Short: "Let records expire, and keep the bucket's lifecycle rules", Args: exactly(),
		Long: `Move the log start of every partition over what has expired by retention.ms and retention.bytes, finish changes of retention, and make the
bucket's lifecycle rules those of the topics' retention classes. Log starts move at once; the rules delete the objects behind them a day or two later. Run it
every hour or so, and at least daily. Rules that are not this log's are left as they are. With --topic the rules are left alone.

Where the store has no lifecycle rules, as in a directory, 'varve sweep' deletes the objects.`,
		Example: "  varve retain --dry-run\n  varve retain --transition 30:STANDARD_IA --transition 90:GLACIER_IR",
		RunE:    func(c *cobra.Command, _ []string) error { return a.retain(c.Context(), o) },
	}
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "change nothing; print exactly what would change")
	c.Flags().StringArrayVar(&o.topics, "topic", nil, "only this topic; may be repeated")
	c.Flags().StringArrayVar(&o.transitions, "transition", nil, "DAYS:CLASS, when the archive of what is kept for ever goes to another storage class; may be repeated; 'none' ends it")
	c.Flags().BoolVar(&o.json, "json", false, "print the report as JSON")
	return c
}

func (a *app) retain(ctx context.Context, o retainOptions) error {
	moves, err := parseTransitions(o.transitions)
	if err != nil {
		return err
	}
	if moves != nil && len(o.topics) > 0 {
		return usagef("--transition is about the rules of the whole log, which --topic leaves alone")
	}
	return a.withDirectLog(ctx, func(log *sdk.Log) error {
		b := log.Backend()
		report, err := retain.Run(ctx, b.Table, retain.Options{Topics: o.topics, DryRun: o.dryRun, Lifecycle: b.Lifecycle, Moves: moves, Env: a.env})
		if o.json {
			if printErr := a.printJSON(report); printErr != nil {
				return printErr
			}
			return err
		}
		if printErr := printRetain(a.out, report); printErr != nil {
			return printErr
		}
		return err
	})
}

// parseTransitions reads DAYS:CLASS settings: nil for none given, empty for 'none'.
func parseTransitions(settings []string) (moves []store.Move, err error) {
	for _, s := range settings {
		if s == "none" && len(settings) == 1 {
			return []store.Move{}, nil
		}
		days, class, _ := strings.Cut(s, ":")
		n, err := strconv.Atoi(days)
		if err != nil {
			return nil, usagef("--transition %q is not DAYS:CLASS, such as 30:STANDARD_IA, nor the only one and 'none'", s)
		}
		moves = append(moves, store.Move{Days: n, To: class})
	}
	return moves, retain.CheckMoves(moves)
}

func printRetain(w io.Writer, r *retain.Report) error {
	out := bufio.NewWriter(w)
	for _, t := range r.Topics {
		printRetainTopic(out, t, r.DryRun)
	}
	switch rules := r.Rules; {
	case rules == nil:
	case !rules.Supported:
		fmt.Fprintln(out, "lifecycle rules: this store has none; 'varve sweep' deletes what has expired")
	default:
		fmt.Fprintf(out, "lifecycle rules: %s\n", done(len(rules.Changes), "change", "changes", r.DryRun))
		for _, c := range rules.Changes {
			printRule(out, "-", c.Was)
			printRule(out, "+", c.Rule)
		}
		for _, n := range rules.Notes {
			fmt.Fprintf(out, "  note: %s\n", n)
		}
	}
	return out.Flush()
}

func printRetainTopic(out io.Writer, t *retain.TopicReport, dryRun bool) {
	keeps := keptMs(t.RetentionMs)
	if t.RetentionBytes >= 0 {
		keeps += fmt.Sprintf(", %d bytes a partition", t.RetentionBytes)
	}
	fmt.Fprintf(out, "topic %s, kept %s: %s\n", t.Topic, keeps, done(len(t.Moves), "log start moved", "log starts moved", dryRun))
	for _, m := range t.Moves {
		fmt.Fprintf(out, "  partition %d: %d to %d, end %d, by %s\n", m.Partition, m.From, m.To, m.End, m.By)
	}
	if n := len(t.Behind); n > 0 {
		fmt.Fprintf(out, "  a change of the topic had not reached %s\n", plural(n, "lane", "lanes"))
	}
	if len(t.Left) > 0 {
		fmt.Fprintf(out, "  nothing is stored under %s any more\n", strings.Join(t.Left, ", "))
	} else if len(t.Stored) > 1 {
		fmt.Fprintf(out, "  what is stored may be under %s, and is kept no longer than the shortest of them\n", strings.Join(t.Stored, ", "))
	}
	if t.Gone {
		fmt.Fprintln(out, "  it was deleted meanwhile")
	}
}

// done says how many, and of a dry run that it is what would be.
func done(n int, one, many string, dryRun bool) string {
	if dryRun {
		return "would be " + plural(n, one, many)
	}
	return plural(n, one, many)
}

func printRule(out io.Writer, sign string, r *store.Rule) {
	if r == nil {
		return
	}
	var does []string
	if r.Days > 0 {
		does = append(does, fmt.Sprintf("delete after %d days", r.Days))
	}
	for _, m := range r.Moves {
		does = append(does, fmt.Sprintf("to %s after %d days", m.To, m.Days))
	}
	if r.Abort > 0 {
		does = append(does, fmt.Sprintf("end uploads after %s", plural(r.Abort, "day", "days")))
	}
	if !r.Enabled {
		does = append(does, "disabled")
	}
	fmt.Fprintf(out, "  %s %s for %s: %s\n", sign, r.ID, r.Prefix, strings.Join(does, ", "))
}
