package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/sdk"
)

type compactOptions struct {
	topics   []string
	deadline time.Duration
	all      bool
	dryRun   bool
	json     bool
}

func (a *app) compactCommand() *cobra.Command {
	o := compactOptions{deadline: compact.DefaultDeadline}
	c := &cobra.Command{
		Use: "compact", Short: "Gather many small objects into few large ones", Args: exactly(),
		Long: `Gather what was committed, from the many small objects that producers write, into few large ones in which each partition's records lie together. Offsets and
records stay as they are, and the log may be in use. What was there before stays for a day, until the sweep removes it.

Of topics whose cleanup.policy has compact in it, only the latest record of each key stays, once half of a partition's archive is new. A null value deletes its key,
and goes itself a day later.

Small backlogs wait until they are large enough or an hour old, and what was compacted is merged two days later at the earliest, when a daily sweep has removed what it took the place of:
so nothing is stored more than twice. With --all nothing waits, and until the sweep more is stored. A run begins with the oldest and ends by its deadline; what is left the next one does. So it is meant to be run
now and then, by any number of processes.

Exit status: 0 done or out of time, 1 something failed, 2 usage.`,
		Example: "  varve compact --dry-run\n  varve compact --topic flights --deadline 5m",
		RunE:    func(c *cobra.Command, _ []string) error { return a.compact(c.Context(), o) },
	}
	c.Flags().StringArrayVar(&o.topics, "topic", nil, "compact this topic only; may be given several times")
	c.Flags().DurationVar(&o.deadline, "deadline", o.deadline, "begin nothing that would presumably take longer; at most "+compact.MaxDeadline.String())
	c.Flags().BoolVar(&o.all, "all", false, "let nothing wait, however small and young it is")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	c.RegisterFlagCompletionFunc("topic", a.completeTopics)
	return c
}

func (a *app) compact(ctx context.Context, o compactOptions) error {
	if o.deadline <= 0 {
		return usagef("--deadline %s is not above 0", o.deadline)
	}
	used := &usage{}
	return a.withDirectLog(ctx, func(log *sdk.Log) error {
		shown := a.count("compacted")
		b := log.Backend()
		start := a.env.Mono()
		report, err := compact.Run(ctx, b.Table, b.Store, compact.Options{Topics: o.topics, Deadline: o.deadline, All: o.all, DryRun: o.dryRun, Env: a.env, Progress: shown.compacting})
		keys := &clean.Report{Partitions: []clean.Partition{}}
		if ctx.Err() == nil && !errors.Is(err, sdk.ErrInvalid) {
			var failed error
			keys, failed = a.cleanKeys(ctx, b, o, max(1, o.deadline-(a.env.Mono()-start)))
			err = errors.Join(err, failed)
		}
		shown.clear()
		if o.json {
			return errors.Join(err, a.printJSON(compaction{report, keys}))
		}
		return errors.Join(err, a.printCompaction(report, keys, used.spent()))
	}, used)
}

// compaction is the report of both parts as JSON.
type compaction struct {
	*compact.Report
	Keys *clean.Report `json:"keys"`
}

// cleanKeys compacts keys, of the topics that want it.
func (a *app) cleanKeys(ctx context.Context, b sdk.Backend, o compactOptions, deadline time.Duration) (*clean.Report, error) {
	options := clean.Options{Deadline: deadline, DryRun: o.dryRun, Env: a.env}
	if o.all {
		options.Dirty = 1e-9
	}
	for _, name := range o.topics {
		t, err := b.Table.Topic(ctx, name)
		if err != nil {
			return &clean.Report{Partitions: []clean.Partition{}}, nil // told of already
		}
		if t.Config.Compacts() {
			options.Topics = append(options.Topics, name)
		}
	}
	if len(o.topics) > 0 && len(options.Topics) == 0 {
		return &clean.Report{Partitions: []clean.Partition{}}, nil
	}
	return clean.Run(ctx, b.Table, b.Store, options)
}

// compacting shows how far a run is.
func (c *counter) compacting(p compact.Progress) {
	now := c.app.env.Mono()
	if c.silent || now-c.shown < progressEvery {
		return
	}
	c.shown = now
	c.show(fmt.Sprintf("%s published, %.1f MiB read, %.1f MiB written", plural(p.Segments, "segment", "segments"), float64(p.Read)/(1<<20), float64(p.Bytes)/(1<<20)))
}

// printCompaction prints what a person reads: the segments, then all of it.
func (a *app) printCompaction(r *compact.Report, k *clean.Report, s *verify.Spent) error {
	out := bufio.NewWriter(a.out)
	for _, j := range r.Jobs {
		what := fmt.Sprintf("commits %d to %d, since %s", j.From, j.To-1, j.Oldest.Format(time.RFC3339))
		if j.Replaced > 0 {
			what = fmt.Sprintf("%s of the archive merged into %d", plural(j.Replaced, "run", "runs"), j.Rows)
		}
		fmt.Fprintf(out, "%s, lane %s: %s: %s of %s, %.1f MiB\n", j.Topic, j.Lane, what, plural(int(j.Records), "record", "records"), plural(j.Rows, "partition", "partitions"), float64(j.Bytes)/(1<<20))
	}
	if n := r.Segments - len(r.Jobs); n > 0 {
		fmt.Fprintf(out, "and %s more\n", plural(n, "segment", "segments"))
	}
	did := "published"
	if r.DryRun {
		did = "would be published"
	}
	fmt.Fprintf(out, "%s, %s: %s of %s %s\n", plural(r.Topics, "topic", "topics"), plural(r.Lanes, "lane", "lanes"), plural(r.Segments, "segment", "segments"), plural(int(r.Records), "record", "records"), did)
	if r.Idle > 0 {
		fmt.Fprintf(out, "heads emptied: those of %s\n", plural(r.Idle, "lane", "lanes"))
	}
	if r.Lost > 0 {
		fmt.Fprintf(out, "done by another compactor first: %s\n", plural(r.Lost, "segment", "segments"))
	}
	if r.Gone > 0 {
		fmt.Fprintf(out, "deleted meanwhile: the topic of %s\n", plural(r.Gone, "lane", "lanes"))
	}
	if r.Left > 0 {
		fmt.Fprintf(out, "left for the next run: %s, with commits since %s\n", plural(r.Left, "lane", "lanes"), r.LeftSince.Format(time.RFC3339))
	}
	for _, p := range k.Partitions {
		fmt.Fprintf(out, "%s, partition %d: %d of %s kept, %s of deleted keys gone, %.1f of %.1f MiB\n", p.Topic, p.Partition, p.Kept, plural(int(p.Records), "record", "records"),
			plural(int(p.Tombstones), "tombstone", "tombstones"), float64(p.Written)/(1<<20), float64(p.Bytes)/(1<<20))
	}
	if k.Left > 0 {
		fmt.Fprintf(out, "keys left for the next run: %s\n", plural(k.Left, "partition", "partitions"))
	}
	for _, f := range r.Failures {
		fmt.Fprintf(out, "failed: %s, lane %s: %s\n", f.Topic, f.Lane, f.What)
	}
	fmt.Fprintf(out, "used: %d requests to the table, %d to the store, %.1f s; on AWS about $%.6f (prices of %s)\n", s.TableRequests, s.StoreRequests, r.Seconds, s.Dollars, price.Date)
	return out.Flush()
}
