package segment

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The frames of these tests are made by the libraries directly, in every form that a client may choose, and not by
// the code under test.
type framer struct {
	name  string
	codec Codec
	frame func(t testing.TB, chunks ...[]byte) []byte
	// sizeAt is where the frame says how large its output is, 0 where it does not; put writes another size there.
	put func(frame []byte, size int)
}

func streamed(open func(io.Writer) (io.WriteCloser, error)) func(testing.TB, ...[]byte) []byte {
	return func(t testing.TB, chunks ...[]byte) []byte {
		var out bytes.Buffer
		w, err := open(&out)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			if _, err := w.Write(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
}

func lz4With(options ...lz4.Option) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) {
		z := lz4.NewWriter(w)
		return z, z.Apply(options...)
	}
}

func zstdWith(options ...zstd.EOption) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) {
		return zstd.NewWriter(w, append(options, zstd.WithEncoderConcurrency(1))...)
	}
}

func framers() []framer {
	return []framer{
		{"gzip", Gzip, streamed(func(w io.Writer) (io.WriteCloser, error) { return stdgzip.NewWriter(w), nil }),
			func(b []byte, n int) { binary.LittleEndian.PutUint32(b[len(b)-4:], uint32(n)) }},
		{"snappy bare", Snappy, func(t testing.TB, chunks ...[]byte) []byte { return s2.EncodeSnappy(nil, bytes.Join(chunks, nil)) }, nil},
		{"snappy xerial", Snappy, func(t testing.TB, chunks ...[]byte) []byte {
			out := []byte(xerialHeader)
			for _, c := range chunks {
				block := s2.EncodeSnappy(nil, c)
				out = append(binary.BigEndian.AppendUint32(out, uint32(len(block))), block...)
			}
			return out
		}, nil},
		{"lz4 64 KiB", LZ4, streamed(lz4With(lz4.BlockSizeOption(lz4.Block64Kb))), nil},
		{"lz4 4 MiB, no checksum", LZ4, streamed(lz4With(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(false))), nil},
		{"lz4 block checksums", LZ4, streamed(lz4With(lz4.BlockSizeOption(lz4.Block64Kb), lz4.BlockChecksumOption(true))), nil},
		{"lz4 with size", LZ4, func(t testing.TB, chunks ...[]byte) []byte {
			n := 0
			for _, c := range chunks {
				n += len(c)
			}
			return streamed(lz4With(lz4.SizeOption(uint64(n))))(t, chunks...)
		}, nil},
		{"zstd stream, no size", Zstd, streamed(zstdWith()), nil},
		{"zstd stream, small window", Zstd, streamed(zstdWith(zstd.WithWindowSize(4 << 10))), nil},
		{"zstd whole, with size", Zstd, func(t testing.TB, chunks ...[]byte) []byte {
			w, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
			if err != nil {
				t.Fatal(err)
			}
			return w.EncodeAll(bytes.Join(chunks, nil), nil)
		}, putZstdSize},
	}
}

// putZstdSize changes the content size of a single-segment frame, which stands behind magic and descriptor.
func putZstdSize(frame []byte, n int) {
	switch frame[4] >> 6 {
	case 1:
		binary.LittleEndian.PutUint16(frame[5:], uint16(min(n-256, math.MaxUint16)))
	case 2:
		binary.LittleEndian.PutUint32(frame[5:], uint32(n))
	}
}

// recordOf is the bytes of one record that is size bytes long in all: null key, value of zeros.
func recordOf(size int) []byte {
	for value := size - 20; ; value++ {
		r := record([]byte{0, 0, 0}, varint(-1), varint(int64(value)), make([]byte, value), varint(0))
		if len(r) == size {
			return r
		}
		if len(r) > size {
			panic("no value gives that size")
		}
	}
}

// slack is what decoding may allocate besides the output: tables and windows of the decompressors, and the
// buffer for outputs of unknown size. It is the same for every limit.
const slack = maxScratch + 1<<20

