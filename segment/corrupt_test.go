package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// reseal makes length and checksum of an edited batch right again.
func reseal(batch []byte) []byte {
	binary.BigEndian.PutUint32(batch[lengthAt:], uint32(len(batch)-lengthFieldsBytes))
	binary.BigEndian.PutUint32(batch[crcAt:], crc32.Checksum(batch[attributesAt:], castagnoli))
	return batch
}

// sealed is a batch with these bytes for records, whatever they are, and a right checksum.
func sealed(t testing.TB, codec Codec, count int32, records []byte) []byte {
	batch := append(encode(t, DefaultBatchOptions(), Record{})[:recordsAt:recordsAt], records...)
	batch[attributesAt+1] = byte(codec)
	binary.BigEndian.PutUint32(batch[countAt:], uint32(count))
	binary.BigEndian.PutUint32(batch[lastDeltaAt:], uint32(max(count-1, 0)))
	return reseal(batch)
}

// record is the bytes of one record from its attributes on, behind their length.
func record(fields ...[]byte) []byte {
	body := bytes.Join(fields, nil)
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

func varint(v int64) []byte { return binary.AppendVarint(nil, v) }

// badBatches are well sealed batches whose counts or lengths lie; the text is the field that must be named.
func badBatches(t testing.TB) map[string]struct {
	batch []byte
	field string
	err   error
} {
	start := []byte{0, 0, 0} // attributes, time delta, offset delta
	null := varint(-1)
	good := record(start, null, null, varint(0))
	plain := func(delta int64) []byte {
		return record([]byte{0, 0}, varint(delta), null, varint(8), []byte("12345678"), varint(0))
	}
	type bad = struct {
		batch []byte
		field string
		err   error
	}
	return map[string]bad{
		"count_minus_one":      {sealed(t, None, -1, good), "record count", ErrCorrupt},
		"count_max":            {sealed(t, None, math.MaxInt32, good), "record count", ErrTooLarge},
		"count_above_bytes":    {sealed(t, None, 5000, good), "record count", ErrCorrupt},
		"count_too_low":        {sealed(t, None, 1, append(bytes.Clone(good), good...)), "record count", ErrCorrupt},
		"count_zero":           {sealed(t, None, 0, good), "record count", ErrCorrupt},
		"headers_above_bytes":  {sealed(t, None, 1, record(start, null, null, varint(1<<20))), "header count", ErrCorrupt},
		"headers_max":          {sealed(t, None, 1, record(start, null, null, varint(math.MaxInt64))), "header count", ErrCorrupt},
		"headers_missing":      {sealed(t, None, 1, record(start, null, varint(8), []byte("12345678"), varint(1))), "header count", ErrCorrupt},
		"headers_minus_one":    {sealed(t, None, 1, record(start, null, null, varint(-1))), "header count", ErrCorrupt},
		"key_above_bytes":      {sealed(t, None, 1, record(start, varint(1<<20), null, varint(0))), "key length", ErrCorrupt},
		"key_max":              {sealed(t, None, 1, record(start, varint(math.MaxInt64), null, varint(0))), "key length", ErrCorrupt},
		"key_minus_two":        {sealed(t, None, 1, record(start, varint(-2), null, varint(0))), "key length", ErrCorrupt},
		"value_above_bytes":    {sealed(t, None, 1, record(start, null, varint(2), varint(0))), "value length", ErrCorrupt},
		"value_min":            {sealed(t, None, 1, record(start, null, varint(math.MinInt64), varint(0))), "value length", ErrCorrupt},
		"header_name_null":     {sealed(t, None, 1, record(start, null, null, varint(1), null, null)), "header name length", ErrCorrupt},
		"header_value_above":   {sealed(t, None, 1, record(start, null, null, varint(1), varint(0), varint(9))), "header value length", ErrCorrupt},
		"header_count_cut_off": {sealed(t, None, 1, record(start, null, null, []byte{0x80})), "header count", ErrCorrupt},
		"length_above_bytes":   {sealed(t, None, 1, append(varint(1<<30), good[1:]...)), "length", ErrCorrupt},
		"length_one_above":     {sealed(t, None, 1, append(varint(7), good[1:]...)), "length", ErrCorrupt},
		"length_negative":      {sealed(t, None, 1, append(varint(-7), good[1:]...)), "length", ErrCorrupt},
		"length_11_bytes":      {sealed(t, None, 1, append(bytes.Repeat([]byte{0xff}, 11), good...)), "length", ErrCorrupt},
		"length_too_long":      {sealed(t, None, 1, record(start, null, null, varint(0), []byte("xx"))), "length", ErrCorrupt},
		"delta_repeated":       {sealed(t, None, 2, append(bytes.Clone(good), good...)), "offset delta", ErrCorrupt},
		"delta_negative":       {sealed(t, None, 1, record([]byte{0, 0, 1}, null, null, varint(0))), "offset delta", ErrCorrupt},
		"delta_above_last":     {sealed(t, None, 1, record([]byte{0, 0, 2}, null, null, varint(0))), "offset delta", ErrCorrupt},
		"delta_above_last_2":   {sealed(t, None, 3, slices.Concat(plain(0), plain(2), plain(3))), "offset delta", ErrCorrupt},
		"delta_repeated_2":     {sealed(t, None, 3, slices.Concat(plain(0), plain(1), plain(1))), "offset delta", ErrCorrupt},
		"record_attributes":    {sealed(t, None, 1, record([]byte{1, 0, 0}, null, null, varint(0))), "attributes", ErrVersion},
		"last_delta_below":     {reseal(func() []byte { b := sealed(t, None, 2, append(good, good...)); b[lastDeltaAt+3] = 0; return b }()), "last offset delta", ErrCorrupt},
	}
}

// TestBR22_BadCounts decodes batches whose checksum is right and whose counts are not: a typed error that names
// the field, and no more memory than the batch's own size.
func TestBR22_BadCounts(t *testing.T) {
	for name, c := range badBatches(t) {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			limit := uint64(len(c.batch) + 4096) // the error, and one record
			n := allocated(limit, func() {
				got, err := d.Decode(c.batch, 0, nil)
				var format *FormatError
				if !errors.As(err, &format) || !errors.Is(err, c.err) || format.Field != c.field || len(got) != 0 {
					t.Errorf("%d records, error %v, want %v of %q", len(got), err, c.err, c.field)
				}
			})
			if n > limit {
				t.Errorf("allocated %d bytes for a batch of %d", n, len(c.batch))
			}
		})
	}
	for _, short := range [][]byte{nil, {}, make([]byte, recordsAt-1), make([]byte, recordsAt)} {
		if _, err := new(Decoder).Decode(short, 0, nil); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Errorf("%d zero bytes: %v", len(short), err)
		}
	}
}

