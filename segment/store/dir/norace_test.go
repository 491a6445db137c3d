//go:build !race

package dir

const raceShare = 1