// TestBR21_DecompressionBomb decodes, with every way to frame every codec: a batch that expands to exactly the
// limit, to a byte more, to a thousand times the limit; with a size field that lies low or high; cut; and with a
// second frame behind the first. Only the first is read; the rest are typed errors; and none of them allocates
// more than limit + slack, counting everything, freed or not.
func TestBR21_DecompressionBomb(t *testing.T) {
	const limit = 64 << 10
	zeros := make([]byte, limit)
	var bomb [][]byte
	for range bombTimes {
		bomb = append(bomb, zeros)
	}
	for _, f := range framers() {
		t.Run(f.name, func(t *testing.T) {
			exact := recordOf(limit)
			good := f.frame(t, exact)
			check := func(what string, frame []byte, want ...error) { // any of them; none: success
				t.Helper()
				batch := sealed(t, f.codec, 1, frame)
				for _, reuse := range []bool{false, true} {
					var got []Record
					var err error
					n := allocated(limit+slack, func() {
						d := Decoder{Limits: Limits{RecordBytes: limit}, Reuse: reuse}
						got, err = d.Decode(batch, 0, nil)
					})
					read := err == nil && len(got) == 1 && len(got[0].Value) > limit-20
					if read != (want == nil) || !read && !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
						t.Errorf("%s: %d records, %v, want %v", what, len(got), err, want)
					}
					if n > limit+slack {
						t.Errorf("%s: allocated %d bytes with a limit of %d", what, n, limit)
					}
				}
			}
			check("exactly the limit", good)
			check("a byte over the limit", f.frame(t, recordOf(limit+1)), ErrTooLarge)
			check("many times the limit", f.frame(t, bomb...), ErrTooLarge)
			for _, n := range []int{1, 5, len(good) / 2, len(good) - 1} {
				check("cut frame", good[:n], ErrCorrupt)
			}
			check("two frames joined", append(bytes.Clone(good), good...), ErrCorrupt)
			if f.put == nil {
				return
			}
			for what, n := range map[string]int{"size lies low": limit - 1000, "size lies a bit high": limit} {
				frame := f.frame(t, recordOf(limit-100))
				f.put(frame, n)
				check(what, frame, ErrCorrupt)
			}
			f.put(good, limit*4)
			check("size lies high", good, ErrCorrupt, ErrTooLarge)
		})
	}
}

// TestBR21_MemoryFollowsTheLimit shows that the slack is the same with a limit many times as large.
func TestBR21_MemoryFollowsTheLimit(t *testing.T) {
	const limit = largeLimit
	exact, zeros, noise := recordOf(limit), make([]byte, 4*limit), make([]byte, limit)
	rand.NewChaCha8([32]byte{1}).Read(noise) // so that codecs store the bytes as they are
	for _, f := range framers() {
		frames := map[string][]byte{"exactly the limit": f.frame(t, exact), "4 times the limit": f.frame(t, zeros)}
		if f.put != nil {
			frames["size lies low"] = f.frame(t, noise)
			f.put(frames["size lies low"], limit-1000)
		}
		for what, frame := range frames {
			batch := sealed(t, f.codec, 1, frame)
			var err error
			n := allocated(limit+slack, func() {
				d := Decoder{Limits: Limits{RecordBytes: limit}}
				_, err = d.Decode(batch, 0, nil)
			})
			t.Logf("%-26s %-18s allocated limit %+d KiB: %v", f.name, what, (int(n)-limit)>>10, err)
			if n > limit+slack || (err == nil) != (what == "exactly the limit") {
				t.Errorf("%s, %s: allocated %d bytes, %v", f.name, what, n, err)
			}
		}
	}
}

