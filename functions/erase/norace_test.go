//go:build !race

package erase_test

// stride: every request.
const stride = 1
