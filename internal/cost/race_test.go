//go:build race

package cost_test

import "time"

// With the race detector, which makes tests many times slower, a raceShare of the shapes is played, each for a raceShare of the time, and the days of the jobs have fewer commits: an
// estimate has nothing that could race. make sim plays all.
const (
	raceShare = 3
	linger    = 5 * time.Minute
)