// TestSnappySizeLies changes the length in front of a bare snappy block, and of a block in xerial framing.
func TestSnappySizeLies(t *testing.T) {
	content := recordOf(5000)
	block := s2.EncodeSnappy(nil, content)
	rest := block[len(binary.AppendUvarint(nil, 5000)):]
	for _, n := range []uint64{0, 4999, 5001, 1 << 32, 1 << 62} {
		lying := append(binary.AppendUvarint(nil, n), rest...)
		framed := append(binary.BigEndian.AppendUint32([]byte(xerialHeader), uint32(len(lying))), lying...)
		for _, in := range [][]byte{lying, framed} {
			if _, err := new(Decoder).Decode(sealed(t, Snappy, 1, in), 0, nil); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("length %d: %v", n, err)
			}
		}
	}
	for _, n := range []uint32{0, uint32(len(block)) + 1, 1 << 31, 1<<32 - 1} {
		framed := append(binary.BigEndian.AppendUint32([]byte(xerialHeader), n), block...)
		if _, err := new(Decoder).Decode(sealed(t, Snappy, 1, framed), 0, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("block length %d: %v", n, err)
		}
	}
}

// TestAnnouncedSizesTakeNoMemory announces 32 MiB, which the default limit allows, in frames far too short for that.
func TestAnnouncedSizesTakeNoMemory(t *testing.T) {
	const announced, enough = 32 << 20, 1 << 20
	content := recordOf(100 << 10)
	frames := map[Codec][]byte{Snappy: append(binary.AppendUvarint(nil, announced), s2.EncodeSnappy(nil, content)[3:]...)}
	for _, f := range framers() {
		if f.put != nil {
			frames[f.codec] = f.frame(t, content)
			f.put(frames[f.codec], announced)
		}
	}
	for codec, frame := range frames {
		var err error
		n := allocated(enough, func() { _, err = new(Decoder).Decode(sealed(t, codec, 1, frame), 0, nil) })
		if n > enough || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v: allocated %d bytes for %d: %v", codec, n, len(frame), err)
		}
	}
	if len(frames) != 3 {
		t.Errorf("%d codecs announce sizes, expected gzip, snappy and zstd", len(frames))
	}
}

// TestLZ4BlockAboveItsSize reads a block that expands to more than the 64 KiB that its frame allows: 'a', then 70,000
// bytes from 1 back, then 5 literals.
func TestLZ4BlockAboveItsSize(t *testing.T) {
	const match = 70_000 - 4 - 15
	block := append([]byte{0x1f, 'a', 1, 0}, bytes.Repeat([]byte{255}, match/255)...)
	block = append(block, match%255, 0x50, 'v', 'w', 'x', 'y', 'z')
	if n := lz4BlockSize(block); n != 70_006 {
		t.Fatalf("size %d", n)
	}
	frame := binary.LittleEndian.AppendUint32([]byte(lz4Magic+"\x60\x40\x00"), uint32(len(block)))
	frame = append(append(frame, block...), 0, 0, 0, 0)
	if n, err := lz4Size(frame); err == nil {
		t.Fatalf("accepted, with %d bytes", n)
	}
}

// TestLZ4LinkedBlocks reads a frame whose second block refers to the first, which no writer here makes: literals
// "abcdefghij"; then 20 bytes from 10 back, and literals "vwxyz".
func TestLZ4LinkedBlocks(t *testing.T) {
	first := append([]byte{0xa0}, "abcdefghij"...)
	second := append([]byte{0x0f, 10, 0, 1, 0x50}, "vwxyz"...)
	frame := []byte(lz4Magic + "\x40\x40\x00")
	for _, b := range [][]byte{first, second} {
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(b))), b...)
	}
	frame = append(frame, 0, 0, 0, 0)
	const want = "abcdefghijabcdefghijabcdefghijvwxyz"
	size, err := lz4Size(frame)
	out := make([]byte, size)
	n, err2 := unlz4(out, frame)
	if err != nil || err2 != nil || string(out[:n]) != want {
		t.Fatalf("size %d, %v; %q, %v", size, err, out[:n], err2)
	}
	for i := range frame { // every way to be cut
		if _, err := lz4Size(frame[:i]); err == nil {
			t.Errorf("cut at %d: no error", i)
		}
	}
}
