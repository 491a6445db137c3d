package segment

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"
	"testing"
	"time"
)

// Each record size, of key (16 bytes) and value together, is measured in batches of 1 MiB, at which the sdk's producer begins another, and of
// 256 KiB, which stay in the cache: there the yardstick runs at the cache's speed.
var benchSizes = []struct {
	name           string
	payload, batch int
}{
	{"1KiB/1MiB-batch", 1024, 1 << 20},
	{"100B/1MiB-batch", 100, 1 << 20},
	{"1KiB/256KiB-batch", 1024, 256 << 10},
	{"100B/256KiB-batch", 100, 256 << 10},
}

func benchRecords(payload, batch int) []Record {
	records := make([]Record, batch/payload)
	for i := range records {
		key := fmt.Appendf(nil, "key-%012d", i)
		value := bytes.Repeat([]byte{byte(i)}, payload-len(key))
		records[i] = Record{Timestamp: 1_700_000_000_000 + int64(i/8), Key: key, Value: value}
	}
	return records
}

// withYardstick times work, and copying the batch and taking its CRC-32C, in turns. It reports the rates of the
// fastest turns, which other processes disturb least, and their ratio.
func withYardstick(b *testing.B, batch []byte, work func()) {
	dst := make([]byte, len(batch))
	worked, copied := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		work()
		worked = min(worked, time.Since(start))
		for range 2 { // the second time as warm as work leaves its own bytes
			start = time.Now()
			copy(dst, batch)
			benchSum = crc32.Checksum(dst, castagnoli)
			copied = min(copied, time.Since(start))
		}
	}
	rate := func(d time.Duration) float64 { return float64(len(batch)) / d.Seconds() / 1e6 }
	b.ReportMetric(rate(worked), "MB/s")
	b.ReportMetric(rate(copied), "copy+crc-MB/s")
	b.ReportMetric(copied.Seconds()/worked.Seconds(), "ratio")
}

var benchSum uint32

func BenchmarkEncode(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			records := benchRecords(size.payload, size.batch)
			batch := encode(b, DefaultBatchOptions(), records...)
			var builder BatchBuilder
			withYardstick(b, batch, func() {
				builder.Reset()
				for i := range records {
					if err := builder.Append(&records[i]); err != nil {
						b.Fatal(err)
					}
				}
				if _, _, err := builder.Seal(DefaultBatchOptions()); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkCopyRecords is what no encoder of records that arrive one by one can avoid: copying each key and value from where it lies, and the
// checksum. Its ratio is the bound for that of BenchmarkEncode.
func BenchmarkCopyRecords(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			records := benchRecords(size.payload, size.batch)
			batch := encode(b, DefaultBatchOptions(), records...)
			dst := make([]byte, len(batch))
			withYardstick(b, batch, func() {
				n := 0
				for i := range records {
					n += copy(dst[n:], records[i].Key)
					n += copy(dst[n:], records[i].Value)
				}
				benchSum = crc32.Checksum(dst[:n], castagnoli)
			})
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			batch := encode(b, DefaultBatchOptions(), benchRecords(size.payload, size.batch)...)
			var d Decoder
			var records []Record
			withYardstick(b, batch, func() {
				var err error
				if records, err = d.Decode(batch, 0, records[:0]); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
