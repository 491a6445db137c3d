//go:build !race

package cost_test

import "time"

const (
	raceShare = 1
	linger    = time.Minute // on the days of the jobs
)
