//go:build !race

package forward_test

// stride: every request.
const stride = 1
