//go:build !race

package retain_test

// stride: every moment.
const stride = 1
