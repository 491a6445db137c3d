//go:build race

package clean_test

// With the race detector, which makes tests some ten times as slow, one request of so many fails, and fewer stories are told. make sim plays all.
const (
	stride  = 7
	stories = 2
)
