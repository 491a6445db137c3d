//go:build !race

package sdk_test

const (
	raced     = false
	raceShare = 1
	raceHalf  = 1
)
