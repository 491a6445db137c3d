package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/localdev/sample"
	"github.com/varvelog/varve/sdk"
)

const (
	demoTopic      = "varve-demo"
	demoPartitions = 8
	demoSegment    = 64 << 10 // bytes: small, so that the sample makes more than one or two
	demoGroup      = "varve-demo"
)

// demoTime is looked for in every partition.
var demoTime = time.Date(2001, time.February, 1, 0, 0, 0, 0, time.UTC)

func (a *app) demoCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use: "demo", Short: "Produce 20,000 real flight records, read them back, share them in a group, and check them", Args: exactly(),
		Long: `Produce 20,000 real flight records into a topic of 8 partitions, keyed by origin and with their own times; read them back; rebuild
flights and total delay per origin and compare them with the input; find the offset for a time and compare it with what was read.

Then two processes read the topic as members of a group, half of its partitions each; one is killed without a word, and the other takes over once the
session time-out, ` + demoTimeout.String() + ` here, has passed. Each flight must come at least once, and the totals must be the same; what comes again is counted apart. A log in memory
(mem://) belongs to one process, so this part is left out there.

The topic is ` + demoTopic + `, and so is the group. Each run deletes those of the run before and creates them anew. Exit status 0 means that every check held.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c.Context(), sample.Flights(), json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print the report as JSON")
	return c
}

// demoStep is one step of the demonstration, named by what fails when it does.
type demoStep struct {
	does string
	run  func(context.Context) error
}

// demo runs the demonstration on a source of flights.
func (a *app) demo(ctx context.Context, source iter.Seq2[sample.Flight, error], json bool) error {
	d := demo{app: a, usage: &usage{}}
	return a.withNewLog(ctx, func(log *sdk.Log) error {
		d.log = log
		start := a.env.Mono()
		err := d.steps(ctx,
			demoStep{"create the topic", d.createTopic},
			demoStep{"produce", func(ctx context.Context) error { return d.produce(ctx, source) }},
			demoStep{"read back", d.readBack},
			demoStep{"check the flights", d.checkFlights},
			demoStep{"check the offsets", d.checkOffsets})
		if err != nil {
			return err
		}
		r := d.report(a.env.Mono() - start)
		if !json {
			if err := r.print(a.out); err != nil {
				return err
			}
		}
		if !d.alone() {
			if err := d.steps(ctx, demoStep{"share the topic in a group", func(ctx context.Context) (err error) {
				r.Group, err = d.share(ctx)
				return err
			}}); err != nil {
				return err
			}
		}
		if json {
			return a.printJSON(r)
		}
		return r.Group.print(a.out)
	}, d.usage)
}

func (d *demo) steps(ctx context.Context, steps ...demoStep) error {
	for _, step := range steps {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("demo: %s: %w", step.does, err)
		}
	}
	return nil
}

// alone tells whether no other process can open the log.
func (d *demo) alone() bool {
	scheme, _, _ := strings.Cut(d.url, ":")
	return strings.EqualFold(scheme, "mem")
}

// demo is one run.
type demo struct {
	*app
	log   *sdk.Log
	usage *usage
	sent  totals // what went in
	got   totals // what came out

	offsets []sdk.PartitionOffsets
	next    []int64 // per partition: the offset after the last one read
	atTime  []int64 // per partition: the first offset read whose time is demoTime or later, -1 for none
}

func (d *demo) createTopic(ctx context.Context) error {
	admin := d.log.Admin()
	if err := admin.DeleteTopic(ctx, demoTopic); err != nil && !errors.Is(err, sdk.ErrUnknownTopic) {
		return err
	}
	if _, err := admin.CleanTopics(ctx); err != nil {
		return err
	}
	_, err := admin.CreateTopic(ctx, sdk.NewTopic{Name: demoTopic, Partitions: demoPartitions})
	return err
}

func (d *demo) produce(ctx context.Context, source iter.Seq2[sample.Flight, error]) error {
	p, err := d.log.NewProducer(sdk.WithSegmentBytes(demoSegment))
	if err != nil {
		return err
	}
	t := tally{shown: d.count("acknowledged")}
	defer t.shown.clear() // when p is closed, so after the last promise
	for f, err := range source {
		if err != nil {
			return errors.Join(err, p.Close(ctx))
		}
		d.sent.add(f)
		n := d.sent.flights
		p.Produce(ctx, &sdk.Record{Topic: demoTopic, Key: []byte(f.Origin), Value: f.Line, Timestamp: f.Time}, func(_ *sdk.Record, err error) { t.count(n, err) })
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	if t.first != nil {
		return fmt.Errorf("%d of %d records failed: %w", t.bad, d.sent.flights, t.first)
	}
	t.shown.clear()
	d.progress("%d records acknowledged", t.done)
	return d.sent.check()
}

func (d *demo) readBack(ctx context.Context) error {
	d.next, d.atTime = make([]int64, demoPartitions), make([]int64, demoPartitions)
	for p := range d.atTime {
		d.atTime[p] = -1
	}
	r, err := d.log.NewReader(ctx, demoTopic, sdk.To(sdk.Latest), sdk.RecycleRecords())
	if err != nil {
		return err
	}
	defer r.Close()
	shown := d.count("read")
	defer shown.clear()
	for {
		fetches, err := r.Poll(ctx)
		if errors.Is(err, io.EOF) {
			shown.clear()
			d.progress("%d records read", d.got.flights)
			return nil
		}
		if err != nil {
			return err
		}
		for _, f := range fetches {
			for i := range f.Records {
				if err := d.take(f.Partition, &f.Records[i]); err != nil {
					return err
				}
			}
			shown.add(len(f.Records))
		}
	}
}

// take takes in one record that was read.
func (d *demo) take(partition int, r *sdk.Record) error {
	if r.Offset != d.next[partition] {
		return fmt.Errorf("partition %d: offset %d follows %d", partition, r.Offset, d.next[partition]-1)
	}
	d.next[partition]++
	f, err := flightOf(r)
	if err != nil {
		return fmt.Errorf("partition %d, offset %d: %w", partition, r.Offset, err)
	}
	if d.atTime[partition] < 0 && !f.Time.Before(demoTime) {
		d.atTime[partition] = r.Offset
	}
	d.got.add(f)
	return nil
}

func (d *demo) checkFlights(context.Context) error {
	if err := d.got.equal(&d.sent); err != nil {
		return err
	}
	return d.got.check()
}

// checkOffsets compares what the log says of its offsets with what was read.
func (d *demo) checkOffsets(ctx context.Context) (err error) {
	if d.offsets, err = d.log.Admin().Offsets(ctx, demoTopic); err != nil {
		return err
	}
	for p, next := range d.next {
		if o := d.offsets[p]; o.Start != 0 || o.End != next {
			return fmt.Errorf("partition %d: the log says offsets %d to %d, read were 0 to %d", p, o.Start, o.End, next)
		}
		found, err := d.log.Admin().OffsetForTime(ctx, demoTopic, p, demoTime)
		if errors.Is(err, sdk.ErrNoOffset) {
			found, err = -1, nil
		}
		if err != nil {
			return err
		}
		if found != d.atTime[p] {
			return fmt.Errorf("partition %d: the log says offset %d for %s, read was %d (-1: none)", p, found, demoTime.Format(time.DateOnly), d.atTime[p])
		}
	}
	return nil
}
