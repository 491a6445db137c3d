package bench

import (
	"math"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/price"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// Result is what a measurement of rates found.
type Result struct {
	Bench string `json:"bench"` // "produce" or "read"
	Settings
	Raw     []Side `json:"raw"`
	Checked []Side `json:"raw_checked,omitempty"` // raw sides that take the checksum of what they get
	Varve   Side   `json:"varve"`
	// ObjectBytes is the mean size of the raw sides' objects, which is that of varve's segments.
	ObjectBytes int64 `json:"object_bytes"`
	// Limit is the number of streams of the fastest raw side.
	Limit int `json:"limit_streams"`
	// Ratio is varve's rate divided by that of the fastest raw side: of their best turns, and of their medians.
	Ratio Spread `json:"ratio"`
	// RatioChecked is the same against the fastest of those that take the checksum.
	RatioChecked Spread `json:"ratio_checked,omitzero"`
	// PriceDate is when the prices were looked up.
	PriceDate string `json:"price_date"`
}

// Side is one of those that took turns.
type Side struct {
	Streams int `json:"streams,omitempty"` // of a raw side
	// BytesPerSecond is of records (key and value) for varve, of objects for a raw side.
	BytesPerSecond Spread `json:"bytes_per_second"`
	// CPUSecondsPerGiB is of this process, an embedded log's engine included; 0: the system does not tell.
	CPUSecondsPerGiB float64 `json:"cpu_seconds_per_gib,omitempty"`
	// Latency is of a put or get; of varve's producer, from Produce until the promise is called.
	Latency Percentiles `json:"latency_ms"`
	Cost
	Objects int `json:"objects"` // put or got in all turns
	// Of varve's records in the best turn, and in all turns per second of one processor.
	RecordsPerSecond    float64 `json:"records_per_second,omitempty"`
	RecordsPerCPUSecond float64 `json:"records_per_cpu_second,omitempty"`
}

// Spread is a figure of several turns.
type Spread struct {
	Best   float64 `json:"best"`
	Median float64 `json:"median"`
}

// Cost is what is used for a GiB.
type Cost struct {
	StoreRequests float64 `json:"store_requests_per_gib"`
	TableRequests float64 `json:"table_requests_per_gib"`
	Dollars       float64 `json:"dollars_per_gib"`
}

// Percentiles are of latencies, in milliseconds.
type Percentiles struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// result puts the sides' figures together; varve's is the one without streams.
func (r *run) result(bench string, sides []side) *Result {
	result := &Result{Bench: bench, Settings: r.Settings, PriceDate: price.Date}
	var limit, checked Spread
	var bytes, objects int64
	for _, s := range sides {
		f := figures(s.streams, s.turns)
		if s.streams == 0 {
			result.Varve = f
			continue
		}
		if s.checked {
			result.Checked = append(result.Checked, f)
			checked = Spread{max(checked.Best, f.BytesPerSecond.Best), max(checked.Median, f.BytesPerSecond.Median)}
			continue
		}
		result.Raw = append(result.Raw, f)
		if f.BytesPerSecond.Best > limit.Best {
			limit.Best, result.Limit = f.BytesPerSecond.Best, f.Streams
		}
		limit.Median = max(limit.Median, f.BytesPerSecond.Median)
		for _, t := range s.turns {
			bytes, objects = bytes+t.bytes, objects+int64(t.objects)
		}
	}
	result.ObjectBytes = bytes / max(objects, 1)
	v := result.Varve.BytesPerSecond
	result.Ratio = Spread{over(v.Best, limit.Best), over(v.Median, limit.Median)}
	result.RatioChecked = Spread{over(v.Best, checked.Best), over(v.Median, checked.Median)}
	return result
}

// figures sums turns up.
func figures(streams int, turns []turn) Side {
	s := Side{Streams: streams, BytesPerSecond: rates(turns)}
	var all turn
	for _, t := range turns {
		all.add(t)
		s.RecordsPerSecond = max(s.RecordsPerSecond, over(float64(t.records), t.elapsed.Seconds()))
	}
	s.CPUSecondsPerGiB = over(all.cpu.Seconds(), float64(all.bytes)/gib)
	s.RecordsPerCPUSecond = over(float64(all.records), all.cpu.Seconds())
	s.Latency = percentiles(all.took)
	s.Cost = costOf(all.used, all.bytes)
	s.Objects = all.objects
	return s
}

// rates are the turns' bytes per second.
func rates(turns []turn) Spread {
	list := make([]float64, len(turns))
	for i, t := range turns {
		list[i] = over(float64(t.bytes), t.elapsed.Seconds())
	}
	return spread(list)
}

func spread(list []float64) Spread {
	if len(list) == 0 {
		return Spread{}
	}
	slices.Sort(list)
	n := len(list)
	return Spread{Best: list[n-1], Median: (list[(n-1)/2] + list[n/2]) / 2}
}

func costOf(u use, bytes int64) Cost {
	n := float64(bytes) / gib
	return Cost{StoreRequests: over(float64(u.store), n), TableRequests: over(float64(u.table), n), Dollars: over(u.Dollars(), n)}
}

// percentiles are by nearest rank: the smallest latency that so many percent of all do not exceed.
func percentiles(took []time.Duration) Percentiles {
	if len(took) == 0 {
		return Percentiles{}
	}
	slices.Sort(took)
	at := func(percent int) float64 {
		rank := (len(took)*percent + 99) / 100
		return ms(took[rank-1])
	}
	return Percentiles{Count: len(took), P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// over is a/b, and 0 where there is nothing to divide by.
func over(a, b float64) float64 {
	if b == 0 || math.IsNaN(b) {
		return 0
	}
	return a / b
}
