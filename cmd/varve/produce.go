package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

type produceOptions struct {
	format              string
	keyField, timeField string
	keepPartitions      bool
	partition           int // -1: by key
}

func (a *app) produceCommand() *cobra.Command {
	o := produceOptions{partition: -1}
	c := &cobra.Command{
		Use: "produce TOPIC", Short: "Append records from stdin, one per line", Args: exactly("TOPIC"), ValidArgsFunction: a.completeTopics,
		Long: `Append records from stdin, one per line.

Formats:
  lines   each line is a value; no key, the time is now
  json    each line is a JSON object and as it stands the value; --key-field and --time-field name the fields of it that are key and time
  record  each line is a whole record, as 'varve consume --json' prints it (docs/record-json.md)

Exit status 0 means that every record is in the log. A record that is refused, such as one that is too large, fails alone; a line that cannot
be read, or a failure of another kind, ends it. Then stderr says how many records are in the log, and which line was the first at fault.`,
		Example: "  gunzip -c flights.jsonl.gz | varve produce flights --key-field origin --time-field time\n  varve consume a --json | varve produce b --format record",
		RunE:    func(c *cobra.Command, args []string) error { return a.produce(c.Context(), args[0], o) },
	}
	c.Flags().StringVar(&o.format, "format", "", "lines, json or record (default lines; json with --key-field or --time-field)")
	c.Flags().StringVar(&o.keyField, "key-field", "", "field of a JSON line that is the record's key")
	c.Flags().StringVar(&o.timeField, "time-field", "", "field of a JSON line that is the record's time: RFC 3339 or milliseconds since 1970")
	c.Flags().BoolVar(&o.keepPartitions, "keep-partitions", false, "put each record into the partition that it names (format record)")
	c.Flags().IntVar(&o.partition, "partition", -1, "put all records into this partition")
	c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"lines", "json", "record"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// parser is the reader of lines that the options ask for.
func (o produceOptions) parser() (func(line []byte) (*sdk.Record, error), error) {
	fields := o.keyField != "" || o.timeField != ""
	format := o.format
	if format == "" {
		format = "lines"
		if fields {
			format = "json"
		}
	}
	switch {
	case fields && format != "json":
		return nil, usagef("--key-field and --time-field are for format json, not %s", format)
	case o.keepPartitions && format != "record":
		return nil, usagef("--keep-partitions is for format record, not %s", format)
	case o.partition < -1:
		return nil, usagef("--partition %d is not 0 or more, nor -1, which chooses by key", o.partition)
	case o.keepPartitions && o.partition >= 0:
		return nil, usagef("--keep-partitions and --partition exclude each other")
	}
	switch format {
	case "lines":
		return parseLine, nil
	case "json":
		return jsonParser(o.keyField, o.timeField), nil
	case "record":
		return parseRecord, nil
	}
	return nil, usagef("--format %q is not lines, json or record", format)
}

func (a *app) produce(ctx context.Context, topic string, o produceOptions) error {
	parse, err := o.parser()
	if err != nil {
		return err
	}
	return a.withLog(ctx, func(log *sdk.Log) error {
		// Before stdin is touched: what is wrong with the command line.
		t, err := log.Admin().Topic(ctx, topic)
		if err != nil {
			return err
		}
		if o.partition >= t.Partitions {
			return usagef("--partition %d: topic %s has partitions 0 to %d", o.partition, topic, t.Partitions-1)
		}
		var opts []sdk.ProducerOption
		if o.keepPartitions || o.partition >= 0 {
			opts = append(opts, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		}
		producer, err := log.NewProducer(opts...)
		if err != nil {
			return err
		}
		done := tally{shown: a.count("acknowledged")}
		sent := a.send(ctx, producer, topic, o.partition, parse, &done)
		// What was accepted is delivered even when ctx is done: its deadline bounds that.
		closed := producer.Close(context.WithoutCancel(ctx))
		return done.outcome(a, topic, sent, closed)
	})
}

// send hands stdin's lines to the producer until they end, one is bad, a record fails that was not bad, or ctx is done.
func (a *app) send(ctx context.Context, p *sdk.Producer, topic string, partition int, parse func([]byte) (*sdk.Record, error), t *tally) error {
	n := 0
	for line, err := range readLines(ctx, a.in) {
		if err != nil {
			return err
		}
		n++
		r, err := parse(line)
		if err != nil {
			return fmt.Errorf("stdin, line %d: %w", n, err)
		}
		if r == nil {
			continue
		}
		r.Topic = topic
		if partition >= 0 {
			r.Partition = partition
		}
		at := n
		p.Produce(ctx, r, func(_ *sdk.Record, err error) { t.count(at, err) })
		if t.stopped() {
			return nil // t has the reason
		}
	}
	return nil
}

// tally counts what became of the records.
type tally struct {
	mu        sync.Mutex
	done, bad int
	first     error    // of the failures
	shown     *counter // of done
	stop      bool     // what failed was no fault of its record's: others would fare no better
}

func (t *tally) count(line int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.done++
		t.shown.add(1)
		return
	}
	t.bad++
	t.stop = t.stop || !errors.Is(err, sdk.ErrInvalid)
	if t.first == nil {
		t.first = fmt.Errorf("stdin, line %d: %w", line, err)
	}
}

func (t *tally) stopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop
}

// outcome reports the counts, and returns why not everything was produced.
func (t *tally) outcome(a *app, topic string, sent, closed error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown.clear()
	parts := []string{plural(t.done, "record is in ", "records are in ") + topic}
	if t.bad > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", t.bad))
	}
	if t.first != nil {
		closed = nil // it is about records that failed, and would tell the same once more
	}
	err := errors.Join(t.first, sent, closed)
	if err != nil {
		a.note("%s", strings.Join(parts, ", "))
		return &inputError{err}
	}
	a.progress("%s", strings.Join(parts, ", "))
	return nil
}

// inputError is a failure over stdin, which is no error of the command line, whatever was wrong.
type inputError struct{ err error }

func (e *inputError) Error() string { return e.err.Error() }

func (e *inputError) Unwrap() error { return e.err }
