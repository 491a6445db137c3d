package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/localdev/housekeep"
	"github.com/varvelog/varve/sdk"
)

type devOptions struct {
	compact, retain, sweep time.Duration
	json                   bool
}

func (a *app) devCommand() *cobra.Command {
	o := devOptions{compact: housekeep.DefaultCompact, retain: housekeep.DefaultRetain, sweep: housekeep.DefaultSweep}
	c := &cobra.Command{
		Use: "dev", Short: "Keep a log's house until interrupted: compaction, retention, the sweep", Args: exactly(),
		Long: `Do in one process what schedules do for a log in the cloud, until interrupted: compaction, of objects and of keys, retention, and the sweep. Producers and
consumers need it not: they use the log on their own, at the same time.

Each run that did something, or failed, is told of.`,
		Example: "  varve dev --compact-every 10s",
		RunE:    func(c *cobra.Command, _ []string) error { return a.dev(c.Context(), o) },
	}
	c.Flags().DurationVar(&o.compact, "compact-every", o.compact, "time between compactions")
	c.Flags().DurationVar(&o.retain, "retain-every", o.retain, "time between runs of retention")
	c.Flags().DurationVar(&o.sweep, "sweep-every", o.sweep, "time between sweeps")
	c.Flags().BoolVar(&o.json, "json", false, "print each run's whole report as JSON")
	return c
}

func (a *app) dev(ctx context.Context, o devOptions) error {
	if o.compact <= 0 || o.retain <= 0 || o.sweep <= 0 {
		return usagef("a time between runs is not above 0")
	}
	return a.withNewLog(ctx, func(log *sdk.Log) error {
		a.progress("keeping the house of %s; interrupt to end", a.url)
		housekeep.Run(ctx, log.Backend(), housekeep.Options{Compact: o.compact, Retain: o.retain, Sweep: o.sweep, Env: a.env, Tell: func(e housekeep.Event) {
			switch {
			case o.json:
				a.printJSON(e)
			case e.Err != nil:
				a.note("%s %s: %v", a.env.Now().Format(time.TimeOnly), e.Job, e.Err)
			case e.Did:
				a.note("%s %s: %s", a.env.Now().Format(time.TimeOnly), e.Job, e.What)
			}
		}})
		return nil
	})
}
