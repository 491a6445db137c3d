package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/cmd/varve/internal/bench"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

type benchOptions struct {
	bench.Config
	recordSize, segmentBytes, bytes byteSize
	json                            bool
}

func (a *app) benchCommand() *cobra.Command {
	c := group("bench", "Measure the log against the limit of its store", a.benchProduceCommand(), a.benchReadCommand(), a.benchReplayCommand(), a.benchEndToEndCommand())
	c.Long = c.Short + `.

Each command measures two things in turns, within one run, so that what else the machine does falls on both:

  raw    objects as large as varve's segments are, put or got straight through the log's own store, as durable, by 1, 4 and 16 streams
  varve  a producer or a reader, with default settings but for those given here

A raw turn goes on for as long as varve's last one. The ratio is that of the best turns; that of the medians lies near it on a quiet machine.
CPU is what this process used, user and system, with the table's engine in it where the log is embedded. Records are used again once they are
acknowledged, so that only varve's work is measured. Costs are what the same requests cost on AWS.

A run makes a topic of its own, and removes it and everything else that it wrote in the end; until then it takes the room of all of varve's
turns (--bytes), and of one raw turn, which puts at most four times as much.`
	return c
}

func (a *app) benchProduceCommand() *cobra.Command {
	o := defaultBenchOptions(5)
	o.bytes = 1 << 30 // so that filling and draining what is under way is little of a turn
	c := &cobra.Command{
		Use: "produce", Short: "Measure a producer against puts", Args: exactly(),
		Long: `Measure a producer against puts.

A turn begins with nothing under way and ends when all is acknowledged. On a fast disk that alone takes 50 to 80 ms, which raw puts do not have: with
--bytes 256MiB it is a fifth of a turn, with the default of 1GiB a twentieth. All turns together take up to 10 GiB of room then; give less where
there is less.

Latency is of one put, and for varve from Produce until the acknowledgement. With compression varve's rate, which is of records, may be above
the raw one, which is of the compressed bytes.`,
		Example: "  varve bench produce --record-size 100",
		RunE: func(c *cobra.Command, _ []string) error {
			return benchmark(a, c.Context(), o, bench.Produce, reportRates)
		},
	}
	o.flags(c)
	return c
}

func (a *app) benchReadCommand() *cobra.Command {
	o := defaultBenchOptions(5)
	o.bytes = 2 << 30 // a reader is faster, and begins anew each time
	c := &cobra.Command{
		Use: "read", Short: "Measure a reader against gets", Args: exactly(),
		Long: `Measure a reader against gets of the very segments that it reads.

Every turn, raw or varve, opens the log anew, which is not timed, so that nothing comes from a cache of varve's. What a reader does once, from
its first request to the table until its buffer is full, is timed, and takes 50 to 80 ms: with --bytes 512MiB that is a seventh of a turn from a
fast store, with the default of 2GiB a twenty-fifth. Latency is of one get.
With --cold, on a directory, the system has nothing of it in its page cache either: the disk is measured, not memory.`,
		Example: "  varve bench read --record-size 100 --recycle",
		RunE: func(c *cobra.Command, _ []string) error {
			return benchmark(a, c.Context(), o, bench.Read, reportRates)
		},
	}
	o.flags(c)
	c.Flags().BoolVar(&o.Recycle, "recycle", false, "the reader uses the memory of what it returned again")
	o.coldFlag(c)
	return c
}

