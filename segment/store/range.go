package store

import "fmt"

// Range is the end of the range [off, off+n), or of [off, size) for n < 0, within an object of size bytes; a
// range that does not lie within it is ErrShort.
func Range(off, n, size int64) (end int64, err error) {
	switch {
	case off < 0 || off > size:
		return 0, fmt.Errorf("%w: it starts at byte %d, the object has %d", ErrShort, off, size)
	case n < 0:
		return size, nil
	case n > size-off:
		return 0, fmt.Errorf("%w: it has %d bytes from %d on, the object has %d", ErrShort, n, off, size)
	}
	return off + n, nil
}
