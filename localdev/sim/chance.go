package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// Chance is what a seed has in store for one thing: another sequence for whatever else is named, the same when the same is named again.
type Chance struct{ *env.Rand }

// NewChance is chance for whatever the parts name.
func NewChance(seed int64, parts ...string) Chance {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, seed)
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return Chance{env.NewRand(h.Sum64())}
}

// Below is a number in [0, n).
func (c Chance) Below(n int) int { return int(c.Int64N(int64(n))) }

// OneIn is true once in n times, and never for 0.
func (c Chance) OneIn(n int) bool { return n > 0 && c.Below(n) == 0 }

// Within is a duration in [low, high).
func (c Chance) Within(low, high time.Duration) time.Duration {
	return low + time.Duration(c.Int64N(int64(high-low)))
}

// Some is n different numbers in [0, of), in any order; all of them if there are fewer.
func (c Chance) Some(n, of int) []int {
	all := make([]int, of)
	for i := range all {
		j := c.Below(i + 1)
		all[i], all[j] = all[j], i
	}
	return all[:min(n, of)]
}

// Token is a token for a transaction.
func (c Chance) Token() string { return fmt.Sprintf("%016x", c.Uint64()) }
