package sdk

import (
	"encoding/binary"
	"fmt"

	"github.com/varvelog/varve/segment"
)

// batchesType is the media type of frames, one after another:
//
//	int32 partition | uint32 length | that many bytes of record batches
//
// big endian. Base offsets are relative in what is appended, absolute in what is read.
const batchesType = "application/vnd.varve.batches"

const frameHeader = 8

// appendFrameHeader begins a frame of so many bytes.
func appendFrameHeader(b []byte, partition, length int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(int32(partition)))
	return binary.BigEndian.AppendUint32(b, uint32(length))
}

// nextFrame cuts the first frame off.
func nextFrame(b []byte) (partition int, batches, rest []byte, err error) {
	if len(b) < frameHeader {
		return 0, nil, nil, fmt.Errorf("%w: %d bytes where a frame should begin", errGarbage, len(b))
	}
	partition = int(int32(binary.BigEndian.Uint32(b)))
	n := int64(binary.BigEndian.Uint32(b[4:]))
	if b = b[frameHeader:]; n > int64(len(b)) {
		return 0, nil, nil, fmt.Errorf("%w: frame of %d bytes, %d are there", errGarbage, n, len(b))
	}
	return partition, b[:n:n], b[n:], nil
}

// run is what the batches of a frame hold: offsets, records, and whether all checksums are right.
type run struct {
	base, next int64
	count      int64
	sound      bool
}

// follow goes over the headers of batches with absolute offsets, which must ascend.
func follow(b []byte) (run, error) {
	r := run{base: -1, sound: true}
	for len(b) > 0 {
		batch, rest, err := segment.SplitBatch(b)
		if err != nil {
			return r, fmt.Errorf("%w: %w", errGarbage, err)
		}
		h, err := segment.ParseBatchHeader(batch)
		if err != nil {
			return r, fmt.Errorf("%w: %w", errGarbage, err)
		}
		if h.BaseOffset < r.next {
			return r, fmt.Errorf("%w: batch with offsets from %d on, where %d or later should be", errGarbage, h.BaseOffset, r.next)
		}
		if r.base < 0 {
			r.base = h.BaseOffset
		}
		r.next = h.BaseOffset + int64(h.LastOffsetDelta) + 1
		r.count += int64(h.Count)
		r.sound = r.sound && segment.Sound(batch)
		b = rest
	}
	return r, nil
}
