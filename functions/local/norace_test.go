//go:build !race

package local_test

const raceShare = 1
