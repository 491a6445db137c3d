package env

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

// Rand is a source of chance that several goroutines may share. One seed gives one sequence.
type Rand struct {
	mu sync.Mutex
	r  *rand.Rand
}

// NewRand returns a source with the given seed.
func NewRand(seed uint64) *Rand { return &Rand{r: rand.New(rand.NewPCG(seed, 0x5bd1e995))} }

// Uint64 is uniform over all 64 bits.
func (r *Rand) Uint64() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.Uint64()
}

// Int64N is uniform in [0, n); n must be positive.
func (r *Rand) Int64N(n int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.Int64N(n)
}

// Float64 is uniform in [0, 1).
func (r *Rand) Float64() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.Float64()
}

func systemSeed() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails: the runtime aborts the program instead
	return binary.LittleEndian.Uint64(b[:])
}
