package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// inflater decompresses the records of batches. Memory is bounded before any of it is taken: the framing of
// each codec says how large the output is, or can be at most, and output that does not fit is refused, never
// grown for. Sizes that framing only claims are checked when the output is there. What follows the end of
// the one frame, stream or member is refused: no Kafka client joins several.
type inflater struct {
	scratch []byte
	source  bytes.Reader
	gzip    *gzip.Reader
	zstd    *zstd.Decoder
}

// maxScratch is the largest output of unknown size that is made in the inflater's buffer first and then copied to
// memory of its right size. It and the decompressors' own tables are the slack above the limit.
const maxScratch = 4 << 20

var (
	errOverflow = errors.New("more output than announced")
	errTrailing = errors.New("bytes after the end of the compressed data")
	errRatio    = errors.New("announces more output than its bytes can hold")
)

// inflate decompresses in, to at most limit bytes. reuse says that the result may lie in the inflater's own
// memory, until the next call.
func (f *inflater) inflate(codec Codec, in []byte, limit int, reuse bool) ([]byte, error) {
	size, exact, err := outputSize(codec, in)
	if err != nil {
		return nil, malformed(ErrCorrupt, "batch", "records", recordsAt, "%v: %v", codec, err)
	}
	room := int64(limit)
	if !exact {
		room += zstdBlockMax // a bound is too high by less than a block
	}
	if size > room {
		return nil, errInflated(codec, size, limit)
	}
	own := reuse || !exact && size <= maxScratch
	out := f.buffer(int(size), own)
	n, err := f.decompress(codec, out, in)
	switch {
	case err != nil:
		return nil, malformed(ErrCorrupt, "batch", "records", recordsAt, "%v: %v", codec, err)
	case n > limit:
		return nil, errInflated(codec, int64(n), limit)
	case own && !reuse:
		return bytes.Clone(out[:n]), nil
	}
	return out[:n:n], nil
}

func errInflated(codec Codec, size int64, limit int) error {
	return malformed(ErrTooLarge, "batch", "records", recordsAt, "%v: %d bytes decompressed, limit %d", codec, size, limit)
}

func (f *inflater) buffer(n int, own bool) []byte {
	headroom := zstdHeadroom(n)
	if !own {
		return make([]byte, n, n+headroom)
	}
	f.scratch = slices.Grow(f.scratch[:0], n+headroom)
	return f.scratch[:n]
}

// outputSize is the size of in decompressed: what the framing says (exact), or a bound that it cannot exceed.
func outputSize(codec Codec, in []byte) (size int64, exact bool, err error) {
	switch codec {
	case Gzip:
		size, err = gzipSize(in)
		return size, true, err
	case Snappy:
		size, err = snappySize(in)
		return size, true, err
	case LZ4:
		size, err = lz4Size(in)
		return size, true, err
	default:
		return zstdSize(in)
	}
}

// decompress fills out and returns how much of it.
func (f *inflater) decompress(codec Codec, out, in []byte) (int, error) {
	switch codec {
	case Gzip:
		return f.gunzip(out, in)
	case Snappy:
		return unsnappy(out, in)
	case LZ4:
		return unlz4(out, in)
	default:
		return f.unzstd(out, in)
	}
}

// gzipSize is the size that the member's last 4 bytes state (modulo 2^32, but no batch is near that).
func gzipSize(in []byte) (int64, error) {
	const (
		leastMember = 18   // header 10, trailer 8
		mostRatio   = 1032 // of deflate
	)
	if len(in) < leastMember {
		return 0, io.ErrUnexpectedEOF
	}
	size := int64(binary.LittleEndian.Uint32(in[len(in)-4:]))
	if size > mostRatio*int64(len(in)) {
		return 0, errRatio
	}
	return size, nil
}

func (f *inflater) gunzip(out, in []byte) (n int, err error) {
	f.source.Reset(in)
	if f.gzip == nil {
		f.gzip = new(gzip.Reader)
	}
	if err = f.gzip.Reset(&f.source); err != nil {
		return 0, err
	}
	f.gzip.Multistream(false)
	n, err = io.ReadFull(f.gzip, out)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return n, err
	}
	// Only what comes next tells an output that is complete from one that is cut off, or goes on.
	var more [1]byte
	switch k, end := f.gzip.Read(more[:]); {
	case k > 0:
		return n, errOverflow
	case end != io.EOF:
		return n, end
	case f.source.Len() > 0:
		return n, errTrailing
	}
	return n, nil
}
