package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

func (a *app) segmentCommand() *cobra.Command {
	return group("segment", "Look into segment objects", a.segmentInspectCommand())
}

func (a *app) segmentInspectCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use: "inspect FILE|NAME", Short: "Verify a segment and show its extents", Args: exactly("FILE|NAME"),
		Long: `Verify a segment, every record of it, and show its extents.

A NAME is that of an object of the log, such as r7d/intake/3f/0123456789abcdefghij; anything else is a FILE.`,
		RunE: func(c *cobra.Command, args []string) error { return a.segmentInspect(c.Context(), args[0], json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

// inspection is what inspect prints.
type inspection struct {
	Kind    string          `json:"kind"`
	Log     string          `json:"log"`
	Bytes   int             `json:"bytes"`
	Records int64           `json:"records"`
	Extents []extentSummary `json:"extents"`
}

type extentSummary struct {
	Lane      string    `json:"lane"`
	Slot      int       `json:"slot"`
	Topic     string    `json:"topic"` // its id
	Partition int       `json:"partition"`
	Offset    int64     `json:"offset"` // in the object
	Bytes     int64     `json:"bytes"`
	Records   int64     `json:"records"`
	MinTime   time.Time `json:"min_time,omitzero"` // zero where the segment does not say it
	MaxTime   time.Time `json:"max_time"`
}

func (a *app) segmentInspect(ctx context.Context, name string, json bool) error {
	object, err := a.readSegment(ctx, name)
	if err != nil {
		return err
	}
	var d segment.Decoder
	footer, err := d.Verify(object)
	if err != nil {
		return fmt.Errorf("segment %s: %w", name, err)
	}
	s := inspection{Kind: footer.Kind.String(), Log: fmt.Sprintf("%x", footer.Log), Bytes: len(object)}
	var rows [][]any
	for _, e := range footer.Extents {
		x := extentSummary{Lane: e.Lane, Slot: int(e.Slot), Topic: string(e.Topic), Partition: int(e.Partition), Offset: e.Offset, Bytes: e.Length, Records: e.Count,
			MaxTime: time.UnixMilli(e.MaxTime).UTC()}
		first := "unknown"
		if e.MinTime != segment.UnknownTime {
			x.MinTime = time.UnixMilli(e.MinTime).UTC()
			first = x.MinTime.Format(time.RFC3339Nano)
		}
		s.Extents = append(s.Extents, x)
		s.Records += e.Count
		rows = append(rows, []any{x.Lane, x.Slot, x.Topic, x.Partition, x.Offset, x.Bytes, x.Records, first, x.MaxTime.Format(time.RFC3339Nano)})
	}
	if json {
		return a.printJSON(s)
	}
	fmt.Fprintf(a.out, "%s segment of log %s: %d bytes, %s, verified\n", s.Kind, s.Log, s.Bytes, plural(int(s.Records), "record", "records"))
	return table(a.out, "LANE SLOT TOPIC PARTITION OFFSET BYTES RECORDS FIRST LAST", rows)
}

// maxSegmentFile bounds what is read into memory.
const maxSegmentFile = 512 << 20

func (a *app) readSegment(ctx context.Context, name string) (object []byte, err error) {
	if _, bad := segment.ParseName(name); bad == nil {
		err = a.withLog(ctx, func(log *sdk.Log) error {
			object, err = log.Admin().ReadSegment(ctx, name)
			return err
		})
		return object, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w; the name of an object has the form <class>/intake/<2 hex>/<segment id>", err)
	}
	if info.Size() > maxSegmentFile {
		return nil, fmt.Errorf("file %s has %d bytes, a segment has at most %d", name, info.Size(), maxSegmentFile)
	}
	return os.ReadFile(name)
}
