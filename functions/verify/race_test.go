//go:build race

package verify_test

// With the race detector, which makes tests some ten times as slow, one moment and one kind of damage of so many, and logs of a share of the size. make sim plays all.
const (
	faultsShare = 5
	stride      = 47
	raceShare   = 10
)
