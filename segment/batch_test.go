package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// encode makes one batch of the records, which the test expects to fit.
func encode(t testing.TB, o BatchOptions, records ...Record) []byte {
	t.Helper()
	var b BatchBuilder
	for i := range records {
		if err := b.Append(&records[i]); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	size := b.Size()
	batch, info, err := b.Finish([]byte("before"), o)
	if err != nil {
		t.Fatal(err)
	}
	batch = bytes.TrimPrefix(batch, []byte("before"))
	if info.Count != len(records) || info.Length != len(batch) || o.Codec == None && size != len(batch) {
		t.Fatalf("batch of %d records in %d bytes (Size said %d) is described as %+v", len(records), len(batch), size, info)
	}
	return batch
}

func decode(t testing.TB, batch []byte, base int64) []Record {
	t.Helper()
	records, err := new(Decoder).Decode(batch, base, nil)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// withCodec are options with a codec. Batches that would not shrink are stored uncompressed, so tests that
// mean to decompress pad their records.
func withCodec(c Codec) BatchOptions {
	o := DefaultBatchOptions()
	o.Codec = c
	return o
}

func eachCodec(t *testing.T, f func(t *testing.T, c Codec)) {
	for c := range Codec(codecs) {
		t.Run(c.String(), func(t *testing.T) { f(t, c) })
	}
}

// TestBR05_NullAndEmptyApart writes and reads every combination of absent, empty and present key, value and
// header value, repeated and empty header names, and a record with 1,000 headers.
func TestBR05_NullAndEmptyApart(t *testing.T) {
	kinds := [][]byte{nil, {}, []byte(strings.Repeat("bytes ", 20))}
	var records []Record
	for _, key := range kinds {
		for _, value := range kinds {
			records = append(records, Record{Key: key, Value: value})
			for _, header := range kinds {
				records = append(records, Record{Key: key, Value: value, Headers: []Header{{"same", header}, {"same", value}, {"", header}, {"", nil}}})
			}
		}
	}
	many := Record{Key: []byte("many")}
	for i := range 1000 {
		many.Headers = append(many.Headers, Header{fmt.Sprintf("name-%d", i%7), kinds[i%3]})
	}
	records = append(records, many)
	for i := range records {
		records[i].Offset, records[i].Timestamp = 40+int64(i), int64(i%5)
	}
	eachCodec(t, func(t *testing.T, c Codec) {
		batch := encode(t, withCodec(c), records...)
		if h, _ := ParseBatchHeader(batch); h.Codec() != c {
			t.Fatalf("written with %v", h.Codec())
		}
		if got := decode(t, batch, 40); !reflect.DeepEqual(got, records) {
			for i := range got {
				if !reflect.DeepEqual(got[i], records[i]) {
					t.Fatalf("record %d: got %#v, want %#v", i, got[i], records[i])
				}
			}
		}
	})
}

func drawBytes(t *rapid.T, label string, max int) []byte {
	if rapid.Bool().Draw(t, label+" null") {
		return nil
	}
	return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, max).Draw(t, label)...)
}

func drawRecords(t *rapid.T, n int) []Record {
	records := make([]Record, n)
	at := rapid.OneOf(rapid.Int64Range(0, 2e12), rapid.Int64()).Draw(t, "time")
	step := rapid.SampledFrom([]int64{0, 1, 100, 1e6, math.MaxInt64 / 3}).Draw(t, "step")
	for i := range records {
		r := &records[i]
		r.Timestamp = at + int64(rapid.IntRange(-3, 3).Draw(t, "steps"))*step
		r.Key = drawBytes(t, "key", 40)
		r.Value = drawBytes(t, "value", 200)
		if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
			r.Value = bytes.Repeat([]byte("large value "), rapid.SampledFrom([]int{4, 5, 6, 600, 690, 7000, 100_000 / largeShare, 180_000 / largeShare}).Draw(t, "size"))
		}
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 2, 70}).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{rapid.SampledFrom([]string{"", "a", "trace", strings.Repeat("long", 30)}).Draw(t, "name"), drawBytes(t, "header", 8)})
		}
	}
	return records
}

