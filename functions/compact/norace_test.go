//go:build !race

package compact_test

const (
	raceShare   = 1
	longHistory = 10_000 // segments
)
