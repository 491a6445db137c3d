package segment

import (
	"hash/crc32"
	"sync"
)

// Sums are the checksums of the blocks of some bytes, taken while those come and are still in the processor's cache. The checksum of any batch that
// is in these bytes follows from them, wherever it begins: only its two ends are read again. The zero value is ready. Sound may be called
// concurrently, once there is no more Add.
type Sums struct{ blocks []uint32 }

// sumBlock is so large that putting blocks together costs little beside taking their sums, and so small that the ends of a batch are little of it.
const sumBlock = 16 << 10

// Add is given all bytes that have come so far, and takes the sums of blocks that are new. What it has been given does not change any more.
func (s *Sums) Add(b []byte) {
	for at := len(s.blocks) * sumBlock; at+sumBlock <= len(b); at += sumBlock {
		s.blocks = append(s.blocks, crc32.Checksum(b[at:at+sumBlock], castagnoli))
	}
}

// Sound tells whether b[from:to], of the bytes that Add was given, is a whole batch that has the checksum that it says.
func (s *Sums) Sound(b []byte, from, to int) bool {
	h, err := ParseBatchHeader(b[from:to])
	return err == nil && h.Length == to-from && s.sum(b, from+attributesAt, to) == h.CRC
}

// sum is the CRC-32C of b[from:to].
func (s *Sums) sum(b []byte, from, to int) uint32 {
	first, end := (from+sumBlock-1)/sumBlock, min(to/sumBlock, len(s.blocks)) // of the blocks that lie within
	if first >= end {
		return crc32.Checksum(b[from:to], castagnoli)
	}
	sum := crc32.Checksum(b[from:first*sumBlock], castagnoli)
	for _, block := range s.blocks[first:end] {
		sum = pastBlock(sum) ^ block
	}
	return crc32.Update(sum, castagnoli, b[end*sumBlock:to])
}

// pastBlock is what a sum contributes to that of the same bytes and one block more, which is the exclusive or of it and the block's own sum. A CRC is
// linear: what each bit contributes is added up, here by bytes.
func pastBlock(sum uint32) uint32 {
	t := pastBlocks()
	return t[0][byte(sum)] ^ t[1][byte(sum>>8)] ^ t[2][byte(sum>>16)] ^ t[3][byte(sum>>24)]
}

var pastBlocks = sync.OnceValue(func() *[4][256]uint32 {
	zeros := make([]byte, sumBlock)
	var t [4][256]uint32
	for i := range t {
		for bit := range 8 {
			// crc32 inverts a sum before it goes on with it, and again after that.
			t[i][1<<bit] = ^crc32.Update(^(1 << (8*i + bit)), castagnoli, zeros)
		}
		for v := range t[i] {
			t[i][v] = t[i][v&(v-1)] ^ t[i][v&-v]
		}
	}
	return &t
})
