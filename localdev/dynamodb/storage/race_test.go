//go:build race

package storage

// stride: with the race detector, which makes tests some ten times as slow, a crash after one event of so many. make sim plays all.
const stride = 5
