//go:build !race

package compact_test

const raceShare = 1
