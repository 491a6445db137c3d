package segment

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/varvelog/varve/internal/env"
)

// TestSumsOfAnyPart: whatever part of the bytes, and whatever had come when sums were taken, the sum is that of reading the part.
func TestSumsOfAnyPart(t *testing.T) {
	b := noise(5*sumBlock + 777)
	for _, steps := range [][]int{{len(b)}, {0, 1, sumBlock - 1, sumBlock, sumBlock + 1, 3*sumBlock + 5, len(b)}, {100, 2 * sumBlock}, {}} {
		var s Sums
		for _, n := range steps {
			s.Add(b[:n])
		}
		edges := []int{0, 1, sumBlock - 1, sumBlock, sumBlock + 1, 2*sumBlock - 1, 2 * sumBlock, 3*sumBlock + 9, 5 * sumBlock, len(b) - 1, len(b)}
		for _, from := range edges {
			for _, to := range edges {
				if from > to {
					continue
				}
				if got, want := s.sum(b, from, to), crc32.Checksum(b[from:to], castagnoli); got != want {
					t.Fatalf("added %v, bytes %d to %d: %08x, want %08x", steps, from, to, got, want)
				}
			}
		}
	}
}

// TestSumsFindAnyFlip: a batch among others, one of whose bytes had changed when it came: before the first block, in each of its blocks, at its ends.
func TestSumsFindAnyFlip(t *testing.T) {
	batch := encode(t, DefaultBatchOptions(), Record{Key: []byte("key"), Value: noise(3 * sumBlock)})
	for _, before := range []int{0, 1, sumBlock - 30, sumBlock, sumBlock + 500} {
		b := append(append(noise(before), batch...), batch...)
		to := before + len(batch)
		sound := func() bool {
			var s Sums
			s.Add(b)
			return s.Sound(b, before, to)
		}
		if !sound() {
			t.Fatalf("%d bytes before it: unharmed, and not sound", before)
		}
		for at := before + attributesAt; at < to; at += 97 {
			b[at] ^= 0x10
			if sound() {
				t.Fatalf("%d bytes before it: byte %d flipped, and sound", before, at)
			}
			b[at] ^= 0x10
		}
	}
}

// TestSumsOfWhatIsNoBatch: sound is what is one whole batch with its checksum.
func TestSumsOfWhatIsNoBatch(t *testing.T) {
	batch := encode(t, DefaultBatchOptions(), Record{Key: []byte("key"), Value: []byte("value")})
	b := append(bytes.Clone(batch), 0)
	for n := range len(b) + 1 {
		var s Sums
		s.Add(b)
		if got, want := s.Sound(b, 0, n), n == len(batch); got != want {
			t.Errorf("%d of %d bytes: %v", n, len(batch), got)
		}
	}
	for at := range attributesAt {
		if at >= lengthAt+4 && at < magicAt || at < lengthAt {
			continue // not under the checksum: where the batch is said to belong
		}
		b[at] ^= 1
		var s Sums
		if s.Sound(b, 0, len(batch)) {
			t.Errorf("byte %d flipped, and sound", at)
		}
		b[at] ^= 1
	}
}

func BenchmarkSums(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			batch := noise(size)
			b.SetBytes(int64(size))
			for b.Loop() {
				var s Sums
				s.Add(batch)
				s.sum(batch, attributesAt, size)
			}
		})
	}
}

// noise is n bytes.
func noise(n int) []byte {
	b := make([]byte, n)
	r := env.NewRand(1)
	for i := range b {
		b[i] = byte(r.Uint64())
	}
	return b
}
