//go:build race

package retain_test

// stride: with the race detector, which makes tests some ten times as slow, one moment of so many.
const stride = 8
