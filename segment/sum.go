package segment

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Sum is what some records of a partition come to, whatever batches, codecs and objects they are in: how many there are, the sum of their hashes, and the sum of
// their hashes times their offsets, both mod 2^64. Ranges add up, and what is removed is subtracted. Plain tells records that were lost, added or changed,
// Weighted also those that have changed places or offsets. The zero value is that of no records. It finds faults, not forgers: xxHash64 is no secret and bears no attack.
type Sum struct {
	Records         int64
	Plain, Weighted uint64
}

// Plus is the sum of the records of both.
func (s Sum) Plus(o Sum) Sum {
	return Sum{s.Records + o.Records, s.Plain + o.Plain, s.Weighted + o.Weighted}
}

// Minus is the sum of the records of s that are not those of o.
func (s Sum) Minus(o Sum) Sum {
	return Sum{s.Records - o.Records, s.Plain - o.Plain, s.Weighted - o.Weighted}
}

// Shifted is the sum of the same records with offsets that are higher by base.
func (s Sum) Shifted(base int64) Sum {
	s.Weighted += uint64(base) * s.Plain
	return s
}

// String is the text that ParseSum reads: "<records>-<plain>-<weighted>", the latter two in 16 hexadecimal digits.
func (s Sum) String() string { return fmt.Sprintf("%d-%016x-%016x", s.Records, s.Plain, s.Weighted) }

// MarshalText is String.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSum.
func (s *Sum) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSum(string(text))
	return err
}

// ParseSum reads what String writes, and nothing else. The error is ErrCorrupt.
func ParseSum(text string) (s Sum, err error) {
	n, err := fmt.Sscanf(text, "%d-%16x-%16x", &s.Records, &s.Plain, &s.Weighted)
	if err != nil || n != 3 || s.Records < 0 || s.String() != text {
		return Sum{}, fmt.Errorf("%w: sum %q, valid is records-plain-weighted, the latter two in 16 hexadecimal digits", ErrCorrupt, clip(text))
	}
	return s, nil
}

// Summer takes sums of records. The zero value is ready. It keeps memory of the size of the largest record. Not for concurrent use.
type Summer struct{ buf []byte }

// Sum is the sum of one record, with its offset.
func (s *Summer) Sum(r *Record) Sum {
	h := s.hash(r)
	return Sum{1, h, uint64(r.Offset) * h}
}

// hash is the xxHash64, seed 0, of what a reader gets of a record, but for the offset:
//
//	timestamp 8, little-endian · key · value · uvarint headers · for each: uvarint length and bytes of the name · value
//
// where a key or value is the byte 0 if it is null, otherwise uvarint length plus 1, and the bytes.
func (s *Summer) hash(r *Record) uint64 {
	b := binary.LittleEndian.AppendUint64(s.buf[:0], uint64(r.Timestamp))
	b = appendPresent(b, r.Key)
	b = appendPresent(b, r.Value)
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		b = binary.AppendUvarint(b, uint64(len(h.Key)))
		b = append(b, h.Key...)
		b = appendPresent(b, h.Value)
	}
	s.buf = b
	return xxhash.Sum64(b)
}

func appendPresent(b, field []byte) []byte {
	if field == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(field))+1)
	return append(b, field...)
}
