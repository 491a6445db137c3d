//go:build race

package dir

// raceShare is the part of the crashes that is played with the race detector, which makes tests several times slower. make sim plays all.
const raceShare = 8
