package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/varvelog/varve/cmd/varve/internal/bench"
)

// reportRates prints what was measured of a producer or a reader.
func reportRates(a *app, r *bench.Result) error {
	out := bufio.NewWriter(a.out)
	benchSettings(out, r.Bench, r.Settings)
	fmt.Fprintf(out, "raw objects of %s\n\n", about(r.ObjectBytes))
	var rows [][]any
	add := func(name string, s bench.Side) {
		if s.Streams > 0 {
			name += plural(s.Streams, "stream", "streams")
		}
		rows = append(rows, []any{name, rate(s.BytesPerSecond.Best), rate(s.BytesPerSecond.Median), figure(s.CPUSecondsPerGiB, 2),
			figure(s.Latency.P50, 1), figure(s.Latency.P90, 1), figure(s.Latency.P99, 1), figure(s.Latency.Max, 1),
			fmt.Sprintf("%.0f", s.StoreRequests), fmt.Sprintf("%.0f", s.TableRequests), dollars(s.Dollars)})
	}
	for _, s := range r.Raw {
		add("raw, ", s)
	}
	for _, s := range r.Checked {
		add("raw and checksum, ", s)
	}
	add("varve", r.Varve)
	table(out, "SIDE MiB/s MEDIAN CPU_s/GiB P50_ms P90_ms P99_ms MAX_ms STORE/GiB TABLE/GiB $/GiB", rows)
	fmt.Fprintf(out, "\nratio              %.2f of the raw limit (best turns; %s); %.2f of the medians\n",
		r.Ratio.Best, plural(r.Limit, "stream", "streams"), r.Ratio.Median)
	if len(r.Checked) > 0 {
		fmt.Fprintf(out, "                   %.2f of raw gets whose checksum is taken, as a reader has to; %.2f of the medians\n",
			r.RatioChecked.Best, r.RatioChecked.Median)
	}
	fmt.Fprintf(out, "records            %.0f/s, %s per second of one processor\n", r.Varve.RecordsPerSecond, figure(r.Varve.RecordsPerCPUSecond, 0))
	benchPrices(out, r.PriceDate)
	return out.Flush()
}

// reportLatencies prints what was measured from append to delivery.
func reportLatencies(a *app, r *bench.Latencies) error {
	out := bufio.NewWriter(a.out)
	benchSettings(out, r.Bench, r.Settings)
	fmt.Fprintln(out)
	var rows [][]any
	for _, s := range r.Scenes {
		rows = append(rows, []any{s.Name, s.Varve.Count, figure(s.Varve.P50, 1), figure(s.Varve.P99, 1),
			figure(s.Raw.P50, 1), figure(s.Raw.P99, 1), figure(s.Ratio.P50, 1), figure(s.Ratio.P99, 1), fmt.Sprintf("%.0f", s.RecordsPerSecond), figure(s.CPUSecondsPerGiB, 2),
			fmt.Sprintf("%.0f", s.StoreRequests), fmt.Sprintf("%.0f", s.TableRequests), dollars(s.Dollars)})
	}
	table(out, "SCENE SAMPLES P50_ms P99_ms RAW_P50 RAW_P99 RATIO_P50 RATIO_P99 RECORDS/s CPU_s/GiB STORE/GiB TABLE/GiB $/GiB", rows)
	benchPrices(out, r.PriceDate)
	return out.Flush()
}

func benchSettings(out io.Writer, name string, s bench.Settings) {
	if s.Cold {
		name += " from the disk"
	}
	fmt.Fprintf(out, "%s on %s\nrecords of %s in segments of %s, %s, compression %s, %s payload; %s of %s or %v each\n", name, s.Log, byteSize(s.RecordSize), byteSize(s.SegmentBytes),
		plural(s.Partitions, "partition", "partitions"), s.Compression, s.Payload, plural(s.Turns, "turn", "turns"), byteSize(s.TurnBytes), s.TurnTime)
}

func benchPrices(out io.Writer, date string) {
	fmt.Fprintf(out, "STORE and TABLE    requests to them; $ is what they cost on AWS, S3 and DynamoDB on demand, us-east-1, list prices of %s\n", date)
}

func rate(bytesPerSecond float64) string { return fmt.Sprintf("%.0f", bytesPerSecond/(1<<20)) }

// figure is a number, or "-" for one that is not known.
func figure(v float64, decimals int) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

func dollars(v float64) string { return fmt.Sprintf("%.6f", v) }

// about is a size in the unit that suits it.
func about(bytes int64) string {
	for _, u := range byteUnits {
		if byteSize(bytes) >= u.n {
			return fmt.Sprintf("%.2f %s", float64(bytes)/float64(u.n), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
