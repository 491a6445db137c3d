//go:build race

package compact_test

// raceShare makes tests smaller under the race detector, by which they are some ten times as slow.
const raceShare = 8
