//go:build !race

package segment

const (
	bombTimes  = 1000     // how many times its limit a batch expands to
	largeLimit = 16 << 20 // of decompressed bytes
)
