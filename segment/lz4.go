package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/pierrec/lz4/v4"
)

// An LZ4 frame: magic 4 · flags 1 · block size code 1 · [content size 8] · [dictionary id 4: refused] · header checksum 1
// · blocks, each behind its length in 4 bytes (top bit: stored, not compressed) and before an optional
// checksum 4 · end mark 4, zero · [content checksum 4]. Little-endian.
//
// The frame is walked here, not by the library's reader, because the size of the output must be known before
// memory is taken for it. The frame's own checksums are not looked at: the batch's CRC-32C covers the same bytes.
type lz4Frame struct {
	rest            []byte // from the next block on
	blockSize       int    // output of one block at most
	linked          bool   // blocks refer to the output before them
	blockChecksum   bool
	contentChecksum bool
}

const (
	lz4Magic   = "\x04\x22\x4d\x18"
	lz4Stored  = 1 << 31
	lz4History = 64 << 10 // how far back a block may refer
)

var (
	errLZ4Header = errors.New("malformed frame header")
	errLZ4Block  = errors.New("malformed block")
)

func parseLZ4(in []byte) (lz4Frame, error) {
	if len(in) < 7 {
		return lz4Frame{}, io.ErrUnexpectedEOF
	}
	flags, code := in[4], in[5]
	sizeCode := code >> 4 & 7
	// flags: version (2 bits, 01), independent blocks, block checksums, content size, content checksum, reserved, dictionary id
	if !bytes.HasPrefix(in, []byte(lz4Magic)) || flags>>6 != 1 || flags&0x03 != 0 || code&0x8f != 0 || sizeCode < 4 {
		return lz4Frame{}, errLZ4Header
	}
	header := 7
	if flags&0x08 != 0 {
		header += 8 // the content size is a claim that the blocks make redundant
	}
	if len(in) < header {
		return lz4Frame{}, io.ErrUnexpectedEOF
	}
	return lz4Frame{
		rest:      in[header:],
		blockSize: 1 << (8 + 2*sizeCode),
		linked:    flags&0x20 == 0, blockChecksum: flags&0x10 != 0, contentChecksum: flags&0x04 != 0,
	}, nil
}

// next cuts the next block off; nil is the end of the frame, which must be that of the input.
func (f *lz4Frame) next() (block []byte, stored bool, err error) {
	word, err := f.take(4)
	if err != nil {
		return nil, false, err
	}
	length := binary.LittleEndian.Uint32(word)
	if length == 0 {
		if f.contentChecksum {
			if _, err := f.take(4); err != nil {
				return nil, false, err
			}
		}
		if len(f.rest) > 0 {
			return nil, false, errTrailing
		}
		return nil, false, nil
	}
	stored = length&lz4Stored != 0
	if length &^= lz4Stored; int64(length) > int64(f.blockSize) || length == 0 {
		return nil, false, errLZ4Block
	}
	if block, err = f.take(int(length)); err == nil && f.blockChecksum {
		_, err = f.take(4)
	}
	return block, stored, err
}

func (f *lz4Frame) take(n int) ([]byte, error) {
	if len(f.rest) < n {
		return nil, io.ErrUnexpectedEOF
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b, nil
}

// lz4Size adds up the output of all blocks.
func lz4Size(in []byte) (total int64, err error) {
	f, err := parseLZ4(in)
	if err != nil {
		return 0, err
	}
	for {
		block, stored, err := f.next()
		if err != nil || block == nil {
			return total, err
		}
		n := int64(len(block))
		if !stored {
			n = lz4BlockSize(block)
		}
		if n < 0 || n > int64(f.blockSize) {
			return 0, errLZ4Block
		}
		total += n
	}
}

// lz4BlockSize is the output size of a compressed block, found without producing it; -1 if it is malformed.
// A block is a row of sequences: a token with the lengths of literals and match, more length bytes where 4
// bits are not enough, the literals, the match's distance in 2 bytes; the last one ends after its literals.
func lz4BlockSize(block []byte) (total int64) {
	for i := 0; i < len(block); {
		token := block[i]
		literals, at := lz4Length(block, i+1, int64(token>>4))
		if at < 0 || literals > int64(len(block)-at) {
			return -1
		}
		total += literals
		if i = at + int(literals); i == len(block) {
			return total
		}
		match, at := lz4Length(block, i+2, int64(token&15))
		if at < 0 {
			return -1
		}
		total += match + 4
		i = at
	}
	return -1
}

// lz4Length adds the bytes at b[i:] to a length whose 4 bits are all set.
func lz4Length(b []byte, i int, n int64) (int64, int) {
	if n < 15 {
		if i > len(b) {
			return 0, -1
		}
		return n, i
	}
	for i < len(b) {
		c := b[i]
		n += int64(c)
		if i++; c < 255 {
			return n, i
		}
	}
	return 0, -1
}

// unlz4 decompresses a frame that lz4Size has accepted into out, which has that size.
func unlz4(out, in []byte) (at int, err error) {
	f, err := parseLZ4(in)
	if err != nil {
		return 0, err
	}
	for {
		block, stored, err := f.next()
		if err != nil || block == nil {
			return at, err
		}
		if stored {
			at += copy(out[at:], block)
			continue
		}
		var history []byte
		if f.linked {
			history = out[max(0, at-lz4History):at]
		}
		n, err := lz4.UncompressBlockWithDict(block, out[at:], history)
		if err != nil {
			return at, errLZ4Block
		}
		at += n
	}
}
