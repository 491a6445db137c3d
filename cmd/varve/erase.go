package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/erase"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

type eraseOptions struct {
	key, prefix, header string
	versions            time.Duration
	versionsSaid        bool
	dryRun, json        bool
}

func (a *app) eraseCommand() *cobra.Command {
	var o eraseOptions
	c := &cobra.Command{
		Use: "erase TOPIC", Short: "Remove the records of one key, or one header, from a topic's history", Args: exactly("TOPIC"), ValidArgsFunction: a.completeTopics,
		Long: `Remove records from a topic's history for good: those with a key, with keys that begin alike, or with a header. There is no way back.

Everything appended so far, to other topics too, since objects may hold records of several, is moved to the archive, and every object there that holds such a record is written again without it; then all is read again, as the
proof that none is left. Offsets of other records stay as they are. The log may be in use; what is appended meanwhile is not looked at.

What was replaced the sweep deletes a day later. Versions that the bucket keeps, and backups of the table, hold it until they end; the report says when. Should
the log be repaired before that ('varve repair'), what was erased may come back: erase again.

Exit status: 0 none is left, 1 failed, 2 usage.`,
		Example: "  varve erase flights --key SEA --dry-run\n  varve erase orders --header customer=4711 --json > proof.json",
		RunE: func(c *cobra.Command, args []string) error {
			match, err := o.match(c)
			if err != nil {
				return err
			}
			o.versionsSaid = c.Flags().Changed("versions")
			return a.erase(c.Context(), args[0], match, o)
		},
	}
	c.Flags().StringVar(&o.key, "key", "", "records with this key")
	c.Flags().StringVar(&o.prefix, "key-prefix", "", "records whose keys begin like this")
	c.Flags().StringVar(&o.header, "header", "", "records with this header, as NAME=VALUE")
	c.Flags().DurationVar(&o.versions, "versions", 0, "how long the bucket keeps versions of objects that were deleted, 0 for not at all: for the dates of the report")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "count what would be erased of the archive, and change nothing")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

// match is what the flags ask for, exactly one of them.
func (o *eraseOptions) match(c *cobra.Command) (func(*segment.Record) bool, error) {
	given := 0
	for _, name := range []string{"key", "key-prefix", "header"} {
		if c.Flags().Changed(name) {
			given++
		}
	}
	name, value, pair := strings.Cut(o.header, "=")
	switch {
	case o.versions < 0:
		return nil, usagef("--versions %v: want 0 or more", o.versions)
	case given != 1:
		return nil, usagef("one of --key, --key-prefix and --header is wanted, %d given", given)
	case c.Flags().Changed("key"):
		return func(r *segment.Record) bool { return r.Key != nil && string(r.Key) == o.key }, nil
	case c.Flags().Changed("key-prefix") && o.prefix == "":
		return nil, usagef("--key-prefix is empty: it would take every key")
	case c.Flags().Changed("key-prefix"):
		return func(r *segment.Record) bool { return r.Key != nil && bytes.HasPrefix(r.Key, []byte(o.prefix)) }, nil
	case !pair:
		return nil, usagef("--header %q is not NAME=VALUE", o.header)
	}
	return func(r *segment.Record) bool {
		for _, h := range r.Headers {
			if h.Key == name && h.Value != nil && string(h.Value) == value {
				return true
			}
		}
		return false
	}, nil
}

func (a *app) erase(ctx context.Context, topic string, match func(*segment.Record) bool, o eraseOptions) error {
	return a.withDirectLog(ctx, func(log *sdk.Log) error {
		shown := a.count("erased")
		b := log.Backend()
		if b.Lifecycle != nil && !o.versionsSaid {
			o.versions = -1 // a bucket may keep some
		}
		report, err := erase.Run(ctx, b.Table, b.Store, erase.Options{Topic: topic, Match: match, DryRun: o.dryRun, Versions: o.versions, Env: a.env, Progress: shown.erasing,
			Archive: func(ctx context.Context, topic string) error {
				o := compact.Options{All: true, Deadline: compact.MaxDeadline, Env: a.env, Progress: shown.compacting}
				if topic != "" {
					o.Topics = []string{topic}
				}
				done, err := compact.Run(ctx, b.Table, b.Store, o)
				if err == nil && done.Left > 0 {
					err = fmt.Errorf("there was no time for %s; run it again", plural(done.Left, "lane", "lanes"))
				}
				return err
			}})
		shown.clear()
		switch {
		case report.TopicID == "":
			return err
		case o.json:
			return errors.Join(err, a.printJSON(report))
		}
		return errors.Join(err, a.printErasure(report))
	})
}

// erasing shows how far a run is.
func (c *counter) erasing(r erase.Report) {
	now := c.app.env.Mono()
	if c.silent || now-c.shown < progressEvery {
		return
	}
	c.shown = now
	c.show(fmt.Sprintf("%s, %.1f MiB read, %s erased", plural(int(r.Extents), "extent", "extents"), float64(r.Bytes)/(1<<20), plural(int(r.Erased), "record", "records")))
}

func (a *app) printErasure(r *erase.Report) error {
	out := bufio.NewWriter(a.out)
	did := "erased"
	if r.DryRun {
		did = "would be erased"
	}
	fmt.Fprintf(out, "%s: %s of %s in %s read (%.1f MiB); %s %s, %s written again (%.1f MiB)\n", r.Topic, plural(int(r.Records), "record", "records"), plural(len(r.Partitions), "partition", "partitions"),
		plural(int(r.Extents), "extent", "extents"), float64(r.Bytes)/(1<<20), plural(int(r.Erased), "record", "records"), did, plural(int(r.Rewritten), "extent", "extents"), float64(r.Written)/(1<<20))
	if r.Unarchived > 0 {
		fmt.Fprintf(out, "not looked at, as it is not in the archive yet: %s\n", plural(int(r.Unarchived), "offset", "offsets"))
	}
	if r.Moved > 0 {
		also := "written again too, as they lay in the same objects"
		if r.DryRun {
			also = "would have to be " + also
		}
		fmt.Fprintf(out, "%s %s\n", plural(int(r.Moved), "extent", "extents"), also)
	}
	for _, p := range r.Partitions {
		fmt.Fprintf(out, "  partition %d: offsets %d to %d\n", p.Partition, p.Start, p.End)
	}
	if v := r.Verified; v != nil {
		fmt.Fprintf(out, "read again: %s in %s of %s, %d to be erased among them\n", plural(int(v.Records), "record", "records"), plural(int(v.Extents), "extent", "extents"), plural(int(v.Objects), "object", "objects"), v.Found)
	}
	if n := len(r.Replaced); n > 0 {
		fmt.Fprintf(out, "still to be deleted by 'varve sweep': what %s replaced\n", plural(n, "publication", "publications"))
	}
	if g := r.Gone; g != nil {
		versions := "with the bucket's rule for versions of objects that were deleted, if it keeps any (--versions says how long)"
		if !g.Versions.IsZero() {
			versions = "from versions of objects by " + g.Versions.Format(time.RFC3339)
		}
		fmt.Fprintf(out, "gone from the bucket with the first sweep after %s; if that is within a day of it, %s, and from backups of the table by %s at the latest\n",
			g.Objects.Format(time.RFC3339), versions, g.Backups.Format(time.RFC3339))
	}
	return out.Flush()
}
