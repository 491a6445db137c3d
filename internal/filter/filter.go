// Package filter stands for large sets of segment ids in memory of a fixed size.
package filter

import (
	"hash/fnv"
	"math"
	"sync"

	"github.com/varvelog/varve/segment"
)

const (
	size   = 1 << 27 // bits: 16 MiB
	hashes = 4
)

// Filter knows every id that was added, and takes some others for known, of ten million added one in 200. So what it does not know was surely not added.
// Safe for concurrent use.
type Filter struct {
	mu   sync.Mutex
	bits []uint64
	set  int
}

// New is an empty filter.
func New() *Filter { return &Filter{bits: make([]uint64, size/64)} }

// each goes over an id's bits while do says so, and tells whether it did to the end.
func (f *Filter) each(id segment.ID, do func(word *uint64, bit uint64) bool) bool {
	h := fnv.New64a()
	h.Write([]byte(id.String()))
	sum := h.Sum64()
	step := sum>>32 | 1
	f.mu.Lock()
	defer f.mu.Unlock()
	for range hashes {
		n := sum % size
		if !do(&f.bits[n/64], 1<<(n%64)) {
			return false
		}
		sum += step * 0x9e3779b97f4a7c15
	}
	return true
}

// Has tells whether the id is taken for known.
func (f *Filter) Has(id segment.ID) bool {
	return f.each(id, func(word *uint64, bit uint64) bool { return *word&bit != 0 })
}

// Add makes the id known.
func (f *Filter) Add(id segment.ID) {
	f.each(id, func(word *uint64, bit uint64) bool {
		if *word&bit == 0 {
			*word |= bit
			f.set++
		}
		return true
	})
}

// Missed is the share of ids not added that are taken for known.
func (f *Filter) Missed() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return math.Pow(float64(f.set)/size, hashes)
}
