package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varvelog/varve/internal/cost"
)

type costOptions struct {
	cost.Input
	rate, record, small, request      byteSize
	retention, undelete, age          days
	compactEvery, sweepEvery, retains days
	json                              bool
}

func (a *app) costCommand() *cobra.Command {
	d := cost.Default()
	o := costOptions{Input: d, rate: byteSize(d.Rate), record: byteSize(d.Record), small: byteSize(d.Small), retention: days(d.Retention), undelete: days(d.Undelete), age: days(d.Age),
		compactEvery: days(d.Compact), sweepEvery: days(d.Sweep), retains: days(d.Retain)}
	c := &cobra.Command{
		Use: "cost", Short: "Estimate what a log would cost on AWS", Args: exactly(),
		Long: `Estimate what a log of one topic would cost on AWS a month (30 days), from how it is used. No log is opened.

Costs follow flushes, not bytes: each is a PUT and a commit. So the number of producers and their linger matter most. With --request-size the producers are
functions, each request of which is a flush; then --producers and the linger do not count.

Readers are processes that follow the log and read all partitions. Of a group's members each reads every segment in which it has a partition, so count them all.

Not in it: traffic out of the region, the functions' time for schedules and for reading over HTTP, logs, metrics and alarms, point-in-time recovery, keys of KMS,
reading of history, free tiers. docs/cost.md has the formulas.`,
		Example: "  varve cost --rate 1MiB --partitions 64 --producers 8\n  varve cost --rate 100KiB --request-size 16KiB\n  varve cost --rate 10MiB --retention 365d --age 365d --json",
		RunE:    func(c *cobra.Command, _ []string) error { return a.cost(c.LocalFlags(), o) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.Var(&o.rate, "rate", "keys and values that are produced in a second, by all producers")
	f.Var(&o.record, "record-size", "key and value of a record")
	f.Float64Var(&o.Ratio, "compression", o.Ratio, "bytes stored for each byte of records: 0.3 if zstd leaves that")
	f.IntVar(&o.Partitions, "partitions", o.Partitions, "of the topic; keys are spread evenly")
	f.IntVar(&o.LaneWidth, "lane-width", o.LaneWidth, "partitions that are sequenced together, as in 'topic create'")
	f.IntVar(&o.Producers, "producers", o.Producers, "processes that produce")
	f.DurationVar(&o.LingerFloor, "linger-floor", o.LingerFloor, "shortest wait of a flush")
	f.DurationVar(&o.Linger, "linger", o.Linger, "longest wait of a flush")
	f.DurationVar(&o.Ack, "ack", o.Ack, "what PUT and commit take, which the adaptive linger goes by")
	f.Var(&o.small, "small", "segments up to this size are stored in the table; 0: none")
	f.Var(&o.request, "request-size", "producers are functions, and a request brings this much; 0: they have the SDK")
	f.IntVar(&o.Memory, "function-memory", o.Memory, "MB that a function has")
	f.DurationVar(&o.FunctionTime, "function-time", o.FunctionTime, "what a request takes")
	f.IntVar(&o.Readers, "readers", o.Readers, "processes that follow the log")
	f.BoolVar(&o.Group, "group", o.Group, "readers are members of consumer groups")
	f.Var(&o.retention, "retention", "0: for ever")
	f.Var(&o.undelete, "undelete", "for how long the bucket keeps what was deleted, as versions; 0: it has none")
	f.Var(&o.age, "age", "since when the log is written like that: how much there is to store, and how long numbers are")
	f.Var(&o.compactEvery, "compact-every", "0: never")
	f.Var(&o.sweepEvery, "sweep-every", "0: never")
	f.Var(&o.retains, "retain-every", "0: never")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func (a *app) cost(flags *pflag.FlagSet, o costOptions) error {
	if o.request > 0 {
		for _, name := range []string{"producers", "linger", "linger-floor"} {
			if flags.Changed(name) {
				return usagef("--%s has no meaning with --request-size: each request is a flush", name)
			}
		}
	}
	in := o.Input
	in.Rate, in.Record, in.Small, in.Request = float64(o.rate), float64(o.record), int(o.small), float64(o.request)
	in.Retention, in.Undelete, in.Age = time.Duration(o.retention), time.Duration(o.undelete), time.Duration(o.age)
	in.Compact, in.Sweep, in.Retain = time.Duration(o.compactEvery), time.Duration(o.sweepEvery), time.Duration(o.retains)
	e, err := cost.Of(in)
	var bad *cost.FieldError
	if errors.As(err, &bad) {
		return usagef("--%s %s is not %s", bad.Field, flags.Lookup(bad.Field).Value, bad.Valid)
	}
	if err != nil {
		return err
	}
	if o.json {
		return a.printJSON(e)
	}
	return printCost(a.out, flags, e)
}

// printCost prints what a person reads: what was assumed, what producers then do, and what it costs.
func printCost(w io.Writer, flags *pflag.FlagSet, e *cost.Estimate) error {
	out := bufio.NewWriter(w)
	var inputs []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "json" && f.Name != "help" {
			inputs = append(inputs, "--"+f.Name+"="+f.Value.String())
		}
	})
	for at, line := range slices.Collect(slices.Chunk(inputs, 6)) {
		fmt.Fprintf(out, "%-7s %s\n", []string{"inputs", ""}[min(at, 1)], strings.Join(line, " "))
	}
	fmt.Fprintf(out, "prices  list prices of %s, %s; a month has 30 days\n", e.Region, e.PriceDate)
	fl := e.Flow
	fmt.Fprintf(out, "flow    %s segments/s of %s, with %s records of %s partitions, %.0f %% of them in the table\n", figure3(fl.Flushes), about(int64(fl.Bytes)), figure3(fl.Records),
		figure3(fl.Touched), 100*fl.SmallShare)
	fmt.Fprintf(out, "        %s commits/s of %.2f write units in %s; %.0f of the %d write units/s that a lane has\n\n", figure3(fl.Commits), fl.CommitUnits,
		plural(int(fl.Lanes), "lane", "lanes"), fl.LaneWriteUnits, cost.ItemWriteUnits)
	var rows [][]any
	add := func(name string, u cost.Usage) {
		if u != (cost.Usage{}) {
			rows = append(rows, []any{name, millions(u.Puts), millions(u.Gets), millions(u.WriteUnits), millions(u.ReadUnits), millions(u.Requests), figure3(u.StoreGiB), figure3(u.TableGiB),
				fmt.Sprintf("%.2f", u.Dollars()), fmt.Sprintf("%.5f", u.Dollars()/e.GiB)})
		}
	}
	for _, p := range e.Parts {
		add(p.Name, p.Usage)
	}
	add("all", e.Month)
	if err := table(out, "PART MILLION_PUT GET WRITE_UNITS READ_UNITS INVOCATIONS GiB_STORED IN_TABLE $/MONTH $/GiB", rows); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n$%.2f a month for %s GiB of records: $%.5f a GiB\n", e.Dollars, figure3(e.GiB), e.PerGiB)
	if e.Overloaded {
		fmt.Fprintf(out, "This is more than a lane can do: fewer producers, a longer linger, or more lanes (a smaller --lane-width).\n")
	}
	return out.Flush()
}

// figure3 is a number with three digits that count.
func figure3(x float64) string {
	if x == 0 {
		return "0"
	}
	places := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	return strconv.FormatFloat(x, 'f', min(max(places, 0), 6), 64)
}

func millions(x float64) string { return strconv.FormatFloat(x/1e6, 'f', 3, 64) }

// days is a flag of a duration that may be given in days.
type days time.Duration

// String implements pflag.Value.
func (d *days) String() string {
	const day = 24 * time.Hour
	switch t := time.Duration(*d); {
	case t == 0:
		return "0"
	case t%day == 0:
		return fmt.Sprintf("%dd", t/day)
	default:
		text := t.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	}
}

// Set implements pflag.Value.
func (d *days) Set(s string) error {
	if text, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return errors.New("want a duration, such as 10m, 36h or 7d")
		}
		*d = days(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a duration, such as 10m, 36h or 7d")
	}
	*d = days(t)
	return nil
}

// Type implements pflag.Value.
func (d *days) Type() string { return "duration" }
