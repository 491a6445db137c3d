//go:build race

package verify_test

// With the race detector, which makes tests some ten times as slow, one moment of so many, and logs of a share of the size.
const (
	stride    = 47
	raceShare = 5
)
