package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/sdk"
)

type sweepOptions struct {
	dryRun, full, force, json bool
	deadline                  time.Duration
}

// sweepReport is a sweep's JSON form.
type sweepReport struct {
	*sweep.Report
	Deletions []sweep.Deletion `json:"deletions,omitempty"` // of a dry run
	Error     string           `json:"error,omitempty"`
	Spent     *verify.Spent    `json:"spent"`
}

func (a *app) sweepCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use: "sweep", Short: "Delete what nothing names any more", Args: exactly(),
		Long: `Delete what nothing names any more: segments and index entries that compaction replaced over 25 hours ago, what lies below log starts, segments of
producers and compactors that died before their commit, and what deleted topics left. Nothing younger than an hour is touched. The log may be in use, and
several sweeps may run at once; one that is cut off is gone on with by the next.

A run looks at what is new since the last. --full lists every object, which finds what was passed over, such as objects that appeared days after the
time in their names.

It refuses to run where this machine's clock is over a minute off or a repair is not finished, and to delete where something that names segments cannot be
read, or where it looks as if the table had been put back: nearly all segments looked at (20 at least, and nine of ten) are named by nothing, or ten in a
row of the last 25 hours. --force does the latter all the same.

Exit status: 0 done, 1 refused or not finished, 2 usage.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.sweep(c.Context(), o) },
	}
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "change nothing, list what a run would delete now")
	c.Flags().BoolVar(&o.full, "full", false, "list all objects")
	c.Flags().BoolVar(&o.force, "force", false, "delete segments that nothing names even if they are nearly all")
	c.Flags().DurationVar(&o.deadline, "deadline", sweep.DefaultDeadline, "stop after this time; the next run goes on")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func (a *app) sweep(ctx context.Context, o sweepOptions) error {
	if o.deadline <= 0 {
		return usagef("--deadline %s: want a time above 0", o.deadline)
	}
	used := &usage{}
	return a.withDirectLog(ctx, func(log *sdk.Log) error {
		report := &sweepReport{}
		out := bufio.NewWriter(a.out)
		tell := func(d sweep.Deletion) {
			switch {
			case o.dryRun && o.json:
				report.Deletions = append(report.Deletions, d)
			case o.dryRun:
				fmt.Fprintf(out, "%s %s: %s\n", d.Kind, d.Name, d.Why)
			}
		}
		b := log.Backend()
		var err error
		report.Report, err = sweep.Run(ctx, b.Table, b.Store, sweep.Options{DryRun: o.dryRun, Full: o.full, Force: o.force, Deadline: o.deadline, Tell: tell, Env: a.env})
		report.Spent = used.spent()
		if o.json {
			if err != nil {
				report.Error = err.Error()
			}
			return errors.Join(err, a.printJSON(report))
		}
		printSweep(out, report)
		return errors.Join(err, out.Flush())
	}, used)
}

// printSweep prints what a person reads.
func printSweep(out *bufio.Writer, r *sweepReport) {
	does := "deleted"
	if r.DryRun {
		does = "would delete"
	}
	for _, name := range r.KeptNames {
		fmt.Fprintf(out, "kept: %s\n", name)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Deleted)) {
		h := r.Deleted[kind]
		fmt.Fprintf(out, "%s: %d x %s", does, h.Count, kind)
		if h.Bytes > 0 {
			fmt.Fprintf(out, ", %d bytes", h.Bytes)
		}
		fmt.Fprintln(out)
	}
	if len(r.Deleted) == 0 {
		fmt.Fprintf(out, "%s: nothing\n", does)
	}
	if r.Kept > 0 {
		fmt.Fprintf(out, "kept, though named by nothing that is known: %s\n", plural(int(r.Kept), "object", "objects"))
	}
	if r.Waiting > 0 {
		fmt.Fprintf(out, "what is left of %s waits; sweep again in an hour\n", plural(int(r.Waiting), "deleted topic", "deleted topics"))
	}
	s := r.Spent
	fmt.Fprintf(out, "looked at %s; used: %d requests to the table, %d to the store, %.1f s; on AWS about $%.6f (prices of %s)\n",
		plural(int(r.Listed), "segment", "segments"), s.TableRequests, s.StoreRequests, r.Seconds, s.Dollars, price.Date)
}
