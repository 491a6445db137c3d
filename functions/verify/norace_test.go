//go:build !race

package verify_test

const (
	faultsShare = 1
	stride      = 1 // every moment
	raceShare   = 1
)
