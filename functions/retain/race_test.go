//go:build race

package retain_test

// With the race detector, which makes tests some ten times as slow, one moment of so many, and fewer histories. make sim plays all.
const (
	stride    = 8
	histories = 8
)
