//go:build race

package group

// raceShare is the part of the jobs and of the time that is played with the race detector, which makes tests several times slower. make sim plays all of it.
const raceShare = 3
