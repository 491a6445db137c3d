package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/price"
)

func TestPercentiles(t *testing.T) {
	of := func(n int) (took []time.Duration) {
		for i := n; i > 0; i-- { // the largest first: they need not be sorted
			took = append(took, time.Duration(i)*time.Millisecond)
		}
		return took
	}
	for _, c := range []struct {
		n    int
		want Percentiles
	}{
		{0, Percentiles{}},
		{1, Percentiles{Count: 1, P50: 1, P90: 1, P99: 1, Max: 1}},
		{2, Percentiles{Count: 2, P50: 1, P90: 2, P99: 2, Max: 2}},
		{10, Percentiles{Count: 10, P50: 5, P90: 9, P99: 10, Max: 10}},
		{100, Percentiles{Count: 100, P50: 50, P90: 90, P99: 99, Max: 100}},
		{1000, Percentiles{Count: 1000, P50: 500, P90: 900, P99: 990, Max: 1000}},
	} {
		if got := percentiles(of(c.n)); got != c.want {
			t.Errorf("1 to %d ms: %+v, want %+v", c.n, got, c.want)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		list []float64
		want Spread
	}{
		{nil, Spread{}}, {[]float64{3}, Spread{3, 3}}, {[]float64{1, 9, 2}, Spread{9, 2}}, {[]float64{4, 1, 9, 2}, Spread{9, 3}},
	} {
		if got := spread(slices.Clone(c.list)); got != c.want {
			t.Errorf("%v: %v, want %v", c.list, got, c.want)
		}
	}
}

// The figures of known turns.
func TestResult(t *testing.T) {
	at := func(bytes int64, elapsed time.Duration) turn {
		return turn{bytes: bytes, elapsed: elapsed, objects: 4, cpu: elapsed / 2, used: use{store: 4, Usage: price.Usage{Puts: 4}}}
	}
	varve := func(elapsed time.Duration) turn {
		return turn{bytes: gib / 4, records: 1000, objects: 5, elapsed: elapsed, cpu: 2 * time.Second, took: []time.Duration{7 * time.Millisecond},
			used: use{store: 5, table: 3, Usage: price.Usage{Puts: 5, WriteUnits: 12, ReadUnits: 1}}}
	}
	r := &run{Config: Config{Settings: Settings{RecordSize: 100}}}
	got := r.result("produce", []side{
		{name: "varve", turns: []turn{varve(2 * time.Second), varve(time.Second), varve(4 * time.Second)}},
		{streams: 1, turns: []turn{at(gib/4, time.Second), at(gib/4, time.Second), at(gib/4, time.Second)}},
		{streams: 4, turns: []turn{at(gib/4, 4*time.Second), at(gib/4, time.Second/2), at(gib/4, 2*time.Second)}},
	})
	// 4 streams had the best turn, 1 stream the best median.
	if got.Limit != 4 || got.Ratio != (Spread{0.5, 0.5}) || got.ObjectBytes != gib/16 || got.RecordSize != 100 || got.PriceDate != price.Date {
		t.Errorf("limit %d, ratio %v, objects of %d bytes, %+v", got.Limit, got.Ratio, got.ObjectBytes, got.Settings)
	}
	v := got.Varve
	if v.BytesPerSecond != (Spread{gib / 4, gib / 8}) || v.CPUSecondsPerGiB != 8 || v.Objects != 15 || v.Latency.P99 != 7 {
		t.Errorf("varve: %+v", v)
	}
	if v.RecordsPerSecond != 1000 || v.RecordsPerCPUSecond != 500 {
		t.Errorf("varve: %v records/s, %v per second of CPU", v.RecordsPerSecond, v.RecordsPerCPUSecond)
	}
	dollars := 4 * (5*price.StorePut + 12*price.WriteUnit + price.ReadUnit)
	if v.StoreRequests != 20 || v.TableRequests != 12 || math.Abs(v.Dollars-dollars) > 1e-12 {
		t.Errorf("varve: %+v, want %v dollars", v.Cost, dollars)
	}
	if raw := got.Raw[0]; raw.Streams != 1 || raw.CPUSecondsPerGiB != 2 || raw.StoreRequests != 16 || raw.Dollars != 16*price.StorePut || raw.RecordsPerCPUSecond != 0 {
		t.Errorf("raw: %+v", raw)
	}
}

// A system that does not tell the CPU time leaves no infinity in the result, which JSON does not have.
func TestResultWithoutCPUTime(t *testing.T) {
	s := figures(0, []turn{{bytes: gib, records: 5, elapsed: time.Second}})
	if s.CPUSecondsPerGiB != 0 || s.RecordsPerCPUSecond != 0 || s.RecordsPerSecond != 5 {
		t.Errorf("%+v", s)
	}
}

// What a producer has the table do after its turn is its own all the same.
func TestChargeVarve(t *testing.T) {
	late := use{table: 2, Usage: price.Usage{WriteUnits: 5, ReadUnits: 1}}
	puts := use{store: 3, Usage: price.Usage{Puts: 3}}
	sides := []side{
		{turns: []turn{{used: puts.plus(late)}, {used: puts}}},
		{streams: 1, turns: []turn{{used: puts.plus(late)}, {used: puts}}},
		{streams: 4, turns: []turn{{used: puts}, {used: puts.plus(late)}}},
	}
	chargeVarve(sides)
	if got, want := sides[0].turns[0].used, puts.plus(late).plus(late).plus(late); got != want {
		t.Errorf("varve: %+v, want %+v", got, want)
	}
	for _, s := range sides[1:] {
		for _, turn := range s.turns {
			if turn.used != puts {
				t.Errorf("raw: %+v, want %+v", turn.used, puts)
			}
		}
	}
}
