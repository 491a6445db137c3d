// Package cost estimates what a log costs a month, from how it is used. docs/cost.md has the formulas, by the names of this package; what is billed for real producers,
// readers and jobs on the DynamoDB engine is compared with them in its tests.
package cost

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/price"
)

// Month is 30 days.
const Month = 30 * 24 * time.Hour

// Input is how a log of one topic is used. The JSON names are those of the flags of `varve cost`.
type Input struct {
	Rate       float64 `json:"rate"`        // bytes of keys and values a second, of all producers
	Record     float64 `json:"record-size"` // bytes of a record's key and value
	Ratio      float64 `json:"compression"` // bytes stored for each byte of records
	Partitions int     `json:"partitions"`
	LaneWidth  int     `json:"lane-width"` // partitions that share a lane

	// Producers are processes with the SDK. With Request above 0 they are functions instead, each request is one flush, and what is said of them and their linger does not count.
	Producers    int           `json:"producers"`
	LingerFloor  time.Duration `json:"linger-floor"`
	Linger       time.Duration `json:"linger"` // its ceiling
	Ack          time.Duration `json:"ack"`    // what put and commit take
	Small        int           `json:"small"`  // bytes up to which a segment is stored in the table; 0: none is
	Request      float64       `json:"request-size"`
	Memory       int           `json:"function-memory"` // MB
	FunctionTime time.Duration `json:"function-time"`   // of a request

	Readers int  `json:"readers"` // processes, each of which has partitions of all lanes and follows the log
	Group   bool `json:"group"`   // they are members of consumer groups

	Retention time.Duration `json:"retention"`     // 0: for ever
	Undelete  time.Duration `json:"undelete"`      // for how long the bucket keeps what was deleted, as versions
	Age       time.Duration `json:"age"`           // since when the log has been written like that
	Compact   time.Duration `json:"compact-every"` // 0: never
	Sweep     time.Duration `json:"sweep-every"`   // 0: never
	Retain    time.Duration `json:"retain-every"`  // 0: never
}

// Default is one producer with the SDK's settings, one reader, and the schedules of the infrastructure.
func Default() Input {
	return Input{
		Rate: 1 << 20, Record: 1 << 10, Ratio: 1, Partitions: 8, LaneWidth: 64,
		Producers: 1, LingerFloor: 5 * time.Millisecond, Linger: 250 * time.Millisecond, Ack: 40 * time.Millisecond, Small: 4000, Memory: 512, FunctionTime: 170 * time.Millisecond,
		Readers: 1, Retention: 7 * 24 * time.Hour, Undelete: 3 * 24 * time.Hour, Age: Month, Compact: 10 * time.Minute, Sweep: 24 * time.Hour, Retain: time.Hour,
	}
}

// MarshalJSON writes durations as text.
func (in Input) MarshalJSON() ([]byte, error) {
	type plain Input
	return json.Marshal(struct {
		plain
		LingerFloor  string `json:"linger-floor"`
		Linger       string `json:"linger"`
		Ack          string `json:"ack"`
		FunctionTime string `json:"function-time"`
		Retention    string `json:"retention"`
		Undelete     string `json:"undelete"`
		Age          string `json:"age"`
		Compact      string `json:"compact-every"`
		Sweep        string `json:"sweep-every"`
		Retain       string `json:"retain-every"`
	}{plain(in), in.LingerFloor.String(), in.Linger.String(), in.Ack.String(), in.FunctionTime.String(), in.Retention.String(), in.Undelete.String(), in.Age.String(),
		in.Compact.String(), in.Sweep.String(), in.Retain.String()})
}

// FieldError is a field of the input that makes no sense, under its JSON name.
type FieldError struct{ Field, Value, Valid string }

func (e *FieldError) Error() string { return fmt.Sprintf("%s %s is not %s", e.Field, e.Value, e.Valid) }

