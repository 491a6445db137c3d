package segment

import (
	"bytes"
	"testing"
)

// TestReadPlainAtEveryBoundary reads records whose numbers lie around the lengths at which they take another byte: each is as it was encoded, or left
// to readRecord.
func TestReadPlainAtEveryBoundary(t *testing.T) {
	const base, offset = int64(1_700_000_000_000), int64(1000)
	behind := bytes.Repeat([]byte{0xff}, 100)
	taken := 0
	for _, key := range []int{-1, 0, 1, 63, 64, 8191, 8192} {
		for _, value := range []int{-1, 0, 1, 9, 10, 55, 56, 63, 64, 8170, 8191, 8192, 1 << 20, 1<<20 + 1} {
			for i, delta := range []int64{0, 63, 64, 8191, 8192, 1<<20 - 1, 1 << 20, 1<<21 - 1, 1 << 21, 1 << 27} {
				if value >= 1<<20 && i%largeShare != 0 {
					continue
				}
				elapsed := []int64{0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 1 << 40}[i]
				want := Record{Offset: offset + delta, Timestamp: base + elapsed, Key: bytesOf(key), Value: bytesOf(value)}
				encoded := plainly(&want, elapsed, delta)
				got := make([]Record, 1)
				n, rest := readPlain(append(encoded[:len(encoded):len(encoded)], behind...), got, base, offset, delta)
				switch {
				case n == 0 && len(rest) == len(encoded)+len(behind):
				case n == 1 && len(rest) == len(behind) && sameRecord(&got[0], &want):
					taken++
				default:
					t.Fatalf("key of %d bytes, value of %d, deltas %d and %d: %d read, %d bytes left: %+v", key, value, elapsed, delta, n, len(rest), got)
				}
			}
		}
	}
	if taken < 200 {
		t.Errorf("%d were taken for plain", taken)
	}
}

// TestReadPlainLeavesLongNumbers: an offset delta of four bytes, the last of which would do as the length of a key.
func TestReadPlainLeavesLongNumbers(t *testing.T) {
	body := append([]byte{0, 0, 0x80, 0x80, 0x80, 1, 2 * 20}, make([]byte, 21)...)
	record := append([]byte{byte(2 * len(body))}, body...)
	if n, _ := readPlain(record, make([]Record, 1), 0, 0, 1<<20); n != 0 {
		t.Error("taken for a plain record")
	}
}

func sameRecord(a, b *Record) bool {
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && same(a.Key, b.Key) && same(a.Value, b.Value) && len(a.Headers) == 0 && len(b.Headers) == 0
}

// bytesOf is n bytes, nil if n is negative.
func bytesOf(n int) []byte {
	if n < 0 {
		return nil
	}
	return bytes.Repeat([]byte{0xa5}, n)
}
