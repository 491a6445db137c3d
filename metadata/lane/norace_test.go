//go:build !race

package lane_test

const raceShare = 1
