//go:build race

package forward_test

// stride: with the race detector, which makes tests some ten times as slow, one request of so many. make sim plays all.
const stride = 4