func (a *app) benchReplayCommand() *cobra.Command {
	o := defaultBenchOptions(5)
	o.bytes, o.Partitions = 2<<30, 64
	c := &cobra.Command{
		Use: "replay", Short: "Measure a replay of a compacted topic against ranged gets", Args: exactly(),
		Long: `Measure a replay of a compacted topic against gets of the very bytes that it reads, 8 MiB at a time.

Every turn, raw or varve, opens the log anew, which is not timed, so that nothing comes from a cache of varve's. What a replay does once, until
its buffer is full, is timed, as for bench read. Latency is of one get.
With --cold, on a directory, the system has nothing of it in its page cache either: the disk is measured, not memory.`,
		Example: "  varve bench replay --recycle",
		RunE: func(c *cobra.Command, _ []string) error {
			return benchmark(a, c.Context(), o, bench.Replay, reportRates)
		},
	}
	o.flags(c)
	c.Flags().BoolVar(&o.Recycle, "recycle", false, "the replay uses the memory of what it returned again")
	o.coldFlag(c)
	return c
}

func (a *app) benchEndToEndCommand() *cobra.Command {
	o := defaultBenchOptions(3)
	c := &cobra.Command{
		Use: "e2e", Short: "Measure the time from append to delivery", Args: exactly(),
		Long: `Measure the time from append, which is when Produce is called, to delivery, which is when a reader with connections of its own has
returned the record: at full load, at a trickle, and after a pause. Raw is the put of an object of the same size and then its get.`,
		Example: "  varve bench e2e --idle 10s",
		RunE: func(c *cobra.Command, _ []string) error {
			return benchmark(a, c.Context(), o, bench.EndToEnd, reportLatencies)
		},
	}
	o.flags(c)
	c.Flags().Float64Var(&o.Rate, "rate", o.Rate, "records per second at a trickle")
	c.Flags().DurationVar(&o.Idle, "idle", o.Idle, "pause before the record of the last part, once for each turn")
	return c
}

func defaultBenchOptions(turns int) *benchOptions {
	o := &benchOptions{recordSize: 1 << 10, segmentBytes: 8 << 20, bytes: 256 << 20}
	o.Partitions, o.Compression, o.Payload, o.Turns, o.TurnTime = metadata.DefaultPartitions, "none", bench.Random, turns, 10*time.Second
	o.Rate, o.Idle = 10, time.Minute
	return o
}

