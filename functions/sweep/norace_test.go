//go:build !race

package sweep

const usualStride = 37
