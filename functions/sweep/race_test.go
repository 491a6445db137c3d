//go:build race

package sweep

// With the race detector, which makes tests some ten times as slow, one request for each test, and tests of size are smaller. make sim runs them whole.
const (
	raced       = true
	usualStride = 390
)
