//go:build race

package value

// raceShare is the part of the numbers that are tried with the race detector, which makes tests several times slower. make sim tries all.
const raceShare = 10