func (o *benchOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.Var(&o.recordSize, "record-size", "bytes of a record, key and value together")
	f.Var(&o.segmentBytes, "segment-bytes", "size at which the producer ends a segment")
	f.IntVar(&o.Partitions, "partitions", o.Partitions, "partitions of the topic")
	f.StringVar(&o.Compression, "compression", o.Compression, codecNames())
	f.StringVar(&o.Payload, "payload", o.Payload, "random bytes, which do not compress, or text")
	f.Var(&o.bytes, "bytes", "records per turn, in bytes")
	f.DurationVar(&o.TurnTime, "duration", o.TurnTime, "end a turn after this time even if its bytes are not through")
	f.IntVar(&o.Turns, "turns", o.Turns, "turns of each side; another one before them does not count")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	c.RegisterFlagCompletionFunc("compression", cobra.FixedCompletions(slices.Sorted(maps.Keys(bench.Codecs)), cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("payload", cobra.FixedCompletions([]string{bench.Random, bench.Text}, cobra.ShellCompDirectiveNoFileComp))
}

func codecNames() string {
	names := slices.Sorted(maps.Keys(bench.Codecs))
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func (o *benchOptions) coldFlag(c *cobra.Command) {
	c.Flags().BoolVar(&o.Cold, "cold", false, "read from the disk: drop the log's objects from the page cache before every turn (file:// on Linux)")
}

// coldFolder is where the log's objects are, if they are to be cold.
func (o *benchOptions) coldFolder(url string) (string, error) {
	if !o.Cold {
		return "", nil
	}
	if !bench.CanForget {
		return "", usagef("--cold needs Linux: this system cannot be asked to forget a file")
	}
	folder, err := embedded.ObjectsFolder(url)
	if err != nil {
		return "", usagef("--cold is for a log in a directory (file://), and --log is %s: what a store's own servers keep in memory cannot be dropped from here", url)
	}
	return folder, nil
}

// check refuses what makes no sense, before anything is written.
func (o *benchOptions) check() error {
	_, known := bench.Codecs[o.Compression]
	switch {
	case o.recordSize < bench.MinRecord || o.recordSize > bench.MaxRecord:
		return usagef("--record-size %s is not %s to %s", o.recordSize, byteSize(bench.MinRecord), byteSize(bench.MaxRecord))
	case o.segmentBytes < 64<<10 || o.segmentBytes > 256<<20:
		return usagef("--segment-bytes %s is not 64KiB to 256MiB", o.segmentBytes)
	case o.Partitions < 1:
		return usagef("--partitions %d is not 1 or more", o.Partitions)
	case !known:
		return usagef("--compression %q is not %s", o.Compression, codecNames())
	case o.Payload != bench.Random && o.Payload != bench.Text:
		return usagef("--payload %q is not %s or %s", o.Payload, bench.Random, bench.Text)
	case o.bytes < o.recordSize:
		return usagef("--bytes %s is not even one record (--record-size %s)", o.bytes, o.recordSize)
	case o.TurnTime <= 0:
		return usagef("--duration %v is not more than 0", o.TurnTime)
	case o.Turns < 1:
		return usagef("--turns %d is not 1 or more", o.Turns)
	case !(o.Rate > 0 && o.Rate <= 1e6):
		return usagef("--rate %g is not more than 0, at most a million", o.Rate)
	case o.Idle < 0:
		return usagef("--idle %v is not 0 or more", o.Idle)
	}
	return nil
}

// benchmark measures and reports.
func benchmark[R any](a *app, ctx context.Context, o *benchOptions, measure func(context.Context, bench.Config) (R, error), report func(*app, R) error) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	folder, err := o.coldFolder(a.url)
	if err != nil {
		return err
	}
	open, done, err := a.opener()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	shown := a.count("")
	o.Config.Open, o.Config.Env, o.Config.Log, o.Folder = open, a.env, a.url, folder
	o.Config.RecordSize, o.Config.SegmentBytes, o.Config.TurnBytes = int(o.recordSize), int(o.segmentBytes), int64(o.bytes)
	o.Config.Progress = func(does string) {
		if !shown.silent {
			shown.show(does)
		}
	}
	result, err := measure(ctx, o.Config)
	shown.clear()
	if err != nil {
		return err
	}
	if o.json {
		return a.printJSON(result)
	}
	return report(a, result)
}

// opener opens the log of the command line several times. One in memory is the same each time, and gone when it is done.
func (a *app) opener() (open func(context.Context, ...sdk.Hook) (*sdk.Log, error), done func() error, err error) {
	driver, done := embedded.Driver(), func() error { return nil }
	if scheme, _, _ := strings.Cut(a.url, ":"); strings.EqualFold(scheme, "mem") {
		m, err := embedded.NewMemory(embedded.MemoryOptions{})
		if err != nil {
			return nil, nil, err
		}
		driver, done = m, m.Close
	}
	return func(ctx context.Context, hooks ...sdk.Hook) (*sdk.Log, error) {
		return a.openWith(ctx, driver, hooks...)
	}, done, nil
}

// byteSize is a flag of so many bytes, such as 100, 64KiB or 8MiB.
type byteSize int64

var byteUnits = []struct {
	name string
	n    byteSize
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String implements pflag.Value.
func (b byteSize) String() string {
	for _, u := range byteUnits {
		if b%u.n == 0 && b >= u.n {
			return fmt.Sprintf("%d%s", b/u.n, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}

// Set implements pflag.Value.
func (b *byteSize) Set(s string) error {
	number, unit := s, byteSize(1)
	for _, u := range byteUnits {
		if text, ok := strings.CutSuffix(s, u.name); ok {
			number, unit = text, u.n
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return errors.New("want a number of bytes, such as 100, 64KiB or 8MiB")
	}
	*b = byteSize(n) * unit
	return nil
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "bytes" }
