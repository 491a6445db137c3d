package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/functions/repair"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

type repairOptions struct {
	back   string
	lost   bool
	names  []string
	dryRun bool
	yes    bool
	json   bool
}

func (a *app) repairCommand() *cobra.Command {
	o := repairOptions{}
	c := &cobra.Command{
		Use: "repair", Short: "Bring a log together again whose table was put back to an earlier moment, or lost", Args: exactly(),
		Long: `Bring a log together again whose table was put back to an earlier moment (--restored-to), or lost altogether (--lost), while its bucket was not.

Records keep their offsets where table or archive have them. All others that the bucket has are appended again, by the time of their segments, at offsets from 2^44 on (the next
multiple of that each time), so that no offset is given twice; who asks for one in between is told that history was rewritten. Groups keep what they had committed at that moment;
with --lost they are gone, and topics come back under names that --name gives, or as ` + repair.Unnamed + `<id>.

Before it: stop compaction, retention and sweep, and wait a quarter of an hour after the table is in use again. Producers and consumers may go on, though it is better to stop
them. It may be run again whenever it was cut off, and changes nothing that is done. docs/operations.md has the steps.

Exit status: 0 done, or nothing to repair, 1 failed, 2 usage.`,
		Example: "  varve repair --restored-to 2026-11-30T01:00:00Z --dry-run\n  varve repair --restored-to 2026-11-30T01:00:00Z --yes\n  varve repair --lost --name o7nfqbqmg01d=flights --yes",
		RunE:    func(c *cobra.Command, _ []string) error { return a.repair(c.Context(), o) },
	}
	c.Flags().StringVar(&o.back, "restored-to", "", "the moment that the table was put back to, in RFC 3339")
	c.Flags().BoolVar(&o.lost, "lost", false, "nothing is left of the table; with --create-table it is made anew")
	c.Flags().StringArrayVar(&o.names, "name", nil, "ID=NAME: what a topic is called of which only the bucket knows; may be given several times")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing but give a lost table its identity")
	c.Flags().BoolVar(&o.yes, "yes", false, "repair: offsets between the end and the next multiple of 2^44 will stand for nothing")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

// plan is the options of package repair.
func (o *repairOptions) plan(a *app) (repair.Options, error) {
	r := repair.Options{Lost: o.lost, DryRun: o.dryRun, Names: map[segment.TopicID]string{}, Env: a.env}
	switch {
	case o.lost == (o.back != ""):
		return r, usagef("what happened to the table? --restored-to MOMENT or --lost")
	case !o.dryRun && !o.yes:
		return r, usagef("a repair cannot be undone: see --dry-run, and then give --yes")
	}
	if o.back != "" {
		var err error
		if r.Back, err = time.Parse(time.RFC3339Nano, o.back); err != nil {
			return r, usagef("--restored-to %q is not a moment such as 2026-11-30T01:00:00Z", o.back)
		}
	}
	for _, n := range o.names {
		id, name, ok := strings.Cut(n, "=")
		if !ok || segment.TopicID(id).Validate() != nil || name == "" {
			return r, usagef("--name %q is not ID=NAME with a topic's id", n)
		}
		r.Names[segment.TopicID(id)] = name
	}
	return r, nil
}

func (a *app) repair(ctx context.Context, o repairOptions) error {
	plan, err := o.plan(a)
	if err != nil {
		return err
	}
	plan.Progress = func(step string) { a.progress("%s", step) }
	if o.lost {
		a.openOptions = append(a.openOptions, sdk.WithLostTable())
	}
	used := &usage{}
	return a.withDirectLog(ctx, func(log *sdk.Log) error {
		b := log.Backend()
		report, err := repair.Run(ctx, b.Table, b.Store, plan)
		if errors.Is(err, repair.ErrNothing) {
			a.note("%v", err)
			err = nil
		}
		if o.json {
			return errors.Join(err, a.printJSON(report))
		}
		return errors.Join(err, a.printRepair(report, used.spent()))
	}, used)
}

// printRepair prints what a person reads: each partition, then what could not be brought back.
func (a *app) printRepair(r *repair.Report, s *verify.Spent) error {
	out := bufio.NewWriter(a.out)
	for _, t := range r.Topics {
		fmt.Fprintf(out, "topic %s (%s): known from the bucket only, %s\n", t.Topic, t.ID, plural(t.Partitions, "partition", "partitions"))
	}
	for _, t := range r.Grown {
		fmt.Fprintf(out, "topic %s: grown from %d to %s, as its segments tell\n", t.Topic, t.From, plural(t.To, "partition", "partitions"))
	}
	for _, p := range r.Partitions {
		fmt.Fprintf(out, "%s/%d: offsets below %d are exact (%s back from the archive); ", p.Topic, p.Partition, p.Exact, plural(int(p.Returned), "record", "records"))
		if p.Cut > 0 {
			fmt.Fprintf(out, "then %d; %s appended again in this run\n", p.Cut, plural(int(p.Appended), "record", "records"))
		} else {
			fmt.Fprintf(out, "up to %s would be appended again\n", plural(int(p.Appended), "record", "records"))
		}
	}
	for _, h := range r.Holes {
		fmt.Fprintf(out, "%s/%d: nothing in the bucket holds offsets [%d, %d)\n", h.Topic, h.Partition, h.From, h.To)
	}
	for _, u := range r.Unreadable {
		fmt.Fprintf(out, "not brought back: %s\n", u)
	}
	if r.Young > 0 {
		fmt.Fprintf(out, "%s too young, as producers may still commit them: run it again in a quarter of an hour if producers were writing when the table was put back\n", plural(r.Young, "segment is", "segments are"))
	}
	if r.Lost {
		fmt.Fprintln(out, "what groups had committed is lost with the table, and what was configured of topics besides their retention")
	}
	state := "not finished: run it again"
	switch {
	case r.DryRun, r.Jump == 0: // the second: refused, or cut off, before it began
		state = "nothing was done"
	case r.Finished:
		state = "finished"
	}
	fmt.Fprintf(out, "era %d: %s; %s looked at\n", r.Era, state, plural(r.Looked, "segment", "segments"))
	fmt.Fprintf(out, "used: %d requests to the table, %d to the store, %.1f s; on AWS about $%.6f (prices of %s)\n", s.TableRequests, s.StoreRequests, r.Seconds, s.Dollars, price.Date)
	return out.Flush()
}