// allocated is how many bytes f allocates in all, which bounds its peak from above. What goroutines that other tests
// left behind allocate meanwhile counts too; so a result above the limit is looked at again.
func allocated(limit uint64, f func()) (n uint64) {
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if n = after.TotalAlloc - before.TotalAlloc; n <= limit {
			break
		}
	}
	return n
}

// TestFlippedBytes flips every bit of a batch of every codec. What the checksum covers must be refused, and so must
// length, magic and checksum. The base offset and the leader epoch are outside, as brokers rewrite them.
func TestFlippedBytes(t *testing.T) {
	eachCodec(t, func(t *testing.T, c Codec) {
		batch := encode(t, withCodec(c), Record{Key: []byte("key"), Value: bytes.Repeat([]byte("value"), 50), Headers: []Header{{"h", nil}}}, Record{Timestamp: 9})
		var d Decoder
		for at := range batch {
			for bit := range 8 {
				batch[at] ^= 1 << bit
				_, err := d.Decode(batch, 0, nil)
				outside := at < lengthAt || at >= leaderEpochAt && at < magicAt
				if !outside && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrTooLarge) {
					t.Fatalf("byte %d bit %d: %v", at, bit, err)
				}
				batch[at] ^= 1 << bit
			}
		}
		if _, err := d.Decode(batch, 0, nil); err != nil {
			t.Fatalf("unharmed: %v", err)
		}
	})
}

