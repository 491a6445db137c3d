package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/varvelog/varve/localdev/sample"
	"github.com/varvelog/varve/sdk"
)

// totals is what flights add up to, for each origin and together.
type totals struct {
	flights int
	delay   int
	origins map[string]originTotals
}

// originTotals is one origin's. order is a hash of the lines in their order, each mixed with the hash before, so that a changed, missing,
// repeated or misplaced record shows.
type originTotals struct {
	flights, delay int
	order          uint64
}

func (t *totals) add(f sample.Flight) {
	if t.origins == nil {
		t.origins = map[string]originTotals{}
	}
	t.flights++
	t.delay += f.Delay
	o := t.origins[f.Origin]
	o.flights++
	o.delay += f.Delay
	h := fnv.New64a()
	fmt.Fprintf(h, "%016x", o.order)
	h.Write(f.Line)
	o.order = h.Sum64()
	t.origins[f.Origin] = o
}

// check compares the totals with what is known of the sample.
func (t *totals) check() error {
	if t.flights != sample.FlightCount || t.delay != sample.FlightDelay || len(t.origins) != sample.FlightOrigins {
		return fmt.Errorf("%d flights, total delay %d, %d origins; the sample has %d, %d and %d",
			t.flights, t.delay, len(t.origins), sample.FlightCount, sample.FlightDelay, sample.FlightOrigins)
	}
	return nil
}

// equal compares what was read with what was produced.
func (t *totals) equal(want *totals) error {
	for _, origin := range slices.Sorted(maps.Keys(want.origins)) {
		w, g := want.origins[origin], t.origins[origin]
		if g.flights != w.flights || g.delay != w.delay {
			return fmt.Errorf("origin %s: read %d flights with a delay of %d, produced %d with %d", origin, g.flights, g.delay, w.flights, w.delay)
		}
		if g.order != w.order {
			return fmt.Errorf("origin %s: its %d flights are not as they were produced, or not in that order", origin, w.flights)
		}
	}
	if len(t.origins) != len(want.origins) {
		return fmt.Errorf("read %d origins, produced %d", len(t.origins), len(want.origins))
	}
	return nil
}

// flightOf reads a flight back out of a record, and checks that key and time say the same as the value. The flight is valid as long as the record.
func flightOf(r *sdk.Record) (sample.Flight, error) {
	f := sample.Flight{Line: r.Value}
	if err := json.Unmarshal(r.Value, &f); err != nil {
		return f, err
	}
	if string(r.Key) != f.Origin || !r.Timestamp.Equal(f.Time) {
		return f, fmt.Errorf("key %q and time %s, the value says %q and %s", r.Key, r.Timestamp, f.Origin, f.Time)
	}
	return f, nil
}
