package segment

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

const zstdBlockMax = 128 << 10

var errZstdBlock = errors.New("malformed block")

// zstdHeadroom is how much capacity the decoder gets behind n bytes of output: some words, as it is faster when it may
// write past the end; and for large outputs a block, as it appends the block that goes over the end before
// it looks, and would move all of the output for that.
func zstdHeadroom(n int) int {
	const words, large = 32, 1 << 20
	if n > large {
		return words + zstdBlockMax
	}
	return words
}

// zstdSize walks the blocks of the one frame in in. The size is exact where the header states it, as it does
// when a whole batch was compressed at once; else each compressed block counts for the most it can give. So a
// stream that was flushed all the time may be refused for a size that it does not have.
func zstdSize(in []byte) (size int64, exact bool, err error) {
	var h zstd.Header
	if err := h.Decode(in); err != nil {
		return 0, false, err
	}
	blockMax := int64(zstdBlockMax)
	if !h.SingleSegment {
		blockMax = int64(min(h.WindowSize, zstdBlockMax))
	}
	size, at, err := walkZstdBlocks(in, h.HeaderSize, blockMax)
	if err != nil {
		return 0, false, err
	}
	if h.HasCheckSum {
		at += 4
	}
	switch {
	case at > len(in):
		return 0, false, io.ErrUnexpectedEOF
	case at < len(in):
		return 0, false, errTrailing
	case h.HasFCS && h.FrameContentSize > uint64(size):
		return 0, false, errRatio
	case h.HasFCS:
		return int64(h.FrameContentSize), true, nil
	}
	return size, false, nil
}

// walkZstdBlocks adds up the most that the blocks at in[at:] can give, and returns where they end.
func walkZstdBlocks(in []byte, at int, blockMax int64) (size int64, end int, err error) {
	for last := false; !last; {
		if len(in)-at < 3 {
			return 0, 0, io.ErrUnexpectedEOF
		}
		word := int(in[at]) | int(in[at+1])<<8 | int(in[at+2])<<16 // last block 1 bit, type 2, size 21
		last = word&1 != 0
		n := word >> 3
		at += 3
		switch word >> 1 & 3 {
		case 0: // stored
			size += int64(n)
			at += n
		case 1: // one byte, n times
			size += int64(n)
			at++
		case 2:
			size += blockMax
			at += n
		default:
			return 0, 0, errZstdBlock
		}
	}
	return size, at, nil
}

func (f *inflater) unzstd(out, in []byte) (int, error) {
	if f.zstd == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return 0, fmt.Errorf("starting the decoder: %w", err)
		}
		f.zstd = d
	}
	got, err := f.zstd.DecodeAll(in, out[:0])
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded) || err == nil && len(got) > len(out):
		return 0, errOverflow
	case err != nil:
		return 0, err
	}
	return len(got), nil
}
