//go:build race

package embedded

// raced: with the race detector, which makes a process several times slower, fewer of them are killed, and cleaners race with fewer records.
const raced = true
