package cost_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/cost"
)

func estimate(t *testing.T, change func(*cost.Input)) *cost.Estimate {
	t.Helper()
	in := cost.Default()
	change(&in)
	e, err := cost.Of(in)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What the design claims: cost follows commits, not bytes, so fewer writers and a longer linger are cheaper; functions that flush each request are dear; nothing
// is used while nothing is produced but by schedules.
func TestWhatCosts(t *testing.T) {
	base := estimate(t, func(in *cost.Input) { in.Producers = 8 })
	for what, change := range map[string]func(*cost.Input){
		"one producer":        func(in *cost.Input) { in.Producers = 1 },
		"a longer linger":     func(in *cost.Input) { in.Producers, in.Linger = 8, time.Second },
		"fewer partitions":    func(in *cost.Input) { in.Producers, in.Partitions = 8, 1 },
		"no readers":          func(in *cost.Input) { in.Producers, in.Readers = 8, 0 },
		"no compaction":       func(in *cost.Input) { in.Producers, in.Compact = 8, 0 },
		"a shorter retention": func(in *cost.Input) { in.Producers, in.Retention = 8, time.Hour },
		"no versions":         func(in *cost.Input) { in.Producers, in.Undelete = 8, 0 },
		"better compression":  func(in *cost.Input) { in.Producers, in.Ratio = 8, 0.2 },
	} {
		if e := estimate(t, change); e.Dollars >= base.Dollars {
			t.Errorf("%s: $%.2f a month, not less than $%.2f", what, e.Dollars, base.Dollars)
		}
	}
	ten := estimate(t, func(in *cost.Input) { in.Producers, in.Rate, in.Retention = 8, 10<<20, time.Hour })
	if one := estimate(t, func(in *cost.Input) { in.Producers, in.Retention = 8, time.Hour }); ten.Dollars > 1.5*one.Dollars {
		t.Errorf("ten times the bytes: $%.2f after $%.2f", ten.Dollars, one.Dollars)
	}
	functions := estimate(t, func(in *cost.Input) { in.Request = 4 << 10 })
	if want := 256.0; math.Abs(functions.Flow.Flushes-want) > 1e-9 || functions.Dollars < 10*base.Dollars/8 {
		t.Errorf("functions with 4 KiB a request: %.1f flushes/s, $%.2f", functions.Flow.Flushes, functions.Dollars)
	}
	if quiet := estimate(t, func(in *cost.Input) { in.Rate, in.Readers = 1e-3, 0 }); quiet.Dollars > 0.1 {
		t.Errorf("a record in twelve days: $%.4f a month", quiet.Dollars)
	}
	if busy := estimate(t, func(in *cost.Input) {
		in.Rate, in.Producers, in.Partitions, in.Linger = 100<<20, 64, 64, 100*time.Millisecond
	}); !busy.Overloaded {
		t.Errorf("%.0f write units a second on one item are no warning", busy.Flow.LaneWriteUnits)
	}
}

// The parts add up, and the sum is by the prices.
func TestPartsAddUp(t *testing.T) {
	e := estimate(t, func(in *cost.Input) { in.Group, in.Producers, in.Partitions = true, 3, 200 })
	sum := 0.0
	for _, p := range e.Parts {
		sum += p.Cost
	}
	if math.Abs(sum-e.Dollars) > 1e-9*sum || math.Abs(e.PerGiB*e.GiB-e.Dollars) > 1e-9*sum || e.PriceDate == "" {
		t.Errorf("parts cost %v, all %v, %v times %v", sum, e.Dollars, e.PerGiB, e.GiB)
	}
	if u := (cost.Usage{Puts: 1e3, Gets: 1e4, WriteUnits: 1e6, ReadUnits: 1e6, Requests: 1e6, GBs: 1e5, StoreGiB: 1, TableGiB: 1}); math.Abs(u.Dollars()-(0.005+0.004+0.625+0.125+0.2+1.33334+0.023+0.25)) > 1e-9 {
		t.Errorf("%v costs %v", u, u.Dollars())
	}
}

func TestCheckNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*cost.Input){
		"rate":            func(in *cost.Input) { in.Rate = 0 },
		"record-size":     func(in *cost.Input) { in.Record = math.NaN() },
		"compression":     func(in *cost.Input) { in.Ratio = 3 },
		"partitions":      func(in *cost.Input) { in.Partitions = 50 * 64 },
		"lane-width":      func(in *cost.Input) { in.LaneWidth = 65 },
		"producers":       func(in *cost.Input) { in.Producers = 0 },
		"linger":          func(in *cost.Input) { in.Linger = time.Millisecond },
		"linger-floor":    func(in *cost.Input) { in.LingerFloor = -1 },
		"ack":             func(in *cost.Input) { in.Ack = 0 },
		"small":           func(in *cost.Input) { in.Small = 1 << 20 },
		"request-size":    func(in *cost.Input) { in.Request = 5 << 20 },
		"function-memory": func(in *cost.Input) { in.Memory = 0 },
		"function-time":   func(in *cost.Input) { in.FunctionTime = time.Hour },
		"readers":         func(in *cost.Input) { in.Readers = -1 },
		"retention":       func(in *cost.Input) { in.Retention = time.Minute },
		"undelete":        func(in *cost.Input) { in.Undelete = -1 },
		"age":             func(in *cost.Input) { in.Age = 0 },
		"compact-every":   func(in *cost.Input) { in.Compact = time.Second },
		"sweep-every":     func(in *cost.Input) { in.Sweep = -1 },
		"retain-every":    func(in *cost.Input) { in.Retain = 1000 * time.Hour },
	} {
		in := cost.Default()
		change(&in)
		_, err := cost.Of(in)
		var bad *cost.FieldError
		if !errors.As(err, &bad) || bad.Field != field || bad.Valid == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Whatever passes Check has an estimate, of numbers, soon.
func FuzzEstimate(f *testing.F) {
	f.Add(1e-3, 1.0, uint16(1), uint8(1), uint16(1), int64(0), int64(0), 0, 0.0, int64(0), int64(time.Minute))
	f.Add(float64(1<<40), 1.0, uint16(49*64), uint8(64), uint16(10_000), int64(0), int64(time.Hour), 256<<10, 0.0, int64(time.Hour), int64(31*24*time.Hour))
	f.Add(1e6, 1e3, uint16(64), uint8(8), uint16(7), int64(time.Second), int64(time.Minute), 4000, 65536.0, int64(7*24*time.Hour), int64(time.Hour))
	f.Add(50.0, float64(64<<20), uint16(3), uint8(2), uint16(2), int64(time.Hour), int64(time.Hour), 4000, 0.0, int64(0), int64(0))
	f.Fuzz(func(t *testing.T, rate, record float64, partitions uint16, width uint8, producers uint16, floor, linger int64, small int, request float64, retention, every int64) {
		in := cost.Default()
		in.Rate, in.Record, in.Partitions, in.LaneWidth, in.Producers, in.Small, in.Request = rate, record, int(partitions), int(width), int(producers), small, request
		in.LingerFloor, in.Linger, in.Retention = time.Duration(floor), time.Duration(linger), time.Duration(retention)
		in.Compact, in.Sweep, in.Retain, in.Group = time.Duration(every), time.Duration(every), time.Duration(every), true
		e, err := cost.Of(in)
		if err != nil {
			var bad *cost.FieldError
			if !errors.As(err, &bad) {
				t.Fatal(err)
			}
			return
		}
		text, err := json.Marshal(e) // which refuses what is no number
		if err != nil {
			t.Fatalf("%v: %+v", err, e)
		}
		for _, p := range e.Parts {
			if u := p.Usage; min(u.Puts, u.Gets, u.WriteUnits, u.ReadUnits, u.StoreGiB, u.TableGiB, u.Requests, u.GBs) < 0 {
				t.Fatalf("less than nothing: %s", text)
			}
		}
	})
}
