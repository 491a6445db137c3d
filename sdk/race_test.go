//go:build race

package sdk_test

// raced: with the race detector, which makes everything several times slower, tests of many seeds play fewer, and tests of size are a raceShare of it, or raceHalf.
// make sim plays all.
const (
	raced     = true
	raceShare = 6
	raceHalf  = 2
)
