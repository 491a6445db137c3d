//go:build race

package lane_test

// raceShare is the part of what many writers do that is played with the race detector, which makes tests several times slower. make sim plays all of it.
const raceShare = 3
