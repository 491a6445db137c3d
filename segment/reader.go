package segment

import (
	"fmt"
	"math"
)

// reader takes numbers and byte strings off b, one field after another. The first that cannot be read sets
// err; from then on it returns zeros, so that callers look at err where it matters and not after every field.
type reader struct {
	b      []byte
	at     int
	part   string // what b is, for errors
	origin int64  // position of b[0], for errors
	record int    // number of the record, or -1
	err    error
}

// fail sets err unless an earlier one is there.
func (r *reader) fail(err error, field, format string, args ...any) {
	if r.err == nil {
		r.err = &FormatError{Part: r.part, Field: field, At: r.origin + int64(r.at), Record: r.record, Reason: fmt.Sprintf(format, args...), Err: err}
	}
}

// left is how many bytes have not been read.
func (r *reader) left() int { return len(r.b) - r.at }

// unsigned reads a number of at most limit.
func (r *reader) unsigned(field string, limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, next := uvarint(r.b, r.at)
	if next < 0 {
		r.fail(ErrCorrupt, field, "cut off or over 64 bits")
		return 0
	}
	if v > limit {
		r.fail(ErrCorrupt, field, "%d, at most %d", v, limit)
		return 0
	}
	r.at = next
	return v
}

// signed reads a zigzag coded number of at least low and at most high.
func (r *reader) signed(field string, low, high int64) int64 {
	if r.err != nil {
		return 0
	}
	u, next := uvarint(r.b, r.at)
	if next < 0 {
		r.fail(ErrCorrupt, field, "cut off or over 64 bits")
		return 0
	}
	v := unzigzag(u)
	if v < low || v > high {
		r.fail(ErrCorrupt, field, "%d, %d to %d are possible", v, low, high)
		return 0
	}
	r.at = next
	return v
}

// bytes takes n bytes. They alias b and cannot be appended to in place.
func (r *reader) bytes(field string, n int) []byte {
	if r.err == nil && n > r.left() {
		r.fail(ErrCorrupt, field, "%d bytes, %d are left", n, r.left())
	}
	if r.err != nil {
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at : r.at]
}

// nullable reads a signed length and as many bytes; length -1 is null.
func (r *reader) nullable(field string) []byte {
	n := r.signed(field, -1, math.MaxInt32)
	if n < 0 {
		return nil
	}
	return r.bytes(field, int(n))
}
