//go:build race

package sim_test

// With the race detector, which makes it some ten times as slow, a simulation plays one seed unless it is asked for more, and most scenarios are a raceShare as long. make sim
// plays all.
const (
	raced     = true
	raceShare = 2
)
