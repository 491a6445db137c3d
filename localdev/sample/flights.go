// Package sample has data to try varve with. README.md says where it comes from.
package sample

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"time"
)

//go:embed flights.jsonl.gz
var flights []byte

// Flight is one flight. Line is its JSON object as in the file, without the newline; it may be kept.
type Flight struct {
	Time        time.Time `json:"time"` // of departure
	Origin      string    `json:"origin"`
	Destination string    `json:"destination"`
	Delay       int       `json:"delay"`    // minutes, negative when early
	Distance    int       `json:"distance"` // miles
	Line        []byte    `json:"-"`
}

// What the flights add up to.
const (
	FlightCount   = 20_000
	FlightOrigins = 220
	FlightDelay   = 154_078
)

// Flights yields all flights in the order of time, and ends with the first error.
func Flights() iter.Seq2[Flight, error] { return ReadFlights(bytes.NewReader(flights)) }

// maxLine bounds a line; real ones have about 100 bytes.
const maxLine = 64 << 10

// ReadFlights yields the flights of a gzip file of JSON lines.
func ReadFlights(r io.Reader) iter.Seq2[Flight, error] {
	return func(yield func(Flight, error) bool) {
		z, err := gzip.NewReader(r)
		if err != nil {
			yield(Flight{}, fmt.Errorf("flights: %w", err))
			return
		}
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, maxLine)
		n := 0
		for lines.Scan() {
			n++
			f := Flight{Line: bytes.Clone(lines.Bytes())}
			if err := json.Unmarshal(f.Line, &f); err != nil {
				yield(Flight{}, fmt.Errorf("flights: line %d: %w", n, err))
				return
			}
			if !yield(f, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Flight{}, fmt.Errorf("flights: after line %d: %w", n, err))
		}
	}
}
