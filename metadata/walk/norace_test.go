//go:build !race

package walk_test

const raceShare = 1
