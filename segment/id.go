package segment

import (
	"cmp"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ID names one segment: 100 bits, most significant first:
//
//	43 milliseconds since 1970 · 14 class · 3 place · 40 random
//
// printed as 20 characters of an alphabet whose ASCII order is its numeric order, so that ids sort by time
// as strings too (the table compares them as strings). The zero ID is none.
type ID struct {
	hi uint64 // milliseconds, class, and the upper 7 bits of the rest: the first 64 of the 100 bits
	lo uint64 // the other 36 bits, right-aligned
}

// Place says where a segment's bytes are.
type Place uint8

const (
	InBucket Place = 0 // intake object
	Archived Place = 1 // archive object
	InTable  Place = 2 // a D# item
)

const (
	idLen      = 20
	timeBits   = 43
	classBits  = 14
	placeBits  = 3
	randomBits = 40
	maxMillis  = 1<<timeBits - 1
)

var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewID makes an id for the given time, truncated to milliseconds, with the low 40 bits of random. If that id would not be above
// floor, its time is the millisecond after floor's: a writer may be told a floor that its own clock has not reached.
func NewID(at time.Time, class Class, place Place, random uint64, floor ID) ID {
	ms := min(max(at.UnixMilli(), 0), maxMillis)
	if f := floor.millis(); floor != (ID{}) && ms <= f {
		ms = min(f+1, maxMillis)
	}
	low := uint64(class)<<(placeBits+randomBits) | uint64(place)<<randomBits | random&(1<<randomBits-1) // 57 bits
	return ID{hi: uint64(ms)<<21 | low>>36, lo: low & (1<<36 - 1)}
}

func (id ID) millis() int64 { return int64(id.hi >> 21) }
func (id ID) low() uint64   { return id.hi&(1<<21-1)<<36 | id.lo }

// Time is the time in the id, UTC, to the millisecond.
func (id ID) Time() time.Time { return time.UnixMilli(id.millis()).UTC() }

// Class is the retention class whose prefix the object stands under.
func (id ID) Class() Class { return Class(id.low() >> (placeBits + randomBits)) }

// Place says where the bytes are.
func (id ID) Place() Place { return Place(id.low() >> randomBits & (1<<placeBits - 1)) }

// In is the id with another place, of the same moment and so on the same side of any floor.
func (id ID) In(place Place) ID {
	low := id.low()&^((1<<placeBits-1)<<randomBits) | uint64(place)<<randomBits
	return ID{hi: id.hi>>21<<21 | low>>36, lo: low & (1<<36 - 1)}
}

// Hash is two hexadecimal digits taken from the random part: what spreads objects and items over key ranges.
func (id ID) Hash() string { return fmt.Sprintf("%02x", byte(id.lo)) }

// Less orders ids by time, then by the rest; it agrees with comparing their strings.
func (id ID) Less(o ID) bool { return id.hi < o.hi || id.hi == o.hi && id.lo < o.lo }

// Compare is -1, 0 or 1, by the order of Less.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.hi, o.hi), cmp.Compare(id.lo, o.lo))
}

// IsZero tells whether the id is none.
func (id ID) IsZero() bool { return id == ID{} }

// String is the id's 20 characters. The zero id prints as 20 zeros.
func (id ID) String() string {
	var b [13]byte // 104 bits, of which the last 4 are zero
	for i := range 8 {
		b[i] = byte(id.hi >> (56 - 8*i))
	}
	for i := range 5 {
		b[8+i] = byte(id.lo << 4 >> (32 - 8*i))
	}
	return idEncoding.EncodeToString(b[:])[:idLen]
}

// ParseID reads what String printed. Any other string is ErrBadID.
func ParseID(s string) (ID, error) {
	if len(s) != idLen {
		return ID{}, fmt.Errorf("%w: %q has %d characters, not %d", ErrBadID, clip(s), len(s), idLen)
	}
	b, err := idEncoding.DecodeString(s + "0")
	if err != nil || len(b) != 13 {
		return ID{}, fmt.Errorf("%w: %q has a character outside 0-9a-v", ErrBadID, s)
	}
	var id ID
	for i := range 8 {
		id.hi = id.hi<<8 | uint64(b[i])
	}
	for i := range 5 {
		id.lo = id.lo<<8 | uint64(b[8+i])
	}
	id.lo >>= 4
	if id.Place() > InTable {
		return ID{}, fmt.Errorf("%w: %q is in place %d, known are 0 to %d", ErrBadID, s, id.Place(), InTable)
	}
	return id, nil
}

// Class is a retention class: 0 keeps for ever, n up to MaxClassDays keeps for n days. Its name is the first
// part of every object name, so that one lifecycle rule can name it.
type Class uint16

// Keep is the class whose objects never expire.
const Keep Class = 0

// MaxClassDays is the longest retention that has a class of its own.
const MaxClassDays = 16000

// ClassFor is the class for a retention time: whole days, rounded up, at least one; negative or beyond MaxClassDays is Keep.
func ClassFor(retention time.Duration) Class {
	if retention < 0 {
		return Keep
	}
	const day = 24 * time.Hour
	days := (retention + day - 1) / day
	if days > MaxClassDays {
		return Keep
	}
	return Class(max(days, 1))
}

// String is the class as a folder name: "keep", "r7d".
func (c Class) String() string {
	if c == Keep {
		return "keep"
	}
	return "r" + strconv.Itoa(int(c)) + "d"
}

// ParseClass reads what String printed.
func ParseClass(s string) (Class, error) {
	if s == "keep" {
		return Keep, nil
	}
	if digits, ok := strings.CutPrefix(s, "r"); ok {
		if digits, ok = strings.CutSuffix(digits, "d"); ok {
			if n, err := strconv.Atoi(digits); err == nil && n >= 1 && n <= MaxClassDays && strconv.Itoa(n) == digits {
				return Class(n), nil
			}
		}
	}
	return 0, fmt.Errorf("%w: class %q is neither keep nor r<days>d with 1 to %d days", ErrBadName, clip(s), MaxClassDays)
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
