//go:build race

package repair_test

// every is which of the requests the tests of faults let fail: with the race detector a sample.
var every = sampleOf(97)
