//go:build race

package judge

// raceShare is the part of the requests that is sent with the race detector, which makes tests several times slower. make sim sends all.
const raceShare = 4
