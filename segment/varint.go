package segment

import "math/bits"

// Numbers in records and footers are base-128 varints, low group first; signed ones are zigzag coded first,
// as in Protocol Buffers.

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// maxVarint is the most bytes that a number takes.
const maxVarint = 10

// uvarintLen is how many bytes v takes.
func uvarintLen(v uint64) int {
	if v < 1<<7 {
		return 1
	}
	if v < 1<<14 {
		return 2
	}
	return (bits.Len64(v) + 6) / 7
}

// putUvarint writes v at b[i:], which must have room, and returns the index after it.
func putUvarint(b []byte, i int, v uint64) int {
	if v < 1<<7 { // apart, so that it is inlined
		b[i] = byte(v)
		return i + 1
	}
	return putLongUvarint(b, i, v)
}

func putLongUvarint(b []byte, i int, v uint64) int {
	if v < 1<<14 {
		b[i], b[i+1] = byte(v)|0x80, byte(v>>7)
		return i + 2
	}
	for v >= 1<<7 {
		b[i] = byte(v) | 0x80
		v >>= 7
		i++
	}
	b[i] = byte(v)
	return i + 1
}

// putShort is putUvarint of a number of at most two bytes.
func putShort(b []byte, i int, v uint64) int {
	if v < 1<<7 {
		b[i] = byte(v)
		return i + 1
	}
	b[i], b[i+1] = byte(v)|0x80, byte(v>>7)
	return i + 2
}

// uvarint reads the number at b[i:] and returns it with the index after it, or -1 if it is cut off or over
// 64 bits.
func uvarint(b []byte, i int) (uint64, int) {
	var v uint64
	for shift := uint(0); shift < 64 && i < len(b); shift += 7 {
		c := b[i]
		i++
		if c < 0x80 {
			if shift == 63 && c > 1 {
				return 0, -1
			}
			return v | uint64(c)<<shift, i
		}
		v |= uint64(c&0x7f) << shift
	}
	return 0, -1
}