func TestBatchRoundTrip(t *testing.T) {
	var d Decoder
	reusing := Decoder{Reuse: true}
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t, rapid.SampledFrom([]int{1, 2, 3, 70}).Draw(t, "records"))
		o := BatchOptions{
			Codec: Codec(rapid.IntRange(0, codecs-1).Draw(t, "codec")), BaseOffset: rapid.Int64Range(0, 1<<40).Draw(t, "base offset"),
			LeaderEpoch: rapid.Int32().Draw(t, "leader"), ProducerID: rapid.Int64().Draw(t, "producer"),
			ProducerEpoch: rapid.Int16().Draw(t, "epoch"), BaseSequence: rapid.Int32().Draw(t, "sequence"),
		}
		var b BatchBuilder
		for i := range records {
			if err := b.Append(&records[i]); err != nil {
				t.Fatal(err)
			}
		}
		batch, info, err := b.Finish(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		low, high := int64(math.MaxInt64), int64(math.MinInt64)
		for i := range records {
			records[i].Offset = base + o.BaseOffset + int64(i)
			low, high = min(low, records[i].Timestamp), max(high, records[i].Timestamp)
		}
		if info != (BatchInfo{len(records), len(batch), low, high}) {
			t.Fatalf("info %+v of %d records in %d bytes, times %d to %d", info, len(records), len(batch), low, high)
		}
		for _, d := range []*Decoder{&d, &reusing} {
			got, err := d.Decode(batch, base, []Record{{Offset: -7}})
			if err != nil || got[0].Offset != -7 || !reflect.DeepEqual(got[1:], records) {
				t.Fatalf("got %v %+v\nwant %+v", err, got, records)
			}
		}
		h, err := ParseBatchHeader(batch)
		o.Codec = h.Codec() // None where it would not have shrunk
		want := BatchHeader{o.BaseOffset, len(batch), o.LeaderEpoch, h.CRC, uint16(o.Codec), int32(len(records) - 1), records[0].Timestamp, high, o.ProducerID, o.ProducerEpoch, o.BaseSequence, int32(len(records))}
		if err != nil || h != want {
			t.Fatalf("header %+v, %v, want %+v", h, err, want)
		}
	})
}

func TestUnusedIDsAreMinusOne(t *testing.T) {
	h, err := ParseBatchHeader(encode(t, DefaultBatchOptions(), Record{}))
	if err != nil || h.LeaderEpoch != -1 || h.ProducerID != -1 || h.ProducerEpoch != -1 || h.BaseSequence != -1 {
		t.Fatalf("%+v, %v", h, err)
	}
}

func TestAppendTimeStandsForEveryRecord(t *testing.T) {
	o := DefaultBatchOptions()
	o.TimeType, o.AppendTime = LogAppendTime, 500
	var b BatchBuilder
	for _, at := range []int64{900, 100} {
		if err := b.Append(&Record{Timestamp: at}); err != nil {
			t.Fatal(err)
		}
	}
	batch, info, err := b.Finish(nil, o)
	if err != nil || info.MinTime != 500 || info.MaxTime != 500 {
		t.Fatalf("%+v, %v", info, err)
	}
	h, _ := ParseBatchHeader(batch)
	if got := decode(t, batch, 0); h.TimeType() != LogAppendTime || got[0].Timestamp != 500 || got[1].Timestamp != 500 {
		t.Fatalf("%+v", got)
	}
}

func TestSetBaseOffsetKeepsChecksum(t *testing.T) {
	batch := encode(t, DefaultBatchOptions(), Record{}, Record{})
	SetBaseOffset(batch, 1<<44)
	if got := decode(t, batch, 0); got[1].Offset != 1<<44+1 {
		t.Fatalf("%+v", got)
	}
}

func TestSplitBatch(t *testing.T) {
	a, b := encode(t, DefaultBatchOptions(), Record{Value: []byte("a")}), encode(t, withCodec(Zstd), Record{Value: make([]byte, 500)})
	first, rest, err := SplitBatch(append(bytes.Clone(a), b...))
	if err != nil || !bytes.Equal(first, a) {
		t.Fatal(err)
	}
	second, rest, err := SplitBatch(rest)
	if err != nil || !bytes.Equal(second, b) || len(rest) != 0 {
		t.Fatal(err)
	}
	for _, short := range [][]byte{nil, a[:12], a[:60], a[:len(a)-1]} {
		if _, _, err := SplitBatch(short); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v", len(short), err)
		}
	}
}

