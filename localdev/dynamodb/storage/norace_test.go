//go:build !race

package storage

// stride: a crash after every event.
const stride = 1
