//go:build race

package cost_test

// raceShare is the part of the shapes that are played with the race detector, which makes them many times slower: an estimate has nothing that could race.
const raceShare = 3
