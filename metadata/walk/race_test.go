//go:build race

package walk_test

// raceShare is the part of the longest search that is played with the race detector, which makes tests several times slower. make sim plays all.
const raceShare = 10
