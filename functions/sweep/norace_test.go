//go:build !race

package sweep

const (
	raced       = false
	usualStride = 37
)