// TestSumChecked: the checksum of what a caller found sound is not looked at again, and everything but it still is.
func TestSumChecked(t *testing.T) {
	batch := encode(t, DefaultBatchOptions(), Record{Key: []byte("key"), Value: []byte("value")})
	trusting := Decoder{SumChecked: true}
	for at := attributesAt; at < len(batch); at++ {
		batch[at] ^= 1
		if _, err := trusting.Decode(batch, 0, nil); errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), "checksum") {
			t.Fatal(err)
		}
		batch[at] ^= 1
	}
	batch[len(batch)-1] ^= 1 << 1 // headers that are not there
	if _, err := trusting.Decode(batch, 0, nil); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// TestOffsetsDoNotOverflow puts a batch at the very end of the offsets, and one past it.
func TestOffsetsDoNotOverflow(t *testing.T) {
	batch := encode(t, DefaultBatchOptions(), Record{}, Record{})
	if got := decode(t, batch, math.MaxInt64-2); got[1].Offset != math.MaxInt64-1 {
		t.Fatalf("%+v", got)
	}
	for _, base := range []int64{math.MaxInt64 - 1, math.MaxInt64, -1, math.MinInt64} {
		if _, err := new(Decoder).Decode(batch, base, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("base %d: %v", base, err)
		}
	}
	for _, own := range []int64{math.MaxInt64 - 1, -1} {
		SetBaseOffset(batch, own)
		if _, err := new(Decoder).Decode(batch, 0, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("own base %d: %v", own, err)
		}
	}
}

// TestGapsAreRead decodes what key compaction leaves: fewer records than offsets, or none.
func TestGapsAreRead(t *testing.T) {
	batch := sealed(t, None, 2, append(record([]byte{0, 0, 4}, varint(-1), varint(-1), varint(0)), record([]byte{0, 0, 14}, varint(-1), varint(-1), varint(0))...))
	batch[lastDeltaAt+3] = 9
	if got := decode(t, reseal(batch), 100); len(got) != 2 || got[0].Offset != 102 || got[1].Offset != 107 {
		t.Fatalf("%+v", got)
	}
	empty := sealed(t, None, 0, nil)
	empty[lastDeltaAt+3] = 9
	if got := decode(t, reseal(empty), 100); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
}

// TestReaderLimits sets each limit just below what a batch needs, and to exactly that.
func TestReaderLimits(t *testing.T) {
	headers := []Header{{"a", nil}, {"b", nil}, {"c", nil}}
	records := []Record{{Value: make([]byte, 1000), Headers: headers}, {Value: make([]byte, 1000), Headers: headers}}
	size := len(encode(t, DefaultBatchOptions(), records...)) - recordsAt
	eachCodec(t, func(t *testing.T, c Codec) {
		batch := encode(t, withCodec(c), records...)
		for name, limits := range map[string][2]Limits{
			"bytes":   {{RecordBytes: size}, {RecordBytes: size - 1}},
			"records": {{Records: 2}, {Records: 1}},
			"headers": {{Headers: 6}, {Headers: 5}},
		} {
			if _, err := (&Decoder{Limits: limits[0]}).Decode(batch, 0, nil); err != nil {
				t.Errorf("%s at the limit: %v", name, err)
			}
			if _, err := (&Decoder{Limits: limits[1]}).Decode(batch, 0, nil); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s above the limit: %v", name, err)
			}
		}
	})
}

var rewrite = flag.Bool("rewrite", false, "write the seeds of the fuzz targets anew")

// checkSeeds keeps inputs on disk, where the fuzz targets find them, equal to those of a test.
func checkSeeds(t *testing.T, target string, seeds map[string][]byte) {
	for name, seed := range seeds {
		path := filepath.Join("testdata", "fuzz", target, "BR22_"+name)
		want := fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", seed)
		if *rewrite {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not this test's input (%v): run with -rewrite", path, err)
		}
	}
}

func TestBR22_SeedsOnDisk(t *testing.T) {
	batches := map[string][]byte{"no_bytes": {}}
	for name, c := range badBatches(t) {
		batches[name] = c.batch
	}
	checkSeeds(t, "FuzzDecode", batches)
	objects := map[string][]byte{}
	for name, c := range badObjects(t) {
		objects[name] = c.object
	}
	checkSeeds(t, "FuzzSegment", objects)
}
