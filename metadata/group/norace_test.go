//go:build !race

package group

const raceShare = 1
