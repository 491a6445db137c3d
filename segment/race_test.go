//go:build race

package segment

// With the race detector, which makes compressing some ten times as slow, tests of size are smaller. make sim runs them whole.
const (
	bombTimes  = 100
	largeLimit = 1 << 20
	largeShare = 4
)
