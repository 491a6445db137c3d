package segment

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const defaultGzipLevel = 6

var maxLevel = [codecs]int{Gzip: 9, LZ4: 9, Zstd: 22}

// Validate reports ErrBadCodec unless the codec is known and has the level. 0 is every codec's default level:
// 6 for gzip, the fast mode of lz4, 1 for zstd; snappy and none have no other.
func (c Codec) Validate(level int) error {
	if c >= codecs {
		return fmt.Errorf("%w: %v, known are 0 to %d", ErrBadCodec, c, codecs-1)
	}
	if level < 0 || level > maxLevel[c] {
		return fmt.Errorf("%w: %v level %d, valid are 0 to %d", ErrBadCodec, c, level, maxLevel[c])
	}
	return nil
}

// compressor appends src, compressed, to dst.
type compressor interface {
	compress(dst, src []byte) []byte
}

// compressors are idle compressors by codec and level. Builders are many (one for each open partition), and a
// zstd encoder is over a megabyte, so they share.
var compressors sync.Map // of compressorKey to *sync.Pool

type compressorKey struct {
	codec Codec
	level int
}

// compress appends src to dst, compressed by a codec and level that Validate accepts. None is not among them.
func compress(dst, src []byte, codec Codec, level int) []byte {
	if codec == Snappy {
		return appendXerial(dst, src)
	}
	key := compressorKey{codec, level}
	pool, ok := compressors.Load(key)
	if !ok {
		pool, _ = compressors.LoadOrStore(key, &sync.Pool{New: func() any { return newCompressor(key) }})
	}
	c := pool.(*sync.Pool).Get().(compressor)
	dst = c.compress(dst, src)
	pool.(*sync.Pool).Put(c)
	return dst
}

func newCompressor(key compressorKey) compressor {
	switch key.codec {
	case Gzip:
		level := key.level
		if level == 0 {
			level = defaultGzipLevel
		}
		w, err := gzip.NewWriterLevel(nil, level)
		must(err)
		return &streamCompressor{w: w}
	case LZ4:
		// 64 KiB independent blocks without checksums are what Kafka's own client writes, and all that some read.
		w := lz4.NewWriter(nil)
		must(w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1), lz4.CompressionLevelOption(lz4Level(key.level))))
		return &streamCompressor{w: w}
	default:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(max(key.level, 1))), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true))
		must(err)
		return &zstdCompressor{w: w}
	}
}

// zstdWindow holds the batches that producers usually make and keeps an encoder small.
const zstdWindow = 1 << 20

func lz4Level(level int) lz4.CompressionLevel {
	if level == 0 {
		return lz4.Fast
	}
	return lz4.Level1 << (level - 1)
}

// must is for results that cannot fail because the arguments are fixed, or the destination is memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

type streamCompressor struct {
	w interface {
		io.WriteCloser
		Reset(io.Writer)
	}
	out appender
}

func (c *streamCompressor) compress(dst, src []byte) []byte {
	c.out.b = dst
	c.w.Reset(&c.out)
	_, err := c.w.Write(src)
	must(err)
	must(c.w.Close())
	dst, c.out.b = c.out.b, nil
	return dst
}

type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// zstdCompressor encodes as a stream. EncodeAll would take the encoder from a channel, and a channel that was made in one
// testing/synctest bubble cannot be used in another, while idle encoders are shared by the whole process. One block at a
// time, a stream with one encoder needs neither channels nor goroutines.
type zstdCompressor struct {
	w   *zstd.Encoder
	out appender
}

func (c *zstdCompressor) compress(dst, src []byte) []byte {
	c.out.b = dst
	c.w.ResetContentSize(&c.out, int64(len(src)))
	_, err := c.w.Write(src)
	must(err)
	must(c.w.Close())
	dst, c.out.b = c.out.b, nil
	return dst
}
