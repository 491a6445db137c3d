package segment

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"github.com/klauspost/compress/s2"
)

// Snappy has no stream format that Kafka clients share but this one, of snappy-java ("xerial"): the 16 bytes
// of xerialHeader, then blocks, each behind its compressed length in 4 bytes, big-endian. Some clients write
// one bare block instead.
const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01" // version, oldest version that can read it
	xerialBlock  = 32 << 10                                         // bytes of input in a block, as snappy-java does it

	snappyRatio = 22 // at most 64 bytes of output for 3 of input
)

func appendXerial(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for block := range slices.Chunk(src, xerialBlock) {
		dst = slices.Grow(dst, 4+s2.MaxEncodedLen(len(block)))
		at := len(dst)
		n := len(s2.EncodeSnappy(dst[at+4:cap(dst)], block))
		dst = binary.BigEndian.AppendUint32(dst, uint32(n))[:at+4+n]
	}
	return dst
}

// eachSnappyBlock calls f with each compressed block, until it fails.
func eachSnappyBlock(in []byte, f func(block []byte) error) error {
	if !bytes.HasPrefix(in, []byte(xerialMagic)) {
		return f(in)
	}
	if len(in) < len(xerialHeader) {
		return io.ErrUnexpectedEOF
	}
	for rest := in[len(xerialHeader):]; len(rest) > 0; {
		if len(rest) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(rest))
		if n > int64(len(rest)-4) {
			return io.ErrUnexpectedEOF
		}
		if err := f(rest[4 : 4+n]); err != nil {
			return err
		}
		rest = rest[4+n:]
	}
	return nil
}

// snappySize adds up what the blocks say.
func snappySize(in []byte) (total int64, err error) {
	err = eachSnappyBlock(in, func(block []byte) error {
		n, err := s2.DecodedLen(block)
		if err == nil && n > snappyRatio*len(block) {
			err = errRatio
		}
		total += int64(n)
		return err
	})
	return total, err
}

// unsnappy decompresses what snappySize has accepted into out, which has that size.
func unsnappy(out, in []byte) (at int, err error) {
	err = eachSnappyBlock(in, func(block []byte) error {
		done, err := s2.Decode(out[at:], block)
		at += len(done)
		return err
	})
	return at, err
}
