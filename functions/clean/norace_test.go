//go:build !race

package clean_test

const (
	stride  = 1 // every request
	stories = 6
)
