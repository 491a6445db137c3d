package segment

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestAppendAtEveryBoundary appends records whose numbers lie around the lengths at which they take another byte, and compares each with an
// encoder that has no short cuts.
func TestAppendAtEveryBoundary(t *testing.T) {
	keys := []int{-1, 0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 8100, 8191, 8192}
	var values []int
	for _, around := range []int{0, 8, 48, 58, 64, 8150, 8180, 8192} {
		for n := around - 8; n <= around+8; n++ {
			values = append(values, max(n, -1))
		}
	}
	times := []int64{0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 1 << 40}
	const base = int64(1_700_000_000_000)
	var b BatchBuilder
	b.buf = bytes.Repeat([]byte{0xff}, 64<<10)[:0] // what is left of an earlier batch
	for _, before := range []int{0, 1, 63, 64, 8191, 8192} {
		for _, key := range keys {
			for i, value := range values {
				b.Reset()
				if err := b.Append(&Record{Timestamp: base}); err != nil {
					t.Fatal(err)
				}
				b.count = max(before, 1)
				r := Record{Timestamp: base + times[i%len(times)], Key: bytesOf(key), Value: bytesOf(value)}
				if before == 0 {
					b.Reset()
				}
				at := b.Size()
				if err := b.Append(&r); err != nil {
					t.Fatal(err)
				}
				delta := r.Timestamp - base
				if before == 0 {
					delta = 0
				}
				if want := plainly(&r, delta, int64(before)); !bytes.Equal(b.buf[at:], want) {
					t.Fatalf("record %d with a key of %d bytes, a value of %d and time delta %d: %x\nwant %x", before, key, value, delta, b.buf[at:], want)
				}
				if low, high := min(base, r.Timestamp), max(base, r.Timestamp); before > 0 && (b.minTime != low || b.maxTime != high) {
					t.Fatalf("times %d to %d, want %d to %d", b.minTime, b.maxTime, low, high)
				}
			}
		}
	}
}

// plainly encodes a record without headers as the format has it, field by field.
func plainly(r *Record, timeDelta, offsetDelta int64) []byte {
	body := binary.AppendVarint(binary.AppendVarint([]byte{0}, timeDelta), offsetDelta)
	for _, field := range [][]byte{r.Key, r.Value} {
		if field == nil {
			body = binary.AppendVarint(body, -1)
		} else {
			body = append(binary.AppendVarint(body, int64(len(field))), field...)
		}
	}
	body = binary.AppendVarint(body, 0)
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}
