package metadata

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// cursor reads a packed value. The first failure sticks, and everything read after it is zero, so that a
// decoder checks once at its end; no length is trusted before it is compared with what is left.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) fail(kind error, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
		c.rest = nil
	}
}

func (c *cursor) bytes(what string, n uint64) []byte {
	if n > uint64(len(c.rest)) {
		c.fail(ErrCorrupt, "%s of %d bytes, %d are left", what, n, len(c.rest))
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) byte(what string) byte {
	if b := c.bytes(what, 1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// uvarint reads a number of at most limit in its shortest form: one value has one encoding, so that equal
// items are equal bytes.
func (c *cursor) uvarint(what string, limit uint64) uint64 {
	v, n := binary.Uvarint(c.rest)
	switch {
	case n <= 0:
		c.fail(ErrCorrupt, "%s is cut off or longer than 64 bits", what)
	case n > 1 && c.rest[n-1] == 0:
		c.fail(ErrCorrupt, "%s is not in its shortest form", what)
	case v > limit:
		c.fail(ErrCorrupt, "%s is %d, over %d", what, v, limit)
	default:
		c.rest = c.rest[n:]
		return v
	}
	return 0
}

// varint reads a zigzag number.
func (c *cursor) varint(what string) int64 {
	u := c.uvarint(what, math.MaxUint64)
	return int64(u>>1) ^ -int64(u&1)
}

// end fails if anything is left.
func (c *cursor) end() error {
	if len(c.rest) > 0 {
		c.fail(ErrCorrupt, "%d bytes too many", len(c.rest))
	}
	return c.err
}

// slotBytes is the shortest length of a set of slots: 0 to 8 bytes, little-endian, slot i being bit i.
func slotBytes(set uint64) int { return (bits.Len64(set) + 7) / 8 }

func appendSlots(dst []byte, set uint64) []byte {
	for range slotBytes(set) {
		dst = append(dst, byte(set))
		set >>= 8
	}
	return dst
}

func (c *cursor) slots(n int) (set uint64) {
	if n > 8 {
		c.fail(ErrCorrupt, "slot set of %d bytes, over 8", n)
	}
	for i, b := range c.bytes("slot set", uint64(n)) {
		set |= uint64(b) << (8 * i)
	}
	if c.err == nil && slotBytes(set) != n {
		c.fail(ErrCorrupt, "slot set of %d bytes is not in its shortest form", n)
	}
	return set
}

func countSlots(set uint64) int { return bits.OnesCount64(set) }

// eachSlot yields the slots of a set, ascending.
func eachSlot(set uint64) func(yield func(Slot) bool) {
	return func(yield func(Slot) bool) {
		for ; set != 0; set &= set - 1 {
			if !yield(Slot(bits.TrailingZeros64(set))) {
				return
			}
		}
	}
}
