//go:build !race

package retain_test

const (
	stride    = 1 // every moment
	histories = 40
)
