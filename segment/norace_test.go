//go:build !race

package segment

const (
	bombTimes  = 1000     // how many times its limit a batch expands to
	largeLimit = 16 << 20 // of decompressed bytes
	largeShare = 1        // of the largest records, one in so many, or records of that part of the size
)
