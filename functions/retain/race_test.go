//go:build race

package retain_test

// With the race detector, which makes tests some ten times as slow, one moment of so many, fewer histories, and fewer commits a day. make sim plays all.
const (
	stride    = 12
	histories = 8
)
