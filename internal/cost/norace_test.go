//go:build !race

package cost_test

const raceShare = 1
