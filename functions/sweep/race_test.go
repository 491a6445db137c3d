//go:build race

package sweep

const usualStride = 190 // one request for each test: the race detector makes it ten times as slow
