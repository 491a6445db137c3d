package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/sdk"
)

type verifyOptions struct {
	topics    []string
	indexOnly bool
	proof     string
	all       bool
	json      bool
}

func (a *app) verifyCommand() *cobra.Command {
	var o verifyOptions
	c := &cobra.Command{
		Use: "verify [TOPIC]...", Short: "Read a whole log and check that it is sound", ValidArgsFunction: a.completeTopics,
		Long: `Read a whole log, or the topics named, and check everything about it that can be seen from outside: every record of every object against its
checksums, the objects against the index, and the index against itself. Nothing is changed, and the log may be in use.

Each row of the archive has the sum of its records, which stays what it is whatever rewrites them. With --proof the sums that were found are kept in a file, and
the next check with the same file compares: whether what was there then is there still, to the last record, offset and byte, but for what was erased, key-compacted or
has expired. It reads what is new only, with --all everything. Keep the file where who can change the log cannot change it.

Findings are damage (records are lost, or not as they were written), suspicious (something that varve does not do) or information. Objects that
nothing names are counted if all topics are verified.

Exit status: 0 no damage, 1 damage found or not finished, 2 usage.`,
		RunE: func(c *cobra.Command, args []string) error {
			o.topics = args
			switch {
			case c.Flags().Changed("proof") && o.proof == "":
				return usagef("--proof wants the name of a file, and got none")
			case o.indexOnly && o.proof != "":
				return usagef("--proof needs the records, which --index-only does not read")
			case o.all && o.proof == "":
				return usagef("--all is for --proof FILE: without it everything is read")
			}
			return a.verify(c.Context(), o)
		},
	}
	c.Flags().BoolVar(&o.indexOnly, "index-only", false, "leave the bodies of objects unread: check the table, and that objects are there and long enough")
	c.Flags().StringVar(&o.proof, "proof", "", "compare with what this file says was there, read only what is new, and write what is there now; a file that is not there is made")
	c.Flags().BoolVar(&o.all, "all", false, "with --proof: read everything")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func (a *app) verify(ctx context.Context, o verifyOptions) error {
	used := &usage{}
	return a.withDirectLog(ctx, func(log *sdk.Log) error {
		shown := a.count("verified")
		b := log.Backend()
		report, err := verify.Run(ctx, b.Table, b.Store, verify.Options{Topics: o.topics, IndexOnly: o.indexOnly, Proof: o.proof, All: o.all, Env: a.env, Progress: shown.verifying})
		shown.clear()
		report.Spent = used.spent()
		print := a.printReport
		if o.json {
			print = func(r *verify.Report) error { return a.printJSON(r) }
		}
		if printed := print(report); printed != nil || err != nil {
			return errors.Join(err, printed)
		}
		if !report.OK() {
			return fmt.Errorf("%s of damage", plural(int(report.Damage), "finding", "findings"))
		}
		return nil
	}, used)
}

// spent is the usage as a report has it.
func (u *usage) spent() *verify.Spent {
	u.mu.Lock()
	defer u.mu.Unlock()
	objects := 0
	for _, n := range u.store {
		objects += n
	}
	return verify.SpentOf(u.table, objects, u.Usage)
}

// verifying shows how far a check is.
func (c *counter) verifying(p verify.Progress) {
	now := c.app.env.Mono()
	if c.silent || now-c.shown < progressEvery {
		return
	}
	c.shown = now
	text := fmt.Sprintf("%d of %s, %s, %s, %.1f MiB", p.LanesDone, plural(p.Lanes, "lane", "lanes"), plural(int(p.Commits), "commit", "commits"),
		plural(int(p.Objects), "object", "objects"), float64(p.Bytes)/(1<<20))
	if p.Listed > 0 {
		text = plural(int(p.Listed), "object", "objects") + " listed"
	}
	if p.Findings > 0 {
		text += ", " + plural(int(p.Findings), "finding", "findings")
	}
	c.show(text)
}

// printReport prints what a person reads: findings first, the verdict last.
func (a *app) printReport(r *verify.Report) error {
	out := bufio.NewWriter(a.out)
	for _, f := range r.Findings {
		fmt.Fprintf(out, "%s: %s: %s\n", f.Severity, f.Kind, f.What)
		if where := f.Where(); where != "" {
			fmt.Fprintf(out, "  where: %s\n", where)
		}
		fmt.Fprintf(out, "  do:    %s\n", f.Do)
	}
	all := r.Damage + r.Suspicious + r.Information
	if n := all - int64(len(r.Findings)); n > 0 {
		fmt.Fprintf(out, "and %s more, counted but not listed\n", plural(int(n), "finding", "findings"))
	}
	if all > 0 {
		fmt.Fprintln(out)
	}
	t, s := r.Totals, r.Spent
	fmt.Fprintf(out, "log %s: %s, %s, %s, %s, %s, %d bytes in %s\n", r.Log, plural(int(t.Topics), "topic", "topics"), plural(int(t.Partitions), "partition", "partitions"),
		plural(int(t.Commits), "commit", "commits"), plural(int(t.Rows), "archive row", "archive rows"), plural(int(t.Records), "record", "records"), t.Bytes, plural(int(t.Objects), "object", "objects"))
	if t.Unsummed > 0 {
		fmt.Fprintf(out, "without a sum: %s, until they are rewritten\n", plural(int(t.Unsummed), "archive row", "archive rows"))
	}
	if p := r.Proof; p != nil {
		fmt.Fprintln(out, proofLine(p, &t))
	}
	if t.Expired > 0 {
		fmt.Fprintf(out, "not looked at, or gone, as expired: %s\n", plural(int(t.Expired), "object", "objects"))
	}
	if t.Listed > 0 {
		fmt.Fprintf(out, "superseded, until the sweep: %s of %d bytes\n", plural(int(t.Superseded.Objects), "object", "objects"), t.Superseded.Bytes)
		fmt.Fprintf(out, "named by nothing: %s of %d bytes, and %d of %d bytes too new to tell\n", plural(int(t.Orphans.Objects), "object", "objects"), t.Orphans.Bytes, t.Recent.Objects, t.Recent.Bytes)
	}
	fmt.Fprintf(out, "used: %d requests to the table (%.1f read units), %d to the store, %.1f s; on AWS about $%.6f (prices of %s)\n", s.TableRequests, s.Units, s.StoreRequests, r.Seconds, s.Dollars, price.Date)
	fmt.Fprintf(out, "%s: %d damage, %d suspicious, %d information\n", verdict(r), r.Damage, r.Suspicious, r.Information)
	return out.Flush()
}

// proofLine says what became of a proof file.
func proofLine(p *verify.Proven, t *verify.Totals) string {
	line := "proof " + p.File + ": "
	if p.Since.IsZero() {
		line += "new"
	} else {
		line += fmt.Sprintf("%s compared with %s, %d that cannot be, %s known and not read", plural(int(t.Compared), "record", "records"), p.Since.Format(time.RFC3339), t.Uncompared,
			plural(int(t.Known), "archive row", "archive rows"))
	}
	if !p.Replaced {
		line += "; it stays as it was"
	}
	return line
}

func verdict(r *verify.Report) string {
	switch {
	case r.Damage > 0:
		return "DAMAGED"
	case r.Incomplete:
		return "not finished"
	case r.IndexOnly:
		return "the index is sound"
	}
	return "sound"
}
