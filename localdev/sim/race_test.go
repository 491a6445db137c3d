//go:build race

package sim_test

// raced: with the race detector, which makes it some ten times as slow, a simulation plays one seed unless it is asked for more.
const raced = true