// Check returns a *FieldError for the first field that makes no sense.
func (in *Input) Check() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{field, fmt.Sprint(value), valid}
	}
	within := func(x, low, high float64) bool { return x >= low && x <= high } // false for NaN
	switch {
	case !within(in.Rate, 1e-3, 1<<40):
		return bad("rate", in.Rate, "above 0, at most 1 TiB/s")
	case !within(in.Record, 1, 64<<20):
		return bad("record-size", in.Record, "1 byte to 64 MiB")
	case !within(in.Ratio, 0.01, 1.2):
		return bad("compression", in.Ratio, "0.01 to 1.2 bytes stored for each byte of records")
	case in.LaneWidth < 1 || in.LaneWidth > 64:
		return bad("lane-width", in.LaneWidth, "1 to 64")
	case in.Partitions < 1 || in.Partitions > 49*in.LaneWidth:
		return bad("partitions", in.Partitions, fmt.Sprintf("1 to %d, which is 49 lanes", 49*in.LaneWidth))
	case in.Request == 0 && (in.Producers < 1 || in.Producers > 10_000):
		return bad("producers", in.Producers, "1 to 10000")
	case in.LingerFloor < 0:
		return bad("linger-floor", in.LingerFloor, "0 or more")
	case in.Linger < in.LingerFloor || in.Linger > time.Hour:
		return bad("linger", in.Linger, fmt.Sprintf("at least the floor, %s, and at most 1h", in.LingerFloor))
	case in.Ack <= 0 || in.Ack > time.Minute:
		return bad("ack", in.Ack, "above 0, at most 1m")
	case in.Small < 0 || in.Small > 256<<10:
		return bad("small", in.Small, "0 (none) to 256 KiB")
	case in.Request != 0 && !within(in.Request, in.Record, 4<<20):
		return bad("request-size", in.Request, fmt.Sprintf("0 (the SDK produces) or one record, %.0f bytes, to 4 MiB", in.Record))
	case in.Memory < 128 || in.Memory > 10240:
		return bad("function-memory", in.Memory, "128 to 10240 MB")
	case in.FunctionTime <= 0 || in.FunctionTime > 15*time.Minute:
		return bad("function-time", in.FunctionTime, "above 0, at most 15m")
	case in.Readers < 0 || in.Readers > 10_000:
		return bad("readers", in.Readers, "0 to 10000")
	case in.Retention < 0 || in.Retention > 0 && in.Retention < time.Hour:
		return bad("retention", in.Retention, "0 (for ever), or 1h or more")
	case in.Undelete < 0 || in.Undelete > 365*24*time.Hour:
		return bad("undelete", in.Undelete, "0 (nothing is kept) to 365 days")
	case in.Age < time.Second || in.Age > 100*365*24*time.Hour:
		return bad("age", in.Age, "1s to 100 years")
	}
	for field, d := range map[string]time.Duration{"compact-every": in.Compact, "sweep-every": in.Sweep, "retain-every": in.Retain} {
		if d < 0 || d > 0 && d < time.Minute || d > 31*24*time.Hour {
			return bad(field, d, "0 (never), or 1m to 31 days")
		}
	}
	return nil
}

// Usage is what is used: requests, DynamoDB's units, what functions take, and what is stored.
type Usage struct {
	Puts       float64 `json:"puts"`
	Gets       float64 `json:"gets"`
	WriteUnits float64 `json:"writeUnits"`
	ReadUnits  float64 `json:"readUnits"`
	Requests   float64 `json:"invocations"`
	GBs        float64 `json:"gbSeconds"`
	StoreGiB   float64 `json:"storeGiBMonths"`
	TableGiB   float64 `json:"tableGiBMonths"`
}

func (u Usage) add(o Usage, times float64) Usage {
	return Usage{u.Puts + times*o.Puts, u.Gets + times*o.Gets, u.WriteUnits + times*o.WriteUnits, u.ReadUnits + times*o.ReadUnits,
		u.Requests + times*o.Requests, u.GBs + times*o.GBs, u.StoreGiB + times*o.StoreGiB, u.TableGiB + times*o.TableGiB}
}

// Dollars is what it costs.
func (u Usage) Dollars() float64 {
	return u.Puts*price.StorePut + u.Gets*price.StoreGet + u.WriteUnits*price.WriteUnit + u.ReadUnits*price.ReadUnit +
		u.Requests*price.Invocation + u.GBs*price.FunctionGBs + u.StoreGiB*price.StoreGiBMonth + u.TableGiB*price.TableGiBMonth
}

// Part is one cause of costs, in a month.
type Part struct {
	Name string `json:"name"`
	Usage
	Cost float64 `json:"dollars"`
}

// Estimate is what a log costs.
type Estimate struct {
	Input      Input   `json:"input"`
	PriceDate  string  `json:"priceDate"`
	Region     string  `json:"region"`
	Flow       Flow    `json:"flow"`
	Parts      []Part  `json:"parts"`
	Month      Usage   `json:"month"`
	Dollars    float64 `json:"dollars"`
	GiB        float64 `json:"gib"` // of records, written in a month
	PerGiB     float64 `json:"dollarsPerGiB"`
	Overloaded bool    `json:"overloaded"` // a lane's head would take more write units a second than one item can
}

// Names of parts.
const (
	PartProduce   = "produce"
	PartFunctions = "functions"
	PartRead      = "read"
	PartCompact   = "compact"
	PartSweep     = "sweep"
	PartRetain    = "retain"
	PartStore     = "storage"
)

// ItemWriteUnits is what DynamoDB lets one item take a second.
const ItemWriteUnits = 1000

// Of estimates, or returns a *FieldError.
func Of(in Input) (*Estimate, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	m := newModel(in)
	e := &Estimate{Input: in, PriceDate: price.Date, Region: price.Region, Flow: m.Flow, GiB: in.Rate * Month.Seconds() / (1 << 30)}
	add := func(name string, a Usage, times float64) {
		var u Usage
		u = u.add(a, times)
		e.Parts = append(e.Parts, Part{name, u, u.Dollars()})
		e.Month = e.Month.add(u, 1)
	}
	add(PartProduce, m.produce(), Month.Seconds())
	add(PartFunctions, m.functions(), Month.Seconds())
	add(PartRead, m.read(), Month.Seconds()*float64(in.Readers))
	add(PartCompact, m.compact(), Month.Seconds())
	add(PartSweep, m.sweep(), Month.Seconds())
	add(PartRetain, m.retain(), Month.Seconds())
	add(PartStore, m.stored(), 1)
	e.Dollars = e.Month.Dollars()
	e.PerGiB = e.Dollars / e.GiB
	e.Overloaded = m.LaneWriteUnits > ItemWriteUnits
	return e, nil
}