// TestRecordsStayValid decodes a second batch over the first and looks at the first again, without and with Reuse.
func TestRecordsStayValid(t *testing.T) {
	batchOf := func(c Codec, fill string) ([]byte, []Record) {
		value := bytes.Repeat([]byte(fill), 100)
		want := []Record{{Value: value, Headers: []Header{{"h", value}}}}
		return encode(t, withCodec(c), want...), want
	}
	for _, c := range []Codec{Gzip, Snappy, LZ4, Zstd} {
		a, want := batchOf(c, "a")
		b, _ := batchOf(c, "b")
		for _, reuse := range []bool{false, true} {
			d := Decoder{Reuse: reuse}
			first, err := d.Decode(a, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Decode(b, 0, nil); err != nil {
				t.Fatal(err)
			}
			if kept := reflect.DeepEqual(first, want); kept == reuse {
				t.Errorf("%v, reuse %v: first batch kept: %v", c, reuse, kept)
			}
		}
	}
}

// TestAppendingLeavesNeighbours appends to what was decoded, of records with headers and without: what lies behind
// it in memory must not change.
func TestAppendingLeavesNeighbours(t *testing.T) {
	headers := []Header{{"h", []byte("1")}}
	want := []Record{{Key: []byte("key"), Value: []byte("value")}, {Key: []byte("key"), Value: []byte("value"), Headers: headers}, {Headers: headers}}
	got := decode(t, encode(t, DefaultBatchOptions(), want...), 0)
	for i := range got {
		want[i].Offset = int64(i)
		_ = append(got[i].Key, "XXXXXXXX"...)
		_ = append(got[i].Value, "XXXXXXXX"...)
		_ = append(got[i].Headers, Header{"X", nil})
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v", got)
	}
}

func TestRecordSize(t *testing.T) {
	r := Record{Key: make([]byte, 3), Value: make([]byte, 50), Headers: []Header{{"name", make([]byte, 6)}, {"", nil}}}
	if got := RecordSize(&r); got != 3+50+4+6+2+2 {
		t.Fatalf("%d", got)
	}
}

// TestBuilderKeepsToLimits fills a batch up to each of the default limits: the builder says full, what it has is
// unharmed, and a decoder reads it.
func TestBuilderKeepsToLimits(t *testing.T) {
	for name, c := range map[string]struct {
		record Record
		count  int
	}{
		"bytes":   {Record{Value: make([]byte, 16<<20)}, 3},
		"records": {Record{}, defaultRecords},
		"headers": {Record{Headers: make([]Header, defaultHeaders/4)}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var b BatchBuilder
			n := 0
			for ; b.Append(&c.record) == nil; n++ {
			}
			if err := b.Append(&c.record); !errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge) || n != c.count || b.Count() != n {
				t.Fatalf("%d records, then %v", n, err)
			}
			batch, _, err := b.Finish(nil, DefaultBatchOptions())
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, batch, 0); len(got) != n {
				t.Fatalf("%d records read", len(got))
			}
		})
	}
	var b BatchBuilder
	for _, r := range []Record{{Value: make([]byte, defaultRecordBytes)}, {Headers: make([]Header, defaultHeaders+1)}} {
		if err := b.Append(&r); !errors.Is(err, ErrTooLarge) || b.Count() != 0 {
			t.Errorf("%d bytes, %d headers: %v", len(r.Value), len(r.Headers), err)
		}
	}
}

func TestFinishRefusals(t *testing.T) {
	var b BatchBuilder
	if _, _, err := b.Finish(nil, DefaultBatchOptions()); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty: %v", err)
	}
	if err := b.Append(&Record{Value: make([]byte, 1000)}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []BatchOptions{{Codec: 5}, {Codec: Zstd, Level: 23}, {Codec: Gzip, Level: -1}, {Codec: Snappy, Level: 1}, {Codec: None, Level: 1}} {
		if dst, _, err := b.Finish([]byte("x"), o); !errors.Is(err, ErrBadCodec) || string(dst) != "x" {
			t.Errorf("%v level %d: %v", o.Codec, o.Level, err)
		}
	}
}

