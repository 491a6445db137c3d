//go:build race

package repair_test

// With the race detector, which makes tests some ten times as slow, a few of the requests fail, of the worlds of a kind one in so many is played, and a raceShare of the longest
// histories. make sim plays all.
const raceShare = 3

var every = sampleOf(397)
