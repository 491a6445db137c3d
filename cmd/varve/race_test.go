//go:build race

package main

// raced: with the race detector, which makes it several times slower, the demo runs fewer times.
const raced = true
