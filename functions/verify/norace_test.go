//go:build !race

package verify_test

const (
	stride    = 1 // every moment
	raceShare = 1
)
