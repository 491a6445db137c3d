//go:build race

package erase_test

// stride: with the race detector, which makes tests some ten times as slow, one request of so many.
const stride = 29
