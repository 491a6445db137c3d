package sample

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"time"
)

func TestFlights(t *testing.T) {
	n, delay, origins := 0, 0, map[string]int{}
	var last time.Time
	for f, err := range Flights() {
		if err != nil {
			t.Fatal(err)
		}
		if f.Time.Before(last) {
			t.Fatalf("flight %d at %v is before %v", n, f.Time, last)
		}
		last = f.Time
		n++
		delay += f.Delay
		origins[f.Origin]++
	}
	if n != FlightCount || delay != FlightDelay || len(origins) != FlightOrigins {
		t.Errorf("%d flights, delay %d, %d origins", n, delay, len(origins))
	}
}

func TestReadFlightsReportsBadInput(t *testing.T) {
	zip := func(s string) *bytes.Buffer {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(s))
		z.Close()
		return &b
	}
	cut := zip(strings.Repeat("{}\n", 100))
	cut.Truncate(cut.Len() - 9)
	for name, in := range map[string]*bytes.Buffer{
		"not gzip": bytes.NewBufferString("x"), "cut short": cut, "not JSON": zip("{}\n{\n"), "long line": zip(strings.Repeat("x", maxLine+1)),
	} {
		var failed error
		for _, err := range ReadFlights(in) {
			failed = err
		}
		if failed == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
