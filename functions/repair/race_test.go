//go:build race

package repair_test

// With the race detector, which makes tests some ten times as slow, a few of the requests fail, and of the worlds of a kind one in so many is played. make sim plays all.
const raceShare = 2

var every = sampleOf(197)
