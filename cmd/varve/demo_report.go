package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
)

// usage counts what a log used. It is a hook.
type usage struct {
	mu       sync.Mutex
	segments int
	bytes    int
	commits  int
	store    map[store.Op]int // requests
	table    int              // requests
	price.Usage
}

// OnPut implements sdk.PutHook.
func (u *usage) OnPut(e sdk.PutEvent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.Err == nil {
		u.segments++
		u.bytes += e.Bytes
	}
}

// OnCommit implements sdk.CommitHook.
func (u *usage) OnCommit(e sdk.CommitEvent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.Err == nil {
		u.commits++
	}
}

// OnRequest implements sdk.RequestHook.
func (u *usage) OnRequest(e sdk.RequestEvent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.Service == "table" {
		u.table += e.Requests
		u.ReadUnits += e.ReadUnits
		u.WriteUnits += e.WriteUnits
		return
	}
	if u.store == nil {
		u.store = map[store.Op]int{}
	}
	u.store[e.Op] += e.Requests
	switch e.Op {
	case store.OpPut, store.OpList:
		u.Puts += e.Requests
	case store.OpGet, store.OpStat:
		u.Gets += e.Requests
	}
}

// demoReport is what a run did.
type demoReport struct {
	Log        string          `json:"log"`
	Topic      string          `json:"topic"`
	Seconds    float64         `json:"seconds"` // of producing, reading back and checking
	Flights    int             `json:"flights"`
	Delay      int             `json:"delay"`   // minutes
	Origins    []demoOrigin    `json:"origins"` // busiest first
	Partitions []demoPartition `json:"partitions"`
	Used       demoUsage       `json:"used"`
	Group      *demoShared     `json:"group,omitempty"`
}

type demoOrigin struct {
	Origin  string `json:"origin"`
	Flights int    `json:"flights"`
	Delay   int    `json:"delay"`
}

type demoPartition struct {
	sdk.PartitionOffsets
	AtTime int64 `json:"at_time"` // first offset at demoTime or later, -1: none
}

type demoUsage struct {
	Segments      int              `json:"segments"`
	SegmentBytes  int              `json:"segment_bytes"`
	Commits       int              `json:"commits"`
	StoreRequests map[store.Op]int `json:"store_requests"`
	TableRequests int              `json:"table_requests"`
	WriteUnits    float64          `json:"write_units"`
	ReadUnits     float64          `json:"read_units"`
	Dollars       float64          `json:"dollars"`
}

func (d *demo) report(took time.Duration) *demoReport {
	r := &demoReport{Log: d.url, Topic: demoTopic, Seconds: took.Seconds(), Flights: d.got.flights, Delay: d.got.delay}
	for origin, o := range d.got.origins {
		r.Origins = append(r.Origins, demoOrigin{origin, o.flights, o.delay})
	}
	slices.SortFunc(r.Origins, func(x, y demoOrigin) int {
		return cmp.Or(y.Flights-x.Flights, cmp.Compare(x.Origin, y.Origin))
	})
	for p, o := range d.offsets {
		r.Partitions = append(r.Partitions, demoPartition{o, d.atTime[p]})
	}
	u := d.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	r.Used = demoUsage{u.segments, u.bytes, u.commits, maps.Clone(u.store), u.table, u.WriteUnits, u.ReadUnits, u.Dollars()}
	return r
}

// print prints what a person reads. It returns the error of writing it.
func (r *demoReport) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)
	fmt.Fprintf(out, "%d flights produced to topic %s of %s and read back, in order and complete, in %s\n", r.Flights, r.Topic, r.Log, took)
	fmt.Fprintf(out, "rebuilt from the log: %d origins, total delay %d minutes, equal to the input; most flights:\n\n", len(r.Origins), r.Delay)
	var rows [][]any
	for _, o := range r.Origins[:min(5, len(r.Origins))] {
		rows = append(rows, []any{o.Origin, o.Flights, o.Delay})
	}
	table(out, "ORIGIN FLIGHTS DELAY", rows)
	fmt.Fprintln(out)
	rows = nil
	for _, p := range r.Partitions {
		rows = append(rows, []any{p.Partition, p.Start, p.End, offset(p.AtTime)})
	}
	table(out, "PARTITION START END FROM_"+demoTime.Format(time.DateOnly), rows)
	u := &r.Used
	fmt.Fprintf(out, "\nsegments written   %d, of %d bytes together, in %d commits\n", u.Segments, u.SegmentBytes, u.Commits)
	fmt.Fprintf(out, "store requests     %d put, %d get, %d stat, %d list\n", u.StoreRequests[store.OpPut], u.StoreRequests[store.OpGet], u.StoreRequests[store.OpStat], u.StoreRequests[store.OpList])
	fmt.Fprintf(out, "table requests     %d: %.1f write units, %.1f read units\n", u.TableRequests, u.WriteUnits, u.ReadUnits)
	fmt.Fprintf(out, "the same on AWS    $%.6f (S3 and DynamoDB on demand, us-east-1, list prices of %s)\n", u.Dollars, price.Date)
	return out.Flush()
}
