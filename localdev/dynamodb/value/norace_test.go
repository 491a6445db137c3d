//go:build !race

package value

const raceShare = 1
