//go:build race

package compact_test

// Tests are smaller under the race detector, by which they are some ten times as slow. make sim plays all.
const (
	raceShare   = 8
	longHistory = 400 // segments
)