// TestEveryLevel writes with every level of every codec. The highest must not be larger than the lowest: the
// level arrives at the compressor.
func TestEveryLevel(t *testing.T) {
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog ", 3))
	var records []Record
	for i := range 3000 {
		records = append(records, Record{Key: fmt.Append(nil, i*i*7919%10007), Value: text[i%60 : len(text)-i*i%60]})
	}
	eachCodec(t, func(t *testing.T, c Codec) {
		sizes := make([]int, maxLevel[c]+1)
		for level := range sizes {
			o := withCodec(c)
			o.Level = level
			batch := encode(t, o, records...)
			if got := decode(t, batch, 0); len(got) != len(records) || !bytes.Equal(got[2999].Value, records[2999].Value) {
				t.Fatalf("level %d: %d records", level, len(got))
			}
			sizes[level] = len(batch)
		}
		if top := len(sizes) - 1; top > 0 && sizes[top] >= sizes[1] {
			t.Errorf("level %d gives %d bytes, level 1 %d", top, sizes[top], sizes[1])
		}
	})
}

// TestIncompressibleIsStored writes bytes that no codec can shrink.
func TestIncompressibleIsStored(t *testing.T) {
	for c := range Codec(codecs) {
		batch := encode(t, withCodec(c), Record{Value: []byte("q7#")})
		if h, _ := ParseBatchHeader(batch); h.Codec() != None {
			t.Errorf("%v was kept for %d bytes", c, len(batch))
		}
	}
}

// TestTransactionalIsRefused sets the bits that varve has no meaning for, with a right checksum.
func TestTransactionalIsRefused(t *testing.T) {
	for bit, want := range map[uint16]error{transactionalBit: ErrTransactional, controlBit: ErrTransactional, 1 << 7: ErrVersion, 1 << 15: ErrVersion, deleteHorizonBit: nil, 5: ErrVersion, 7: ErrVersion} {
		batch := encode(t, DefaultBatchOptions(), Record{})
		batch[attributesAt], batch[attributesAt+1] = byte(bit>>8), byte(bit)
		reseal(batch)
		records, err := new(Decoder).Decode(batch, 0, nil)
		if !errors.Is(err, want) || errors.Is(err, ErrTransactional) != (want == ErrTransactional) || (err == nil) != (len(records) == 1) {
			t.Errorf("bit %#x: %v", bit, err)
		}
	}
}

// TestHotPathsDoNotAllocate counts allocations of whole batches of 1,000 records in grown memory.
func TestHotPathsDoNotAllocate(t *testing.T) {
	records := make([]Record, 1000)
	for i := range records {
		records[i] = Record{Timestamp: int64(i), Key: fmt.Append(nil, "key", i), Value: make([]byte, 100)}
		if i%2 == 0 {
			records[i].Headers = []Header{{"trace", []byte("0123456789")}, {"kind", nil}}
		}
	}
	var b BatchBuilder
	var batch []byte
	write := func(c Codec) {
		b.Reset()
		for i := range records {
			if err := b.Append(&records[i]); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if batch, _, err = b.Finish(batch[:0], withCodec(c)); err != nil {
			t.Fatal(err)
		}
	}
	d := Decoder{Reuse: true}
	var got []Record
	read := func() {
		var err error
		if got, err = d.Decode(batch, 0, got[:0]); err != nil || len(got) != len(records) {
			t.Fatal(err)
		}
	}
	// A compressor may be made anew (the pool loses some, more so under the race detector); for each record
	// nothing is allocated.
	some := float64(len(records) / 10)
	perBatch := map[Codec]float64{None: 0, Gzip: some, Snappy: some, LZ4: some, Zstd: some}
	eachCodec(t, func(t *testing.T, c Codec) {
		write(c)
		writing := testing.AllocsPerRun(20, func() { write(c) })
		read()
		reading := testing.AllocsPerRun(20, read)
		t.Logf("allocations a batch of %d records: %v writing, %v reading", len(records), writing, reading)
		if writing > perBatch[c] || reading > perBatch[c] {
			t.Errorf("at most %v", perBatch[c])
		}
	})
}
