//go:build race

package local_test

// raceShare is the part of the faults, and of a bomb, that is played with the race detector, which makes tests several times slower.
const raceShare = 6
