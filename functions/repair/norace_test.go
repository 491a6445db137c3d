//go:build !race

package repair_test

// every is which of the requests the tests of faults let fail.
var every = sampleOf(17)

const raceShare = 1
